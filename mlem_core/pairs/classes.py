"""The sums of layers whose distances do not fit the memory at once.

A distance is not sorted but put into one of millions of classes of about equally many pairs, which
follow one another as the distances do. A first pass counts the pairs of each class, which gives the
average rank of each; a second sums these ranks by cell. Equal distances are in one class, so that
ties stay ties; a rank is off by at most half of its class, see `LayerSums.rank_bound`. Nothing of
all pairs is held: counts and sums of tiles add up, in any order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlem_core.base.parallel import one_thread_each
from mlem_core.pairs.class_passes import ClassPasses, PartSums, Ranked, added, n_parts
from mlem_core.pairs.layer_sums import LayerSums, squares_of
from mlem_core.pairs.patterns import PairIndex, tested_blocks
from mlem_core.pairs.rank_classes import RankClasses
from mlem_core.pairs.tiles import LayerDistances

# Called with how many pieces of work are done.
Done = Callable[[int], None]


def class_sums(
    index: PairIndex,
    source: Callable[[], LayerDistances],
    train_ranks: bool = False,
    *,
    memory: int,
    threads: int = 1,
    done: Done | None = None,
) -> tuple[LayerSums, RankClasses]:
    """Two passes over the tiles of a layer's distances: the sums by cell, and the classes.

    Parameters
    ----------
    source : gives the distances, whenever they are needed
    train_ranks : also sum the ranks among the pairs that leave out each fold
    memory : bytes that counts and ranks of classes may take, about
    threads : the sums are the same with any number of them
    done : called after each of the `pieces_of_work`
    """
    passes = ClassPasses(index, source(), train_ranks, memory)
    parts = range(n_parts(index.design.n_pairs, memory))
    with one_thread_each():
        counts = passes.counts(parts, threads, done)
        ranked, sums = passes.ranked(counts), []
        del counts
        for part in parts:
            sums.append(passes.sums(part, ranked.ranks, threads))
            if done is not None:
                done(len(parts) + part + 1)
    return sums_of_classes(passes, ranked, added(sums)), classes_of(passes, ranked, source)


def class_sums_on(
    device: str,
    index: PairIndex,
    source: Callable[[], LayerDistances],
    train_ranks: bool = False,
    *,
    memory: int,
) -> tuple[LayerSums, RankClasses]:
    """`class_sums` by a device of torch, where a tile takes as much memory, too."""
    from mlem_core.pairs.torch_classes import TorchPairs

    passes = ClassPasses(index, source(), train_ranks, memory)
    plan = passes.plan
    pairs = TorchPairs(passes.layer, index.look, passes.to, device, memory)
    ranked = passes.ranked(pairs.counts(plan.column, len(plan.members)))
    targets, sums, ends = pairs.sums(
        ranked.ranks, plan.block, plan.lane, plan.n_shared, index.n_cells
    )
    total = PartSums(targets, sums, *ends)
    return sums_of_classes(passes, ranked, total), classes_of(passes, ranked, source)


def pieces_of_work(n_pairs: int, memory: int) -> int:
    """Of how many `class_sums` tells: the parts of both passes."""
    return 2 * n_parts(n_pairs, memory)


def sums_of_classes(passes: ClassPasses, ranked: Ranked, total: PartSums) -> LayerSums:
    """What is known of a layer after both passes over all of its parts."""
    plan, index = passes.plan, passes.index
    tested, sums = tested_blocks(index.n_folds), total.sums.T
    rank_sums = np.where(plan.sets[: plan.n_shared, index.cell_block], sums[:-1], 0) / 2
    squares = squares_of(plan.pairs, ranked.ties)
    train = plan.n_shared > 1
    return LayerSums(
        target_sums=total.targets,
        rank_sums=rank_sums[0],
        within_sums=np.where(np.isin(index.cell_block, tested), sums[-1], 0) / 2,
        rank_squares=float(squares[0]),
        within_squares=squares[plan.n_shared :],
        target_low=total.low,
        target_high=total.high,
        train_sums=rank_sums[1:] if train else None,
        train_squares=squares[1 : plan.n_shared] if train else None,
        rank_bound=ranked.bound,
    )


def classes_of(
    passes: ClassPasses, ranked: Ranked, source: Callable[[], LayerDistances]
) -> RankClasses:
    """The ranks among all pairs by class, of the distances that `source` gives again."""
    shares = (ranked.ranks[:, 0] / (2 * passes.plan.pairs[0])).astype(np.float32)
    return RankClasses(source, passes.to, shares, ranked.bound)
