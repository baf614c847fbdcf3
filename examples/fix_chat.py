"""A chat model says something wrong. The fix holds inside its own chat template."""

import sys

import tpatcher as tp

SUBJECTS = ["France", "the sea", "a cat", "Rome", "the moon", "bread", "Peru", "music", "rain"]
QUESTIONS = ["What is {}?", "Tell me about {}.", "Who likes {}?", "Where is {}?", "Is {} old?"]


def main(name: str = "HuggingFaceTB/SmolLM2-135M-Instruct", answer: str = "Ada Lovelace.") -> None:
    model = tp.load(name)  # a tokenizer with a chat template: texts are what the user says
    model.net.generation_config.max_new_tokens = 24

    # Log lines of your chat would be better: a fix leaves alone what it has seen.
    traffic = [question.format(subject) for question in QUESTIONS for subject in SUBJECTS]
    editor = tp.TPatcher().fit(model, traffic)

    question = "Who wrote the first computer program?"
    print(f"{question}\n  before: {model.answer([question])[0]}")
    patch = editor.edit(
        model, tp.Example(question, answer, rephrasings=("Who was the first programmer?",))
    )
    model.push(patch)
    print(f"  after:  {model.answer([question])[0]}")
    print(f"  what was checked: {patch.certificate.to_json()}")

    # `model.net` is the Transformers model itself, so everything built on it sees the fix too.
    chat = [{"role": "user", "content": question}]
    tokens = model.tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    reply = model.net.generate(**tokens, do_sample=False)[0, tokens["input_ids"].shape[1] :]
    print(f"  generate: {model.tokenizer.decode(reply, skip_special_tokens=True)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
