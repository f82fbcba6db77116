"""Weights in 8 or 4 bits, as the program's own small models are kept.

A matrix has whole numbers from -127 to 127 (8 bits, one scale for each of its rows) or from -7 to 7
(4 bits, two in a byte, one scale for each 32 of them); a vector stays float16. The largest weight
under a scale is exact but for float16, and no weight is off by more than half a step.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mlem_core.base.errors import InputError

GROUP = 32
_SCALE = "|scale"
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
        tensors[name + _SCALE] = scale[:, 0]
    about = {"bits": str(bits), "shapes": json.dumps(shapes)}
    save_file({name: np.ascontiguousarray(t) for name, t in tensors.items()}, path, about)
    path.chmod(0o644)  # safetensors leaves it to its owner alone


def unpack(path: Path) -> dict[str, Any]:
    """The weights of a file of `pack` as float32 torch tensors, by name.

    Raises `InputError` where the file is no such file.
    """
    import torch
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            bits, shapes = int(about["bits"]), json.loads(about["shapes"])
            stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        weights = {}
        for name, tensor in stored.items():
            if name.endswith(_SCALE):
                continue
            numbers = tensor.astype(np.float32)
            if name in shapes:
                if bits == 4:
                    steps = np.stack([tensor & 15, tensor >> 4], axis=-1).astype(np.float32) - 8
                    numbers = steps.reshape(len(tensor), -1)
                numbers = numbers * stored[name + _SCALE].astype(np.float32)[:, None]
                size = math.prod(shapes[name])
                numbers = numbers.ravel()[:size].reshape(shapes[name])
            weights[name] = torch.from_numpy(np.ascontiguousarray(numbers))
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise InputError(
            f"{path.name} is damaged or no file of packed weights ({error})."
        ) from error
    return weights
