"""Error bars for all layers at once: of scores, importances, τ, RSA and its terms, and their tests.

Two layers can be looked at with many resamples (`mlem_core.why`, `mlem_core.inference`). For every
layer and every pair of layers this is the same method where it is affordable, and the jackknife
alone where it is not: for RSA and its terms (50 blocks of sentences left out, all pairs ranked
again each time).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.analysis import Analysis, Progress, Report
from mlem_core.bootstrap import LayerPairs
from mlem_core.decomposition import UNEXPLAINED
from mlem_core.distances import n_pairs
from mlem_core.errors import InputError, unknown
from mlem_core.inference import (
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
    resampled_scores,
    standard_error,
    tested,
)
from mlem_core.patterns import FloatArray, IntArray
from mlem_core.refits import REFITTED
from mlem_core.resampling import Draws, RankedPairs, leave_out
from mlem_core.results import Layer, fitted
from mlem_core.shapley import EXACT_FEATURES, shapley
from mlem_core.shipped import kept
from mlem_core.similarity import agreement, weighted_tau
from mlem_core.store import Store
from mlem_core.tables import PairTables

VERSION = 1
_STAGE = "error-bars"
_SEED = 0
# Bootstrap draws for the shape of the intervals of scores and importances, and for those of τ; as
# many as the calibration has (docs/validation).
DRAWS = 200
# Layers whose pairs are in memory together, by what their ranks and distances may take.
CHUNK_BYTES = 2**30
# Rank classes of all layers, which are in memory together.
MOST_BYTES = 8 * 2**30

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
        if self.estimator not in REFITTED:
            said.append(FITTED)
        if self.n_sentences < FEW_SENTENCES:
            said.append(FEW)
        return " ".join(said)

    # --- tables ----------------------------------------------------------------------------

    def score_table(self, layers: Sequence[Layer] | None = None, correction: str = "bh") -> Tested:
        """Held-out ρ, ceiling and importances of some layers; tests of importances above 0.

        Returns
        -------
        As `mlem_core.inference.score_table`; the family is all importances of the table
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
        """The terms of two layers, and the whole: the tables of `mlem_core.why.Explanation`.

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


# --- finding and making them ---------------------------------------------------------------


def find(
    analysis: Analysis,
    store: Store,
    *,
    features: Sequence[str] | None = None,
    layers: Sequence[Layer] | None = None,
    estimator: str | None = None,
    interactions: bool | None = None,
) -> ErrorBars | None:
    """The error bars if they are in the store, or came with the example; computes nothing.

    Those of all layers of the analysis answer for any of them.
    """
    for some in (layers, None):
        asked = _depends_on(analysis, features, some, estimator, interactions)
        folder = store.find(_STAGE, VERSION, **asked) or kept(_STAGE, VERSION, **asked)
        if folder is not None:
            return ErrorBars.load(folder)
    return None


def error_bars(
    analysis: Analysis,
    store: Store,
    report: Report | None = None,
    *,
    features: Sequence[str] | None = None,
    layers: Sequence[Layer] | None = None,
    estimator: str | None = None,
    interactions: bool | None = None,
    draws: int = DRAWS,
) -> ErrorBars:
    """The error bars of layers of an analysis; kept in the store.

    Parameters
    ----------
    features, layers, estimator, interactions : None is what the analysis has
    draws : bootstrap draws of the sentences, for the shape of intervals and for those of τ
    report : called as the work goes on; what it raises stops the work

    Raises
    ------
    InputError
        A layer, feature or estimator that there is not; too few sentences or draws;
        representations that are no longer in the store; more layers than fit into memory.
    """
    asked = _depends_on(analysis, features, layers, estimator, interactions)
    if draws != DRAWS:
        asked["draws"] = draws
    return ErrorBars.load(_keep(analysis, store, report, asked))


def keep(analysis: Analysis, store: Store, report: Report | None = None) -> Path:
    """The folder of the store with the error bars of a whole analysis, see `error_bars`."""
    return _keep(analysis, store, report, _depends_on(analysis, None, None, None, None))


def _keep(analysis: Analysis, store: Store, report: Report | None, asked: dict[str, Any]) -> Path:
    def make(folder: Path) -> None:
        _make(analysis, store, report or (lambda _: None), asked).save(folder)

    return store.entry(_STAGE, VERSION, make, None, **asked)


def _depends_on(
    analysis: Analysis,
    features: Sequence[str] | None,
    layers: Sequence[Layer] | None,
    estimator: str | None,
    interactions: bool | None,
) -> dict[str, Any]:
    spec, models = analysis.spec, analysis.manifest["models"]
    chosen = analysis.layers if layers is None else list(layers)
    for model, number in chosen:
        if (model, number) not in analysis.layers:
            names = [f"{model}:{number}" for model, number in analysis.layers]
            raise unknown("layer", f"{model}:{number}", names)
    return {
        "stimuli": analysis.stimuli.digest,
        "layers": [[models[model]["identity"], model, number] for model, number in chosen],
        "features": list(analysis.tables.features if features is None else features),
        "estimator": spec.estimator if estimator is None else estimator,
        "interactions": spec.interactions if interactions is None else interactions,
        "missing": spec.missing,
        "distance": spec.distance,
        "units": spec.units,
        "folds": spec.folds,
        "seed": spec.seed,
    }


def _make(analysis: Analysis, store: Store, report: Report, asked: dict[str, Any]) -> ErrorBars:
    layers = [(str(model), int(number)) for _, model, number in asked["layers"]]
    features, estimator = asked["features"], str(asked["estimator"])
    draws = int(asked.get("draws", DRAWS))
    own = replace(analysis, spec=replace(analysis.spec, interactions=asked["interactions"]))
    n = n_pairs(len(analysis.stimuli))
    if 2 * n * len(layers) > MOST_BYTES:
        raise InputError(
            f"found {len(layers)} layers of {n:,} pairs; error bars of so many at once do not fit "
            f"into memory, so choose at most {MOST_BYTES // (2 * n)} layers."
        )
    step = max(2, CHUNK_BYTES // (16 * n))
    classes, scored, rescaled = [], [], []
    total = len(layers) * REFITS
    for start in range(0, len(layers), step):
        chunk = layers[start : start + step]

        def counted(done: int, _: int, start: int = start, size: int = len(chunk)) -> None:
            report(
                Progress("error bars of scores", None, start * REFITS + done * size, total, "fits")
            )

        counted(0, 0)
        pairs = LayerPairs.of(own, chunk, store, features)
        found = resampled_scores(pairs, estimator, draws, _SEED, counted)
        scored.append((found.value, *found.interval()[:2], found.left_out))
        rescaled.append(_at_scale(found.value, found.draws, found.left_out)[..., 2:])
        classes.append(pairs.whole.classes)
    values, lower, upper, without = (
        np.concatenate(arrays, axis=axis)
        for arrays, axis in zip(zip(*scored, strict=True), (0, 0, 0, 1), strict=True)
    )
    # Drawn pairs are ranked in classes; that hardly moves an importance, but it can change the
    # order of two that are about 0, and τ with it.
    tables, kept_layers, _ = own.chosen(features, layers, asked["interactions"])
    at = [kept_layers.index(layer) for layer in layers]
    exact = _exact_scores(tables.of_layers(at), estimator)
    shift = exact - values
    lower, upper = np.minimum(lower + shift, exact), np.maximum(upper + shift, exact)
    tau = weighted_tau(exact[:, 2:])
    drawn = np.stack(
        [weighted_tau(draw + shift[:, 2:]) for draw in np.concatenate(rescaled, axis=1)]
    )
    tail = (1 - CONFIDENCE) / 2
    whole = replace(pairs.whole, classes=np.concatenate(classes))
    about = _rsa_and_terms(whole, pairs, _blocks(pairs, draws), report)
    return ErrorBars(
        layers=tuple(layers),
        features=tuple(pairs.tables.features),
        columns=tuple(pairs.tables.columns.names),
        estimator=estimator,
        scores=exact,
        scores_lower=lower,
        scores_upper=upper,
        scores_without=without + shift,
        tau=tau,
        tau_lower=np.minimum(np.quantile(drawn, tail, axis=0), tau),
        tau_upper=np.maximum(np.quantile(drawn, 1 - tail, axis=0), tau),
        n_sentences=pairs.n_groups,
        **about,
    )


def _exact_scores(tables: PairTables, estimator: str) -> FloatArray:
    """(n_layers, 2 + n_columns) ρ, ceiling and importances, means over folds."""
    fits, importance = fitted(tables, estimator)
    columns = (fits.rho.mean(axis=1)[:, None], fits.ceiling.mean(axis=1)[:, None])
    return np.concatenate((*columns, importance.mean(axis=1)), axis=1)


def _blocks(pairs: LayerPairs, draws: int) -> FloatArray:
    """The blocks of sentences that `resampled_scores` leaves out: (n_blocks, n_groups) weights."""
    rng = np.random.default_rng(_SEED)
    pairs.by_fold(draws, rng)
    return leave_out(pairs.n_groups, REFITS, rng)


def _at_scale(value: FloatArray, draws: FloatArray, left_out: FloatArray) -> FloatArray:
    """Bootstrap draws around the value, brought to the jackknife's standard error."""
    spread = draws.std(axis=0, ddof=1)
    ratio = np.divide(
        standard_error(left_out), spread, out=np.zeros_like(spread), where=spread > 1e-12
    )
    found: FloatArray = value + (draws - draws.mean(axis=0)) * ratio
    return found


