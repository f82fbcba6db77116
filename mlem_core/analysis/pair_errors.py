"""Errors of results that come from the choice of the pairs, where not all were compared.

An incomplete design of the pairs is of several independent ones. An RSA correlation and its
contributions are computed from each of them. Scores and importances are those, on the test pairs of
each, of the metrics that were fitted to the pairs of all: with an eighth of the pairs another
penalty would be chosen. The standard error of what all designs give is the standard deviation of
what each gives, over √ of their number.
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
from mlem_core.measures.importance import permutation_importance
from mlem_core.pairs.statistics import PairStatistics

# The columns of the table, and of what type they are.
COLUMNS = {
    **{"measure": "str", "model": "str", "layer": "int64", "feature": "str"},
    **{"model_b": "str", "layer_b": "int64"},
    **dict.fromkeys(("value", "error"), "float64"),
}


def none() -> pd.DataFrame:
    """The table of an analysis of all pairs."""
    return pd.DataFrame({name: pd.Series([], dtype=kind) for name, kind in COLUMNS.items()})


def design_errors(
    layers: Sequence[Layer],
    pairs: PairStatistics,
    designs: Iterable[PairStatistics],
    estimator: str = "ridge",
) -> pd.DataFrame:
    """Standard errors of what all designs give, from what each of them gives.

    The measures are rho, ceiling (where there is one) and importance, means over folds, and of two
    layers rsa and contribution (of features, and "unexplained"; of at most `EXACT_FEATURES`
    features). Chance is not taken off.

    Parameters
    ----------
    layers : model and number of each of n_layers layers
    pairs : statistics of the layers, from all designs
    designs : of the same layers from each design alone, see `ComparedPairs.together`
    estimator : name of the one whose scores these are; of one that takes a second a layer, or needs
        single pairs, those of ridge are given

    Returns measure, model, layer, feature, model_b, layer_b, value, error.
    """
    spec = estimator_named(estimator)
    solver = estimator_named("ridge" if spec.slow or spec.of_pairs else estimator).model()
    weights = solver.solve(pairs, range(pairs.n_folds)).coef
    scores, similarities = _scores(pairs, weights), _similarities(pairs)
    by_design = [(_scores(design, weights), _similarities(design)) for design in designs]
    score_errors, similarity_errors = (
        np.std(parts, axis=0, ddof=1) / np.sqrt(len(parts))
        for parts in map(np.stack, zip(*by_design, strict=True))
    )
    named = [("rho", ""), ("ceiling", ""), *(("importance", part) for part in pairs.columns.parts)]
    rows: list[tuple[Any, ...]] = []
    for layer, values, errors in zip(layers, scores, score_errors, strict=True):
        about = zip(named, values, errors, strict=True)
        for (measure, feature), value, error in about:
            if not np.isnan(value):
                rows.append((measure, *layer, feature, "", -1, value, error))
    terms = [("rsa", ""), *(("contribution", term) for term in _term_names(pairs))]
    for (measure, feature), values, errors in zip(
        terms, similarities, similarity_errors, strict=True
    ):
        for a, b in itertools.combinations(range(len(layers)), 2):
            rows.append((measure, *layers[a], feature, *layers[b], values[a, b], errors[a, b]))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def _scores(pairs: PairStatistics, weights: FloatArray) -> FloatArray:
    """(n_layers, 2 + n_parts) ρ, ceiling and importances of weights, means over folds."""
    fits = tested_fits(pairs, weights)
    drop = permutation_importance(pairs.tests, weights).drop
    both = np.stack((fits.rho, fits.ceiling), axis=-1)
    return np.asarray(np.concatenate((both, drop), axis=-1).mean(axis=1))


def _term_names(pairs: PairStatistics) -> tuple[str, ...]:
    """Names of the terms of the similarity of two layers; none where these would be sampled."""
    return (*pairs.features, UNEXPLAINED) if len(pairs.features) <= EXACT_FEATURES else ()


def _similarities(pairs: PairStatistics) -> FloatArray:
    """(1 + n_terms, n_layers, n_layers) RSA correlations, and the terms of each."""
    rsa = pairs.moments.rsa[None]
    return np.concatenate((rsa, decompose(pairs).values)) if _term_names(pairs) else rsa


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
