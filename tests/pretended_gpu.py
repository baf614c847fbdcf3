"""A GPU that is not there: tensors that lie on another device, and do not mix with the CPU's.

Each of them holds an ordinary tensor, on which its operations really run, so that a whole edit can
be made "on the GPU" and gives real numbers. What a GPU refuses is refused: an operation on tensors
of two devices (but for scalars, indices and copies), and NumPy. Torch's fake tensors cannot do
this: they have no values, and an edit looks at values.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

GPU = torch.device("lazy", 0)  # a kind of device that torch knows, and that nothing else uses
aten = torch.ops.aten
# what CUDA too does across devices: of each of these, the arguments that must lie on one
ACROSS = {
    aten.copy_.default: (),
    aten._to_copy.default: (),
    aten.index.Tensor: (0,),  # indices may come from the CPU
    aten.index_put.default: (0, 2),
    aten.index_put_.default: (0, 2),
    aten._pack_padded_sequence.default: (0,),  # lengths have to
}


class Elsewhere(Tensor):
    """A tensor on the pretended GPU, and the ordinary one that holds its values."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "Elsewhere":
        out = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=GPU,
        )
        out.held = held
        return out  # type: ignore[no-any-return]

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Elsewhere({self.held!r})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return run(func, args, dict(kwargs or {}))


@contextmanager
def pretended_gpu() -> Iterator[torch.device]:
    """While it is on, tensors can be made on the pretended GPU and moved to it."""
    with pytest.MonkeyPatch.context() as patched, Tensors(), Operations():
        # tensors of this kind cannot be without a version: without gradients must do
        patched.setattr(torch.inference_mode, "__enter__", _without_gradients)
        patched.setattr(torch.inference_mode, "__exit__", lambda self, *_: self.quiet.__exit__(*_))
        with sdpa_kernel(SDPBackend.MATH):  # the others are written for one device each
            yield GPU


def _without_gradients(mode: Any) -> None:
    mode.quiet = torch.no_grad()
    mode.quiet.__enter__()


class Tensors(TorchFunctionMode):
    """What torch does before any operation is run: it looks for a device, or for numbers."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and named.get("device") is not None:
            return func(*args, **{**named, "device": None}).to(named["device"])
        if func is Tensor.__getitem__ and isinstance(args[1], list):
            return args[0][torch.tensor(args[1], dtype=torch.long)]
        if func is Tensor.tolist:
            return args[0].cpu().tolist() if isinstance(args[0], Elsewhere) else args[0].tolist()
        return func(*args, **named)


class Operations(TorchDispatchMode):
    """Every operation, also those that make a tensor of nothing."""

    def __torch_dispatch__(  # type: ignore[override]
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return run(func, args, dict(kwargs or {}))


def run(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run an operation on the values, and put what it returns where it belongs."""
    together = [args[i] for i in ACROSS[func]] if func in ACROSS else [args, kwargs]
    tensors = [t for t in tree_flatten(together)[0] if isinstance(t, Tensor)]
    there = any(isinstance(t, Elsewhere) for t in tensors or args)
    strangers = [t for t in tensors if not isinstance(t, Elsewhere) and t.dim() and there]
    if strangers:
        raise RuntimeError(f"{func}: tensors of two devices, one {tuple(strangers[0].shape)}")
    asked = kwargs.get("device")
    if asked is not None:
        there = torch.device(asked).type == GPU.type
        kwargs["device"] = torch.device("cpu")
    given, named = tree_map(lambda t: t.held if isinstance(t, Elsewhere) else t, (args, kwargs))
    out = func(*given, **named)
    if func._schema.is_mutable:
        return kwargs.get("out", args[0])
    if not there or func is aten._local_scalar_dense.default:
        return out
    if func is aten._pack_padded_sequence.default:  # how long a batch is stays on the CPU
        return Elsewhere(out[0]), out[1]
    return tree_map(lambda t: Elsewhere(t) if isinstance(t, Tensor) else t, out)
