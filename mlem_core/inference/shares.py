"""Replicates shared out among the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlem_core.base.typing import Counted
from mlem_core.pairs.resampling import Weights
from mlem_core.scale.executor import executor

# Replicates of one piece of work: whoever does it, the same ones are drawn together.
SHARE = 32


def by_share(
    function: Callable[..., Any],
    shared: tuple[Any, ...],
    weights: Weights,
    progress: Counted | None = None,
) -> list[Any]:
    """What `function(*shared, rows of weights)` gives, for all rows here, for some on each worker.

    Parameters
    ----------
    function : of a module of the package; here it is also given `progress`
    shared : goes to each worker once; tables and pairs without what replicates do not need
        (`mlem_core.inference.layer_pairs.bare`)
    weights : (n_replicates, n_groups)

    Returns
    -------
    what it gives of each share, in the order of the replicates
    """
    where, n = executor(), len(weights)
    if where.is_here:
        return [function(*shared, weights, progress)]

    parts = np.array_split(weights, -(-n // SHARE))
    ends = np.cumsum([len(part) for part in parts])

    def done(number: int) -> None:
        if progress is not None:
            progress(int(ends[number - 1]), n)

    return where.results(function, parts, shared, done)
