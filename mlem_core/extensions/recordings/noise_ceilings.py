"""Noise ceilings of the RSA with a group of subjects, and how much of them models reach.

No model can be more similar to the subjects of a group than their differences allow. The lower
ceiling is the mean RSA of each subject with the mean of the others' ranks, the upper one that with
the mean of all, which holds the subject itself. Subjects are files, as members of a group.

Source: Nili et al. (2014).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis.context import SelectionContext, Stage
from mlem_core.analysis.layer_sources import get_representations
from mlem_core.analysis.subjects import subject_layers
from mlem_core.base.parallel import cores
from mlem_core.base.resources import check_free
from mlem_core.base.typing import FloatArray, Layer, counted, counting, layer_name
from mlem_core.inference.block_influence import unit_shares, without_blocks
from mlem_core.inference.intervals import Without
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.inference.resample import PERMUTED
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.ranks import IN_MEMORY_BYTES, PairRanks, pair_ranks
from mlem_core.storage.store import Store


def noise_ceiling(ranks: Iterable[NDArray[np.uint32]], layers: PairRanks) -> tuple[float, float]:
    """Lower and upper noise ceiling of the RSA with n subjects.

    As `rsatoolbox.inference.boot_noise_ceiling` with the method "spearman".
    Ranks (n_pairs,) are doubled; `layers` has room for 2n + 1 of them.
    """
    n, total = layers.n_layers // 2, np.zeros(layers.n_pairs)
    for subject, subject_ranks in enumerate(ranks):
        layers.put(subject, subject_ranks)
        total += subject_ranks
    for subject in range(n):
        others = total - layers.read(subject, 0, layers.n_pairs)
        layers.put(n + subject, pair_ranks(others, overwrite=True, threads=cores()))
    layers.put(2 * n, pair_ranks(total, overwrite=True, threads=cores()))
    rsa = layers.rsa()
    return float(np.diagonal(rsa[:n, n : 2 * n]).mean()), float(rsa[:n, 2 * n].mean())


def compute_noise_ceilings(context: SelectionContext) -> pd.DataFrame:
    """Noise ceilings of the groups of an analysis, over its pairs.

    Raises InputError: a file of a subject that has gone or changed.

    Returns
    -------
    group, layer (its number), lower, upper, n (subjects); no rows without such a group
    """
    analysis, store = context.analysis, context.required_store
    rows, layers = [], subject_layers(analysis)
    subjects = dict.fromkeys(model for every in layers.values() for model, _ in every)
    sources = {subject: get_representations(analysis, subject, store) for subject in subjects}

    def ranks(layer: Layer) -> NDArray[np.uint32]:
        squared = squared_distances(
            sources[layer[0]][layer[1]],
            analysis.spec.neural_distance(layer[0]),
            design=analysis.design,
            layer=layer_name(layer),
            threads=cores(),
        )
        return pair_ranks(squared, overwrite=True, threads=cores())

    progress = counting(context.report, "noise ceilings", "layers")
    for (group, number), every in counted(layers.items(), len(layers), progress):
        room = _room(2 * len(every) + 1, analysis.design.n_pairs, store)
        rows.append((group, number, *noise_ceiling(map(ranks, every), room), len(every)))
    return pd.DataFrame(rows, columns=["group", "layer", "lower", "upper", "n"])


def ceilings_key(context: SelectionContext) -> dict[str, Any]:
    """Key of what is computed of all subjects of an analysis."""
    analysis = context.analysis
    return analysis.key(analysis.layers, groups=analysis.spec.groups)


NOISE_CEILINGS = Stage[pd.DataFrame](
    "noise-ceilings", 1, pd.DataFrame, compute_noise_ceilings, key=ceilings_key
)


def _room(n_layers: int, n_pairs: int, store: Store) -> PairRanks:
    what, fewer = f"the noise ceiling over {n_pairs:,} pairs", "choose fewer pairs (--pairs)"
    ranks = 4 * n_layers * n_pairs
    disk = ranks * (ranks > IN_MEMORY_BYTES)
    check_free(store.root, 24 * n_pairs + ranks - disk, disk, what, fewer)
    return PairRanks(n_layers, n_pairs, store.root)


@dataclass(frozen=True)
class SubjectCeilings:
    """Lower noise ceiling of each subject, also without each block of stimuli.

    Attributes
    ----------
    table : group, layer (its number), lower; a row a subject
    without : (n_blocks, n_rows)
    sizes : how many blocks are of each kind of unit, see `mlem_core.inference.resample`
    """

    table: pd.DataFrame
    without: Without
    sizes: tuple[int, ...]


def lower_ceilings(ranks: Sequence[NDArray[np.uint32]]) -> tuple[FloatArray, FloatArray]:
    """RSA of each subject with the mean of the others' ranks, and the influence of each stimulus.

    (n_subjects,) and (n_stimuli, n_subjects), see `mlem_core.inference.influence`; ranks (n_pairs,)
    are doubled.
    """
    from scipy.spatial.distance import squareform

    total, middle = np.stack(ranks).sum(axis=0, dtype=np.float64), len(ranks[0]) + 1
    values, influences = [], []
    for subject_ranks in ranks:
        others = pair_ranks(total - subject_ranks, overwrite=True, threads=cores())
        # With unit length over the pairs, so that products are correlations.
        a, b = (squareform(of_pairs - float(middle)) for of_pairs in (subject_ranks, others))
        a, b = (square / (np.sqrt((square**2).sum() / 2) or 1.0) for square in (a, b))
        products = (a * b).sum(axis=0)
        rsa = products.sum() / 2
        values.append(rsa)
        influences.append(products - rsa / 2 * ((a**2).sum(axis=0) + (b**2).sum(axis=0)))
    return np.array(values), np.stack(influences, axis=1)


def compute_subject_ceilings(context: SelectionContext) -> SubjectCeilings:
    """Lower noise ceilings of the subjects of each group, without each block of stimuli.

    Raises as `mlem_core.inference.layer_pairs.LayerPairs.from_analysis`.
    """
    analysis, rows, without = context.analysis, list[pd.DataFrame](), list[FloatArray]()
    layers, sizes = subject_layers(analysis), tuple[int, ...]()
    progress = counting(context.report, "intervals of noise ceilings", "layers")
    for (group, number), subjects in counted(layers.items(), len(layers), progress):
        selection = context.reselect(layers=subjects).selection
        pairs = LayerPairs.from_analysis(
            analysis, selection, context.required_store, most_stimuli=PERMUTED
        )
        lower, influence = lower_ceilings(pairs.ranks)
        blocks, shares = pairs.units.blocks(), unit_shares(pairs, analysis.stimuli)
        of_blocks = (blocks.weights == 0) @ influence
        without.append(without_blocks(lower, of_blocks, blocks.sizes, shares))
        rows.append(pd.DataFrame({"group": group, "layer": number, "lower": lower}))
        sizes = blocks.sizes
    return SubjectCeilings(pd.concat(rows), np.concatenate(without, axis=1), sizes)


SUBJECT_CEILINGS = Stage[SubjectCeilings](
    "subject-ceilings", 1, SubjectCeilings, compute_subject_ceilings, key=ceilings_key
)
