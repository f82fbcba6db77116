"""Weights in 8 and 4 bits: what is lost, and what a broken file says."""

from __future__ import annotations

import numpy as np
import pytest

from mlem_core.base.errors import InputError
from mlem_core.models.packed import GROUP, pack, unpack


@pytest.mark.parametrize(("bits", "steps"), [(8, 127), (4, 7)])
@pytest.mark.parametrize("shape", [(7, 5), (3, 1, 4), (64, 33), (1, 1)])
def test_no_weight_is_off_by_more_than_half_a_step_of_its_scale(bits, steps, shape, tmp_path):
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=shape).astype(np.float32), "b": rng.normal(size=6)}
    pack(weights, tmp_path / "w.safetensors", bits)
    found = {name: tensor.numpy() for name, tensor in unpack(tmp_path / "w.safetensors").items()}
    assert found.keys() == weights.keys() and found["w"].shape == shape
    assert np.array_equal(found["b"], weights["b"].astype(np.float16).astype(np.float32))
    flat = weights["w"].ravel()
    size = flat.size // shape[0] if bits == 8 else GROUP
    for first in range(0, flat.size, size):
        own, back = (array.ravel()[first : first + size] for array in (weights["w"], found["w"]))
        step = np.abs(own).max() / steps
        assert np.abs(own - back).max() <= 0.5 * step * 1.01 + steps * step * 2**-11


def test_rows_of_zeros_and_padding_stay_zeros(tmp_path):
    weight = np.zeros((3, 40), np.float32)
    weight[1, 7] = -2.0
    for bits in (8, 4):
        pack({"w": weight}, tmp_path / "w.safetensors", bits)
        assert np.allclose(unpack(tmp_path / "w.safetensors")["w"].numpy(), weight, atol=1e-3)


@pytest.mark.parametrize("content", [b"", b"no safetensors file", b"\x10\0\0\0\0\0\0\0{}"])
def test_a_broken_file_is_said(content, tmp_path):
    (tmp_path / "w.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"w\.safetensors is damaged or no file of packed weights"):
        unpack(tmp_path / "w.safetensors")


def test_a_file_of_other_weights_is_said(tmp_path):
    from safetensors.numpy import save_file

    save_file({"w": np.zeros(3, np.float32)}, tmp_path / "w.safetensors")
    with pytest.raises(InputError, match="no file of packed weights"):
        unpack(tmp_path / "w.safetensors")
