"""The terms of all similarities of a view, and how a caption says what they were computed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlem_core.base.typing import parse_layer
from mlem_core.report import captions
from pages.parts import stored

if TYPE_CHECKING:
    from mlem_core.analysis.selection import Selection
    from mlem_core.measures.decomposition import Decomposition
    from mlem_core.measures.partial import PartialSimilarity
    from pages.parts.view import View


@stored.kept(8, copied=True, show_spinner="Dividing all similarities over the features …")
def _decomposition(
    job_id: str, features: tuple[str, ...], layers: tuple[str, ...], similarity: str
) -> Decomposition:
    from mlem_core.analysis.similarities import compared

    analysis = stored.open_analysis(job_id)
    found = compared(analysis, similarity, stored.store())
    chosen = analysis.select(features, [parse_layer(layer) for layer in layers])
    return found.of(analysis, chosen).decomposed()


def decomposition_of(view: View, similarity: str = "rsa") -> Decomposition:
    """The similarity of every two layers of a view as a sum over its features."""
    layers = tuple(view.layer_names)
    return _decomposition(view.job_id, view.selection.features, layers, similarity)


@stored.kept(8, copied=True, show_spinner="Comparing the layers apart from RSA …")
def _partial(job_id: str, selection: Selection) -> PartialSimilarity:
    from mlem_core.inference.partial import of_layers

    analysis = stored.open_analysis(job_id)
    return of_layers(*analysis.subset(selection), selection.estimator)


def partial_of(view: View) -> PartialSimilarity:
    """How alike every two layers of a view are in the features, in the rest, and by transfer."""
    return _partial(view.job_id, view.selection)


def computed_on(view: View) -> str:
    """How what is said of terms was computed, for a caption."""
    tables = view.analysis.tables
    counts = tables.n_stimuli, tables.n_pairs, tables.n_folds
    return f"{captions.coded(view.coding)} {captions.computed_on(*counts, view.held_out)}"
