"""Training f0, the model that is to be edited, with Transformers' own Trainer.

`train` fine-tunes a base model as De Cao et al. (2021) did for the paper's two tasks (see
`tpatcher.checkpoints.recipes`), and keeps the epoch that is best on D_val (the last if the data
have none). Run again with the same folder it goes on from the last checkpoint; the folder appears
only when its model is complete. `tpatcher.checkpoints.builtin` trains the two models of the package
the same way.
"""

import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tpatcher.checkpoints.recipes import FEVER, ZSRE, Recipe
from tpatcher.data.split import Split
from tpatcher.errors import BadInput
from tpatcher.example import Example, matches

TaskName = Literal["classify", "seq2seq"]
Row = dict[str, Any]
Collate = Callable[[list[Row]], Any]
TEMPERATURE = 0.1


def train(
    base: str | Path,
    split: Split,
    task: TaskName,
    out: Path,
    *,
    recipe: Recipe | None = None,
    progress: bool = True,
    device: str | None = None,
) -> Path:
    """Fine-tune a base model, a folder or a hub name, on a split's training part.

    `device` is cpu or cuda; if it is not given, a GPU that is there is used.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(base, trust_remote_code=False)
    net: PreTrainedModel
    if task == "classify":
        labels = sorted({e.answer for e in split.train})
        net = transformers.AutoModelForSequenceClassification.from_pretrained(
            base,
            num_labels=len(labels),
            id2label=dict(enumerate(labels)),
            label2id={label: i for i, label in enumerate(labels)},
            trust_remote_code=False,
        )
    else:
        net = transformers.AutoModelForSeq2SeqLM.from_pretrained(base, trust_remote_code=False)
    recipe = recipe or (FEVER if task == "classify" else ZSRE)
    return fit(net, tokenizer, split, out, recipe, progress, device)


def fit(
    net: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    split: Split,
    out: Path,
    recipe: Recipe,
    progress: bool = True,
    device: str | None = None,
) -> Path:
    """Train a net and save it with its tokenizer; `out` must be new or empty."""
    _check_device(device)
    if out.exists() and any(out.iterdir()):
        raise BadInput(f"{out} is not empty; give a new folder, or remove what is in it")
    work = _work_dir(out, recipe)
    seq2seq = net.config.is_encoder_decoder
    rows = _encode(net, tokenizer, split.train, recipe.length)
    checks = _encode(net, tokenizer, split.val, recipe.length) if recipe.pick_best else []
    collate: Collate = (
        transformers.DataCollatorForSeq2Seq(tokenizer, net)
        if seq2seq
        else transformers.DataCollatorWithPadding(tokenizer)
    )
    net.config.output_hidden_states = recipe.agreement > 0
    arguments = transformers.Seq2SeqTrainingArguments(
        output_dir=str(work),
        num_train_epochs=recipe.epochs,
        max_steps=recipe.updates or -1,
        learning_rate=recipe.rate,
        per_device_train_batch_size=recipe.batch,
        per_device_eval_batch_size=recipe.batch,
        weight_decay=recipe.weight_decay,
        warmup_steps=recipe.warmup,
        max_grad_norm=recipe.clip,
        label_smoothing_factor=recipe.smoothing,
        seed=recipe.seed,
        train_sampling_strategy="group_by_length" if recipe.group_by_length else "random",
        save_strategy="epoch",
        save_total_limit=1,
        eval_strategy="epoch" if checks else "no",
        load_best_model_at_end=bool(checks),
        metric_for_best_model="accuracy" if checks else None,
        predict_with_generate=seq2seq,
        generation_num_beams=1,
        dataloader_pin_memory=False,
        disable_tqdm=not progress,
        report_to="none",
        remove_unused_columns=not recipe.agreement,
        use_cpu=device == "cpu",
    )
    arguments._n_gpu = min(1, arguments.n_gpu)  # on several the batch would be so many times larger
    trainer = transformers.Seq2SeqTrainer(
        net,
        arguments,
        train_dataset=rows,
        eval_dataset=checks or None,
        processing_class=tokenizer if seq2seq else None,
        data_collator=_paired(rows, collate) if recipe.agreement else collate,
        compute_loss_func=_loss(recipe),
        compute_metrics=partial(accuracy, tokenizer) if checks else None,
    )
    trainer.train(resume_from_checkpoint=_checkpoint(work))
    net.config.output_hidden_states = False
    if recipe.from_scratch and seq2seq:
        _revive_unused_tokens(net, tokenizer, rows)
    saving = work / "finished"
    shutil.rmtree(saving, ignore_errors=True)
    save(net, tokenizer, saving, half=recipe.store_half)
    os.replace(saving, out)
    shutil.rmtree(work)
    return out


def _check_device(device: str | None) -> None:
    if device not in (None, "cpu", "cuda"):
        raise BadInput(
            f"training runs on cpu or cuda, the first GPU that it sees; found {device!r}: "
            "choose one of several by CUDA_VISIBLE_DEVICES"
        )
    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("cuda was asked for, but torch sees no GPU here: give cpu, or no device")


def _loss(recipe: Recipe) -> Callable[..., Tensor] | None:
    """The loss of a recipe that has one of its own; others have the model's."""
    if recipe.agreement:
        return partial(agreement_loss, recipe)
    return partial(entropy_loss, recipe) if recipe.entropy else None


