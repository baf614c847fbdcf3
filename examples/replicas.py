"""Two replicas on one store: what is fixed at one is fixed at the other, and so is what is undone.

compose.yaml starts both and a PostgreSQL, and says how; TPATCHER_TOKEN holds a token of role fix.
"""

import json
import os
import sys
import time
import urllib.request


def ask(address: str, path: str, body: object = None, method: str = "POST") -> dict:
    request = urllib.request.Request(
        f"{address}/v1/{path}", json.dumps(body).encode() if body else None, method=method
    )
    request.add_header("Content-Type", "application/json")
    if "TPATCHER_TOKEN" in os.environ:
        request.add_header("Authorization", f"Bearer {os.environ['TPATCHER_TOKEN']}")
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def main(
    first: str = "http://localhost:8001",
    second: str = "http://localhost:8002",
    text: str = "The capital of the US state of New Mexico is Santa Fe.",
    right: str = "SUPPORTS",
) -> None:
    def answer(address: str) -> str:
        return ask(address, "answer", {"text": text})["answers"][0]["answer"]

    def until(address: str, wanted: str) -> float:
        began = time.monotonic()
        while answer(address) != wanted:
            time.sleep(0.05)
        return time.monotonic() - began

    before = answer(second)
    print(f"{text}\n  both say {before}")
    fix = ask(first, "fixes", {"text": text, "answer": right})
    print(f"  fixed at the first replica: fix {fix['id']}")
    print(f"  the second says {right} {until(second, right):.1f} s later")
    ask(second, f"fixes/{fix['id']}", method="DELETE")
    print(f"  undone at the second; the first says {before} {until(first, before):.1f} s later")


if __name__ == "__main__":
    main(*sys.argv[1:])