def _rsa_and_terms(
    whole: RankedPairs, pairs: LayerPairs, without: FloatArray, report: Report
) -> dict[str, FloatArray]:
    """RSA, its terms and the ceilings of all pairs: the values and the jackknife."""
    codes, n_layers = pairs.tables.codes, whole.n_layers
    exact = codes.shape[1] <= EXACT_FEATURES
    terms: list[FloatArray] = []
    rsa: list[FloatArray] = []

    def counted(done: int, total: int) -> None:
        report(Progress("error bars of RSA", None, done, total, "resamples"))

    drawn = np.concatenate((np.ones((1, whole.n_groups)), without))
    for part in whole.draw(drawn, products=True, progress=counted):
        rsa.extend(part.rsa())
        if exact:
            terms.extend(_terms(part, d, codes) for d in range(len(part.counts)))
    found = np.stack(terms) if exact else np.zeros((len(drawn), 0, n_layers, n_layers))
    together = np.stack(rsa)
    if exact:
        rest = together - found.sum(axis=1)
        found = np.concatenate((found, rest[:, None]), axis=1)
        ceilings = np.sqrt(np.maximum(1.0 - np.diagonal(rest, axis1=1, axis2=2), 0.0))
    else:
        ceilings = np.zeros((len(drawn), n_layers))
    return {
        "rsa": together[0],
        "rsa_without": together[1:],
        "terms": found[0],
        "terms_error": standard_error(found[1:]),
        "ceilings": ceilings[0],
        "ceilings_error": standard_error(ceilings[1:]),
    }


def _terms(draws: Draws, d: int, codes: IntArray) -> FloatArray:
    """(n_features, n_layers, n_layers) terms of every two layers in one draw."""
    squares = np.sqrt(np.outer(draws.squares[d], draws.squares[d]))

    def explained(own: FloatArray, _: object) -> FloatArray:
        counts, sums = own[:, :1], own[:, 1:]
        products = (sums / np.where(counts > 0, counts, 1.0)).T @ sums
        return np.divide(products, squares, out=np.zeros_like(products), where=squares > 0)

    stacked = np.concatenate((draws.counts[d][:, None], draws.sums[d].T), axis=1)
    found: FloatArray = shapley(codes, stacked, explained).terms
    return found
