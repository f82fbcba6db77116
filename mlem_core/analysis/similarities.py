"""The similarities of the layers of an analysis, and what divides them by feature.

RSA comes with the pass over the pairs; the others are computed at their first use, layer by layer
from the representations, and kept: moments that take the place of those of the ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis, Selection
from mlem_core.analysis.context import SelectionContext, Stage
from mlem_core.analysis.layer_sources import get_representations
from mlem_core.base.errors import InputError
from mlem_core.base.numbers import moderate
from mlem_core.base.resources import check_free
from mlem_core.base.text import many
from mlem_core.base.typing import Counted, FloatArray, Layer, counting, layer_name
from mlem_core.measures.decomposition import Decomposition, decompose
from mlem_core.pairs.designs import n_pairs
from mlem_core.pairs.distances import PRECOMPUTED, squared_distances
from mlem_core.pairs.ranks import IN_MEMORY_BYTES
from mlem_core.pairs.similarities import RSA, SIMILARITIES, Similarity
from mlem_core.pairs.similarity_moments import LayerInput, SimilarityMoments, similarity_moments
from mlem_core.pairs.statistics import PairStatistics
from mlem_core.storage.store import Store

# What a pair takes of memory while a layer is compared: its distance, its cell, its values.
FLOAT_BYTES, A_PAIR_BYTES = 8, 8 + 4 + 16


@dataclass(frozen=True)
class LayerSimilarity:
    """Layers of an analysis by one similarity.

    Attributes
    ----------
    similarity : which
    layers : (model, layer) of each of the n_layers layers
    pairs : pair statistics of these layers, whose `decompose` divides this similarity, if it
        `divides`
    values : (n_layers, n_layers)

    Examples
    --------
    >>> compared(analysis, "cka", store).square.shape
    (3, 3)
    """

    similarity: Similarity
    layers: tuple[Layer, ...]
    pairs: PairStatistics
    values: FloatArray

    def __repr__(self) -> str:
        return f"{self.similarity.short} of {many(len(self.layers), 'layer')}, see .square"

    @property
    def square(self) -> pd.DataFrame:
        """`values` with layers as "model:layer"; the columns' axis says which similarity it is."""
        names = [layer_name(layer) for layer in self.layers]
        columns = pd.Index(names, name=self.similarity.name)
        return pd.DataFrame(self.values, index=names, columns=columns)

    def values_among(self, layers: Sequence[Layer]) -> FloatArray:
        """(n, n) the similarities of n of its layers."""
        at = [self.layers.index(layer) for layer in layers]
        return np.asarray(self.values[np.ix_(at, at)])

    def decomposed(self) -> Decomposition:
        """The similarity of every two layers as a sum over the features.

        Raises as `decompose`; InputError for a similarity that has no terms by feature.
        """
        self.similarity.check_divides()
        return decompose(self.pairs.moments)

    def written(self, split: Decomposition | None = None) -> dict[str, pd.DataFrame]:
        """Tables for files, by file name: the square, and the terms where it has some.

        `split` has the terms, where they are beyond chance.
        """
        name = self.similarity.name
        square = self.square.rename_axis(index="layer", columns=None).reset_index()
        tables = {f"similarity_{name}.csv": square}
        if self.similarity.divides:
            terms = (split or self.decomposed()).table(self.layers)
            tables[terms_file(name)] = terms.rename(columns={"rsa": name})
        return tables

    def select(self, analysis: Analysis, selection: Selection) -> LayerSimilarity:
        """Layer similarity of the selected layers and features of their analysis."""
        layers, pairs = selection.layers, selection.select_statistics(self.pairs, analysis.layers)
        return LayerSimilarity(self.similarity, layers, pairs, self.values_among(layers))


def terms_file(similarity: str) -> str:
    """File of the contributions by feature to a similarity of every two layers."""
    return f"why_layers_{similarity}.csv"


def neural_distance(analysis: Analysis, similarity: Similarity, model: str) -> str:
    """The neural distance that a similarity is of in the layers of a model."""
    own = analysis.spec.neural_distance(model)
    return own if own == PRECOMPUTED else similarity.distance or own


def compared(
    analysis: Analysis, name: str, store: Store, progress: Counted | None = None
) -> LayerSimilarity:
    """All layers of an analysis by one similarity; kept in the store.

    Parameters
    ----------
    name : of `mlem_core.pairs.similarities.SIMILARITIES`
    progress : called with the number of layers done and their total

    Raises
    ------
    InputError
        An unknown similarity; too few stimuli; representations that are no longer in the store; an
        analysis that compares only some of the pairs, or ranks them in classes.

    Examples
    --------
    >>> compared(analysis, "cka", store)
    CKA of 3 layers, see .square
    """
    context = SelectionContext.from_analysis(analysis, store)
    if progress is not None:
        context = replace(context, report=lambda stage: progress(stage.done, stage.total))
    return SIMILARITY.get(context, name=name)


