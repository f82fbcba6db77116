"""What the tests of the training share: the sizes of tiny networks, and a tokenizer for them."""

from __future__ import annotations

from typing import Any

from training.networks import Shape
from training.vocabulary import fit

SMALL = Shape(vocabulary=64, width=32, layers=2, mamba_layers=2, heads=2, states=4, longest=16)


def small_tokenizer() -> Any:
    """A tokenizer of forty tokens."""
    return fit(["the dogs see the cat", "a cat sees dogs", "they see it"] * 5, 40)
