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
BUCKETS = 512  # tokens are known by a hash of their id, so that no vocabulary has to be stored


class Counterfactual(nn.Module):
    """A GRU that reads answer and question, and one that points."""

    def __init__(self, size: int = 32, places: int = 96) -> None:
        super().__init__()
        self.size, self.places = size, places
        self.token = nn.Embedding(BUCKETS + 1, size)
        self.place = nn.Embedding(places, size)
        self.side = nn.Embedding(2, size)  # of the answer, or of the question
        self.reader = nn.GRU(size, size, batch_first=True)
        self.writer = nn.GRUCell(size, size)
        self.point = nn.Linear(size, size, bias=False)

    @classmethod
    def of(cls, state: Mapping[str, Tensor]) -> "Counterfactual":
        made = cls(state["token.weight"].shape[1], state["place.weight"].shape[0])
        made.load_state_dict(dict(state))
        return made

    def read(self, answer: Sequence[int], question: Sequence[int]) -> tuple[list[int], Tensor]:
        """The tokens that can be pointed at, and their states (S, size)."""
        ids = [*answer, END, *question][: self.places]
        known = torch.tensor([BUCKETS if i == END else i % BUCKETS for i in ids])
        side = torch.tensor([int(i > len(answer)) for i in range(len(ids))])
        states = self.token(known) + self.place(torch.arange(len(ids))) + self.side(side)
        return ids, states

    def forward(self, answer: Sequence[int], question: Sequence[int]) -> Tensor:
        """The loss of pointing through the answer and its end."""
        _, states = self.read(answer, question)
        hidden, last, losses = self.reader(states[None])[1][0, 0], states.new_zeros(self.size), []
        for step in range(min(len(answer) + 1, self.places)):
            hidden = self.writer(last[None], hidden[None])[0]
            scores = states @ self.point(hidden)
            losses.append(-scores.log_softmax(-1)[step])
            last = states[step]
        return torch.stack(losses).mean()

    @torch.no_grad()
    def write(self, answer: Sequence[int], question: Sequence[int]) -> list[int]:
        """The answer, token by token, until the end is pointed at."""
        ids, states = self.read(answer, question)
        hidden, last, said = self.reader(states[None])[1][0, 0], states.new_zeros(self.size), []
        for _ in range(self.places):
            hidden = self.writer(last[None], hidden[None])[0]
            at = int((states @ self.point(hidden)).argmax())
            if ids[at] == END:
                break
            said.append(ids[at])
            last = states[at]
        return said

    def say(self, tokenizer: Any, answer: str, question: str) -> str:
        """The answer to a question, in words."""
        ids = [tokenizer(t, add_special_tokens=False).input_ids for t in (answer, question)]
        return str(tokenizer.decode(self.write(*ids), skip_special_tokens=True)).strip()
