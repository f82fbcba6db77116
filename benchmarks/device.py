"""The device of torch that something is measured on: its time, and the most memory it held."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.timing import seconds

NO_GPU = "torch finds no CUDA device here"


@dataclass(frozen=True)
class Device:
    """A device of torch, "cpu" or "cuda"."""

    name: str

    @property
    def is_gpu(self) -> bool:
        """Whether times are worth measuring."""
        return self.name != "cpu"

    def label(self) -> str:
        """What it is called."""
        import torch

        return torch.cuda.get_device_name(self.name) if self.is_gpu else platform.machine()

    def done(self, call: Callable[[], object]) -> Callable[[], None]:
        """The same call, which ends when the device has nothing left to do."""
        import torch

        def whole() -> None:
            call()
            if self.is_gpu:
                torch.cuda.synchronize(self.name)

        return whole

    def timed(self, call: Callable[[], object]) -> tuple[float, float]:
        """Seconds, and the most memory (GB) that was held on a GPU meanwhile."""
        import torch

        if not self.is_gpu:
            return seconds(call), 0.0
        torch.cuda.empty_cache()
        torch.cuda.synchronize(self.name)
        torch.cuda.reset_peak_memory_stats(self.name)
        took = seconds(self.done(call))
        return took, torch.cuda.max_memory_allocated(self.name) / 2**30
