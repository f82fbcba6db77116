"""The two loops that are written in C, compiled where they are used."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
# Without the start files: with -ffast-math they would switch subnormal numbers off in the process.
FLAGS = (
    *("-O3", "-march=native", "-ffast-math", "-fopenmp-simd"),
    *("-shared", "-fPIC", "-nostartfiles"),
    *(["-mprefer-vector-width=512"] if platform.machine() == "x86_64" else []),
)


@functools.cache
def library(name: str) -> Any:
    """The library of `<name>.c`, or None where it cannot be compiled."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / f"{name}.so"
        command = [compiler, *FLAGS, str(HERE / f"{name}.c"), "-o", str(made), "-lm"]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return None
        return ctypes.CDLL(str(made))


def keep_memory() -> None:
    """Let glibc keep what is freed: fresh pages for each step's tensors cost a tenth of it."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
        libc.mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD


def address(tensor: torch.Tensor | None) -> ctypes.c_void_p:
    """Where the numbers of a contiguous tensor on the CPU begin."""
    if tensor is None:
        return ctypes.c_void_p(None)
    assert tensor.is_contiguous() and not tensor.is_cuda
    return ctypes.c_void_p(tensor.data_ptr())
