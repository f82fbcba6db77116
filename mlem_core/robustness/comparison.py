"""What becomes of the profile, the score and the RSA of layers in a variant of their analysis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.measures.importance import fitted
from mlem_core.measures.similarity import weighted_tau
from mlem_core.models.registry import base_name
from mlem_core.robustness.flags import CLEAR_LEAD

_NO_REVERSAL = {"less": "", "more": "", "lead": 0.0}
CHANGES = (
    *("model", "layer", "variant", "tau", "top", "top_before", "less", "more", "lead"),
    *("rho", "rho_before", "same", "rsa_change", "rsa_with"),
)
PAIRS = (
    *("model_a", "layer_a", "model_b", "layer_b", "variant"),
    *("rsa", "rsa_before", "tau", "tau_before"),
)


@dataclass(frozen=True)
class LayerResults:
    """The results of an analysis that its variants are compared by.

    Attributes
    ----------
    layers : (model, layer) of n_layers layers
    terms : names of the n_columns features, interactions among them
    profiles : (n_layers, n_columns) importances, means over folds
    rho : (n_layers,) held-out scores
    tau, rsa : (n_layers, n_layers)
    """

    layers: list[Layer]
    terms: tuple[str, ...]
    profiles: FloatArray
    rho: FloatArray
    tau: FloatArray
    rsa: FloatArray

    @classmethod
    def of(cls, analysis: Analysis) -> LayerResults:
        """With the estimator and the interactions of the analysis."""
        tables = analysis.tables.with_interactions(analysis.spec.interactions)
        fits, importance = fitted(tables, analysis.spec.estimator)
        profiles = importance.mean(axis=1)
        return cls(
            analysis.layers,
            tables.columns.parts,
            profiles,
            fits.rho.mean(axis=1),
            weighted_tau(profiles),
            analysis.rsa,
        )

    def under_trained_names(self) -> LayerResults:
        """The control's layers under the names of those that they are a control of."""
        names = [(base_name(model), layer) for model, layer in self.layers]
        return replace(self, layers=names)

    def top(self, at: int) -> str:
        """The most important feature of a layer; "" where nothing matters."""
        place = int(self.profiles[at].argmax())
        return self.terms[place] if self.profiles[at, place] > 0 else ""


def compare(before: LayerResults, after: LayerResults) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every layer and every two layers of an analysis in a variant of it.

    Returns
    -------
    The columns of `CHANGES` but variant and same; a layer that the variant does not have is a row
    of NaN. And those of `PAIRS` but variant; only of layers that the variant has
    """
    layers = before.layers
    places = {layer: at for at, layer in enumerate(after.layers)}
    at = np.array([places.get(layer, -1) for layer in layers])
    gone = at < 0

    def square(values: FloatArray) -> FloatArray:
        chosen = values[np.ix_(at, at)]
        chosen[gone] = chosen[:, gone] = np.nan
        return chosen

    rsa, tau = square(after.rsa), square(after.tau)
    change = rsa - before.rsa
    np.fill_diagonal(change, np.nan)
    rows = [
        _layer_change(before, i, after, int(at[i])) | _largest(change[i], layers)
        for i in range(len(layers))
    ]
    a, b = np.triu_indices(len(layers), 1)
    models = np.array([model for model, _ in layers], dtype=object)
    numbers = np.array([number for _, number in layers])
    pairs = pd.DataFrame(
        {
            "model_a": models[a],
            "layer_a": numbers[a],
            "model_b": models[b],
            "layer_b": numbers[b],
            "rsa": rsa[a, b],
            "rsa_before": before.rsa[a, b],
            "tau": tau[a, b],
            "tau_before": before.tau[a, b],
        }
    )
    return pd.DataFrame(rows), pairs[np.isfinite(pairs["rsa"])]


def _layer_change(before: LayerResults, i: int, after: LayerResults, j: int) -> dict[str, Any]:
    """The profile and the score of layer i before and layer j after (-1: there is none)."""
    (model, layer), there = before.layers[i], j >= 0
    both = np.stack((before.profiles[i], after.profiles[j]))
    return {
        "model": model,
        "layer": layer,
        "tau": weighted_tau(both)[0, 1] if there else np.nan,
        "top": after.top(j) if there else "",
        "top_before": before.top(i),
        **(_reversal(before.terms, *both) if there else _NO_REVERSAL),
        "rho": after.rho[j] if there else np.nan,
        "rho_before": before.rho[i],
    }


def _largest(change: FloatArray, layers: list[Layer]) -> dict[str, Any]:
    """Where the RSA of a layer with the others (n_layers,) changes most."""
    if not np.isfinite(change).any():
        return {"rsa_change": np.nan, "rsa_with": ""}
    most = int(np.nanargmax(np.abs(change)))
    return {"rsa_change": change[most], "rsa_with": f"{layers[most][0]}:{layers[most][1]}"}


def _reversal(terms: tuple[str, ...], before: FloatArray, after: FloatArray) -> dict[str, Any]:
    """Two features that changed places: the most important ones, or those that did so most clearly.

    The lead of a reversal is the smaller of the two leads in importance, before and after.
    """
    leads = np.minimum(before[:, None] - before, after - after[:, None])
    tops = (int(before.argmax()), int(after.argmax()))
    f, g = np.unravel_index(leads.argmax(), leads.shape)
    if leads[tops] >= CLEAR_LEAD:
        f, g = np.intp(tops[0]), np.intp(tops[1])
    lead = float(leads[f, g])
    return {"less": terms[f], "more": terms[g], "lead": lead} if lead > 0 else _NO_REVERSAL
