"""Least costs of warping paths, compiled by numba."""

from __future__ import annotations

import numba

from mlem_core.pairs.kernels.ranks import Array


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def least_costs(cost: Array, total: Array) -> None:
    """Fill the least cost of all warping paths to each two places of two sequences.

    Parameters
    ----------
    cost : (n, m, n_sets) of these two; a step along both sequences counts it twice
    total : (n, m, n_sets) filled
    """
    n, m, n_sets = cost.shape
    for i in range(n):
        for j in range(m):
            for s in range(n_sets):
                cheapest = least = cost[i, j, s]
                if i and j:
                    along_one = min(total[i - 1, j, s], total[i, j - 1, s]) + cheapest
                    least = min(along_one, total[i - 1, j - 1, s] + 2 * cheapest)
                elif i or j:
                    least += total[max(i - 1, 0), max(j - 1, 0), s]
                total[i, j, s] = least
