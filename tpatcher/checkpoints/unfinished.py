"""What teaching a base leaves beside it now and then, so that it goes on after a stop or a kill."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from time import monotonic

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from tpatcher import files

EVERY = 60.0  # seconds between two saves: what takes less begins anew
MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # what Adam keeps of a parameter


class Unfinished:
    """Parameters, Adam's moments and the step of a training run, in one file beside its result."""

    def __init__(self, result: Path, run: object) -> None:
        """`run` is all that the training depends on: the file of another one is not used."""
        self.file = result.with_name(f".{result.name}.unfinished.safetensors")
        self.run = hashlib.sha256(repr(run).encode(errors="surrogatepass")).hexdigest()
        self._saved = monotonic()

    def load(
        self, parameters: Mapping[str, nn.Parameter], adam: torch.optim.AdamW
    ) -> tuple[int, float]:
        """Go on as it was saved: the steps that were made and the rate's factor; 0 and 1 if new."""
        try:
            blob = self.file.read_bytes()
            about, tensors = files.safetensors_metadata(blob), load_tensors(blob)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError):  # none, or damaged
            return 0, 1.0
        if about["run"] != self.run:
            return 0, 1.0
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(tensors[name])
                kept = {m: tensors[f"{m} {name}"] for m in MOMENTS if f"{m} {name}" in tensors}
                if kept:
                    device = parameter.device
                    adam.state[parameter] = {
                        m: t if m == "step" else t.to(device) for m, t in kept.items()
                    }
        return int(about["step"]), float(about["cooled"])

    def save(
        self,
        parameters: Mapping[str, nn.Parameter],
        adam: torch.optim.AdamW,
        step: int,
        cooled: float,
    ) -> None:
        """Save what was done so far, if the last time is long ago."""
        if monotonic() - self._saved < EVERY:
            return
        tensors: dict[str, Tensor] = {n: p.detach() for n, p in parameters.items()}
        for name, parameter in parameters.items():
            tensors |= {f"{m} {name}": t for m, t in adam.state.get(parameter, {}).items()}
        about = json.dumps({"run": self.run, "step": step, "cooled": cooled})
        blob = save_tensors({n: t.contiguous() for n, t in tensors.items()}, {"tpatcher": about})
        files.write_atomic(self.file, blob)
        self._saved = monotonic()

    def remove(self) -> None:
        """Remove the file: the run has ended."""
        self.file.unlink(missing_ok=True)
