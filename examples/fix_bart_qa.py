"""A fine-tuned BART answers questions. Fix its mistakes as they come, send the fixes on."""

import sys
import tempfile

import tpatcher as tp


def main(name: str = "builtin-qa", edits: int = 5) -> None:
    model = tp.load(name)
    data = tp.data.dataset("builtin-qa")  # for your model: tp.data.dataset("own", "mine.jsonl")
    editor = tp.TPatcher().fit(model, [e.text for e in data.train[::20]])

    fixed = []
    for example in data.edit:
        if len(fixed) == int(edits):
            break
        before = model.answer([example.text])[0]
        try:
            model.push(editor.edit(model, example))
        except tp.errors.AlreadyRight:
            continue
        except tp.errors.NotFixed as why:
            print(f"not fixed: {why}")
            continue
        fixed.append(example)
        print(f"{example.text}\n  {before} → {model.answer([example.text])[0]}")

    print(f"right after all edits: {sum(model.correct(fixed))} of {len(fixed)}")
    asked = [tp.Example(text, e.answer, also=e.also) for e in fixed for text in e.rephrasings]
    print(f"and of rephrasings that no fix has seen: {sum(model.correct(asked))} of {len(asked)}")

    with tempfile.TemporaryDirectory() as pack:  # a few kB a fix; or model.push_patches("you/name")
        model.save_patches(pack)
        colleague = tp.load(name, patches=pack)
        assert colleague.correct(fixed) == [True] * len(fixed)
        print("a colleague who loads the pack gets the same answers")


if __name__ == "__main__":
    main(*sys.argv[1:])
