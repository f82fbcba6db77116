"""Errors of results that come from the choice of the pairs, where not all were compared.

An incomplete design of the pairs is of several independent ones. Each of them is left out in turn,
and everything is computed anew from the pairs of the others: the jackknife. It is nearly free,
since moments are kept by design and summed. Penalties are chosen anew too; only where many single
pairs test a fold, so that each time would take as long as the analysis itself, those of all pairs
are kept.

Source: Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapter 11.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.base.text import number
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.estimators.registry import estimator_named, tested_fits
from mlem_core.measures.contributions import EXACT_FEATURES
from mlem_core.measures.decomposition import UNEXPLAINED, decompose
from mlem_core.measures.importance import PERMUTATIONS, permutation_importance
from mlem_core.pairs.statistics import PairStatistics

# The columns of the table, and of what type they are.
COLUMNS = {
    **{"measure": "str", "model": "str", "layer": "int64", "feature": "str"},
    **{"model_b": "str", "layer_b": "int64"},
    **dict.fromkeys(("value", "error"), "float64"),
}
# Single pairs that test a fold up to which a fit without a design chooses its penalty, and features
# are permuted as often as with all designs.
MOST_PAIRS = 2**18


def none() -> pd.DataFrame:
    """The table of an analysis of all pairs."""
    return pd.DataFrame({name: pd.Series([], dtype=kind) for name, kind in COLUMNS.items()})


def design_errors(
    layers: Sequence[Layer],
    pairs: PairStatistics,
    without_design: Iterable[PairStatistics],
    estimator: str = "ridge",
) -> pd.DataFrame:
    """Standard errors of what all designs give, by leaving out each in turn.

    The measures are rho, ceiling (where there is one) and importance, means over folds, and of two
    layers rsa and contribution (of features, and "unexplained"; of at most `EXACT_FEATURES`
    features). Chance is not taken off.

    Parameters
    ----------
    layers : model and number of each of n_layers layers
    pairs : statistics of the layers, from all designs
    without_design : of the same layers, without each design, see `ComparedPairs.together`
    estimator : name of the one whose scores these are; of one that takes a second a layer, or needs
        single pairs, those of ridge are given

    Returns measure, model, layer, feature, model_b, layer_b, value, error.
    """
    spec = estimator_named(estimator)
    estimator = "ridge" if spec.slow or spec.of_pairs else estimator
    model = estimator_named(estimator).model()
    solution = model.solve(pairs, range(pairs.n_folds))
    held, permutations = None, PERMUTATIONS
    if max(len(fold.counts) for fold in pairs.tests.folds) > MOST_PAIRS:
        held, permutations = solution, 1
    scores, similarities = _scores(pairs, solution.coef, PERMUTATIONS), _similarities(pairs)
    replicates = [
        (_scores(part, model.refit(part, held), permutations), _similarities(part))
        for part in without_design
    ]
    score_errors, similarity_errors = map(_jackknife, zip(*replicates, strict=True))
    rows: list[tuple[Any, ...]] = []
    named = [("rho", ""), ("ceiling", ""), *(("importance", part) for part in pairs.columns.parts)]
    for layer, values, errors in zip(layers, scores, score_errors, strict=True):
        for (measure, feature), value, error in zip(named, values, errors, strict=True):
            if not np.isnan(error):
                rows.append((measure, *layer, feature, "", -1, value, error))
    named = [("rsa", ""), *(("contribution", term) for term in _term_names(pairs))]
    of_terms = zip(named, similarities, similarity_errors, strict=True)
    for (measure, feature), values, errors in of_terms:
        for a, b in itertools.combinations(range(len(layers)), 2):
            rows.append((measure, *layers[a], feature, *layers[b], values[a, b], errors[a, b]))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def _jackknife(replicates: Sequence[FloatArray]) -> FloatArray:
    """Standard errors (...) of n numbers (...), each without one of n units."""
    n = len(replicates)
    return np.asarray(np.std(np.stack(replicates), axis=0) * np.sqrt(n - 1))


def _scores(pairs: PairStatistics, weights: FloatArray, permutations: int) -> FloatArray:
    """(n_layers, 2 + n_parts) ρ, ceiling and importances of weights, means over folds."""
    fits = tested_fits(pairs, weights)
    drop = permutation_importance(pairs.tests, weights, permutations=permutations).drop
    both = np.stack((fits.rho, fits.ceiling), axis=-1)
    return np.asarray(np.concatenate((both, drop), axis=-1).mean(axis=1))


def _term_names(pairs: PairStatistics) -> tuple[str, ...]:
    """Names of the terms of the similarity of two layers; none where these would be sampled."""
    return (*pairs.features, UNEXPLAINED) if len(pairs.features) <= EXACT_FEATURES else ()


def _similarities(pairs: PairStatistics) -> FloatArray:
    """(1 + n_terms, n_layers, n_layers) RSA correlations, and the terms of each."""
    rsa = pairs.moments.rsa[None]
    return np.concatenate((rsa, decompose(pairs.moments).values)) if _term_names(pairs) else rsa


def errors_sentence(errors: pd.DataFrame, n_pairs: int, n_all: int, n_designs: int) -> str:
    """The sentence on an analysis of some pairs; empty where it is of all."""
    if errors.empty:
        return ""
    # Rounded up: "at most" is then true of what is written.
    largest = np.ceil(errors.groupby("measure")["error"].max() * 1e4) / 1e4
    words = {"rho": "a held-out ρ", "importance": "an importance", "rsa": "an RSA correlation"}
    words["contribution"] = "a contribution"
    named = [
        f"{number(largest[name], 4)} of {text}" for name, text in words.items() if name in largest
    ]
    return (
        f"Computed on {n_pairs:,} of {n_all:,} pairs, {n_designs} independent balanced designs; "
        f"from how these differ, the choice of the pairs has a standard error of at most "
        f"{', '.join(named)}, with the same stimuli (pair_errors.csv has each)."
    )
