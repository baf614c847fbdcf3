"""Pack the complete jobs of a reproduction, without the texts of its data.

python docs/runs/pack.py runs/fever docs/runs/fever.tar.gz
"""

import io
import json
import sys
import tarfile
from pathlib import Path

from tpatcher.bench.job import SCORES
from tpatcher.files import write_atomic

WORDS = ("text", "answer", "before")  # of a step: what is the data's own


def without_words(steps: str) -> bytes:
    """The lines of a log, its words emptied."""
    header, *lines = (json.loads(line) for line in steps.splitlines())
    kept = [{k: "" if k in WORDS else v for k, v in line.items()} for line in lines]
    return "".join(json.dumps(line) + "\n" for line in [header, *kept]).encode()


def main(out: Path, packed: Path) -> None:
    """Scores and steps of every job that is complete, in order, each with the same date."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz", compresslevel=9) as tar:
        for job in sorted(p.parent for p in (out / "jobs").glob(f"*/{SCORES}")):
            steps = without_words((job / "steps.jsonl").read_text())
            for name, data in ((SCORES, (job / SCORES).read_bytes()), ("steps.jsonl", steps)):
                about = tarfile.TarInfo(f"jobs/{job.name}/{name}")
                about.size = len(data)
                tar.addfile(about, io.BytesIO(data))
    write_atomic(packed, held.getvalue())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
