"""Names of features, models and layers as a figure writes them.

A figure function gets identifiers, and colours and orders go by them; what it writes is what
`Names` calls them. Without more that is "part of speech" for `part_of_speech`.
With names of one's own:

    with naming(Names(features={"pos": "part of speech"}, models={"gpt2": "GPT-2"})):
        figure = figures.profiles(...)

Everything that is drawn inside is named so, on hovering too. Whoever draws for a screen or for a
file says so once, around the drawing; a finished figure keeps its names. Tables follow by
`Names.table`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from mlem_core.base.labels import Names, distinct, with_layer
from mlem_core.base.typing import Layer
from mlem_core.figures.style import MODEL_COLORS, TITLE, escape_text, shade, short_names

TICK, _NAMED = 8, 12  # letters of a layer's name at a tick; layers that all have theirs
_NAMES: ContextVar[Names] = ContextVar("names", default=Names())  # noqa: B039 (it is frozen)


@contextmanager
def naming(names: Names) -> Iterator[None]:
    """Everything that is drawn inside calls features and models by these names."""
    token = _NAMES.set(names)
    try:
        yield
    finally:
        _NAMES.reset(token)


@contextmanager
def naming_layers(layers: Mapping[str, str]) -> Iterator[None]:
    """Layers "model:number" have these names inside, whatever features and models are called."""
    with naming(replace(_NAMES.get(), layers=layers)):
        yield


def feature_name(name: str) -> str:
    """Display name of a feature or an interaction, in full, for Plotly."""
    return escape_text(_NAMES.get().feature(name))


def model_name(name: str) -> str:
    """Display name of a model, in full, for Plotly."""
    return escape_text(model_called(name))


def model_called(name: str) -> str:
    """Display name of a model, unchanged."""
    return _NAMES.get().model(name)


def layer_title(layer: Layer) -> str:
    """Display name of a layer: "GPT-2 layer 6", "brain V1"."""
    return escape_text(_NAMES.get().layer_title(layer))


def layer_in_model(layer: Layer) -> str:
    """Display name of a layer after that of its model: "layer 6", "V1"."""
    return escape_text(_NAMES.get().layer_label(layer))


def axis_title(model: str) -> str:
    """Title of an axis of the layers of a model: "layer", "time (ms)"."""
    return escape_text(_NAMES.get().axis(model))


def layer_titles(layers: Sequence[Layer], longest: int) -> list[str]:
    """Display names of layers, the names of their models at most so many letters each."""
    models = model_labels([model for model, _ in layers], longest)
    labels = layer_labels(layers, longest)
    return [
        with_layer(model, label if label != str(layer[1]) else f"layer {label}")
        for model, layer, label in zip(models, layers, labels, strict=True)
    ]


def layer_labels(layers: Sequence[Layer], longest: int = TICK) -> list[str]:
    """The names of layers, at most so many letters each, all different within a model; the numbers
    of those that have none."""
    names = _NAMES.get()
    labels = [str(number) for _, number in layers]
    if not names.layers:
        return labels
    for model in dict.fromkeys(model for model, _ in layers):
        at = [place for place, layer in enumerate(layers) if layer[0] == model]
        texts = [names.own(layers[place]) or labels[place] for place in at]
        for place, label in zip(at, short_names(texts, longest), strict=True):
            labels[place] = label
    return labels


def named_layers(axis: dict[str, Any], model: str, layers: Iterable[int]) -> dict[str, Any]:
    """An axis of the layers of a model: with their names where they have some, each one's while
    there is room for all."""
    numbers = sorted({int(number) for number in layers})
    if not any(_NAMES.get().own((model, number)) for number in numbers):
        return axis
    labels = dict(zip(numbers, layer_labels([(model, n) for n in numbers]), strict=True))
    ticks = numbers if len(numbers) <= _NAMED else [n for n in axis["tickvals"] if n in labels]
    return {**axis, "tickvals": ticks, "ticktext": [labels[number] for number in ticks]}


def feature_labels(names: Sequence[str], longest: int) -> list[str]:
    """Display names of features, at most so many letters each, all different."""
    called = distinct(names, [_NAMES.get().feature(name) for name in names])
    return short_names(called, longest)


def model_labels(names: Sequence[str], longest: int) -> list[str]:
    """Display names of models, at most so many letters each, all different."""
    called = distinct(names, [_NAMES.get().model(name) for name in names])
    return short_names(called, longest)


def model_families(models: Sequence[str]) -> dict[str, dict[str, str]]:
    """Models by the names of their families, with what each is of its family, see `Names`."""
    return _NAMES.get().families(models)


def family_rows(models: Sequence[str], across: int) -> tuple[list[str], list[str], list[int]]:
    """Rows of panels, a panel a model: those of one family beside each other, its name said once.

    Returns
    -------
    the models in the order of their panels, the titles, and the number of panels in each row
    """
    families, order, titles, rows = model_families(models), list[str](), list[str](), list[int]()
    alone = True  # whether the last row has models without relatives
    for variants in families.values():
        first, *others = variants
        whole = distinct(models, [_NAMES.get().model(model) for model in models])
        title = short_names([whole[models.index(first)]], TITLE)[0]
        if others and variants[first] not in title:
            title = f"{title}, {escape_text(variants[first])}"
        order += variants
        titles += [title, *(escape_text(variants[model]) for model in others)]
        if others:
            rows += [min(across, len(variants) - at) for at in range(0, len(variants), across)]
        elif alone and rows and rows[-1] < across:
            rows[-1] += 1
        else:
            rows.append(1)
        alone = not others
    return order, titles, rows


def model_colors(models: Sequence[str]) -> list[str]:
    """The colour of each model, no two the same: those of one group are shades of one hue."""
    names = _NAMES.get()
    groups = [names.groups.get(model, names.family_and_variant(model)[0]) for model in models]
    hues = list(dict.fromkeys(groups))
    if len(hues) == 1:
        groups = hues = list(models)
    of = [hues.index(group) % len(MODEL_COLORS) for group in groups]
    return [
        shade(MODEL_COLORS[hue], of[:place].count(hue), of.count(hue))
        for place, hue in enumerate(of)
    ]
