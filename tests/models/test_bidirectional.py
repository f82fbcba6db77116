"""The bidirectional Mamba: what it sees, and that its right half is a Mamba of reversed text."""

from __future__ import annotations

import torch
from transformers import AutoConfig, AutoModel

from mlem_core.models.bidirectional import (
    BidirectionalMambaConfig,
    BidirectionalMambaModel,
)
from mlem_core.models.forward import count_blocks, hidden_states, is_causal
from mlem_core.models.loaded import quiet

SIZES = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "state_size": 4,
    "intermediate_size": 24,
}


def model() -> BidirectionalMambaModel:
    torch.manual_seed(0)
    with quiet():
        made = BidirectionalMambaModel(BidirectionalMambaConfig(**SIZES)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn(parameter.shape)
    return made


def test_a_token_sees_what_comes_before_and_after_it():
    made = model()
    n_layers, _ = count_blocks("it", made)
    assert n_layers == 3 and not is_causal(made, n_layers)
    one, other = (hidden_states(made, 3, torch.tensor([[5, 6, 7, last]])) for last in (8, 9))
    assert torch.equal(one[0][:, :3], other[0][:, :3])
    assert not torch.allclose(one[1][:, 0], other[1][:, 0])


def test_reversed_text_with_its_halves_swapped_gives_reversed_states():
    made, swapped, ids = model(), model(), torch.tensor([[5, 6, 7, 8, 9], [10, 11, 5, 5, 12]])
    for layer in swapped.layers:
        layer.left, layer.right = layer.right, layer.left
    for ours, theirs in zip(
        hidden_states(made, 3, ids), hidden_states(swapped, 3, ids.flip(1)), strict=True
    ):
        torch.testing.assert_close(ours, theirs.flip(1))


def test_without_its_right_half_it_is_causal():
    made = model()
    with torch.no_grad():
        for layer in made.layers:
            layer.right.out_proj.weight.zero_()
    assert is_causal(made, 3)


def test_it_is_saved_and_opened_as_transformers_does(tmp_path):
    made = model()
    made.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).intermediate_size == 24
    opened = AutoModel.from_pretrained(tmp_path).eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    for ours, theirs in zip(
        hidden_states(made, 3, ids), hidden_states(opened, 3, ids), strict=True
    ):
        assert torch.equal(ours, theirs)
