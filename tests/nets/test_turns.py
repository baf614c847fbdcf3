"""What was asked last, and which of its words came before."""

import pytest
import torch

from tpatcher.nets import turns


def test_a_word_counts_once_in_a_turn_however_the_text_comes_in() -> None:
    tokens = torch.tensor([[5, 1, 7, 5, 7, 7, 2, 7, 5, 1, 5, 5, 7]])  # 1 begins a turn, 2 ends one
    new = torch.stack([tokens == 1, tokens == 2, tokens], -1).float()
    wanted = [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0]
    assert turns.said_again(new, None)[0].int().tolist() == wanted
    for cut in range(1, 13):
        later = turns.said_again(new[:, cut:], new[:, :cut])
        assert later[0].int().tolist() == wanted[cut:]


def test_what_was_asked_is_summed_from_where_its_turn_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "QUESTION", 4)
    states, weight = torch.randn(1, 12, 3), torch.ones(1, 12, 1)
    weight[0, 0] = 0  # padding
    begins, ends = torch.zeros(2, 1, 12, dtype=torch.bool)
    begins[0, [2, 7]] = ends[0, [4, 10]] = True
    marks = torch.stack([begins, ends], -1)
    found = turns.asked_last(states * weight, weight, marks)[0]
    assert not found[:4].any(), "nobody has asked yet"
    for k in range(4, 10):
        torch.testing.assert_close(found[k], states[0, 3:5].sum(0) / 4)
    for k in (10, 11):
        torch.testing.assert_close(found[k], states[0, 8:11].sum(0) / 4)
    monkeypatch.setattr(turns, "QUESTION", 1)
    found = turns.asked_last(states * weight, weight, marks & ends[..., None])[0]
    torch.testing.assert_close(found[4], states[0, 1:5].mean(0))  # from the text's beginning
    torch.testing.assert_close(found[11], states[0, 5:11].mean(0))  # or from the last end
