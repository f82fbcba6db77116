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
    pairs = _Sorted(index, squared, device)
    within = [pairs.within(fold) for fold in range(index.n_folds)]
    training = [pairs.training(fold) for fold in range(index.n_folds)] if train_ranks else []
    rank_sums, rank_squares = pairs.rank_sums()
    low, high = pairs.ends()
    return LayerSums(
        target_sums=pairs.target_sums(),
        rank_sums=rank_sums,
        within_sums=np.sum([sums for sums, _ in within], axis=0),
        rank_squares=rank_squares,
        within_squares=np.array([squares for _, squares in within]),
        target_low=low,
        target_high=high,
        train_sums=np.stack([sums for sums, _ in training]) if training else None,
        train_squares=np.array([squares for _, squares in training]) if training else None,
    ), pairs.doubled()


class _Sorted:
    """The pairs of a layer in ascending order of their distance.

    Sums are by cell, (n_cells,): of the squared distances, or of the centred average ranks among
    all pairs, the pairs inside a fold, or those that leave it out; with the latter comes the sum of
    their squares. `ends` are the lowest and the highest squared distance of each block,
    (n_blocks,), infinite if it is empty.
    """

    def __init__(self, index: PairIndex, squared: FloatArray, device: str) -> None:
        import torch

        self._index = index
        target = torch.from_numpy(squared).to(device)
        # Rounded as `mlem_core.pairs.ranks.keys_of` rounds: what differs by less is tied.
        dropped = max(1, (len(squared) - 1).bit_length()) - 1
        bits = (target + 0.0).view(torch.int64)
        keys = (bits + (1 << dropped >> 1)) >> dropped
        self._value, self._order = torch.sort(keys, stable=True)
        cells = torch.from_numpy(index.cell.astype(np.int64)).to(device)
        self._cells, self._target = cells[self._order], target[self._order]
        self._block = torch.from_numpy(index.cell_block).to(device)[self._cells]
        self._ranks, self._squares = _doubled_ranks(self._value)

    def _rank_sums(self, doubled: torch.Tensor, cells: torch.Tensor) -> FloatArray:
        """From twice the ranks, whole numbers: exact, in whatever order a GPU adds them."""
        found = doubled.new_zeros(self._index.n_cells)
        found.index_add_(0, cells, doubled - (len(doubled) + 1))
        return found.cpu().numpy() / 2

    def _among(self, chosen: torch.Tensor) -> tuple[FloatArray, float]:
        """Sums and squares of the ranks among some of the pairs."""
        import torch

        at = torch.nonzero(chosen)[:, 0]
        doubled, squares = _doubled_ranks(self._value[at])
        return self._rank_sums(doubled, self._cells[at]), squares

    def target_sums(self) -> FloatArray:
        import torch

        return torch.bincount(self._cells, self._target, self._index.n_cells).cpu().numpy()

    def rank_sums(self) -> tuple[FloatArray, float]:
        return self._rank_sums(self._ranks, self._cells), self._squares

    def within(self, fold: int) -> tuple[FloatArray, float]:
        return self._among(self._block == int(tested_blocks(self._index.n_folds)[fold]))

    def training(self, fold: int) -> tuple[FloatArray, float]:
        import torch

        stays = ~left_out(self._index.n_folds, self._index.n_blocks)[fold]
        return self._among(torch.from_numpy(stays).to(self._block.device)[self._block])

    def ends(self) -> tuple[FloatArray, FloatArray]:
        low, high = (
            self._target.new_full((self._index.n_blocks,), start)
            .scatter_reduce(0, self._block, self._target, how)
            .cpu()
            .numpy()
            for start, how in ((np.inf, "amin"), (-np.inf, "amax"))
        )
        return low, high

    def doubled(self) -> NDArray[np.uint32]:
        """(n_pairs,) twice the average rank of each pair, in condensed order."""
        import torch

        doubled = torch.empty_like(self._order)
        doubled[self._order] = self._ranks
        return doubled.cpu().numpy().astype(np.uint32)


def _doubled_ranks(ascending: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Twice the average ranks (1-based) of values in ascending order, and Σ of the squared ranks.

    The latter of centred ranks.
    """
    import torch

    n = len(ascending)
    _, sizes = torch.unique_consecutive(ascending, return_counts=True)
    doubled = 2 * torch.cumsum(sizes, dim=0) - sizes + 1
    tied = sizes.double()
    ties = float((tied**3 - tied).sum())
    return torch.repeat_interleave(doubled, sizes), (float(n) ** 3 - n - ties) / 12
