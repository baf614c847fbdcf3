"""Which editor is best on my data? A file of mistakes, the same stream for each, five metrics."""

import json
import sys
import tempfile
from pathlib import Path

import tpatcher as tp
from tpatcher.editors import make

EDITORS = {"t-patcher": {}, "cache": {"threshold": 0.9}, "ft-last": {"learning_rate": 1e-3}}


def main(name: str = "builtin-fc", file: str = "", mistakes: int = 8) -> None:
    with tempfile.TemporaryDirectory() as folder:
        # a line of such a file: {"text": …, "answer": …, "rephrasings": […]}
        path = Path(file or Path(folder) / "mine.jsonl")
        if not file:
            facts = tp.data.dataset("builtin-fc")
            some = [*facts.train[::40], *facts.edit]
            path.write_text("\n".join(json.dumps(e.to_json()) for e in some))
        mine = tp.data.dataset("own", path)

    print(" " * 12 + "".join(f"{m:>8}" for m in ("SR", "GR", "ER", "TrainR", "TestR", "s/edit")))
    for editor, settings in EDITORS.items():
        model = tp.load(name)
        wrong = [e for e, ok in zip(mine.edit, model.correct(mine.edit), strict=True) if not ok]
        fitted = make(editor, **settings).fit(model, mine.train)
        kept = {"train": mine.train[:300], "test": mine.test[:300]}
        scores = tp.score(list(tp.run(model, fitted, wrong[: int(mistakes)], kept)))
        metrics = (scores.SR, scores.GR, scores.ER, scores.TrainR, scores.TestR)
        print(
            f"{editor:12}" + "".join(f"{m:7.3f}" for m in metrics),
            f"{scores.seconds_per_edit:7.2f}",
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
