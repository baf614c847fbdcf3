"""What jobs share: the stream, the memory, and the answers of the initial model."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench import tiny
from tpatcher.bench.context import Context
from tpatcher.bench.job import Job
from tpatcher.bench.rows import FAST
from tpatcher.bench.setup import Setup
from tpatcher.bench.table import FIRST, jobs
from tpatcher.editors.tpatcher import TPatcher
from tpatcher.editors.tpatcher.memory import Memory
from tpatcher.errors import BadInput, Damaged


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    return tiny.setup(tmp_path_factory.mktemp("bert"), "bert")


@pytest.fixture(scope="module")
def job(setup: Setup) -> Job:
    return jobs(FAST, setup, tiny.SCALE, FIRST)[0]


def test_a_stream_ends_with_its_last_mistake(job: Job, tmp_path: Path) -> None:
    context = Context.open(job, tmp_path)
    stream, mistakes = context.stream(job)
    right = context.model.correct(stream)
    assert right.count(False) == mistakes == 2
    assert not right[-1]
    whole, mistakes = context.stream(replace(job, edits=None))
    assert whole[: len(stream)] == stream
    assert len(whole) == 6
    assert mistakes == context.model.correct(whole).count(False)
    only, mistakes = context.stream(replace(job, edits=None, demo=True))
    assert len(only) == mistakes == context.model.correct(only).count(False)


def test_a_context_serves_the_jobs_on_its_model_and_data(job: Job, tmp_path: Path) -> None:
    context = Context.open(job, tmp_path)
    same = replace(job, editor="ft-all", fields={}, folder=1, edits=None)
    assert same.context == context.job
    assert replace(job, memory_size=9).context != context.job
    assert replace(job, extra_from_test=1).context != context.job


def test_traffic_joins_the_memory_and_nothing_that_is_measured(job: Job, tmp_path: Path) -> None:
    context = Context.open(job, tmp_path)
    assert context.traffic == []
    split = context.split
    measured = [*(e.text for e in [*split.edit, *split.test]), *split.edit[0].rephrasings]
    (tmp_path / "a.txt").write_text("\n".join([*measured, "one", "two", "two"]))
    (tmp_path / "b.jsonl").write_text(
        '{"question": "three"}\n{"question": "four"}\n{"claim": "one"}'
    )
    job = replace(job, traffic=(tmp_path / "a.txt", tmp_path / "b.jsonl"))
    with pytest.raises(BadInput, match="no room for traffic"):
        Context.open(job, tmp_path)
    job = replace(job, memory_size=200)
    context = Context.open(job, tmp_path)
    assert sorted(context.traffic[:2]) == ["one", "two"]  # of the first file first
    assert sorted(context.traffic[2:]) == ["four", "three"]
    context.fitted(job)
    [kept] = tmp_path.glob("memory-*")
    assert Memory.load(kept).texts == [*(e.text for e in context.memory), *context.traffic]
    with pytest.raises(BadInput, match="ft-all keeps no memory"):
        context.fitted(replace(job, editor="ft-all", fields={}))


def test_d_val_tells_the_papers_solver_when_to_stop(job: Job, tmp_path: Path) -> None:
    context = Context.open(job, tmp_path)
    val = [*context.split.test[:5]]
    context.split = replace(context.split, val=val)
    found = []
    for name in ("paper", "fast"):
        editor = context.fitted(replace(job, fields={"solver": {"name": name}}))
        assert isinstance(editor, TPatcher) and editor.memory is not None
        found.append(editor.memory)
    paper, fast = found
    assert paper.held_out is not None and len(paper.held_out) == len(val)
    assert paper.split == len(paper) == len(context.memory)
    assert fast.held_out is None


def test_a_solver_that_reads_the_text_gets_a_memory_that_does(job: Job, tmp_path: Path) -> None:
    context = Context.open(job, tmp_path)
    widths = []
    for reads in ("position", "text"):
        editor = context.fitted(replace(job, fields={"solver": {"name": "fast", "reads": reads}}))
        assert isinstance(editor, TPatcher) and editor.memory is not None
        widths.append(editor.memory.width)
    assert widths[1] > widths[0]


def test_trained_editors_learn_from_all_training_data_but_d_tr(job: Job, tmp_path: Path) -> None:
    context = Context.open(replace(job, memory_size=4), tmp_path)
    kept = {e.text for e in context.retained["train"].examples}
    texts = {e.text for e in context.lessons}
    assert len(context.memory) == 4 < len(texts)
    assert texts | kept == {e.text for e in context.split.train}
    assert not texts & kept


def test_answers_of_f0_are_kept_and_found_again(job: Job, tmp_path: Path) -> None:
    first = Context.open(job, tmp_path)
    files = sorted(tmp_path.glob("paths-*"))
    assert len(files) == 2
    again = Context.open(job, tmp_path)
    model = first.model.twin()
    model.push(first.fitted(job).edit(model, first.stream(job)[0][-1]))
    for name, answers in first.retained.items():
        assert again.retained[name].targets == answers.targets
        assert (
            again.retained[name].right_before
            == answers.right_before
            == first.model.correct(answers.examples)
        )
        assert again.retained[name].correct(model) == answers.correct(model)
    files[0].write_bytes(b"half of it")
    with pytest.raises(Damaged, match="remove it"):
        Context.open(job, tmp_path)
