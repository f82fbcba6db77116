"""Weights in 8 or 4 bits, as `mlem_core.representations.loading.read_packed` reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mlem_core.representations.loading import SCALE

GROUP = 32  # weights that share a scale, in 4 bits
_STEPS = {8: 127, 4: 7}


def pack(weights: Mapping[str, np.ndarray], path: Path, bits: int) -> None:
    """Write weights, by name, into a safetensors file."""
    from safetensors.numpy import save_file

    tensors, shapes = {}, {}
    for name, weight in weights.items():
        if weight.ndim < 2:
            tensors[name] = weight.astype(np.float16)
            continue
        shapes[name] = weight.shape
        rows = weight.astype(np.float32).reshape(len(weight), -1)
        if bits == 4:
            flat = rows.ravel()
            rows = np.append(flat, np.zeros(-len(flat) % GROUP, np.float32)).reshape(-1, GROUP)
        scale = (np.abs(rows).max(1, keepdims=True) / _STEPS[bits]).astype(np.float16)
        divisor = np.where(scale > 0, scale, 1).astype(np.float32)
        steps = np.clip(np.rint(rows / divisor), -_STEPS[bits], _STEPS[bits]).astype(np.int8)
        if bits == 4:
            nibbles = (steps + 8).astype(np.uint8)
            tensors[name] = nibbles[:, ::2] | (nibbles[:, 1::2] << 4)
        else:
            tensors[name] = steps
        tensors[name + SCALE] = scale[:, 0]
    about = {"bits": str(bits), "shapes": json.dumps(shapes)}
    save_file({name: np.ascontiguousarray(t) for name, t in tensors.items()}, path, about)
    path.chmod(0o644)  # safetensors leaves it to its owner alone
