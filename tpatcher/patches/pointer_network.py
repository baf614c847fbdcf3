"""SERAC's counterfactual model: a cached answer and a question in, the answer to it out.

SERAC takes a small model of the edited one's family. The paper found that such a model hardly
learns to reproduce an answer, so this one is made for it: a pointer network (Vinyals et al.,
2015) that writes by pointing at tokens of what it reads. It is so small that every patch
brings its own along.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

END = -1  # of the answer, among the tokens that can be pointed at
Pair = tuple[Sequence[int], Sequence[int]]  # the tokens of a cached answer and of a question
BUCKETS = 512  # tokens are known by a hash of their id, so that no vocabulary has to be stored


class Counterfactual(nn.Module):
    """A GRU that points at one token after the other of an answer and a question."""

    def __init__(self, size: int = 32, places: int = 96) -> None:
        super().__init__()
        self.size, self.places = size, places
        self.token = nn.Embedding(BUCKETS + 1, size)
        self.place = nn.Embedding(places, size)
        self.side = nn.Embedding(2, size)  # of the answer, or of the question
        self.begin = nn.Linear(size, size)
        self.writer = nn.GRU(size, size, batch_first=True)
        self.point = nn.Linear(size, size, bias=False)

    @classmethod
    def of(cls, state: Mapping[str, Tensor]) -> "Counterfactual":
        with torch.device("meta"):
            made = cls(state["token.weight"].shape[1], state["place.weight"].shape[0])
        made.load_state_dict(dict(state), assign=True)
        return made

    def read(self, pairs: Sequence[Pair]) -> tuple[list[list[int]], Tensor, Tensor]:
        """The tokens that can be pointed at, their states (B, S, size), and which are real."""
        ids = [[*answer, END, *question][: self.places] for answer, question in pairs]
        width, device = max(map(len, ids)), self.point.weight.device
        known = torch.full((len(ids), width), BUCKETS, device=device)
        for row, one in zip(known, ids, strict=True):
            row[: len(one)] = torch.tensor([i % BUCKETS if i != END else BUCKETS for i in one])
        side = torch.tensor([[int(i > len(a)) for i in range(width)] for a, _ in pairs])
        real = torch.tensor([[i < len(row) for i in range(width)] for row in ids], device=device)
        places = self.place(torch.arange(width, device=device))
        return ids, self.token(known) + places + self.side(side.to(device)), real

    def start(self, states: Tensor, real: Tensor) -> Tensor:
        """The writer's first state (1, B, size): what there is to read, on the whole."""
        mean = (states * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        return self.begin(mean).tanh()[None]

    def forward(self, pairs: Sequence[Pair]) -> Tensor:
        """The loss of pointing through each answer and its end."""
        ids, states, real = self.read(pairs)
        steps = torch.tensor(
            [min(len(a) + 1, len(i)) for i, (a, _) in zip(ids, pairs, strict=True)]
        )
        n = int(steps.max())
        given = torch.cat([torch.zeros_like(states[:, :1]), states[:, : n - 1]], dim=1)
        hidden, _ = self.writer(given, self.start(states, real))
        scores = (self.point(hidden) @ states.mT).masked_fill(~real[:, None], -torch.inf)
        right = scores.log_softmax(-1).diagonal(dim1=1, dim2=2)  # step t points at place t
        counted = (torch.arange(n) < steps[:, None]).to(right.device)
        return -(right[:, :n].masked_fill(~counted, 0)).sum() / counted.sum()

    @torch.no_grad()
    def write(self, answer: Sequence[int], question: Sequence[int]) -> list[int]:
        """The answer, token by token, until the end is pointed at."""
        (ids,), states, real = self.read([(answer, question)])
        hidden, last, said = self.start(states, real), torch.zeros_like(states[:, :1]), []
        for _ in range(self.places):
            out, hidden = self.writer(last, hidden)
            at = int((self.point(out) @ states.mT).argmax())
            if ids[at] == END:
                break
            said.append(ids[at])
            last = states[:, at : at + 1]
        return said

    def say(self, tokenizer: Any, answer: str, question: str) -> str:
        """The answer to a question, in words."""
        ids = [tokenizer(t, add_special_tokens=False).input_ids for t in (answer, question)]
        return str(tokenizer.decode(self.write(*ids), skip_special_tokens=True)).strip()
