"""What is known of all layers with its standard errors: intervals and tests as tidy tables.

`mlem_core.inference.all_layers` makes it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError, unknown
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.estimators.registry import estimator_named
from mlem_core.inference.jackknife import (
    CONFIDENCE,
    CORRECTIONS,
    FEW,
    FEW_SENTENCES,
    FITTED,
    REFITS,
    Interval,
    Tested,
    corrected,
    p_value,
    standard_error,
    tested,
)
from mlem_core.measures.decomposition import UNEXPLAINED
from mlem_core.measures.shapley import EXACT_FEATURES
from mlem_core.measures.similarity import agreement, weighted_tau

# Bootstrap draws for the shape of the intervals of scores and importances, and for those of τ; as
# many as the calibration has (docs/validation).
DRAWS = 200
HOW = (
    f"Intervals are over sentences: {REFITS} blocks of them are left out in turn, and {DRAWS} "
    "bootstrap draws give those of scores and importances their shape."
)


def jackknife(
    value: FloatArray, left_out: FloatArray, low: float = -np.inf, high: float = np.inf
) -> Interval:
    """Confidence interval by t with the jackknife's standard error, within what is possible.

    Parameters
    ----------
    value : (...) from all stimuli
    left_out : (n_blocks, ...) without each block of them
    low, high : the statistic lies between these
    """
    error = standard_error(left_out)
    reach = error * _quantile(len(left_out))
    return Interval(np.maximum(value - reach, low), np.minimum(value + reach, high), error)


def _quantile(n_blocks: int) -> float:
    from scipy.stats import t

    return float(t.ppf((1 + CONFIDENCE) / 2, max(1, n_blocks - 1)))


@dataclass(frozen=True)
class ErrorBars:
    """What is known of n_layers layers, with the standard errors over the sentences.

    Attributes
    ----------
    layers : (model, layer) of each
    features, columns : of the terms; of the importances (interactions among them)
    estimator : of the metric models
    scores, scores_lower, scores_upper : (n_layers, 2 + n_columns) ρ, ceiling and importances
    scores_without : (n_blocks, n_layers, 2 + n_columns) without each block of sentences
    tau, tau_lower, tau_upper : (n_layers, n_layers)
    rsa : (n_layers, n_layers); rsa_without : (n_blocks, n_layers, n_layers)
    terms, terms_error : (n_features + 1, n_layers, n_layers) the terms, the last one
        "unexplained"; none with more than 12 features
    ceilings, ceilings_error : (n_layers,) √ of the share of the rank variance between patterns
    n_sentences : that were drawn
    """

    layers: tuple[Layer, ...]
    features: tuple[str, ...]
    columns: tuple[str, ...]
    estimator: str
    scores: FloatArray
    scores_lower: FloatArray
    scores_upper: FloatArray
    scores_without: FloatArray
    tau: FloatArray
    tau_lower: FloatArray
    tau_upper: FloatArray
    rsa: FloatArray
    rsa_without: FloatArray
    terms: FloatArray
    terms_error: FloatArray
    ceilings: FloatArray
    ceilings_error: FloatArray
    n_sentences: int

    @property
    def how(self) -> str:
        """How the intervals were computed, and what to mind, in sentences for a caption."""
        said = [HOW]
        if not estimator_named(self.estimator).refitted:
            said.append(FITTED)
        if self.n_sentences < FEW_SENTENCES:
            said.append(FEW)
        return " ".join(said)

    # --- tables ----------------------------------------------------------------------------

    def score_table(self, layers: Sequence[Layer] | None = None, correction: str = "bh") -> Tested:
        """Held-out ρ, ceiling and importances of some layers; tests of importances above 0.

        Returns
        -------
        As `mlem_core.inference.jackknife.score_table`; the family is all importances of the table
        """
        at = self.places(self.layers if layers is None else layers)
        names = [("rho", ""), ("ceiling", ""), *(("importance", own) for own in self.columns)]
        p = p_value(self.scores[at], self.scores_without[:, at], above=True)
        p[:, :2] = np.nan
        table = pd.DataFrame(
            {
                "model": np.repeat([self.layers[i][0] for i in at], len(names)),
                "layer": np.repeat([self.layers[i][1] for i in at], len(names)),
                "quantity": [quantity for quantity, _ in names] * len(at),
                "feature": [feature for _, feature in names] * len(at),
                "value": self.scores[at].ravel(),
                "lower": self.scores_lower[at].ravel(),
                "upper": self.scores_upper[at].ravel(),
                "p": p.ravel(),
            }
        )
        chosen = table["p"].notna()
        table["p_corrected"] = np.nan
        table.loc[chosen, "p_corrected"] = corrected(table.loc[chosen, "p"].to_numpy(), correction)
        return Tested(table, f"{chosen.sum()} importances; {CORRECTIONS[correction]}")

    def similarity_table(
        self, layers: Sequence[Layer] | None = None, correction: str = "bh"
    ) -> Tested:
        """Both similarities of every two different layers, and tests of RSA against 0.

        Returns
        -------
        layer_a, layer_b ("model:layer"), weighted_tau, weighted_tau_lower, weighted_tau_upper,
        rsa, rsa_lower, rsa_upper, rsa_p, rsa_p_corrected; the family is all pairs of the table
        """
        at = np.array(self.places(self.layers if layers is None else layers), dtype=np.int64)
        names = np.array([f"{self.layers[i][0]}:{self.layers[i][1]}" for i in at], dtype=object)
        first, second = np.triu_indices(len(at), 1)
        a, b = at[first], at[second]
        bounds = jackknife(self.rsa[a, b], self.rsa_without[:, a, b], -1.0, 1.0)
        p = p_value(self.rsa[a, b], self.rsa_without[:, a, b])
        table = pd.DataFrame(
            {
                "layer_a": names[first],
                "layer_b": names[second],
                "weighted_tau": self.tau[a, b],
                "weighted_tau_lower": self.tau_lower[a, b],
                "weighted_tau_upper": self.tau_upper[a, b],
                "rsa": self.rsa[a, b],
                "rsa_lower": bounds.lower,
                "rsa_upper": bounds.upper,
                "rsa_p": p,
                "rsa_p_corrected": corrected(p, correction),
            }
        )
        return Tested(table, f"{len(table)} RSA correlations; {CORRECTIONS[correction]}")

    def agreement(self, layers: Sequence[Layer] | None = None) -> tuple[float, float, float]:
        """How far both similarities agree, and its interval (NaN with fewer than three layers)."""
        at = self.places(self.layers if layers is None else layers)
        square = np.ix_(at, at)
        value = agreement(self.tau[square], self.rsa[square])
        without = np.array(
            [
                agreement(weighted_tau(own[at, 2:]), rsa[square])
                for own, rsa in zip(self.scores_without, self.rsa_without, strict=True)
            ]
        )
        bounds = jackknife(np.array([value]), without[:, None], -1.0, 1.0)
        return value, float(bounds.lower[0]), float(bounds.upper[0])

    def pair(self, a: Layer, b: Layer) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The terms of two layers, and the whole: the tables of
        `mlem_core.inference.explanation.Explanation`.

        Raises
        ------
        InputError
            More than 12 features, whose terms have no intervals; an unknown layer.
        """
        if not len(self.terms):
            raise InputError(
                f"terms have intervals with up to {EXACT_FEATURES} features; choose fewer."
            )
        one, other = self.places((a, b))
        reach = _quantile(len(self.rsa_without))
        value, error = self.terms[:, one, other], reach * self.terms_error[:, one, other]
        terms = pd.DataFrame(
            {
                "term": (*self.features, UNEXPLAINED),
                "value": value,
                "lower": value - error,
                "upper": value + error,
            }
        )
        rsa = jackknife(self.rsa[one, other], self.rsa_without[:, one, other], -1.0, 1.0)
        own = self.ceilings[[one, other]]
        around = reach * self.ceilings_error[[one, other]]
        whole = pd.DataFrame(
            {
                "quantity": ["rsa", "ceiling_a", "ceiling_b"],
                "value": [self.rsa[one, other], *own],
                "lower": [float(rsa.lower), *np.maximum(own - around, 0.0)],
                "upper": [float(rsa.upper), *np.minimum(own + around, 1.0)],
            }
        )
        return terms, whole

    def term_tests(self, a: Layer, b: Layer, correction: str = "bh") -> Tested:
        """Whether each term of two layers is other than 0 (two-sided).

        Returns
        -------
        term, p, p_corrected; the family is the terms

        Raises
        ------
        InputError
            As `pair`.
        """
        from scipy.stats import t

        terms, _ = self.pair(a, b)
        one, other = self.places((a, b))
        error = self.terms_error[:, one, other]
        steady = error <= 1e-12
        statistic = np.abs(terms["value"]) / np.where(steady, 1.0, error)
        p = np.where(steady, terms["value"] == 0, 2 * t.sf(statistic, len(self.rsa_without) - 1))
        return tested(pd.DataFrame({"term": terms["term"], "p": p}), "terms", correction)

    def differences(self, a: Layer, b: Layer, correction: str = "bh") -> Tested:
        """Difference of each importance between two layers, the first less the second.

        Returns
        -------
        feature, value, lower, upper, p, p_corrected; the family is the features
        """
        one, other = self.places((a, b))
        value = self.scores[one, 2:] - self.scores[other, 2:]
        without = self.scores_without[:, one, 2:] - self.scores_without[:, other, 2:]
        bounds = jackknife(value, without)
        table = pd.DataFrame(
            {
                "feature": list(self.columns),
                "value": value,
                "lower": bounds.lower,
                "upper": bounds.upper,
                "p": p_value(value, without),
            }
        )
        what = f"differences of importance, {a[0]}:{a[1]} less {b[0]}:{b[1]}"
        return tested(table, what, correction)

    def closer(self, a: Layer, b: Layer, c: Layer) -> dict[str, float]:
        """RSA of a and b less RSA of a and c: value, lower, upper, p (two-sided)."""
        one, other, third = self.places((a, b, c))
        value = self.rsa[[one], other] - self.rsa[one, third]
        without = self.rsa_without[:, [one], other] - self.rsa_without[:, [one], third]
        bounds = jackknife(value, without)
        names = ("value", "lower", "upper", "p")
        found = (value, bounds.lower, bounds.upper, p_value(value, without))
        return {name: float(own[0]) for name, own in zip(names, found, strict=True)}

    @cached_property
    def _places(self) -> dict[Layer, int]:
        return {layer: at for at, layer in enumerate(self.layers)}

    def places(self, layers: Sequence[Layer]) -> list[int]:
        """Where layers stand; InputError for one that is not there."""
        for model, number in layers:
            if (model, number) not in self._places:
                names = [f"{model}:{number}" for model, number in self.layers]
                raise unknown("layer", f"{model}:{number}", names)
        return [self._places[layer] for layer in layers]

    # --- files -----------------------------------------------------------------------------

    def save(self, folder: Path | str) -> None:
        """Write it into an existing folder: one .npz and one JSON."""
        told = ("layers", "features", "columns", "estimator", "n_sentences")
        about = {name: getattr(self, name) for name in told}
        (Path(folder) / "about.json").write_text(json.dumps(about), encoding="utf-8")
        upper = np.triu_indices(len(self.layers), 1)
        arrays = {name: getattr(self, name) for name in _OF_LAYERS}
        arrays |= {name: getattr(self, name)[..., upper[0], upper[1]] for name in _OF_PAIRS}
        np.savez_compressed(
            Path(folder) / "error_bars.npz",
            # What is left without each block is many numbers, and only their spread is used.
            **{
                name: array.astype(np.float32 if name.endswith("without") else np.float64)
                for name, array in arrays.items()
            },
        )

    @classmethod
    def load(cls, folder: Path | str) -> ErrorBars:
        """Read what `save` wrote."""
        about = json.loads((Path(folder) / "about.json").read_text(encoding="utf-8"))
        layers = tuple((str(model), int(number)) for model, number in about["layers"])
        with np.load(Path(folder) / "error_bars.npz", allow_pickle=False) as stored:
            arrays = {name: stored[name].astype(np.float64) for name in _OF_LAYERS}
            for name, diagonal in _OF_PAIRS.items():
                arrays[name] = _square(stored[name].astype(np.float64), len(layers), diagonal)
        return cls(
            layers=layers,
            features=tuple(about["features"]),
            columns=tuple(about["columns"]),
            estimator=str(about["estimator"]),
            n_sentences=int(about["n_sentences"]),
            **arrays,
        )


_OF_LAYERS = (
    *("scores", "scores_lower", "scores_upper", "scores_without"),
    *("ceilings", "ceilings_error"),
)
# Symmetric, with what stands on their diagonals.
_OF_PAIRS = {
    **dict.fromkeys(("tau", "tau_lower", "tau_upper", "rsa", "rsa_without"), 1.0),
    **dict.fromkeys(("terms", "terms_error"), 0.0),
}


def _square(triangle: FloatArray, n: int, diagonal: float) -> FloatArray:
    """(..., n_pairs) upper triangles as symmetric squares (..., n, n)."""
    upper = np.triu_indices(n, 1)
    found = np.full((*triangle.shape[:-1], n, n), diagonal)
    found[..., upper[0], upper[1]] = found[..., upper[1], upper[0]] = triangle
    return found
