"""Section `inference`: decomposition, and bootstrap replicates, beside explicit copies of pairs."""

from __future__ import annotations

import statistics
import time

import numpy as np
from scipy.stats import rankdata

from benchmarks.data import MODELS, Case, probing
from benchmarks.timing import Table, in_turn, seconds
from mlem_core.base.typing import FloatArray
from mlem_core.inference.bootstrap import term_replicates
from mlem_core.inference.layer_pairs import LayerPairs
from mlem_core.measures.decomposition import decompose
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.distances import squared_distances
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.ranks import pair_ranks
from mlem_core.pairs.resampling_units import multinomial

# A layer of each model.
LAYERS = ((MODELS[0], 3), (MODELS[1], 20))
REPLICATES = 1_000


def _two(case: Case) -> tuple[LayerPairs, list[FloatArray]]:
    index = PairIndex.build(feature_columns(case.stimuli), case.folds)
    rows = [case.rows[case.layers.index(layer)] for layer in LAYERS]
    squared = [squared_distances(own) for own in rows]
    pairs = LayerPairs(
        LAYERS,
        pair_tables(index, [lambda own=own: own for own in rows]),
        tuple(pair_ranks(own) for own in squared),
        tuple(own.astype(np.float32) for own in squared),
        index.design,
        index.cell,
        np.unique(case.stimuli.groups, return_inverse=True)[1],
        case.folds,
    )
    return pairs, squared


def _copied(pairs: LayerPairs, squared: list[FloatArray], weights: FloatArray) -> float:
    """RSA and sums by pattern of one replicate the plain way: copies of pairs, ranked by SciPy."""
    i, j = np.triu_indices(len(pairs.groups), 1)
    own = weights[pairs.groups]
    same = pairs.groups[i] == pairs.groups[j]
    times = np.where(same, own[i], own[i] * own[j]).astype(np.int64)
    ranks = [rankdata(np.repeat(layer, times)) for layer in squared]
    ranks = [layer - layer.mean() for layer in ranks]
    for layer in ranks:
        np.bincount(np.repeat(pairs.pattern, times), layer)
    a, b = ranks
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def measure(table: Table, runs: int) -> str:
    """Fill the table; on what it was measured."""
    case = probing()
    index = PairIndex.build(feature_columns(case.stimuli), case.folds)
    tables = pair_tables(index, [lambda own=own: own for own in case.rows])
    rsa = np.eye(len(case.rows))
    took = statistics.median(seconds(lambda: decompose(tables, rsa)) for _ in range(runs))
    table.add(
        f"terms of all pairs of {len(rsa)} layers, {len(tables.features)} features",
        f"{took:.2f} s",
        target="at most 5 s",
    )
    pairs, squared = _two(case)
    weights = multinomial(pairs.n_groups, REPLICATES, np.random.default_rng(0))
    codes = pairs.tables.codes
    # Compiles, and ranks the pairs.
    found = term_replicates(pairs.whole, pairs.tables, weights[:2])[0, -3]
    off = abs(found - _copied(pairs, squared, weights[0]))
    print(f"  the same answer: RSA of a replicate differs by {off:.1e}")
    start = time.process_time()
    took = seconds(lambda: term_replicates(pairs.whole, pairs.tables, weights))
    processor = time.process_time() - start
    table.add(
        f"{REPLICATES:,} bootstrap replicates, all terms of two layers",
        f"{took:.1f} s, {processor:.1f} s of processor time",
        target="at most 3.2 s",
    )
    few = weights[:20]
    ours, theirs = in_turn(
        lambda: term_replicates(pairs.whole, pairs.tables, few),
        lambda: _copied(pairs, squared, few[0]),
        runs,
    )
    table.add(
        "a replicate by copying pairs and ranking them with SciPy, over ours",
        f"{1000 * ours / len(few):.0f} ms",
        f"{1000 * theirs:.0f} ms",
        f"{theirs * len(few) / ours:.0f}",
    )
    n = len(case.stimuli)
    return (
        f"the probing set ({n:,} words in {pairs.n_groups} sentences, {n * (n - 1) // 2:,} pairs, "
        f"{len(codes):,} patterns)"
    )
