"""What a chat model was asked last, by the special tokens that begin a turn and end a prompt."""

import torch
from torch import Tensor
from torch.nn.functional import pad

# Where a whole question is read, its states are summed up, so that a name weighs as much in a long
# one as in a short one, and divided by this; a text that is longer has the mean of its states.
QUESTION = 48


def asked_last(states: Tensor, weight: Tensor, turns: Tensor) -> Tensor:
    """At each position (B, T, d), what the last prompt that ended there or before has asked.

    `turns` (B, T, 2) are where turns begin and where prompts end. 0 before the first end.
    """
    begin, end = last_turn(turns)

    def between(tokens: Tensor) -> Tensor:
        so_far = pad(tokens.cumsum(1), (0, 0, 1, 0))  # up to each position, and nothing before all
        return _at(so_far, end + 1) - _at(so_far, begin + 1)

    return between(states) / between(weight).clamp(min=QUESTION) * (end >= 0)[..., None]


def last_turn(turns: Tensor) -> tuple[Tensor, Tensor]:
    """Where (B, T) what was asked last began and ended, at each position; -1 before the first."""
    begins, ends = turns.unbind(-1)
    end = _last(ends)
    return pad(_last(begins | ends), (1, -1), value=-1).gather(1, end.clamp(min=0)), end


def said_again(new: Tensor, before: Tensor | None) -> Tensor:
    """Which of the new tokens (B, n) their turn has had already: a name of many digits is one name.

    Both are as a TextLayer holds them, (B, T, 3): where turns begin, where prompts end, tokens.
    """
    every = new if before is None else torch.cat([before, new], dim=1)
    tokens, begun = every[..., 2], _last(every[..., :2].amax(-1) > 0)
    at = torch.arange(every.shape[1], device=every.device)
    begun, own = begun[:, -new.shape[1] :, None], at[-new.shape[1] :, None]
    same = tokens[:, -new.shape[1] :, None] == tokens[:, None]
    return (same & (at < own) & (at > begun)).any(-1)


def _last(marks: Tensor) -> Tensor:
    """The last marked position (B, T) there or before; -1 if there is none."""
    here = torch.arange(marks.shape[1], device=marks.device).expand_as(marks)
    return torch.where(marks, here, -1).cummax(1).values


def _at(tokens: Tensor, positions: Tensor) -> Tensor:
    """Tokens (B, T, d) at some positions (B, n) of each text."""
    return tokens.gather(1, positions[..., None].expand(-1, -1, tokens.shape[-1]))
