"""The pass over the pairs in torch, for a GPU: distances, ranks and sums by pattern.

The same quantities as `mlem_core.pairs.distances` and `mlem_core.pairs.build`, by the same steps;
on the CPU
the NumPy ones are faster, and the tests hold these here to them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray
from mlem_core.pairs import distances
from mlem_core.pairs.layer_sums import LayerSums
from mlem_core.pairs.patterns import PairIndex, block_numbers

if TYPE_CHECKING:
    import torch

# A driver's device file: where there is none, torch (seconds to import) need not be asked.
DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/dxg"))


def cuda_device(device: str) -> str | None:
    """The CUDA device that "auto", "cuda" or "cuda:1" means; None where it means the CPU."""
    if device == "cpu" or (device == "auto" and not any(path.exists() for path in DRIVERS)):
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    return "cuda" if device == "auto" else device


def squared_distances(
    representations: NDArray[np.floating], metric: str, device: str, *, layer: str = "the layer"
) -> FloatArray:
    """`mlem_core.pairs.distances.squared_distances` with its product on a device of torch."""
    if metric == distances.PRECOMPUTED:
        return distances.squared_distances(representations, metric, layer=layer)
    return distances.squared_distances(
        representations,
        metric,
        layer=layer,
        chunks=lambda rows, metric: _chunks(rows, metric, device),
    )


def _chunks(rows: FloatArray, metric: str, device: str) -> distances.Chunks:
    """As `mlem_core.pairs.distances.bands`."""
    import torch

    own = torch.from_numpy(rows).to(device)
    n = len(own)
    squares = (own * own).sum(dim=1)
    height = max(16, 2**24 // max(1, n))
    for start in range(0, n, height):
        stop = min(n, start + height)
        left, right = own[start:stop], own[start:]
        if metric == "manhattan":
            chunk = torch.cdist(left, right, p=1.0) ** 2
        else:
            scale = squares[start:stop, None] + squares[None, start:]
            chunk = scale - 2.0 * (left @ right.T)
            near_i, near_j = torch.nonzero(chunk < distances.CANCELLATION * scale, as_tuple=True)
            step = max(1, 2**24 // own.shape[1])
            for at in range(0, len(near_i), step):
                i, j = near_i[at : at + step], near_j[at : at + step]
                chunk[i, j] = ((left[i] - right[j]) ** 2).sum(dim=1)
            if metric in ("cosine", "correlation"):
                chunk = (chunk / 2) ** 2
        yield start, stop, chunk.cpu().numpy()


def layer_sums(
    index: PairIndex, squared: FloatArray, train_ranks: bool, device: str
) -> tuple[LayerSums, NDArray[np.uint32]]:
    """`mlem_core.pairs.layer_sums` on a device of torch.

    Parameters
    ----------
    index : the pairs' patterns and blocks
    squared : (n_pairs,) squared neural distances
    train_ranks : also sum the ranks among the pairs that leave out each fold
    device : of torch
    """
    import torch

    n_folds, total = index.n_folds, len(squared)
    numbers = block_numbers(n_folds)
    n_blocks = n_folds * (n_folds + 1) // 2
    n_cells = n_blocks * index.n_patterns
    cells = torch.from_numpy(index.pattern_cell.astype(np.int64)).to(device)
    target = torch.from_numpy(squared).to(device)
    # Rounded as `mlem_core.pairs.ranks.order_pairs` rounds: what differs by less is tied.
    dropped = max(1, (total - 1).bit_length()) - 1
    bits = (target + 0.0).view(torch.int64)
    keys = (bits + (1 << dropped >> 1)) >> dropped
    value, order = torch.sort(keys, stable=True)
    cells = cells[order]
    block = torch.div(cells, index.n_patterns, rounding_mode="floor")
    target = target[order]

    def summed(values: torch.Tensor, at: torch.Tensor | None = None) -> FloatArray:
        where = cells if at is None else cells[at]
        return torch.bincount(where, values, n_cells).cpu().numpy()

    ascending, squares = _ranks(value)
    within, within_squares = np.zeros(n_cells), np.zeros(n_folds)
    for fold in range(n_folds):
        at = torch.nonzero(block == int(numbers[fold, fold]))[:, 0]
        ranks, within_squares[fold] = _ranks(value[at])
        within += summed(ranks - (len(at) + 1.0) / 2, at)
    train, train_squares = None, None
    if train_ranks:
        train, train_squares = np.zeros((n_folds, n_cells)), np.zeros(n_folds)
        for fold in range(n_folds):
            left_out = torch.from_numpy(np.isin(np.arange(n_blocks), numbers[fold])).to(device)
            at = torch.nonzero(~left_out[block])[:, 0]
            ranks, train_squares[fold] = _ranks(value[at])
            train[fold] = summed(ranks - (len(at) + 1.0) / 2, at)
    ends = []
    for start, how in ((np.inf, "amin"), (-np.inf, "amax")):
        empty = torch.full((n_blocks,), start, dtype=torch.float64, device=device)
        ends.append(empty.scatter_reduce(0, block, target, how).cpu().numpy())
    doubled = torch.empty(total, dtype=torch.int64, device=device)
    doubled[order] = (2.0 * ascending).to(torch.int64)
    sums = LayerSums(
        target_sums=summed(target),
        rank_sums=summed(ascending - (total + 1.0) / 2),
        within_sums=within,
        rank_squares=squares,
        within_squares=within_squares,
        target_low=ends[0],
        target_high=ends[1],
        train_sums=train,
        train_squares=train_squares,
    )
    return sums, doubled.cpu().numpy().astype(np.uint32)


def _ranks(ascending: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Average ranks (1-based) of values in ascending order, and Σ of their squares, centred."""
    import torch

    n = len(ascending)
    _, sizes = torch.unique_consecutive(ascending, return_counts=True)
    last = torch.cumsum(sizes, dim=0).double()
    sizes_f = sizes.double()
    ranks = torch.repeat_interleave(last - (sizes_f - 1.0) / 2, sizes)
    ties = float((sizes_f**3 - sizes_f).sum())
    return ranks, (float(n) ** 3 - n - ties) / 12
