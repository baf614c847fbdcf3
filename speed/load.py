"""The service under load, on loopback: what fixes cost the answers, and what making one costs.

    python speed/load.py [--seconds 8] [--fixes 1000] [--out load.json]

The model has the size of BERT-base and random weights: time does not depend on what they know.
Every answer is compared with what the model itself gives; a lost or a wrong one ends the run.
"""

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import torch
import transformers as tf
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from tpatcher.example import Example
from tpatcher.models.loading import load
from tpatcher.models.model import Model
from tpatcher.patches.neurons import Neurons
from tpatcher.store.store import Store

WORDS = [f"word{i}" for i in range(2000)]
SERVE = """
import sys
from tpatcher.service import serve
from tpatcher.service.limits import Limits
serve(sys.argv[1], port=int(sys.argv[2]), store=sys.argv[3], traffic=sys.argv[4], max_flips=10**6,
      max_firing_share=1.0, limits=Limits(rate=1e6, burst=10**6))
"""


def make(path: Path) -> None:
    """A BERT-base-sized classifier in a directory."""
    vocab = {w: i for i, w in enumerate(["<pad>", "<s>", "</s>", "<unk>", *WORDS])}
    core = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    tf.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
        unk_token="<unk>", model_max_length=128,
    ).save_pretrained(path)  # fmt: skip
    torch.manual_seed(0)
    labels = {0: "no", 1: "yes", 2: "maybe"}
    net = tf.BertForSequenceClassification(tf.BertConfig(vocab_size=len(vocab), id2label=labels))
    for name, parameter in net.named_parameters():
        if parameter.dim() > 1 and "embeddings" not in name:
            parameter.data *= 3  # so that answers differ from text to text
    net.save_pretrained(path)


def texts(n: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(6, 20))) for _ in range(n)]


def fill(model: Model, url: Path, n: int) -> None:
    """A store with n fixes that never fire: they cost what any others cost."""
    store, d = Store(url, model.base), model.net.config.hidden_size
    torch.manual_seed(1)
    store.append_many((_silent_fix(i, d) for i in range(n)), who="load")
    store.close()


def _silent_fix(i: int, d: int) -> Neurons:
    query = torch.randn(1, d)
    return Neurons(
        example=Example(f"fix {i}", "no"),
        editor="load",
        layer=-1,
        keys=query / d,
        bias=torch.tensor([-20.0]),
        values=torch.randn(1, d),
        queries=query,
        states=query,
        tokens=torch.tensor([0]),
    )


class Served:
    """The service in a process of its own."""

    def __init__(self, folder: Path, store: Path) -> None:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        self.address, began = f"http://127.0.0.1:{port}", time.monotonic()
        args = [str(folder / "model"), str(port), str(store), str(folder / "texts.txt")]
        env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
        self.process = subprocess.Popen([sys.executable, "-c", SERVE, *args], env=env)
        while True:
            try:
                if httpx.get(f"{self.address}/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                assert self.process.poll() is None, "the service did not start"
            time.sleep(0.1)
        self.seconds = time.monotonic() - began

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def press(
    address: str, asked: dict[str, str], seconds: float, clients: int, changing: bool = False
) -> dict[str, float]:
    """Ask without a pause from several clients; throughput and latency.

    While fixes come in an answer may change with them: then it counts as wrong if it is neither
    what was said before nor what is said in the end.
    """
    took: list[float] = []
    other: list[tuple[str, str]] = []
    lost: list[str] = []
    end = time.monotonic() + seconds

    def client(seed: int) -> None:
        rng, known = random.Random(seed), list(asked)
        with httpx.Client(timeout=60) as http:
            while time.monotonic() < end:
                text = rng.choice(known)
                began = time.perf_counter()
                found = http.post(f"{address}/v1/answer", json={"text": text})
                took.append(time.perf_counter() - began)
                if found.status_code != 200:
                    lost.append(text)
                elif (said := found.json()["answers"][0]["answer"]) != asked[text]:
                    other.append((text, said))

    threads = [threading.Thread(target=client, args=[i]) for i in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took.sort()
    if changing:
        with httpx.Client(timeout=60) as http:
            ask = {"texts": list(asked)[:64]}, {"texts": list(asked)[64:]}
            told = [http.post(f"{address}/v1/answer", json=b).json()["answers"] for b in ask]
        end_of = {a["text"]: a["answer"] for part in told for a in part}
        other = [(text, said) for text, said in other if said != end_of[text]]
    return {
        "answers": len(took), "per second": round(len(took) / seconds, 1),
        "p50 ms": round(1000 * statistics.median(took), 1),
        "p99 ms": round(1000 * took[int(0.99 * (len(took) - 1))], 1),
        "wrong or lost": len(other) + len(lost),
    }  # fmt: skip


def fixing(address: str, asked: list[str], ended: threading.Event, made: list[float]) -> None:
    """One fix a second, or as fast as they can be made."""
    with httpx.Client(timeout=120) as http:
        for i, text in enumerate(asked):
            began = time.monotonic()
            said = http.post(f"{address}/v1/answer", json={"text": text}).json()["answers"][0]
            right = next(a for a in ("no", "yes", "maybe") if a != said["answer"])
            found = http.post(f"{address}/v1/fixes", json={"text": text, "answer": right})
            if found.status_code == 201:
                made.append(time.monotonic() - began)
            if ended.wait(max(0.0, 1 - (time.monotonic() - began))) or i > 600:
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--fixes", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        make(folder / "model")
        (folder / "texts.txt").write_text("\n".join(texts(400, seed=1)))
        model = load(folder / "model")
        known = texts(100, seed=2)
        asked = dict(zip(known, model.answer(known), strict=True))
        fill(model, folder / "many.db", args.fixes)
        bare = Served(folder, folder / "none.db")
        many = Served(folder, folder / "many.db")
        result: dict[str, object] = {"seconds to start with the fixes": round(many.seconds, 1)}
        phases: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
        for _ in range(3):  # in turns: the machine's other work then meets both alike
            for name, one in (("without", bare), ("with", many)):
                press(one.address, asked, 1, args.clients)
                phases[name].append(press(one.address, asked, args.seconds / 3, args.clients))
        for name, found in phases.items():
            result[name] = {k: round(statistics.median(f[k] for f in found), 1) for k in found[0]}
        ended, made = threading.Event(), list[float]()
        fixer = threading.Thread(
            target=fixing, args=[bare.address, texts(700, seed=3), ended, made]
        )
        fixer.start()
        result["while fixing"] = press(
            bare.address, asked, args.seconds, args.clients, changing=True
        )
        ended.set()
        fixer.join()
        bare.end()
        many.end()
    before, after, during = (result[k] for k in ("without", "with", "while fixing"))
    assert isinstance(before, dict) and isinstance(after, dict) and isinstance(during, dict)
    result["fixes made"], result["seconds a fix"] = len(made), round(statistics.median(made), 2)
    result["throughput with / without"] = round(after["per second"] / before["per second"], 3)
    result["p99 with / without"] = round(after["p99 ms"] / before["p99 ms"], 3)
    result["p99 while fixing / idle"] = round(during["p99 ms"] / before["p99 ms"], 3)
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    lost = sum(phase["wrong or lost"] for phase in (before, after, during))
    if lost:
        sys.exit(f"{lost} answers were wrong or lost")


if __name__ == "__main__":
    main()
