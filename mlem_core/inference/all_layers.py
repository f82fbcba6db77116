"""Error bars for all layers at once: of scores, importances, τ, RSA and its terms, and their tests.

Two layers can be looked at with many resamples (`mlem_core.inference.explanation`,
`mlem_core.inference.jackknife`). For every
layer and every pair of layers this is the same method where it is affordable, and the jackknife
alone where it is not: for RSA and its terms (50 blocks of sentences left out, all pairs ranked
again each time).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.selection import Selection
from mlem_core.base.errors import InputError
from mlem_core.base.typing import FloatArray, IntArray, Progress, Report
from mlem_core.inference.bootstrap import LayerPairs
from mlem_core.inference.intervals import DRAWS, ErrorBars
from mlem_core.inference.jackknife import CONFIDENCE, REFITS, resampled_scores, standard_error
from mlem_core.measures.importance import fitted
from mlem_core.measures.shapley import EXACT_FEATURES, shapley
from mlem_core.measures.similarity import weighted_tau
from mlem_core.pairs.condensed import n_pairs
from mlem_core.pairs.resampling import Draws, RankedPairs, leave_out
from mlem_core.pairs.tables import PairTables
from mlem_core.storage.stage import Stage
from mlem_core.storage.store import Store

STAGE = Stage("error-bars", 1, ErrorBars.save, ErrorBars.load)
_SEED = 0
# Layers whose pairs are in memory together, by what their ranks and distances may take.
CHUNK_BYTES = 2**30
# Rank classes of all layers, which are in memory together.
MOST_BYTES = 8 * 2**30


def find(analysis: Analysis, store: Store, selection: Selection | None = None) -> ErrorBars | None:
    """The error bars if they are in the store, or came with the example; computes nothing.

    Those of all layers of the analysis answer for any of them.
    """
    selection = analysis.select() if selection is None else selection
    for layers in (selection.layers, tuple(analysis.layers)):
        found = STAGE.find(store, depends_on(analysis, replace(selection, layers=layers)))
        if found is not None:
            return found
    return None


def error_bars(
    analysis: Analysis,
    store: Store,
    selection: Selection | None = None,
    *,
    draws: int = DRAWS,
    report: Report | None = None,
) -> ErrorBars:
    """The error bars of layers of an analysis; kept in the store.

    Parameters
    ----------
    selection : None is the whole analysis
    draws : bootstrap draws of the sentences, for the shape of intervals and for those of τ
    report : called as the work goes on; what it raises stops the work

    Raises
    ------
    InputError
        Too few sentences or draws; representations that are no longer in the store; more layers
        than fit into memory.
    """
    chosen = analysis.select() if selection is None else selection
    asked = depends_on(analysis, chosen) | ({"draws": draws} if draws != DRAWS else {})
    say = report or (lambda _: None)
    return STAGE.get(store, asked, lambda: _make(analysis, store, chosen, draws, say))


def depends_on(analysis: Analysis, selection: Selection) -> dict[str, Any]:
    """What the key of the error bars of a selection is made of."""
    spec, models = analysis.spec, analysis.manifest["models"]
    return {
        "stimuli": analysis.stimuli.digest,
        "layers": [
            [models[model]["identity"], model, number] for model, number in selection.layers
        ],
        "features": list(selection.features),
        "estimator": selection.estimator,
        "interactions": selection.interactions,
        "missing": spec.missing,
        "distance": spec.distance,
        "units": spec.units,
        "folds": spec.folds,
        "seed": spec.seed,
    }


def _make(
    analysis: Analysis, store: Store, selection: Selection, draws: int, report: Report
) -> ErrorBars:
    layers, estimator = selection.layers, selection.estimator
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
        pairs = LayerPairs.of(analysis, chunk, store, selection.features, selection.interactions)
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
    exact = _exact_scores(selection.of_tables(analysis.tables, analysis.layers), estimator)
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
        layers=layers,
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
