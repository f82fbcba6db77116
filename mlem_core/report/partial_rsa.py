"""Figure of one similarity beside RSA and τ: in the features, in the rest, or transfer."""

from __future__ import annotations

from mlem_core import figures
from mlem_core.base.errors import unknown
from mlem_core.estimators.registry import estimator_named
from mlem_core.inference.partial import of_layers
from mlem_core.report.shown import FigureContext, RenderedFigure, figure

# By the name of the array in `PartialSimilarity`: what hovering says, and what a caption does.
UNITS = {
    "features": "S_feat",
    "rest": "S_rest",
    "transfer": "held-out ρ of the first's metric on the second",
    "ratio": "that ρ as a part of the second's own",
}
NAMES = {
    "features": "Alike in the features (S_feat)",
    "rest": "Alike in the rest (S_rest)",
    "transfer": "Transfer of the metric (held-out ρ)",
    "ratio": "Transfer, as a part of the layer's own score",
}
_NONE = "Cells are empty where that is of a layer of which {} is not clearly above 0."
_CAPTIONS = {
    "features": "The correlation of what the features explain in either layer, v_AB / √(v_AA "
    "v_BB), between disjoint sets of stimuli: 1 where both use them in proportion, whatever they "
    f"explain in all; above 1 is sampling. {_NONE.format('what they explain')}",
    "rest": "A partial RSA: the correlation of what is left of the ranks when what the features "
    "explain is taken away, (RSA − v_AB) / √((1 − v_AA)(1 − v_BB)). What other features, another "
    f"coding or more stimuli would explain is still in it. {_NONE.format('what is left')}",
    "transfer": "Held-out ρ, mean over folds, that the metric fitted to a layer (up the side) has "
    "with the distances in another (along the bottom); on the diagonal the layers' own scores.",
    "ratio": "Held-out ρ, mean over folds, that the metric fitted to a layer (up the side) has "
    "with the distances in another (along the bottom), divided by that of the latter's own "
    f"metric. {_NONE.format('its own score')}",
}


def choices(estimator: str) -> tuple[str, ...]:
    """Which there are with an estimator: without transfer where it is slow to fit."""
    names = tuple(NAMES)
    return names[:2] if estimator_named(estimator).slow else names


@figure(
    "similar_in",
    "Alike in the features, in the rest, or by transfer",
    "What the two matrices above mix, apart. Click a cell to choose its two layers.",
    offered=True,
)
def matrix(shown: FigureContext) -> RenderedFigure | None:
    """The one that is chosen; by default that in the features.

    Raises
    ------
    InputError
        One that there is not.
    """
    if not shown.several:
        return None
    name = shown.drawing.options.get("partial", "features")
    if name not in choices(shown.selection.estimator):
        raise unknown("similarity", name, choices(shown.selection.estimator))
    of = *shown.analysis.subset(shown.selection), shown.selection.estimator
    found, layers = shown.once("partial", lambda: of_layers(*of)), shown.selection.layers
    small = shown.drawing.screen
    return RenderedFigure(
        figures.partial_matrix(
            found.square(name, layers), UNITS[name], shown.marked_pair, small=small
        ),
        NAMES[name],
        f"{_CAPTIONS[name]} {shown.basis}",
        found.table(layers),
        found.square(name, layers).round(3).rename_axis("layer").reset_index(),
    )
