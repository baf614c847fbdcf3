"""The memory: queries of ordinary traffic, which a patch must leave alone (paper, Section 4.2)."""

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from rich.progress import track
from torch import Tensor

from tpatcher import files
from tpatcher.data import background as written
from tpatcher.editors.tpatcher import background as backgrounds
from tpatcher.editors.tpatcher import collecting
from tpatcher.editors.tpatcher.collecting import KINDS
from tpatcher.editors.tpatcher.phrases import Phrases
from tpatcher.errors import BadInput, Damaged, WrongBase
from tpatcher.example import Example, text_of
from tpatcher.models.model import Model
from tpatcher.models.traces import traces
from tpatcher.nets.products import BLOCK, products, some_of
from tpatcher.nets.reading import VERSION, Reads, text_width
from tpatcher.patches.pack import Base

MAP_ABOVE = 4 << 30  # bytes of an array beyond which it stays on disk


class Memory:
    """Queries (N, d), what the model answers there, and the mean and covariance of all of them.

    Every array is held once. `answers`, `states` and `texts` may be missing: then every query
    counts as one that could be hurt, and none can be named or checked through the tail. `kinds`
    are indices into KINDS, what each query is of. Keys that read the text are held against [q ; s]:
    each text's state s is held once in `text_states` (U, t), and `text_index` (N,) says which of
    them stands beside each query.
    `held_out` are queries (M, d) of other examples, D_val in the paper, by which the paper's
    solver decides when to stop; a tenth of the memory serves for that if there are none.
    `base` is the fingerprint of the model that the queries are of; empty if that is not known.
    """

    def __init__(
        self,
        queries: Tensor,
        answers: Tensor | None = None,
        states: Tensor | None = None,
        owner: Tensor | None = None,
        gap: Tensor | None = None,
        texts: Sequence[str] = (),
        held_out: Tensor | None = None,
        kinds: Tensor | None = None,
        text_states: Tensor | None = None,
        text_index: Tensor | None = None,
        base: str = "",
    ) -> None:
        if queries.dim() != 2 or len(queries) < 2:
            raise BadInput(
                f"a memory needs at least 2 queries (N, d); found {tuple(queries.shape)}"
            )
        self.queries, self.answers, self.states = queries, answers, states
        self.owner, self.gap, self.texts = owner, gap, list(texts)
        self.held_out, self.kinds, self.base = held_out, kinds, base
        self.text_states, self.text_index = text_states, text_index
        self._index = {text: i for i, text in enumerate(self.texts)}

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def reads(self) -> Reads:
        """What keys can read that are held against it."""
        return "position" if self.text_states is None else "text"

    @property
    def text_width(self) -> int:
        """How many numbers a text's state has; 0 where it is not read."""
        return 0 if self.text_states is None else self.text_states.shape[1]

    @property
    def width(self) -> int:
        """How many numbers the keys have that are held against it."""
        return self.queries.shape[1] + self.text_width

    def of_positions(self) -> "Memory":
        """This memory for keys that read their position alone; it shares what it can."""
        others = ("held_out", *TEXT)
        arrays = {name: getattr(self, name) for name in ARRAYS if name not in others}
        return Memory(**arrays, texts=self.texts, base=self.base)

    @classmethod
    def from_queries(cls, queries: Tensor, answers: Tensor | None = None) -> Self:
        """A memory of queries that already exist."""
        return cls(queries, answers)

    @classmethod
    def collect(
        cls,
        model: Model,
        items: Sequence[str | Example],
        *,
        layer: int = -1,
        reads: Reads = "position",
        dtype: torch.dtype = torch.float32,
        progress: bool = False,
        map_above: int = MAP_ABOVE,
        held_out: Sequence[str | Example] = (),
        skip_bos: bool = False,
        background: bool = True,
    ) -> Self:
        """The queries at the positions of texts or examples (see `collecting.collect`).

        With `skip_bos`, a first position that only says <s> is left out. A language model has a
        background beside them, unless that is turned off; then it needs no texts at all.
        """
        if not items and not (background and backgrounds.wanted(model)):
            raise BadInput("a memory needs texts; none were given")
        found = collecting.collect(model, items, layer, reads, background, skip_bos)
        label, hidden = "collecting queries", not progress
        batches = track(found, label, None, transient=True, disable=hidden)
        width = text_width(model.net) if reads == "text" else 0
        others = [seen for _, _, seen in traces(model, held_out, layer, reads=reads)]
        others = [collecting.without_bos(model, seen) if skip_bos else seen for seen in others]
        return cls(
            **collecting.gather(batches, width, dtype, map_above),
            texts=[text_of(item) for item in items],
            held_out=torch.cat([seen.queries.to(dtype).cpu() for seen in others])
            if others
            else None,
            base=model.base.fingerprint,
        )

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many queries there are of each kind, if that is known."""
        if self.kinds is None:
            return {}
        number = torch.bincount(self.kinds.long(), minlength=len(KINDS)).tolist()
        return {kind: n for kind, n in zip(KINDS, number, strict=True) if n}

    @property
    def n_answers(self) -> int:
        """How many queries are of answers; all of them, if their kinds are not known."""
        return self.counts.get("answers", 0) if self.counts else len(self)

    @cached_property
    def mean(self) -> Tensor:
        """μ, in float64."""
        total = sum(block.double().sum(0) for block in self.blocks())
        return total / len(self)  # type: ignore[return-value, operator]

    @cached_property
    def factor(self) -> Tensor:
        """L with L·Lᵀ = Σ + ridge, in float64: Σ is singular behind a norm or with few queries."""
        d = self.width
        center = self.mean.float()
        sigma = torch.zeros(d, d, dtype=torch.float64, device=self.queries.device)
        for block in self.blocks():
            centred = block - center
            sigma += (centred.T @ centred).double()
        sigma /= len(self)
        variance, ridge = sigma.diagonal(), torch.empty(d, dtype=sigma.dtype, device=sigma.device)
        query, text = slice(0, d - self.text_width), slice(d - self.text_width, d)
        ridge[query] = (QUERY_RIDGE if self.text_width else RIDGE) * variance[query].mean()
        few = self.text_states is not None and len(self.text_states) < 2 * self.text_width
        ridge[text] = (FEW_TEXTS_RIDGE if few else RIDGE) * variance[text].mean()
        return torch.linalg.cholesky(sigma + torch.diag(ridge + 1e-12))

    def near(self, device: torch.device) -> "Memory":
        """This memory with its large arrays on a model's device, if they fit into half of its room.

        Whatever is worked out of them is returned on the CPU, where duals and checks are made.
        """
        arrays: dict[str, Any] = {n: t for n in ARRAYS if (t := getattr(self, n)) is not None}
        large = [n for n in ("queries", "states", "held_out", *TEXT) if n in arrays]
        size = sum(arrays[n].nbytes for n in large)
        full = device.type == "cuda" and 2 * size > torch.cuda.mem_get_info(device)[0]
        if device == self.queries.device or full:
            return self
        arrays |= {str(n): arrays[n].to(device) for n in large}
        return type(self)(**arrays, texts=self.texts, base=self.base)

    def check_base(self, base: Base) -> None:
        """Raise `WrongBase` if it is known that the queries are of another model."""
        if self.base and self.base != base.fingerprint:
            raise WrongBase(
                f"this memory was made for the model {self.base}, but {base.name!r} is "
                f"{base.fingerprint}: collect it again, from the texts themselves"
            )

    def check_finite(self) -> None:
        """Raise `Damaged` if a query is not finite: then neither mean nor covariance is."""
        if not (self.mean.isfinite().all() and self.factor.isfinite().all()):
            raise Damaged("the memory holds values that are not finite: collect it again")

    def whiten(self, queries: Tensor) -> Tensor:
        """L⁻¹(q − μ), float64: there the memory is round, and distance means rarity."""
        centred = queries.to(self.mean.device).double() - self.mean
        found = torch.linalg.solve_triangular(self.factor.T, centred, upper=True, left=False)
        return found.contiguous().cpu()

    def key(self, direction: Tensor) -> Tensor:
        """The key in query space, float64, that responds as a direction in whitened space does."""
        columns = direction.T.to(self.factor.device)
        return torch.linalg.solve_triangular(self.factor.T, columns, upper=True).T.cpu()

    def blocks(self) -> Iterator[Tensor]:
        """The queries, with the text's state beside each, in float32, block by block."""
        for some in torch.arange(len(self), device=self.queries.device).split(BLOCK):
            yield self._rows(some)

    def respond(self, keys: Tensor, step: int = 1) -> Tensor:
        """The responses of every query, or of `some_of` them, to a few keys (n, w), as (n, N).

        Of keys that read less than the memory has, the rest is as zero.
        """
        d = self.queries.shape[1]
        found = products(keys[:, :d], self.queries, step)
        if self.text_states is not None and self.text_index is not None and keys.shape[1] > d:
            index = self.text_index[some_of(len(self), step)] if step > 1 else self.text_index
            found += products(keys[:, d:], self.text_states)[:, index]
        return found.cpu()

    def rows(self, indices: Tensor) -> Tensor:
        """The queries at these indices, with the text's state, in float32 on the CPU."""
        return self._rows(indices.to(self.queries.device)).cpu()

    def _rows(self, indices: Tensor) -> Tensor:
        found = self.queries[indices].float()
        if self.text_states is None or self.text_index is None:
            return found
        beside = self.text_states[self.text_index[indices]]
        return torch.cat([found, beside.float()], dim=1)

    def rows_of(self, texts: Sequence[str]) -> Tensor:
        """Which queries belong to these texts."""
        wanted = [self._index[t] for t in texts if t in self._index]
        if not wanted or self.owner is None:
            return torch.empty(0, dtype=torch.long)
        return torch.isin(self.owner, torch.tensor(wanted)).nonzero()[:, 0]

    def text_of(self, row: int) -> str:
        """The text that a query came from, as far as it is known."""
        if self.owner is None:
            return f"query {row}"
        owner = int(self.owner[row])
        return self.texts[owner] if owner >= 0 else "text of the background"

    @cached_property
    def phrases(self) -> Phrases:
        """The subjects of the memory's texts, and what is asked of them."""
        if "background" not in self.counts:
            return Phrases(self.texts)
        return Phrases([*self.texts, *written.questions()], written.words())

    @property
    def split(self) -> int:
        """Where training on the memory ends: at its end, or a tenth before if none is held out."""
        return len(self) - (max(1, len(self) // 10) if self.held_out is None else 0)

    @property
    def stopping_queries(self) -> Tensor:
        """The queries (M, d) that decide when training stops, and are not trained on."""
        return self.queries[self.split :] if self.held_out is None else self.held_out

    def save(self, directory: str | Path) -> None:
        """Save to a directory of .npy files, which load memory-mapped."""
        path = Path(directory)
        path.mkdir(parents=True, exist_ok=True)
        for name in ARRAYS:
            array = getattr(self, name)
            if array is not None:
                partial = path / f".{name}.npy"
                np.save(partial, array.cpu().numpy(), allow_pickle=False)
                partial.replace(path / f"{name}.npy")
        about: dict[str, Any] = {"base": self.base, "texts": self.texts, "reading": VERSION}
        about["arrays"] = [n for n in ARRAYS if getattr(self, n) is not None]
        files.write_atomic(path / "memory.json", json.dumps(about, ensure_ascii=False).encode())

    @classmethod
    def cached(
        cls,
        directory: str | Path,
        model: Model,
        items: Sequence[str | Example],
        *,
        layer: int = -1,
        reads: Reads = "position",
        progress: bool = False,
        held_out: Sequence[str | Example] = (),
        skip_bos: bool = False,
        background: bool = True,
    ) -> Self:
        """The memory in a directory, collected and saved there first if there is none."""
        if not (Path(directory) / "memory.json").is_file():
            made = cls.collect(
                model,
                items,
                layer=layer,
                reads=reads,
                progress=progress,
                held_out=held_out,
                skip_bos=skip_bos,
                background=background,
            )
            made.save(directory)
        return cls.load(directory)

    @classmethod
    def load(cls, directory: str | Path, map_above: int = MAP_ABOVE) -> Self:
        """Load what `save` wrote; arrays larger than `map_above` bytes stay on disk."""
        path = Path(directory)
        if not (path / "memory.json").is_file():
            raise BadInput(f"{path} holds no memory: it has no memory.json")
        try:
            about = json.loads((path / "memory.json").read_bytes())
            arrays: dict[str, Any] = {}
            for name in about["arrays"]:
                if name not in ARRAYS:
                    raise ValueError(f"it names an array {name!r}")
                file = path / f"{name}.npy"
                large = file.stat().st_size > map_above
                array = np.load(file, mmap_mode="c" if large else None, allow_pickle=False)
                arrays[name] = torch.from_numpy(array)
            made = cls(**arrays, texts=about["texts"], base=about.get("base", ""))
        except (ValueError, KeyError, OSError) as error:
            raise Damaged(f"the memory in {path} cannot be read: {error}") from error
        reads_text = made.reads == "text" or "text_width" in about  # as was written before
        if reads_text and about.get("reading") != VERSION:
            raise BadInput(
                f"the memory in {path} is of another tpatcher, which read texts otherwise: "
                "collect it again, from the texts themselves"
            )
        return made


TEXT = ("text_states", "text_index")
ARRAYS = ("queries", "answers", "states", "owner", "gap", "held_out", "kinds", *TEXT)
RIDGE = 1e-3  # of the mean variance
# Of fewer texts than twice the numbers of a text's state, as a language model's memory has, the
# covariance says little. Of 300 WikiBigEdit fixes of SmolLM2, rephrasings that fire at every token
# and unrelated questions that fire none where answers begin: f = 0.7 0.857 and 0.980, with RIDGE
# 0.827 and 0.973; f = 0.6 0.907 and 0.960, 0.870 and 0.967.
FEW_TEXTS_RIDGE = 1.0
# Beside the text's state a query tells positions apart, and little about what is asked: a key uses
# it as far as it has to. On zsRE that gave GR and sisters together.
QUERY_RIDGE = 1.0
