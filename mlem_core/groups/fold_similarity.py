"""RSA of layers inside folds of stimuli, so that layers are matched on some and compared on others.

The largest of many similarities is large by chance. So each layer of a system is matched with the
layer of another that is the most similar one in the other folds, and compared in this fold.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.maps import representations_of
from mlem_core.base.parallel import cores
from mlem_core.base.typing import Counted, FloatArray, IntArray, layer_name
from mlem_core.pairs.distances import PRECOMPUTED, squared_distances
from mlem_core.pairs.ranks import PairRanks, pair_ranks
from mlem_core.storage.store import Stage, Store

FEWEST = 3  # systems that are compared
# Stimuli of a fold whose pairs are compared; the first ones in random order where it has more.
MOST = 500


class _Kept(NamedTuple):
    """RSA in each fold, (n_folds, n_layers, n_layers)."""

    rsa: FloatArray


STAGE = Stage("fold-similarity", 1, _Kept)


def fold_similarity(
    analysis: Analysis, store: Store, progress: Counted | None = None
) -> FloatArray | None:
    """RSA of every two layers on the pairs inside each fold; kept in the store.

    None with fewer than `FEWEST` systems: nothing needs it then.

    Parameters
    ----------
    progress : called with the number of layers of folds that are done, and their total

    Returns
    -------
    (n_folds, n_layers, n_layers)

    Raises
    ------
    InputError
        Representations that are no longer there.
    """

    def make() -> _Kept:
        layers, n_folds = list(enumerate(analysis.layers)), int(analysis.folds.max()) + 1
        sources = {
            model: representations_of(analysis, model, store)
            for model in dict.fromkeys(model for model, _ in analysis.layers)
        }
        found = []
        for fold in range(n_folds):
            at = _some(analysis, fold)
            ranks = PairRanks(len(layers), len(at) * (len(at) - 1) // 2, store.root)
            for place, (model, number) in layers:
                given, distance = sources[model][number], analysis.spec.distance_of(model)
                rows = given[np.ix_(at, at)] if distance == PRECOMPUTED else given[..., at, :]
                name = layer_name((model, number))
                squared = squared_distances(rows, distance, layer=name, threads=cores())
                ranks.put(place, pair_ranks(squared, overwrite=True, threads=cores()))
                if progress is not None:
                    progress(fold * len(layers) + place + 1, n_folds * len(layers))
            found.append(ranks.rsa())
        return _Kept(np.stack(found))

    if len({model for model, _ in analysis.layers}) < FEWEST:
        return None
    return STAGE.get(store, analysis.key(analysis.layers), make).rsa


def known_fold_similarity(analysis: Analysis, store: Store | None) -> FloatArray | None:
    """`fold_similarity` where it is in the store; computes nothing."""
    kept = analysis.kept(STAGE, store, analysis.layers)
    return None if kept is None else kept.rsa


def _some(analysis: Analysis, fold: int) -> IntArray:
    """The stimuli of a fold, at most `MOST` of them."""
    of_fold = np.flatnonzero(analysis.folds == fold)
    rng = np.random.default_rng(analysis.spec.seed)
    return np.sort(rng.permutation(of_fold)[:MOST])
