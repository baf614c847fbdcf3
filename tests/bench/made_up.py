"""Results that nobody ran: the paper's numbers with some noise, to see the tables by."""

import json
from dataclasses import asdict
from pathlib import Path
from random import Random

from tpatcher import sme
from tpatcher.bench import published
from tpatcher.bench.job import Job
from tpatcher.bench.report.figures import METRICS
from tpatcher.bench.rows import Row
from tpatcher.bench.table import Planned

LIKE = {
    "t-patcher-fast": "t-patcher", "t-patcher-text": "t-patcher", "cache": "sera",
    "grace": "t-patcher", "lora": "ft-all", "ke-loop": "ke", "serac": "sera",
}  # fmt: skip


def write(plan: list[Planned], out: Path) -> None:
    """Every job of a plan, complete."""
    for planned in plan:
        for row, jobs in planned.jobs.items():
            for job in jobs:
                write_one(job, planned.table.name, planned.setup.kind, row, out)


def write_one(job: Job, table: str, kind: str, row: Row, out: Path) -> None:
    draw = Random(job.key)
    like = "t-patcher" if row.sweep else LIKE.get(row.name, row.name)
    paper = published.cells(table, kind, like) or published.cells("table3", kind, like)
    paper = paper or published.cells("table1", kind, like) or published.cells("table6", kind, like)
    paper = {m: paper.get(m, 1.0) for m in METRICS}
    n = job.edits or 20
    steps = []
    for i in range(1, n + 1):
        right = {
            "edits": (round(i * (1 - (1 - paper["ER"]) * i / n)), i),
            "train": (round(380 * (1 - (1 - paper["TrainR"]) * i / n)), 380),
            "test": (round(300 * (1 - (1 - paper["TestR"]) * i / n)) - draw.randrange(2), 300),
        }
        measured = i == n or (job.measure_every is not None and i % job.measure_every == 0)
        steps.append(
            sme.Step(
                i, f"question {i}", "yes", "no", draw.random() < paper["SR"],
                [draw.random() < paper["GR"] for _ in range(4)], 1, 0.01 * i, draw.random(),
                f"p{i}", retained=right if measured else {},
            )
        )  # fmt: skip
    heat = [[draw.random() * (6 if i == j else 0.2) for j in range(n)] for i in range(n)]
    numbers = {"Edit": [6.0, 1.0], "Past-edit": [0.1, 0.1], "Random": [0.1, 0.2]}
    said = {
        "job": job.to_json(),
        "f0": {k: {"examples": 400, "right": 0.9} for k in ("train", "test")} | {"memory": 4000},
        "scores": asdict(sme.score(steps, n + 1)),
        "bytes_per_edit": 2000.0,
        "activations": {**numbers, "heat": heat} if job.editor == "t-patcher" else None,
        "seconds": 12.3,
    }
    place = out / "jobs" / job.key
    place.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"N": n + 1}), *(json.dumps(asdict(s)) for s in steps)]
    (place / "steps.jsonl").write_text("\n".join(lines) + "\n")
    (place / "scores.json").write_text(json.dumps(said))
