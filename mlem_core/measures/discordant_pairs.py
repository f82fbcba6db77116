"""Pairs of layers to look at: where both similarities disagree, or nothing explains the one."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import pandas as pd

from mlem_core.base.typing import FloatArray, Layer, layer_name
from mlem_core.measures.decomposition import Decomposition
from mlem_core.measures.similarity import average_ranks, tau_by_chance

# What counts as discordant; conventions, which a caption has to name.
FEWEST = 10  # pairs: of fewer a rank says little
APART = 0.5  # of the pairs lie between the ranks of RSA and τ
PREDICTED = 0.1  # held-out ρ; below it, the order of the importances is mostly noise
NOT_EXPLAINED = 0.75  # share of the RSA correlation
MOST = 3  # pairs of a kind
COLUMNS = ["kind", "layer_a", "layer_b", "rsa", "tau", "above_rsa", "above_tau", "unexplained"]


def discordant_pairs(
    decomposition: Decomposition,
    tau: FloatArray,
    rho: FloatArray,
    layers: list[Layer],
    n_features: int,
    left_out: Collection[frozenset[Layer]] = (),
) -> pd.DataFrame:
    """The pairs of layers that are least what the others lead to expect.

    Of the pairs of different models (or of layers of the only one that are not neighbours), in
    which both layers are predicted by their features (held-out ρ of at least `PREDICTED`):
    "distances", alike by distances and not by features: RSA is above at least `APART` more of the
    pairs than τ is, and τ is no higher than that of profiles in random order; "features", the
    other way round, with τ higher than that. Of all pairs: "unexplained", whose RSA is above the
    median and is not explained to `NOT_EXPLAINED` or more.

    Parameters
    ----------
    decomposition : of the RSA correlations of n_layers layers
    tau : (n_layers, n_layers) weighted Kendall τ of their profiles
    rho : (n_layers,) held-out ρ of each
    layers : (model, number) of each
    n_features : how many numbers a profile has
    left_out : pairs that are not to be named, because an audit changes them

    Returns
    -------
    kind, layer_a, layer_b ("model:layer"), rsa, tau, above_rsa and above_tau (share of the pairs
    that are below it, ties half), unexplained (share of RSA); at most `MOST` of a kind, the most
    surprising first, a layer in one of them at most. Empty where there are fewer than `FEWEST`
    pairs
    """
    rsa, unexplained = decomposition.rsa, decomposition.unexplained
    a, b = np.triu_indices(len(layers), 1)
    models = np.array([model for model, _ in layers], dtype=object)
    if len(set(models)) > 1:
        kept = models[a] != models[b]
    else:
        kept = b - a > 1
    kept &= (np.isfinite(rsa) & np.isfinite(tau))[a, b]
    a, b = a[kept], b[kept]
    if len(a) < FEWEST:
        return pd.DataFrame(columns=COLUMNS)
    of_rsa, of_tau = rsa[a, b], tau[a, b]
    above_rsa, above_tau = ((average_ranks(of) - 0.5) / len(of) for of in (of_rsa, of_tau))
    share = np.divide(unexplained[a, b], of_rsa, out=np.zeros(len(a)), where=of_rsa > 0)
    named = np.array(
        [
            frozenset((layers[i], layers[j])) not in left_out
            for i, j in zip(a.tolist(), b.tolist(), strict=True)
        ]
    )
    predicted = named & (np.minimum(rho[a], rho[b]) >= PREDICTED)
    chance, apart = tau_by_chance(n_features), above_rsa - above_tau
    kinds = {
        "distances": (predicted & (apart >= APART) & (of_tau <= chance), apart),
        "features": (predicted & (apart <= -APART) & (of_tau > chance), -apart),
        "unexplained": (named & (above_rsa > 0.5) & (share >= NOT_EXPLAINED), share * of_rsa),
    }
    rows = []
    for kind, (those, size) in kinds.items():
        order = np.flatnonzero(those)[np.argsort(-size[those], kind="stable")]
        for at in _each_layer_once(order.tolist(), a, b):
            names = layer_name(layers[a[at]]), layer_name(layers[b[at]])
            values = of_rsa[at], of_tau[at], above_rsa[at], above_tau[at], share[at]
            rows.append((kind, *names, *map(float, values)))
    return pd.DataFrame(rows, columns=COLUMNS)


def _each_layer_once(order: Iterable[int], a: np.ndarray, b: np.ndarray) -> list[int]:
    """The first of some pairs, without those that share a layer with one before."""
    taken: set[int] = set()
    chosen: list[int] = []
    for at in order:
        two = {int(a[at]), int(b[at])}
        if len(chosen) < MOST and not two & taken:
            chosen.append(at)
            taken |= two
    return chosen
