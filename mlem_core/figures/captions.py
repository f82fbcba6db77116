"""Texts of figures: names of features, models and layers, and shared sentences of captions.

A figure function gets identifiers, and colours, orders and clicks (`customdata`) go by them; what
it writes is what `Names` calls them. Without more that is "part of speech" for `part_of_speech`.
With names of one's own:

    with figures.naming(Names(features={"pos": "part of speech"}, models={"gpt2": "GPT-2"})):
        figure = figures.profiles(...)

Everything that is drawn inside is named so, on hovering too. Whoever draws for a screen or for a
file says so once, around the drawing; a finished figure keeps its names. Tables follow by
`Names.table`.

A caption says what one sees, how it was computed and on how much; on the screen it is folded under
the figure's line. It stands beside what draws the figure. Nothing in it is a hint on how to use a
screen. `basis` is its last part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from mlem_core.base.labels import Names, distinct
from mlem_core.base.text import fraction, pairs_of
from mlem_core.base.typing import Layer
from mlem_core.estimators.normal_equations import NOT_APART
from mlem_core.figures.style import MODEL_COLORS, in_full, shade, short_names
from mlem_core.inference.chance import UNCORRECTED, Chance, beyond_chance
from mlem_core.measures import similarity

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
    return in_full(_NAMES.get().feature(name))


def model_name(name: str) -> str:
    """Display name of a model, in full, for Plotly."""
    return in_full(model_called(name))


def model_called(name: str) -> str:
    """Display name of a model, unchanged."""
    return _NAMES.get().model(name)


def layer_title(layer: Layer) -> str:
    """Display name of a layer: "GPT-2 layer 6", "brain V1"."""
    return in_full(_NAMES.get().layer_title(layer))


def layer_in_model(layer: Layer) -> str:
    """Display name of a layer after that of its model: "layer 6", "V1"."""
    return in_full(_NAMES.get().in_model(layer))


def axis_title(model: str) -> str:
    """Title of an axis of the layers of a model: "layer", "time (ms)"."""
    return in_full(_NAMES.get().axis(model))


def layer_titles(layers: Sequence[Layer], longest: int) -> list[str]:
    """Display names of layers, the names of their models at most so many letters each."""
    models = model_labels([model for model, _ in layers], longest)
    own = layer_labels(layers, longest)
    return [
        f"{model} {label if label != str(layer[1]) else f'layer {label}'}"
        for model, layer, label in zip(models, layers, own, strict=True)
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
        own = [names.own(layers[place]) or labels[place] for place in at]
        for place, label in zip(at, short_names(own, longest), strict=True):
            labels[place] = label
    return labels


def named_layers(axis: dict[str, Any], model: str, layers: Iterable[int]) -> dict[str, Any]:
    """An axis of the layers of a model: with their names where they have some, each one's while
    there is room for all."""
    shown = sorted({int(number) for number in layers})
    if not any(_NAMES.get().own((model, number)) for number in shown):
        return axis
    labels = dict(zip(shown, layer_labels([(model, n) for n in shown]), strict=True))
    ticks = shown if len(shown) <= _NAMED else [n for n in axis["tickvals"] if n in labels]
    return {**axis, "tickvals": ticks, "ticktext": [labels[number] for number in ticks]}


def feature_labels(names: Sequence[str], longest: int) -> list[str]:
    """Display names of features, at most so many letters each, all different."""
    called = distinct(names, [_NAMES.get().feature(name) for name in names])
    return short_names(called, longest)


def model_labels(names: Sequence[str], longest: int) -> list[str]:
    """Display names of models, at most so many letters each, all different."""
    called = distinct(names, [_NAMES.get().model(name) for name in names])
    return short_names(called, longest)


def model_colors(models: Sequence[str]) -> list[str]:
    """The colour of each model, no two the same: those of one group are shades of one hue."""
    groups = [_NAMES.get().groups.get(one, one.partition("@")[0]) for one in models]
    hues = list(dict.fromkeys(groups))
    if len(hues) == 1:
        groups = hues = list(models)
    of = [hues.index(group) % len(MODEL_COLORS) for group in groups]
    return [
        shade(MODEL_COLORS[hue], of[:place].count(hue), of.count(hue))
        for place, hue in enumerate(of)
    ]


STRESS = "Stress (Kruskal 1964): .05 good, .1 fair, .2 poor."


def joined(*parts: str) -> str:
    """The parts of a caption that are there, one after the other."""
    return " ".join(filter(None, parts))


def ceiling(coding: str) -> str:
    """Meaning of a ceiling in words; `coding` as in `mlem_core.pairs.columns.coding`."""
    return (
        "an estimate (from means over other stimuli) of the highest ρ that a function of the "
        f"features can reach, coded {coding}"
    )


def ceiling_of(which: str, coding: str) -> str:
    """Meaning of the ceiling of one of two layers in a sentence; `which` is "first" or "second"."""
    return (
        f"How far the {which} layer's distances can correlate with a function of the features: "
        f"{ceiling(coding)}. Another coding of the same features may reach more."
    )


def tau_by_chance(n_features: int) -> str:
    """Size of τ by chance with so few features, in a sentence; empty where it is not defined."""
    if n_features < 2:
        return ""
    return f"By chance |τ| ≤ {fraction(similarity.tau_by_chance(n_features))} (95 %)."


def scores(coding: str) -> str:
    """Caption of the table of held-out scores; `coding` as in `mlem_core.pairs.columns.coding`."""
    chosen = "the ridge penalty α"
    if coding.startswith(RESOLVED):
        chosen = (
            "the strength β (column alpha) that draws the distances of values towards one distance "
            f"a feature ({NOT_APART:g}: coded as same or different)"
        )
    return (
        f"ρ, ρ with ties at random (rho_a), the ceiling, and {chosen}, as the inner "
        "cross-validation chose it."
    )


# The words that stand for a term in a text -> its name in docs/glossary.md, what it means.
_TERMS: dict[str, tuple[str, str]] = {
    r"held-out ρ": (
        "Held-out ρ",
        "Spearman's ρ of predicted and neural distances over pairs of stimuli that the model was "
        "not fitted to",
    ),
    r"[Cc]eilings?": (
        "Feature ceiling",
        "the highest held-out ρ that a function of the features, in their coding, can reach",
    ),
    r"\(FI\)|importances?": ("FI, importance", "the drop in held-out ρ when a feature is permuted"),
    r"τ": (
        "τ, weighted Kendall τ",
        "how similarly two profiles order the features; high ranks count more",
    ),
    r"RSA": (
        "RSA",
        "Spearman's ρ of the neural distances of two layers over all pairs of stimuli; it does not "
        "use features",
    ),
    r"CKA": (
        "CKA",
        "the correlation of the squared distances of two layers, U-centred; 0 on average for "
        "unrelated layers",
    ),
    r"overlap": (
        "Overlap of neighbours",
        "how many of the 10 nearest neighbours of a stimulus in one layer are also nearest in the "
        "other, from 0 (chance) to 1",
    ),
    r"S_feat": (
        "S_feat",
        "the correlation between the feature-explained parts of two layers: 1 where both use the "
        "features in proportion, however much they explain",
    ),
    r"S_rest|partial RSA": ("S_rest", "the RSA of two layers beyond their feature-explained parts"),
    r"[Tt]ransfer|[Cc]ross-model prediction": (
        "Cross-model prediction",
        "the held-out ρ of the metric fitted to one layer on the distances in another",
    ),
    r"Shapley|[Tt]erms?|[Cc]ontributions?": (
        "Contribution",
        "the part of a feature in the similarity of two layers; contributions and the unexplained "
        "part add up to it",
    ),
    r"[Uu]niversality": (
        "Universality",
        "a contribution between groups as a fraction of the contribution within groups",
    ),
    r"[Cc]oded|coding": (
        "Coding",
        "whether the metric sees that two stimuli differ, or also which values differ",
    ),
    r"95 %": ("95 % confidence interval", "for the population value, over the named units"),
    r"Benjamini-Hochberg|BH": (
        "p, corrected p, BH",
        "at most 5 % of the significant results in the family are expected to be due to chance",
    ),
    r"audit": (
        "Audit",
        "the same analysis without stimuli at position 0, without outlier units, with other "
        "distances, with random weights",
    ),
    r"[Aa]nalysis variants?": ("Analysis variants", "all combinations of reasonable choices"),
    r"MDS": (
        "MDS",
        "points in a plane whose distances are as close as possible to the true ones; the axes "
        "have no meaning, and stress is the error of the distances",
    ),
}
TERMS = tuple(name for name, _ in _TERMS.values())


def glosses(text: str) -> str:
    """The terms that occur in a text, as a list in Markdown; empty where none does."""
    found = [
        f"- **{name}**: {means}."
        for words, (name, means) in _TERMS.items()
        if re.search(rf"(?<!\w)(?:{words})(?!\w)", text)
    ]
    return "\n".join(found)


def of_chance(chance: Chance | None) -> str:
    """Whether contributions to all layers are beyond chance, in a sentence."""
    if chance is None:
        return UNCORRECTED
    how = beyond_chance(len(chance.draws))
    return " ".join((f"{how[0].upper()}{how[1:]}.", *chance.notes))


FOLDS = "one standard deviation over folds"
NOISE = "Grey band: noise ceiling of the RSA with the subjects, lower to upper"
RESOLVED = "by value"  # begins the words for a coding by value


def computed_on(
    n_stimuli: int, n_pairs: int = 0, n_folds: int = 0, coding: str = "", fit: str = ""
) -> str:
    """The n of a figure, the coding of its features and the fit, as a sentence.

    Parameters
    ----------
    n_pairs, n_folds : 0 where they are not named
    coding : as in `mlem_core.pairs.columns.coding`; empty where features play no part
    fit : how the metric models were fitted; empty where none was
    """
    counts = [f"{n_stimuli:,} stimuli"]
    counts += [pairs_of(n_pairs, n_stimuli)] if n_pairs else []
    counts += [f"{n_folds} folds"] if n_folds else []
    how = [f"features coded {coding}"] * bool(coding) + [fit] * bool(fit)
    return f"n = {'; '.join([', '.join(counts), *how])}."