def compute_similarity(context: SelectionContext, name: str) -> SimilarityMoments:
    """Moments of a similarity in all layers of an analysis; raises as `compared`."""
    analysis, store, similarity = context.analysis, context.required_store, SIMILARITIES[name]
    check_comparable(analysis, similarity)
    _check_room(analysis, similarity, store)
    layers = [layer_input(analysis, similarity, layer, store) for layer in analysis.layers]
    return similarity_moments(
        similarity,
        layers,
        analysis.pairs.columns,
        analysis.folds,
        folder=store.root,
        progress=counting(context.report, similarity.short, "layers"),
    )


class _SimilarityStage(Stage[LayerSimilarity]):
    """Similarities of all layers by name; RSA comes with an analysis, and is not kept."""

    def find(self, context: SelectionContext, **options: Any) -> LayerSimilarity | None:
        if SIMILARITIES.named(options["name"]).of_ranks:
            return compute_rsa(context.analysis)
        return super().find(context, **options)

    def get(self, context: SelectionContext, **options: Any) -> LayerSimilarity:
        if SIMILARITIES.named(options["name"]).of_ranks:
            return compute_rsa(context.analysis)
        return super().get(context, **options)


def compute_rsa(analysis: Analysis) -> LayerSimilarity:
    """RSA of all layers, which comes with the pair statistics of an analysis."""
    layers = tuple(analysis.layers)
    return LayerSimilarity(SIMILARITIES[RSA], layers, analysis.pairs, analysis.rsa)


def _similarity_of_moments(
    context: SelectionContext, moments: SimilarityMoments, name: str
) -> LayerSimilarity:
    analysis, similarity = context.analysis, SIMILARITIES[name]
    pairs = analysis.pairs
    if similarity.divides:
        pairs = replace(pairs, moments=moments.replace_ranks(pairs.moments))
    return LayerSimilarity(similarity, tuple(analysis.layers), pairs, moments.values)


def check_comparable(analysis: Analysis, similarity: Similarity) -> None:
    """Raise InputError where the stimuli of an analysis cannot be compared by a similarity.

    One that is a sum over pairs needs all of them, unless it is of their ranks;
    one that is not needs representations of every layer.
    """
    design, n = analysis.design, len(analysis.stimuli)
    similarity.check_enough(n)
    if similarity.divides and not similarity.of_ranks and not design.is_complete:
        if analysis.lacks_pairs:
            raise InputError(analysis.lacks_pairs)
        raise InputError(
            f"found an analysis of {design.n_pairs:,} of the {n_pairs(n):,} pairs of its stimuli; "
            f"the {similarity.called} needs all pairs, so choose fewer stimuli (--sample), or all "
            "pairs (--pairs all)."
        )
    for layer in analysis.layers:
        if not similarity.divides and analysis.spec.neural_distance(layer[0]) == PRECOMPUTED:
            raise InputError(
                f"{layer_name(layer)} has distances only; the {similarity.called} needs "
                "representations of every layer, so choose another similarity or other layers."
            )


def _check_room(analysis: Analysis, similarity: Similarity, store: Store) -> None:
    """Raise before anything is computed where memory or disk will not do."""
    if not similarity.divides:
        return
    n, n_layers = analysis.design.n_pairs, len(analysis.layers)
    kept = 0 if similarity.sparse else FLOAT_BYTES * n * n_layers
    disk = kept * (kept > IN_MEMORY_BYTES)
    what = f"comparing {n:,} pairs of stimuli in {n_layers} layers"
    fewer = "choose fewer stimuli (--sample)"
    check_free(store.root, A_PAIR_BYTES * n + kept - disk, disk, what, fewer)


def layer_input(
    analysis: Analysis, similarity: Similarity, layer: Layer, store: Store
) -> LayerInput:
    """Function that gives what a similarity compares of a layer, from the store."""
    model, number = layer
    source = get_representations(analysis, model, store)
    distance = neural_distance(analysis, similarity, model)
    name = f"{model} layer {number}"
    if similarity.divides:
        return lambda: squared_distances(np.asarray(source[number]), distance, layer=name)
    components = similarity.components
    assert components is not None
    return lambda: components(moderate(np.asarray(source[number])))


def _key(context: SelectionContext, name: str) -> dict[str, Any]:
    analysis = context.analysis
    return analysis.key(analysis.layers, name=name, **dict(SIMILARITIES[name].settings))


SIMILARITY = _SimilarityStage(
    "similarity",
    3,
    SimilarityMoments,
    compute_similarity,
    key=_key,
    compressed=True,
    unpack=_similarity_of_moments,
)
