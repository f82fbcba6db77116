"""`python -m benchmarks.gpu`: all that needs a GPU, into results/gpu.md; `make gpu`.

Where torch finds no CUDA device, the same code runs on the CPU at a small size: what is left are
the rows of agreement, and the others say that they were skipped.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import gpu_models
from benchmarks.device import Device
from benchmarks.timing import Table
from mlem_core.representations.loading import resolve_device
from mlem_core.representations.registry import MODELS

RESULTS = Path(__file__).with_name("results") / "gpu.md"
MAMBAS = ("mini-mamba", "state-spaces/mamba-130m-hf")


# Sentences of the relative-clause set that are run.
FULL, SMALL = 7_680, 60


def measure(table: Table, device: Device, n: int, runs: int) -> None:
    """All sections, of n sentences each, going on where another fails."""
    sections: dict[str, Callable[[], None]] = {
        **{
            f"extraction, {name}": partial(gpu_models.extraction, table, device, name, n, runs)
            for name in MODELS
        },
        **{
            f"kernels, {name}": partial(gpu_models.kernels, table, device, name, n, runs)
            for name in MAMBAS
        },
    }
    for name, section in sections.items():
        try:
            section()
        except Exception as error:
            # Hours of a borrowed machine are not lost with one section.
            table.add(name, "failed", f"{type(error).__name__}: {error}".splitlines()[0])


def heading(device: Device, runs: int) -> str:
    """On what it was measured."""
    import torch

    on = f"torch {torch.__version__}, Python {platform.python_version()}"
    if device.is_gpu:
        return f"Measured on {device.label()} ({on}); medians or the best of {runs} runs."
    return (
        f"Made on a machine without a CUDA device ({device.label()}, {on}). **Nothing here has run "
        "on CUDA**: what needs it was skipped, and the rows of agreement are the same code with "
        "torch on the CPU, at a small size, and the models of the hub left out."
    )


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs of what is timed")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:1")
    options = parser.parse_args()
    device = Device(resolve_device(options.device))
    table = Table()
    measure(table, device, FULL if device.is_gpu else SMALL, options.runs)
    table.write(RESULTS, heading(device, options.runs))


if __name__ == "__main__":
    main()
