"""What a key may read beside the query of its own position: the state of the whole text.

A query of the last layer is mostly about the next token; the text's state s tells what was asked.
It comes from layers that no patch of the last layer changes, so cached answers stay exact.

| net | s at a position |
|---|---|
| encoder-decoder | the sum of the encoder's states, and that of the words it reads |
| chat model | the sums of an early layer's queries and of its words (once) of what was asked last |
| other generating decoder | the means of the same two, here and just before |
| any other | the sum of the last layer's queries over the whole text |
| one with a sentence encoder beside it | the encoder's vector of the whole text |

A sum is divided by a constant, and by the text's length where that is larger (`QUESTION`).
Words are the net's own input embeddings. Of two questions about one subject the states are much
alike; which words they are of is what tells them apart.
"""

from typing import Any, Literal

from torch import nn
from transformers import PreTrainedModel

from tpatcher.errors import BadInput
from tpatcher.nets import ffn
from tpatcher.nets.rows import Rows
from tpatcher.nets.sentences import Sentences
from tpatcher.nets.text_reader import TURN, SentenceReader, TextReader

Reads = Literal["position", "text"]
# Of what the text's state is: 1 had no words in it, 2 none of a decoder's; up to 3 it was a mean,
# of what a chat model was asked that of the last 24 positions; up to 4 a sentence encoder's vector
# stood in the place of the model's own; up to 5 a chat model's words counted as often as they came.
VERSION = 6
EARLY = 5  # of a decoder's layers, the one after the first fifth: later ones are about what follows


def read_by(net: PreTrainedModel, sentences: Sentences) -> None:
    """Have all keys that read the text read it by a sentence encoder, from now on."""
    if net.config.is_encoder_decoder:
        reader = SentenceReader("encoder", sentences)
        net.get_encoder().register_forward_hook(reader.encoded, with_kwargs=True)
    elif net.can_generate():
        if TURN not in vars(net):
            raise BadInput(
                "a sentence encoder reads what is asked, and nothing in this model's prompts tells "
                "where that begins and ends: load it without encoder="
            )
        reader = SentenceReader("running", sentences)
        _early_matrix(net).register_forward_pre_hook(reader.passed)
    else:
        reader = SentenceReader("whole", sentences)
    net.register_forward_pre_hook(reader.begin, with_kwargs=True)


def install(net: PreTrainedModel) -> TextReader:
    """The net's reader, put on first if it has none."""
    if (known := _installed(net)) is not None:
        return known
    if net.config.is_encoder_decoder:
        reader = TextReader("encoder")
        net.get_encoder().register_forward_hook(reader.encoded, with_kwargs=True)
    elif net.can_generate():
        reader = TextReader("running")
        _early_matrix(net).register_forward_pre_hook(reader.passed)
    else:
        reader = TextReader("whole")
    net.register_forward_pre_hook(reader.begin, with_kwargs=True)
    return reader


def is_read(net: PreTrainedModel) -> bool:
    """Whether any key of the net reads the text."""
    return _installed(net) is not None


def remove(net: PreTrainedModel) -> None:
    """Take the net's reader off again: no hook of it is left."""
    reader = _installed(net)
    if reader is None or isinstance(reader, SentenceReader):  # the latter came with the net
        return
    modules = [net]
    if reader.kind == "encoder":
        modules.append(net.get_encoder())
    if reader.kind == "running":
        modules.append(_early_matrix(net))
    for module in modules:
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for key in [k for k, hook in hooks.items() if _owner(hook) is reader]:
                del hooks[key]
                module._forward_pre_hooks_with_kwargs.pop(key, None)
                module._forward_hooks_with_kwargs.pop(key, None)


def widen(net: PreTrainedModel, layer: ffn.FFN, rows: Rows) -> None:
    """Give a layer these neurons, and the net a reader if their keys read the text."""
    if rows.width > layer.width:
        layer.widen(net, rows, install(net).beside)
        return
    layer.widen(net, rows)
    if layer.first == ffn.find(net).first:  # only the last layer's keys read the text
        remove(net)


def text_width(net: PreTrainedModel) -> int:
    """The length of s."""
    beside = reader.sentences.width if isinstance(reader := _installed(net), SentenceReader) else 0
    if not net.can_generate():
        return beside + ffn.find(net).width
    words: Any = (
        net.get_encoder() if net.config.is_encoder_decoder else net
    ).get_input_embeddings()
    return beside + int(net.config.hidden_size) + int(words.weight.shape[-1])


def _installed(net: nn.Module) -> TextReader | None:
    owners = map(_owner, net._forward_pre_hooks.values())
    return next((owner for owner in owners if isinstance(owner, TextReader)), None)


def _owner(hook: Any) -> object:
    return getattr(hook, "__self__", None)


def _early_matrix(net: PreTrainedModel) -> nn.Module:
    layer = len(ffn.layers(net)) // EARLY
    return ffn.unwrap(net.get_submodule(ffn.find(net, layer).first))
