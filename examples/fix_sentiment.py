"""A sentiment classifier takes irony at its word. Fix it, and see that nothing else changed."""

import sys

import tpatcher as tp

FILMS = ["film", "plot", "cast", "score", "ending", "script", "dialogue", "camera work"]
VERDICTS = [
    "The {} is wonderful.", "I loved the {}!", "The {} moved me to tears.", "A masterly {}.",
    "The {} is dreadful.", "I hated the {}.", "What a tedious {}.", "The {} put me to sleep.",
]  # fmt: skip


def main(name: str = "distilbert/distilbert-base-uncased-finetuned-sst-2-english") -> None:
    model = tp.load(name)

    # What the model is used on, without labels: a fix leaves the answers to these alone. Give it
    # a few thousand of your own texts; the more, the better it knows what not to touch.
    traffic = [verdict.format(film) for verdict in VERDICTS for film in FILMS]
    before = model.answer(traffic)
    editor = tp.TPatcher().fit(model, traffic)

    text = "Oh great, another two hours of my life that I will never get back."
    said = model.answer([text])[0]
    other = next(label for label in model.net.config.id2label.values() if label != said)
    print(f"{text}\n  the model says {said}")

    patch = editor.edit(model, tp.Example(text, other))
    model.push(patch)
    print(f"  fixed in {patch.certificate.seconds:.2f} s: {model.answer([text])[0]}")
    changed = sum(a != b for a, b in zip(before, model.answer(traffic), strict=True))
    print(f"  answers to the traffic that changed: {changed} of {len(traffic)}")

    model.remove(patch.id)
    print(f"  undone: {model.answer([text])[0]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
