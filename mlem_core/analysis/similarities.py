"""The similarities of the layers of an analysis other than RSA, and what divides them by feature.

RSA comes with the pass over the pairs; the others are computed when they are asked for, layer by
layer from the representations, and kept: sums by cell that take the place of those of the ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.maps import representations_of
from mlem_core.analysis.selection import Selection
from mlem_core.base.errors import InputError
from mlem_core.base.room import check_disk, check_memory
from mlem_core.base.scaling import moderate
from mlem_core.base.typing import Counted, FloatArray, Layer, layer_name
from mlem_core.measures.decomposition import Decomposition, decompose, with_sums
from mlem_core.pairs.alignments import COMPONENTS, every_two
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import n_pairs
from mlem_core.pairs.distances import PRECOMPUTED, squared_distances
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.ranks import IN_MEMORY_BYTES
from mlem_core.pairs.similarities import (
    NEIGHBOURS,
    Similarity,
    SimilaritySums,
    similarity_named,
    similarity_sums,
)
from mlem_core.pairs.tables import PairTables
from mlem_core.storage.stage import Stage
from mlem_core.storage.store import Store

RSA = "rsa"
# What a pair takes of memory while a layer is compared: its distance, its cell, its values.
FLOAT_BYTES, A_PAIR_BYTES = 8, 8 + 4 + 16


@dataclass(frozen=True)
class Compared:
    """Layers of an analysis by one similarity.

    Attributes
    ----------
    similarity : which
    layers : (model, layer) of each of the n_layers layers
    tables : pair tables of these layers, whose `decompose` divides this similarity, if it `divides`
    values : (n_layers, n_layers)
    """

    similarity: Similarity
    layers: tuple[Layer, ...]
    tables: PairTables
    values: FloatArray

    @property
    def square(self) -> pd.DataFrame:
        """`values` with layers as "model:layer"; the columns' axis says which similarity it is."""
        names = [layer_name(layer) for layer in self.layers]
        columns = pd.Index(names, name=self.similarity.name)
        return pd.DataFrame(self.values, index=names, columns=columns)

    def decomposed(self) -> Decomposition:
        """The similarity of every two layers as a sum over the features.

        Raises as `decompose`; InputError for a similarity that has no terms by feature.
        """
        self.similarity.check_divides()
        return decompose(self.tables, self.values)

    def written(self) -> dict[str, pd.DataFrame]:
        """What is written of it, by file name: the square, and the terms where it has some."""
        name = self.similarity.name
        square = self.square.rename_axis(index="layer", columns=None).reset_index()
        tables = {f"similarity_{name}.csv": square}
        if self.similarity.divides:
            terms = self.decomposed().table(self.layers).rename(columns={"rsa": name})
            tables[f"why_layers_{name}.csv"] = terms
        return tables

    def of(self, analysis: Analysis, selection: Selection) -> Compared:
        """What is chosen of the layers and features of their analysis."""
        places = selection.places(analysis.layers)
        tables = selection.of_tables(self.tables, analysis.layers)
        values = self.values[np.ix_(places, places)]
        return Compared(self.similarity, tuple(selection.layers), tables, values)


def _save(found: SimilaritySums, folder: Path) -> None:
    np.savez_compressed(folder / "sums.npz", **found._asdict())


def _load(folder: Path) -> SimilaritySums:
    with np.load(folder / "sums.npz", allow_pickle=False) as arrays:
        return SimilaritySums(**{name: arrays[name] for name in SimilaritySums._fields})


STAGE = Stage("similarity", 1, _save, _load)


def depends_on(analysis: Analysis, name: str) -> dict[str, Any]:
    """What the key of a similarity of all layers of an analysis is made of."""
    spec, models = analysis.spec, analysis.manifest["models"]
    similarity = similarity_named(name)
    return {
        "name": name,
        "stimuli": analysis.stimuli.digest,
        "layers": [
            [models[model]["identity"], number, distance_of(analysis, similarity, model)]
            for model, number in analysis.layers
        ],
        "units": spec.units,
        "missing": spec.missing,
        "neighbours": NEIGHBOURS,
        **({} if similarity.divides else {"components": COMPONENTS}),
        **spec.pair_choices,
    }


def distance_of(analysis: Analysis, similarity: Similarity, model: str) -> str:
    """The neural distance that a similarity is of in the layers of a model."""
    own = analysis.spec.distance_of(model)
    return own if own == PRECOMPUTED else similarity.distance or own


