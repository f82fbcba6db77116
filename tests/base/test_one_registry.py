"""The registry that each kind of thing has: one name, one entry, and the choices in the error."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from inputs import refused

from mlem_core.base.registry import Registry
from mlem_core.estimators.registry import ESTIMATORS
from mlem_core.pairs.distances import DISTANCES
from mlem_core.pairs.similarities import SIMILARITIES


@dataclass(frozen=True)
class Colour:
    name: str
    hue: int = 0


def test_what_is_registered_is_found_by_its_name_in_order() -> None:
    colours = Registry[Colour]("colour")
    for name in ("red", "blue"):
        colours.register(Colour(name))
    assert list(colours) == ["red", "blue"]
    assert colours.named("blue") == Colour("blue")
    with refused("colour 'bleu'", "blue?", "red, blue"):
        colours.named("bleu")


@pytest.mark.parametrize("registry", [ESTIMATORS, DISTANCES, SIMILARITIES])
def test_an_entry_is_never_replaced_by_another(registry: Registry) -> None:
    for name, entry in list(registry.items()):
        assert registry.named(name) is entry
        with pytest.raises(ValueError, match=f"{registry.kind} '{name}' already"):
            registry.register(entry)
        assert registry[name] is entry
