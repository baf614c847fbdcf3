"""A mistake under dropout, as training sees it: several draws, made once by running the model."""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tpatcher.editors.tpatcher.mistake import Mistake
from tpatcher.models.positions import CachedPositions, given_encoded
from tpatcher.nets import reading
from tpatcher.nets.probe import Probe
from tpatcher.nets.rows import Activation, Rows
from tpatcher.nets.seeded import seeded
from tpatcher.nets.tasks import TeacherForced
from tpatcher.nets.twin import twin


@dataclass(frozen=True)
class Views:
    """The answer positions of one mistake, without dropout and under V draws of it.

    The model drops what a new neuron does just as it drops what its own neurons do: activations
    on their way into the layer's second matrix (BART, T5), and the layer's output (most models).
    Both factors are 0 where dropped, and 1/(1 - p) elsewhere. What is dropped after the last norm
    and before the head (T5) is not.
    """

    plain: Tensor  # (P, d): queries without dropout
    wrong: Tensor  # (n,): the positions that get a neuron each
    queries: Tensor  # (V, P, d)
    states: Tensor | None = None  # (V, P, s): what enters the tail, older patches included
    activation_factor: Tensor | None = None  # (V, P, n)
    output_factor: Tensor | None = None  # (V, P, d)
    encoded: Tensor | None = None  # (V, T, d): the encoder's states, where the net is run on them

    def delta(self, drawn: Tensor, rows: Rows, act: Activation) -> Tensor:
        """What new neurons add to the states (v, P, d) of some draws."""
        assert self.activation_factor is not None and self.output_factor is not None
        activation = act(rows.response(self.queries[drawn])) * self.activation_factor[drawn]
        return (activation @ rows.values) * self.output_factor[drawn]


@torch.no_grad()
def draw(mistake: Mistake, wrong: Tensor, n: int, seed: int) -> Views:
    """The mistake under n draws of dropout.

    Where states can be cached, dummy neurons whose values are zero show what becomes of their
    activations, and a second run with the same draws and an output larger by one everywhere
    shows what becomes of the output.
    """
    model, here = mistake.model, mistake.positions
    layer = here.ffn
    plain = mistake.queries[:, : layer.width]
    forced = model.task.force([mistake.example.text] * n, [mistake.target] * n)
    if not isinstance(here, CachedPositions):
        probe = Probe(model.net, [layer.first])
        encoded = None
        # keys that read the text know the encoder's states without dropout alone
        if model.net.config.is_encoder_decoder and not reading.is_read(model.net):
            encoded = _encoded(probe.net, forced, seed)
        seen = _run(probe, forced, seed, encoded)
        queries = seen[layer.first].view(n, -1, layer.width)
        return Views(plain, wrong, queries, encoded=encoded)
    net, zeros = twin(model.net), plain.new_zeros(len(wrong), layer.width)
    reading.widen(net, layer, here.rows + Rows(zeros, plain.new_ones(len(wrong)), zeros))
    probe = Probe(net, [layer.first, layer.second, *here.tail.names])
    seen = _run(probe, forced, seed)
    states = here.tail.state(seen)
    second = probe.net.get_submodule(layer.second)
    second.register_forward_hook(lambda module, args, output: output + 1)
    shifted = here.tail.state(_run(probe, forced, seed))
    one = layer.act(plain.new_ones(()))
    return Views(
        plain,
        wrong,
        queries=seen[layer.first].view(n, -1, layer.width),
        states=states.view(n, -1, states.shape[-1]),
        activation_factor=(seen[layer.second][:, -len(wrong) :] / one).view(n, -1, len(wrong)),
        output_factor=(shifted - states)[:, : layer.width].view(n, -1, layer.width),
    )


def _encoded(net: PreTrainedModel, forced: TeacherForced, seed: int) -> Tensor:
    """The encoder's states (V, T, d) with dropout on: no decoder layer's patch changes them."""
    inputs = forced.on(net.device)
    net.train()
    with seeded(seed, net.device):
        found = net.get_encoder()(inputs["input_ids"], attention_mask=inputs["attention_mask"])
    return found.last_hidden_state  # type: ignore[no-any-return]


def _run(
    probe: Probe, forced: TeacherForced, seed: int, encoded: Tensor | None = None
) -> dict[str, Tensor]:
    """What enters the probed modules with dropout on; the same seed draws the same dropout."""
    probe.net.train()
    with seeded(seed, probe.net.device):
        return probe.run(forced, **given_encoded(encoded))[1]