def entropy_loss(
    recipe: Recipe, outputs: Any, labels: Tensor, num_items_in_batch: object = None
) -> Tensor:
    """Cross-entropy less some of the labels' entropy, so that no label gets all (De Cao et al.)."""
    logs = outputs.logits.log_softmax(-1)
    entropy = -(logs.exp() * logs).sum(-1).mean()
    return F.nll_loss(logs, labels) - recipe.entropy * entropy


def accuracy(
    tokenizer: PreTrainedTokenizerBase, seen: transformers.EvalPrediction
) -> dict[str, float]:
    """The share of right labels, or of answers generated word for word."""
    found, right = seen.predictions, seen.label_ids
    if found.ndim == right.ndim + 1:  # logits of labels
        return {"accuracy": float((found.argmax(-1) == right).mean())}
    said, wanted = (
        tokenizer.batch_decode(
            np.where(tokens < 0, tokenizer.pad_token_id, tokens), skip_special_tokens=True
        )
        for tokens in (found, right)
    )
    hits = [matches(one, [other]) for one, other in zip(said, wanted, strict=True)]
    return {"accuracy": sum(hits) / len(hits)}


def _paired(rows: list[Row], collate: Collate) -> Collate:
    """A collator that appends to each batch a rephrasing of each of its rows."""

    def both(batch: list[Row]) -> Any:
        others = [rows[random.choice(row["others"])] for row in batch]
        return collate([{k: row[k] for k in ("input_ids", "labels")} for row in (*batch, *others)])

    return both


def agreement_loss(
    recipe: Recipe, outputs: Any, labels: Tensor, num_items_in_batch: object = None
) -> Tensor:
    """Cross-entropy plus a loss that draws an example's hidden state to its rephrasing's.

    InfoNCE: a softmax over the cosines in a batch, at every answer position. Examples that the
    model does not know then have similar states in other words too, so that a patch covers them.
    The second half of the batch rephrases the first.
    """
    logits = outputs.logits.flatten(0, -2)
    loss = F.cross_entropy(logits, labels.flatten(), label_smoothing=recipe.smoothing)
    states, answers = (
        (outputs.decoder_hidden_states[-1][:, 1:], labels[:, 1:])  # the first only emits <s>
        if labels.dim() == 2
        else (outputs.hidden_states[-1][:, 0], labels)
    )
    halves = zip(states.chunk(2), answers.chunk(2), strict=True)
    one, two = (F.normalize(state[answer >= 0], dim=-1) for state, answer in halves)
    alike = one @ two.T / TEMPERATURE
    same = torch.arange(len(alike), device=alike.device)
    agreement = F.cross_entropy(alike, same) + F.cross_entropy(alike.T, same)
    return loss + recipe.agreement * agreement


def save(
    net: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, half: bool
) -> None:
    """Write a net and its tokenizer, as float16 if `half`; the config keeps float32."""
    state = net.state_dict()
    if half:
        halves = {v.data_ptr(): v.half() for v in state.values() if v.is_floating_point()}
        state = {k: halves.get(v.data_ptr(), v) for k, v in state.items()}  # tied stay tied
    net.save_pretrained(folder, state_dict=state)
    tokenizer.save_pretrained(folder)


def _work_dir(out: Path, recipe: Recipe) -> Path:
    """The folder of the checkpoints, beside `out`; `BadInput` if another recipe began it."""
    work = out.with_name(f".{out.name}.training")
    work.mkdir(parents=True, exist_ok=True)
    noted = work / "recipe.json"
    if noted.exists() and json.loads(noted.read_text()) != asdict(recipe):
        raise BadInput(f"{work} was begun with other settings; remove it to begin again")
    noted.write_text(json.dumps(asdict(recipe)))
    return work


def _checkpoint(work: Path) -> str | None:
    """The newest complete checkpoint: the Trainer writes its state last."""
    found = [p.parent for p in work.glob("checkpoint-*/trainer_state.json")]
    return str(max(found, key=lambda p: int(p.name.split("-")[1]))) if found else None


def _encode(
    net: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Example],
    length: int | None = None,
) -> list[Row]:
    """Token ids, labels and rephrasings of each row, truncated to this length or the context."""
    if not rows:
        return []
    cut: dict[str, Any] = {"truncation": True, "max_length": length}
    texts = tokenizer([e.text for e in rows], **cut)["input_ids"]
    labels: Sequence[Any] = [e.answer for e in rows]
    if net.config.is_encoder_decoder:
        labels = tokenizer(text_target=list(labels), **cut)["input_ids"]
    else:
        labels = [net.config.label2id[label] for label in labels]
    places = {e.text: i for i, e in enumerate(rows)}
    others = [[places[r] for r in e.rephrasings if r in places] or [places[e.text]] for e in rows]
    taught = zip(texts, labels, others, strict=True)
    return [{"input_ids": t, "labels": a, "others": o} for t, a, o in taught]


def _revive_unused_tokens(
    net: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: list[Row]
) -> None:
    """Set the embedding of each unused token to the sum of its parts, with the usual norm.

    Training pushes tokens that no row has all the same way, until no hidden state lets one win.
    """
    used = {i for row in rows for i in (*row["input_ids"], *row["labels"])}
    table = net.get_input_embeddings().weight.data
    length = table[sorted(used)].norm(dim=-1).mean()
    for left, right in json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]:
        a, b, both = tokenizer.convert_tokens_to_ids([left, right, left + right])
        if both not in used:
            table[both] = length * F.normalize(table[a] + table[b], dim=-1)
