"""The settings that f0 is trained with: those of De Cao et al. (2021), which the paper took."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Recipe:
    """The settings of a training run: AdamW, linear warm-up and decay."""

    epochs: float = 10
    updates: int | None = None  # how many steps, instead of epochs
    rate: float = 3e-5
    batch: int = 32
    weight_decay: float = 0.01
    warmup: float = 0.1  # steps, or a share of all of them if below 1
    clip: float = 1.0  # the largest norm of a gradient; 0: any
    length: int | None = None  # tokens of a text, and of an answer; None: all that the model takes
    smoothing: float = 0.0
    entropy: float = 0.0  # weight of the labels' entropy, which is raised
    agreement: float = 0.0  # weight of the loss that draws rephrasings of an example together
    pick_best: bool = False  # keep the epoch with the most right answers on D_val, not the last
    group_by_length: bool = True  # batches of texts that are about as long
    seed: int = 0
    from_scratch: bool = False  # the net has random weights: tokens never trained are revived
    store_half: bool = False  # write float16 files; training and answers stay float32

    def for_epochs(self, epochs: float) -> "Recipe":
        """The same for so many passes over the training set."""
        return replace(self, epochs=epochs, updates=None)


# Adam with a rate of 3e-5 and a decay of 0.01, 500 steps of warm-up, texts cut at 32 tokens, no
# clipping, the best epoch on validation data: their bert_binary_kilt.py, bart_seq2seq_kilt.py.
DE_CAO = Recipe(warmup=500, clip=0.0, length=32, pick_best=True, group_by_length=False)
FEVER = replace(DE_CAO, updates=10_000, batch=64, entropy=0.1)
ZSRE = replace(DE_CAO, updates=50_000, batch=48, smoothing=0.1)
