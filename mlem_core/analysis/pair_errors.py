"""How much the choice of the pairs matters, where not all of them were compared.

An incomplete design of the pairs is of several independent ones. Each gives every number of its
own; the numbers from all of them vary, over other choices of as many pairs of the same stimuli, by
the standard deviation of these over the square root of how many they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from mlem_core.base.text import number
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.estimators.registry import estimator_named
from mlem_core.measures.importance import fitted
from mlem_core.pairs.tables import PairTables

COLUMNS = ("measure", "model", "layer", "feature", "model_b", "layer_b", "value", "error")
_FILE = "pair_errors.csv"


class DesignScores:
    """The scores and importances of each layer from each independent design, as they are made."""

    def __init__(self, estimator: str, interactions: bool) -> None:
        # One that takes a second a layer would take it for each design.
        self.estimator = "ridge" if estimator_named(estimator).slow else estimator
        self._interactions = interactions
        self._found: dict[int, FloatArray] = {}
        self._names: tuple[str, ...] = ()

    def put(self, position: int, designs: Sequence[PairTables]) -> None:
        """Fit one layer on each of its designs."""
        rows = []
        for tables in designs:
            # A metric of values told apart has no products.
            interactions = self._interactions and not tables.resolved
            own = tables.with_interactions(interactions)
            fits, importance = fitted(own, self.estimator)
            means = (fits.rho.mean(axis=1), fits.ceiling.mean(axis=1))
            rows.append(np.concatenate((*means, importance[0].mean(axis=0))))
            self._names = own.columns.parts
        self._found[position] = np.array(rows)

    def table(
        self, layers: Sequence[Layer], positions: Sequence[int], rsa: FloatArray
    ) -> pd.DataFrame:
        """measure, model, layer, feature, model_b, layer_b, value, error.

        The measures are rho, ceiling and importance (means over folds) and rsa (of two layers); the
        value is the mean of the designs, the error its standard error.

        Parameters
        ----------
        positions : of these layers, as `put` was given them
        rsa : (n_designs, n_layers, n_layers)
        """
        rows = []
        for (model, layer), position in zip(layers, positions, strict=True):
            found = self._found[position]
            named = [("rho", ""), ("ceiling", ""), *(("importance", f) for f in self._names)]
            for (measure, feature), values in zip(named, found.T, strict=True):
                rows.append((measure, model, layer, feature, "", -1, *_mean_and_error(values)))
        for a, first in enumerate(layers):
            for b in range(a + 1, len(layers)):
                found_ab = _mean_and_error(rsa[:, a, b])
                rows.append(("rsa", *first, "", *layers[b], *found_ab))
        return pd.DataFrame(rows, columns=list(COLUMNS))


def _mean_and_error(values: FloatArray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def none() -> pd.DataFrame:
    """The table of an analysis of all pairs."""
    return pd.DataFrame({name: [] for name in COLUMNS})


def save(errors: pd.DataFrame, folder: Path) -> None:
    """Write the table into an existing folder; of all pairs there is none."""
    if not errors.empty:
        errors.to_csv(folder / _FILE, index=False)


def load(folder: Path) -> pd.DataFrame:
    """What `save` wrote."""
    if not (folder / _FILE).exists():
        return none()
    found = pd.read_csv(folder / _FILE, keep_default_na=False)
    names = dict.fromkeys(("measure", "model", "feature", "model_b"), str)
    return found.astype(names)


def sentence(errors: pd.DataFrame, n_pairs: int, n_all: int, n_designs: int) -> str:
    """What is said of an analysis of some pairs; empty where it is of all."""
    if errors.empty:
        return ""
    # Rounded up: "at most" is then true of what is written.
    largest = np.ceil(errors.groupby("measure")["error"].max() * 1e4) / 1e4
    words = {"rho": "a held-out ρ", "importance": "an importance", "rsa": "an RSA correlation"}
    of = [
        f"{number(largest[name], 4)} of {text}" for name, text in words.items() if name in largest
    ]
    return (
        f"Computed on {n_pairs:,} of {n_all:,} pairs, {n_designs} independent balanced designs; "
        f"from how these differ, the choice of the pairs has a standard error of at most "
        f"{', '.join(of)}, with the same stimuli (pair_errors.csv has each)."
    )
