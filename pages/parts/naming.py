"""What features, models and layers are called on the screens: as the user has named them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlem_core.base.labels import Names, distinct
from mlem_core.base.typing import parse_layer
from pages.parts import choices, stored


def now() -> Names:
    """The display names of the chosen analysis."""
    from mlem_core.tasks import notes

    shown = notes.read(choices.get_one("analysis") or stored.EXAMPLE, stored.store()).shown
    return Names(features=shown, models=shown)


def of_features(names: Sequence[str]) -> Callable[[str], str]:
    """Gives what each of some features (or terms) is called, all different."""
    called = now()
    shown = dict(zip(names, distinct(names, [called.feature(one) for one in names]), strict=True))
    return lambda name: shown.get(name, name)


def of_models(names: Sequence[str]) -> Callable[[str], str]:
    """Gives what each of some models is called, all different."""
    called = now()
    shown = dict(zip(names, distinct(names, [called.model(one) for one in names]), strict=True))
    return lambda name: shown.get(name, name)


def layer(name: str) -> str:
    """ "MiniLM layer 3" of "minilm:3"."""
    model, number = parse_layer(name)
    return f"{now().model(model)} layer {number}"
