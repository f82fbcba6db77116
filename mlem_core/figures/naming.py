"""How a figure writes the names of features and models.

A figure function gets identifiers, and colours, orders and clicks (`customdata`) go by them; what
it writes is what `Names` calls them. Without more that is "part of speech" for `part_of_speech`.
With names of one's own:

    with figures.naming(Names(features={"pos": "part of speech"}, models={"gpt2": "GPT-2"})):
        figure = figures.profiles(...)

Everything that is drawn inside is named so, on hovering too. Whoever draws for a screen or for a
file says so once, around the drawing; a finished figure keeps its names. Tables follow by
`Names.table`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from mlem_core.base.labels import Names, distinct, initials
from mlem_core.base.typing import Layer
from mlem_core.figures.style import in_full, short_names

_NAMES: ContextVar[Names] = ContextVar("names", default=Names())  # noqa: B039 (it is frozen)


@contextmanager
def naming(names: Names) -> Iterator[None]:
    """Everything that is drawn inside calls features and models by these names."""
    token = _NAMES.set(names)
    try:
        yield
    finally:
        _NAMES.reset(token)


def feature_name(name: str) -> str:
    """What a feature or an interaction is called, in full, as Plotly shall show it."""
    return in_full(_NAMES.get().feature(name))


def model_name(name: str) -> str:
    """What a model is called, in full, as Plotly shall show it."""
    return in_full(_NAMES.get().model(name))


def layer_title(layer: Layer) -> str:
    """What a layer is called: "GPT-2 layer 6"."""
    return f"{model_name(layer[0])} layer {layer[1]}"


def layer_titles(layers: Sequence[Layer], longest: int) -> list[str]:
    """What layers are called, the names of their models at most so many letters each."""
    models = model_labels([model for model, _ in layers], longest)
    return [f"{model} layer {n}" for model, (_, n) in zip(models, layers, strict=True)]


def feature_labels(names: Sequence[str], longest: int) -> list[str]:
    """What features are called, at most so many letters each, all different."""
    called = distinct(names, [_NAMES.get().feature(name) for name in names])
    return short_names(called, longest)


def model_labels(names: Sequence[str], longest: int) -> list[str]:
    """What models are called, at most so many letters each, all different."""
    called = distinct(names, [_NAMES.get().model(name) for name in names])
    return short_names(called, longest)


def model_initials(names: Sequence[str]) -> dict[str, str]:
    """The letters that stand before the numbers of each model's layers, by identifier."""
    called = distinct(names, [_NAMES.get().model(name) for name in names])
    letters = initials(called)
    return {name: in_full(letters[one]) for name, one in zip(names, called, strict=True)}