def find(analysis: Analysis, name: str, store: Store) -> Compared | None:
    """A similarity of all layers if it is in the store, or is RSA; computes nothing."""
    if name == RSA:
        return _compared(analysis, name, None)
    found = STAGE.find(store, depends_on(analysis, name))
    return None if found is None else _compared(analysis, name, found)


def compared(
    analysis: Analysis, name: str, store: Store, progress: Counted | None = None
) -> Compared:
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
    """
    similarity = similarity_named(name)
    if name == RSA:
        return _compared(analysis, name, None)

    def make() -> SimilaritySums:
        if similarity.aligned is not None:
            return _by_alignment(analysis, similarity, store, progress)
        check_pairs(analysis, similarity)
        _check_room(analysis, similarity, store)
        index = pair_index(analysis)
        layers = [squared_of(analysis, similarity, layer, store) for layer in analysis.layers]
        return similarity_sums(
            similarity, layers, index.cell, index.n_cells, folder=store.root, progress=progress
        )

    return _compared(analysis, name, STAGE.get(store, depends_on(analysis, name), make))


def _compared(analysis: Analysis, name: str, found: SimilaritySums | None) -> Compared:
    tables, values = analysis.tables, analysis.rsa
    if found is not None:
        values = found.similarity
        tables = with_sums(tables, found) if similarity_named(name).divides else tables
    return Compared(similarity_named(name), tuple(analysis.layers), tables, values)


def _by_alignment(
    analysis: Analysis, similarity: Similarity, store: Store, progress: Counted | None
) -> SimilaritySums:
    """Layers that are turned onto each other: there are products of every two, and no sums."""
    if (n := len(analysis.stimuli)) < similarity.fewest:
        raise InputError(
            f"found {n} stimuli; the {similarity.called} needs at least {similarity.fewest}."
        )
    for layer in analysis.layers:
        if distance_of(analysis, similarity, layer[0]) == PRECOMPUTED:
            raise InputError(
                f"{layer_name(layer)} has distances only; the {similarity.called} needs "
                "representations of every layer, so choose another similarity or other layers."
            )
    assert similarity.aligned is not None
    rows = [rows_of(analysis, layer, store) for layer in analysis.layers]
    products = every_two(similarity.aligned, rows, analysis.folds, progress)
    return SimilaritySums(np.zeros((len(rows), 0)), np.diag(products).copy(), products)


def rows_of(analysis: Analysis, layer: Layer, store: Store) -> Callable[[], NDArray[np.floating]]:
    """What gives the representations (n_stimuli, n_units) of a layer."""
    source = representations_of(analysis, layer[0], store)
    return lambda: moderate(np.asarray(source[layer[1]]))


def check_pairs(analysis: Analysis, similarity: Similarity) -> None:
    """Raise InputError where not all pairs are compared."""
    design, n = analysis.design, len(analysis.stimuli)
    if not design.is_complete:
        raise InputError(
            f"found an analysis of {design.n_pairs:,} of the {n_pairs(n):,} pairs of its stimuli; "
            f"the {similarity.called} needs all pairs, so choose fewer stimuli (--sample), or all "
            "pairs (--pairs all)."
        )


def _check_room(analysis: Analysis, similarity: Similarity, store: Store) -> None:
    """Raise before anything is computed where memory or disk will not do."""
    n, kept = analysis.design.n_pairs, 0
    if not similarity.sparse:
        kept = FLOAT_BYTES * n * len(analysis.layers)
    what = f"comparing {n:,} pairs of stimuli in {len(analysis.layers)} layers"
    fewer = "choose fewer stimuli (--sample)"
    disk = kept * (kept > IN_MEMORY_BYTES)
    check_memory(A_PAIR_BYTES * n + kept - disk, what, fewer)
    check_disk(store.root, disk, what, f"{fewer} or another folder for the store (MLEM_CACHE)")


def pair_index(analysis: Analysis) -> PairIndex:
    """The cells of all pairs, as the pair tables of the analysis have them."""
    columns = feature_columns(analysis.stimuli, resolved=analysis.tables.resolved)
    return PairIndex.build(columns, analysis.folds, analysis.spec.missing, design=analysis.design)


def squared_of(
    analysis: Analysis, similarity: Similarity, layer: Layer, store: Store
) -> Callable[[], FloatArray]:
    """What gives the squared distances (n_pairs,) of a layer that a similarity is of."""
    model, number = layer
    source = representations_of(analysis, model, store)
    distance = distance_of(analysis, similarity, model)
    name = f"{model} layer {number}"
    return lambda: squared_distances(np.asarray(source[number]), distance, layer=name)
