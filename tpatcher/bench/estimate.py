"""How long a job takes, roughly: what its like took on one core with the built-in models."""

from tpatcher.bench import published
from tpatcher.bench.job import Job
from tpatcher.bench.runner import Work

# seconds per edit: fact checking, question answering
PER_EDIT = {
    "ft-last": (0.4, 0.3), "ft-all": (0.3, 0.3), "ft-last-kl": (0.8, 0.7), "ft-all-kl": (0.8, 0.7),
    "grace": (0.7, 1.4), "lora": (0.4, 0.3), "mend": (0.1, 0.1), "ke": (0.2, 0.3),
    "sera": (0.1, 0.1), "fast": (0.2, 0.2), "paper": (4.0, 4.0), "kl-patch": (1.2, 10.0),
}  # fmt: skip
PER_FIT = {"mend": 240, "ke": 360, "sera": 90, "t-patcher": 8}
PER_ANSWER = (0.0007, 0.004)  # where the model has to be run to see what it retains
OTHER_MODELS = 10  # times as slow as the built-in ones, as they are of the size of BERT
LAST_LAYER = 4  # times as fast as another layer


def seconds(work: Work) -> float:
    """An estimate for one core."""
    job, qa = work.job, work.kind == "qa"
    factor = 1 if job.model.startswith("builtin-") else OTHER_MODELS
    if work.only_fit:
        return factor * PER_FIT.get(job.editor, 10)
    n = edits(work)
    measured = 1 + (n // job.every if job.every else 0)
    cached = job.editor == "t-patcher" and job.fields.get("layer", -1) == -1
    answers = 0 if cached else measured * (job.tr + min(job.test or job.tr, 10_000))
    return factor * (2 + n * per_edit(job)[qa] + answers * PER_ANSWER[qa])


def edits(work: Work) -> int:
    """How many edits a job makes, if it is like the paper's."""
    job, kind = work.job, work.kind
    if job.edits is not None:
        return job.edits
    if job.folders:
        return int(published.numbers()["text"]["mistakes per folder"][kind])
    return int(published.cells("table7", kind, "t-patcher")["N"])


def per_edit(job: Job) -> tuple[float, ...]:
    if job.editor != "t-patcher":
        return PER_EDIT[job.editor]
    kind = "kl-patch" if job.fields.get("kl_patch") else job.fields.get("preset", "fast")
    slower = 1 if job.fields.get("layer", -1) == -1 else LAST_LAYER
    return tuple(slower * s for s in PER_EDIT[kind])
