"""SERAC's counterfactual model: reads a cached answer and a question, writes the answer to it.

SERAC takes a small model of the edited one's family. The T-Patcher paper found that such a model
hardly learns to reproduce an answer, so this one is built for it: a pointer network (Vinyals et
al., Pointer Networks, NeurIPS 2015) writes by pointing at tokens of what it reads. It is so small
that every patch holds a copy.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

END = -1  # marks the end of the answer among the tokens that can be pointed at
BUCKETS = 512  # tokens are embedded by a hash of their id, so that no vocabulary has to be stored
Pair = tuple[Sequence[int], Sequence[int]]  # the tokens of a cached answer and of a question


class Counterfactual(nn.Module):
    """A GRU that points at one token after the other of an answer and a question."""

    def __init__(self, size: int = 32, max_tokens: int = 96) -> None:
        super().__init__()
        self.size, self.max_tokens = size, max_tokens
        self.token = nn.Embedding(BUCKETS + 1, size)
        self.place = nn.Embedding(max_tokens, size)  # of a token in what is read
        self.side = nn.Embedding(2, size)  # 0: the answer, 1: the question
        self.begin = nn.Linear(size, size)
        self.writer = nn.GRU(size, size, batch_first=True)
        self.point = nn.Linear(size, size, bias=False)

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> "Counterfactual":
        """The model with these parameters."""
        with torch.device("meta"):  # draws no random numbers for parameters that are replaced
            made = cls(state["token.weight"].shape[1], state["place.weight"].shape[0])
        made.load_state_dict(dict(state), assign=True)
        return made

    def forward(self, pairs: Sequence[Pair]) -> Tensor:
        """The loss of pointing through each answer and its end."""
        ids, states, real = self._read(pairs)
        lengths = [min(len(answer) + 1, len(i)) for i, (answer, _) in zip(ids, pairs, strict=True)]
        steps = torch.tensor(lengths)
        n = int(steps.max())
        # teacher forcing: step t is fed the state of the token that step t - 1 points at
        fed = torch.cat([torch.zeros_like(states[:, :1]), states[:, : n - 1]], dim=1)
        hidden, _ = self.writer(fed, self._first_hidden(states, real))
        scores = (self.point(hidden) @ states.mT).masked_fill(~real[:, None], -torch.inf)
        right = scores.log_softmax(-1).diagonal(dim1=1, dim2=2)  # step t points at token t
        counted = (torch.arange(n) < steps[:, None]).to(right.device)
        return -(right[:, :n].masked_fill(~counted, 0)).sum() / counted.sum()

    @torch.no_grad()
    def write(self, answer: Sequence[int], question: Sequence[int]) -> list[int]:
        """The tokens that are pointed at, one after the other, until the end is."""
        (ids,), states, real = self._read([(answer, question)])
        hidden, last = self._first_hidden(states, real), torch.zeros_like(states[:, :1])
        written: list[int] = []
        for _ in range(self.max_tokens):
            out, hidden = self.writer(last, hidden)
            index = int((self.point(out) @ states.mT).argmax())
            if ids[index] == END:
                break
            written.append(ids[index])
            last = states[:, index : index + 1]
        return written

    def answer(self, tokenizer: Any, answer: str, question: str) -> str:
        """The answer to a question, as text, given the cached answer."""
        ids = [tokenizer(t, add_special_tokens=False).input_ids for t in (answer, question)]
        return str(tokenizer.decode(self.write(*ids), skip_special_tokens=True)).strip()

    def _read(self, pairs: Sequence[Pair]) -> tuple[list[list[int]], Tensor, Tensor]:
        """The tokens that can be pointed at, their states (B, T, size), and a mask of them."""
        ids = [[*answer, END, *question][: self.max_tokens] for answer, question in pairs]
        width, device = max(map(len, ids)), self.point.weight.device
        hashed = torch.full((len(ids), width), BUCKETS, device=device)
        for row, tokens in zip(hashed, ids, strict=True):
            known = [i % BUCKETS if i != END else BUCKETS for i in tokens]
            row[: len(tokens)] = torch.tensor(known)
        side = torch.tensor([[int(i > len(answer)) for i in range(width)] for answer, _ in pairs])
        real = torch.tensor([[i < len(row) for i in range(width)] for row in ids], device=device)
        places = self.place(torch.arange(width, device=device))
        return ids, self.token(hashed) + places + self.side(side.to(device)), real

    def _first_hidden(self, states: Tensor, real: Tensor) -> Tensor:
        """The writer's first hidden state (1, B, size), from the mean of what is read."""
        mean = (states * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        return self.begin(mean).tanh()[None]
