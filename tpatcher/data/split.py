"""The parts of a dataset that Sequential Model Editing needs (paper, "Data splits")."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from tpatcher.errors import BadInput
from tpatcher.example import Example

T = TypeVar("T")


@dataclass(frozen=True)
class Split:
    """D'_train, D_val, D_edit and D_test of one dataset."""

    train: Sequence[Example]
    edit: Sequence[Example]
    test: Sequence[Example]
    val: Sequence[Example] = ()

    def retained(
        self, n_train: int = 10_000, memory_size: int = 40_000, seed: int = 0
    ) -> tuple[list[Example], list[Example]]:
        """D_tr and the memory examples: disjoint samples of D'_train.

        A training set that is too small for both is shared out in the same proportion.
        """
        rows = list(self.train)
        random.Random(seed).shuffle(rows)
        if n_train + memory_size > len(rows):
            n_train = round(len(rows) * n_train / (n_train + memory_size))
        return rows[:n_train], rows[n_train : n_train + memory_size]

    def folders(self, n: int = 20, seed: int = 0) -> list[list[Example]]:
        """The edit set split at random into n folders of nearly equal size."""
        rows = list(self.edit)
        random.Random(seed).shuffle(rows)
        return [rows[i::n] for i in range(n)]


def by_ratio(
    rows: Sequence[T], ratios: tuple[float, float, float] = (0.8, 0.1, 0.1), seed: int = 0
) -> tuple[list[T], list[T], list[T]]:
    """Training, validation and edit parts of an original training set, by the paper's ratios.

    Sizes are rounded down, as 10,496 of FEVER's 104,966; what is left over is for training.
    """
    # Without the tiny addition 0.075 of 40 rows could come out as 2.9999… and lose one.
    val, edit = (int(len(rows) * ratio + 1e-9) for ratio in ratios[1:])
    if edit == 0:
        raise BadInput(
            f"{len(rows)} rows are too few: an edit set of {ratios[2]:.1%} of them would be empty"
        )
    shuffled = list(rows)
    random.Random(seed).shuffle(shuffled)
    return shuffled[edit + val :], shuffled[edit : edit + val], shuffled[:edit]
