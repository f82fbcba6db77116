"""The pass over the pairs in torch, for a GPU: the ranks and sums by cell of `layer_sums`.

By the same steps; on the CPU those in NumPy are faster, and the tests hold these here to them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import FloatArray
from mlem_core.pairs.layer_sums import LayerSums
from mlem_core.pairs.patterns import PairIndex, left_out, tested_blocks
from mlem_core.pairs.ranks import bits_dropped

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


def layer_sums(
    index: PairIndex, squared: FloatArray, train_ranks: bool, device: str
) -> tuple[LayerSums, NDArray[np.uint32]]:
    """`mlem_core.pairs.layer_sums.layer_sums` on a device of torch."""
    import torch

    target = torch.from_numpy(squared).to(device)
    # Rounded as `mlem_core.pairs.ranks.keys_of` rounds: what differs by less is tied.
    dropped = bits_dropped(len(squared))
    bits = (target + 0.0).view(torch.int64)
    value, order = torch.sort((bits + (1 << dropped >> 1)) >> dropped, stable=True)
    # From here on the pairs are in ascending order of their distance.
    cells = torch.from_numpy(index.cell.astype(np.int64)).to(device)[order]
    target = target[order]
    block = torch.from_numpy(index.cell_block).to(device)[cells]
    doubled, squares = _doubled_ranks(value)

    def summed(doubled: torch.Tensor, cells: torch.Tensor) -> FloatArray:
        """From twice the ranks, whole numbers: exact, in whatever order a GPU adds them."""
        found = doubled.new_zeros(index.n_cells)
        found.index_add_(0, cells, doubled - (len(doubled) + 1))
        return found.cpu().numpy() / 2

    def among(blocks: NDArray[np.bool_]) -> tuple[FloatArray, float]:
        """Sums, and of squares, of the ranks among the pairs of some blocks (n_blocks,)."""
        at = torch.nonzero(torch.from_numpy(blocks).to(device)[block])[:, 0]
        own, own_squares = _doubled_ranks(value[at])
        return summed(own, cells[at]), own_squares

    def ends(start: float, how: str) -> FloatArray:
        found = target.new_full((index.n_blocks,), start)
        return found.scatter_reduce(0, block, target, how).cpu().numpy()

    inside = np.eye(index.n_blocks, dtype=bool)[tested_blocks(index.n_folds)]
    within = [among(blocks) for blocks in inside]
    out = left_out(index.n_folds, index.n_blocks)
    training = [among(~blocks) for blocks in out] if train_ranks else []
    ranks = torch.empty_like(order)
    ranks[order] = doubled
    return LayerSums(
        target_sums=torch.bincount(cells, target, index.n_cells).cpu().numpy(),
        rank_sums=summed(doubled, cells),
        within_sums=np.sum([sums for sums, _ in within], axis=0),
        rank_squares=squares,
        within_squares=np.array([own for _, own in within]),
        target_low=ends(np.inf, "amin"),
        target_high=ends(-np.inf, "amax"),
        train_sums=np.stack([sums for sums, _ in training]) if training else None,
        train_squares=np.array([own for _, own in training]) if training else None,
    ), ranks.cpu().numpy().astype(np.uint32)


def _doubled_ranks(ascending: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Twice the average ranks (1-based) of ascending values, and Σ of the squared centred ranks."""
    import torch

    n = len(ascending)
    _, sizes = torch.unique_consecutive(ascending, return_counts=True)
    doubled = 2 * torch.cumsum(sizes, dim=0) - sizes + 1
    tied = sizes.double()
    ties = float((tied**3 - tied).sum())
    return torch.repeat_interleave(doubled, sizes), (float(n) ** 3 - n - ties) / 12
