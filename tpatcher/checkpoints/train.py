"""Training f0, the model that is to be edited, with Transformers' own Trainer.

`train` fine-tunes a base model as De Cao et al. (2021) did for the paper's two tasks. Run again
with the same folder it goes on from the last checkpoint; the folder appears only when its model is
complete. `tpatcher.checkpoints.builtin` trains the two models of the package the same way.
"""

import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tpatcher.data.split import Split
from tpatcher.errors import BadInput
from tpatcher.example import Example

TaskName = Literal["classify", "seq2seq"]
Row = dict[str, Any]
Collate = Callable[[list[Row]], Any]
TEMPERATURE = 0.1


@dataclass(frozen=True, slots=True)
class Recipe:
    """The settings of a training run: AdamW, linear warm-up and decay."""

    epochs: float = 10
    rate: float = 3e-5
    batch: int = 32
    weight_decay: float = 0.01
    warmup: float = 0.1  # share of all steps
    smoothing: float = 0.0
    agreement: float = 0.0  # weight of the loss that draws rephrasings of an example together
    seed: int = 0
    from_scratch: bool = False  # the net has random weights: tokens never trained are revived
    store_half: bool = False  # write float16 files; training and answers stay float32


FEVER = Recipe()
ZSRE = Recipe(epochs=20, batch=256, smoothing=0.1)


def train(
    base: str | Path,
    split: Split,
    task: TaskName,
    out: Path,
    *,
    recipe: Recipe | None = None,
    progress: bool = True,
) -> Path:
    """Fine-tune a base model, a folder or a hub name, on a split's training part."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    net: PreTrainedModel
    if task == "classify":
        labels = sorted({e.answer for e in split.train})
        net = transformers.AutoModelForSequenceClassification.from_pretrained(
            base,
            num_labels=len(labels),
            id2label=dict(enumerate(labels)),
            label2id={label: i for i, label in enumerate(labels)},
        )
    else:
        net = transformers.AutoModelForSeq2SeqLM.from_pretrained(base)
    recipe = recipe or (FEVER if task == "classify" else ZSRE)
    return fit(net, tokenizer, split, out, recipe, progress)


def fit(
    net: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    split: Split,
    out: Path,
    recipe: Recipe,
    progress: bool = True,
) -> Path:
    """Train a net and save it with its tokenizer; `out` must be new or empty."""
    if out.exists() and any(out.iterdir()):
        raise BadInput(f"{out} is not empty; give a new folder, or remove what is in it")
    work = _work_dir(out, recipe)
    seq2seq = net.config.is_encoder_decoder
    rows = _encode(net, tokenizer, split.train)
    collate: Collate = (
        transformers.DataCollatorForSeq2Seq(tokenizer, net)
        if seq2seq
        else transformers.DataCollatorWithPadding(tokenizer)
    )
    net.config.output_hidden_states = recipe.agreement > 0
    trainer = transformers.Trainer(
        net,
        transformers.TrainingArguments(
            output_dir=str(work),
            num_train_epochs=recipe.epochs,
            learning_rate=recipe.rate,
            per_device_train_batch_size=recipe.batch,
            weight_decay=recipe.weight_decay,
            warmup_steps=recipe.warmup,
            label_smoothing_factor=recipe.smoothing,
            seed=recipe.seed,
            train_sampling_strategy="group_by_length",
            save_strategy="epoch",
            save_total_limit=1,
            dataloader_pin_memory=False,
            disable_tqdm=not progress,
            report_to="none",
            remove_unused_columns=not recipe.agreement,
        ),
        train_dataset=rows,
        data_collator=_paired(rows, collate) if recipe.agreement else collate,
        compute_loss_func=partial(agreement_loss, recipe) if recipe.agreement else None,
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
    net: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: Sequence[Example]
) -> list[Row]:
    """Token ids, labels and rephrasings of each row, truncated to the context."""
    texts = tokenizer([e.text for e in rows], truncation=True)["input_ids"]
    labels: Sequence[Any] = [e.answer for e in rows]
    if net.config.is_encoder_decoder:
        labels = tokenizer(text_target=list(labels), truncation=True)["input_ids"]
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
