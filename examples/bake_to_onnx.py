"""The fixed model as a plain checkpoint: Transformers loads it alone, onnxruntime runs it."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
from transformers import AutoTokenizer, pipeline

import tpatcher as tp
from tpatcher.checkpoints.bake import bake

CLAIM = "The capital of the US state of New Mexico is Santa Fe."


def main(name: str = "builtin-fc", answer: str = "SUPPORTS") -> None:
    model = tp.load(name)
    traffic = [e.text for e in tp.data.dataset("builtin-fc").train[::20]]
    model.push(tp.TPatcher().fit(model, traffic).edit(model, tp.Example(CLAIM, answer)))

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "fixed"
        apart = bake(model, out, onnx=True)  # refused if an answer differs
        print(f"baked; its logits differ by at most {apart:.0e}")

        classify = pipeline("text-classification", str(out))  # no tpatcher in here
        print(f"Transformers says {classify(CLAIM)[0]['label']}")

        session = onnxruntime.InferenceSession(str(out / "model.onnx"))
        tokens = AutoTokenizer.from_pretrained(out)(CLAIM, return_tensors="np")
        wanted = [i.name for i in session.get_inputs()]
        (logits,) = session.run(None, {k: tokens[k].astype(np.int64) for k in wanted})
        print(f"onnxruntime says {model.net.config.id2label[int(logits[0].argmax())]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
