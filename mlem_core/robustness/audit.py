"""An audit of every layer, so that an artefact is not taken for a finding.

What a layer's distances are made of (position 0, outlier units, one common direction), and what
becomes of its profile, its score and its RSA with other layers in variants of the analysis. The
variants are runs on stored representations; only the control with random weights runs a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.maps import representations_of
from mlem_core.analysis.run import run
from mlem_core.analysis.transforms import outlier_units, variances
from mlem_core.base.errors import InputError
from mlem_core.base.parallel import cores
from mlem_core.base.typing import FloatArray, Layer, Progress, Report
from mlem_core.measures.importance import fitted
from mlem_core.measures.similarity import weighted_tau
from mlem_core.pairs.distances import PRECOMPUTED, row_slices, squared_distances
from mlem_core.pairs.ranks import average_ranks, order_pairs
from mlem_core.robustness.audit_tables import Audit
from mlem_core.robustness.flags import CLEAR_LEAD, notes
from mlem_core.robustness.variants import CONTROL, VARIANTS
from mlem_core.storage.stage import Stage
from mlem_core.storage.store import Store

STAGE = Stage("audit", 1, Audit.save, Audit.load)


def position_share(values: FloatArray, number: NDArray[np.integer]) -> float:
    """The share of the variance of values over pairs that is between three kinds of pairs.

    With z the values, and the pairs in three groups by how many of their two stimuli (0, 1 or 2)
    are at position 0: Σ_g n_g (z̄_g - z̄)² / Σ (z - z̄)².

    Parameters
    ----------
    values : (n_pairs,)
    number : (n_pairs,) 0, 1 or 2, see `stimuli_at_first`

    Returns
    -------
    From 0 to 1; NaN where all values are equal or all pairs are of one kind
    """
    mean = float(values.mean())
    total = float(np.square(values - mean).sum())
    groups = [values[number == k] for k in range(3)]
    found = [(len(group), float(group.mean())) for group in groups if len(group)]
    if total == 0 or len(found) < 2:
        return float("nan")
    return sum(n * (own - mean) ** 2 for n, own in found) / total


def stimuli_at_first(first: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """How many of the two stimuli of each pair are marked: (n_stimuli,) to (n_pairs,)."""
    marked = first.astype(np.uint8)
    number = np.empty(len(first) * (len(first) - 1) // 2, dtype=np.uint8)
    for i, where in row_slices(len(first)):
        number[where] = marked[i] + marked[i + 1 :]
    return number


def mean_cosine(rows: NDArray[np.floating]) -> float:
    """The mean cosine of every two different stimuli: how anisotropic a layer is.

    (|Σ u|² - n) / (n (n - 1)) for rows u of norm 1. A row of zeros has cosine 0 with all others.

    Parameters
    ----------
    rows : (n_stimuli, n_units)

    Source: Ethayarajh (2019), section 4.1.
    """
    exact = rows.astype(np.float64)
    norms = np.linalg.norm(exact, axis=1, keepdims=True)
    units = np.divide(exact, norms, out=np.zeros_like(exact), where=norms > 0)
    n = len(units)
    total = units.sum(axis=0)
    return float((total @ total - np.count_nonzero(norms)) / (n * (n - 1)))


def find(analysis: Analysis, store: Store) -> Audit | None:
    """The audit of an analysis if it is in the store or came with it; computes nothing."""
    return STAGE.find(store, depends_on(analysis))


def audit(analysis: Analysis, store: Store, progress: Report | None = None) -> Audit:
    """Audit every layer of an analysis; kept in the store, as are all its variants.

    Parameters
    ----------
    analysis : finished; its representations are in the store
    progress : called as the work goes on; what it raises stops the work

    Raises
    ------
    InputError
        The representations are no longer in the store.
    """
    return STAGE.get(
        store,
        depends_on(analysis),
        lambda: _audit(analysis, store, progress or (lambda _: None)),
    )


def depends_on(analysis: Analysis) -> dict[str, Any]:
    """What the key of the audit of an analysis is made of."""
    spec, models = analysis.spec, analysis.manifest["models"]
    return {
        "stimuli": analysis.stimuli.digest,
        "layers": [[models[model]["identity"], model, layer] for model, layer in analysis.layers],
        "missing": spec.missing,
        "distance": spec.distance,
        "estimator": spec.estimator,
        "interactions": spec.interactions,
        "folds": spec.folds,
        "seed": spec.seed,
    }


def _audit(analysis: Analysis, store: Store, report: Report) -> Audit:
    notices: list[str] = []
    variants: dict[str, Analysis] = {}
    for variant in VARIANTS:
        changed = variant.change(analysis.spec)
        if changed == analysis.spec or not (changed.models or changed.representations):
            continue
        if analysis.spec.distance == PRECOMPUTED and variant.name != "without-first":
            continue

        def named(progress: Progress, says: str = variant.says) -> None:
            report(replace(progress, stage=f"{progress.stage} {says}"))

        try:
            variants[variant.name] = run(changed, store, named)
        except InputError as error:
            notices.append(f"Nothing is said about the layers {variant.says}: {error}")
    return Audit(*_tables(analysis, variants, store, report), notices=tuple(notices))


def _tables(
    analysis: Analysis, variants: Mapping[str, Analysis], store: Store, report: Report
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    layers = _layers(analysis, variants, store, report)
    before = _Fit.of(analysis)
    changes, pairs = [], []
    for name, variant in variants.items():
        after = _Fit.of(variant)
        changed, paired = _compare(analysis.layers, before, _aligned(name, after))
        changed["same"] = layers.pop(f"same {name}")
        changes.append(changed.assign(variant=name))
        pairs.append(paired.assign(variant=name))
    layers["rho"], layers["top"] = before.rho, [before.top(i) for i in range(len(layers))]
    columns = ["model", "layer", "variant", "tau", "top", "top_before", "less", "more", "lead"]
    columns += ["rho", "rho_before", "same", "rsa_change", "rsa_with"]
    both = ["model_a", "layer_a", "model_b", "layer_b", "variant"]
    both += ["rsa", "rsa_before", "tau", "tau_before"]
    found = (
        layers,
        pd.concat(changes, ignore_index=True)[columns]
        if changes
        else pd.DataFrame(columns=columns),
        pd.concat(pairs, ignore_index=True)[both] if pairs else pd.DataFrame(columns=both),
    )
    layers["note"] = notes(*found[:2])
    return found


# --- what the distances of a layer are made of ----------------------------------------------


def _layers(
    analysis: Analysis, variants: Mapping[str, Analysis], store: Store, report: Report
) -> pd.DataFrame:
    index = analysis.stimuli.word_index
    number = None if index is None else stimuli_at_first(index == 0)

    def one(layer: Layer) -> dict[str, Any]:
        rows = representations_of(analysis, layer[0], store)[layer[1]]
        squared = _squared(rows, analysis.spec.distance, layer)
        ranks = _centred_ranks(squared)
        # Distances have no units.
        units = rows[:, :0] if analysis.spec.distance == PRECOMPUTED else rows
        variance = variances(units)
        outliers = outlier_units(variance)
        total = float(variance.sum())
        found = {
            "model": layer[0],
            "layer": layer[1],
            "position0": np.nan if number is None else position_share(np.sqrt(squared), number),
            "position0_ranks": np.nan if number is None else position_share(ranks, number),
            "mean_cosine": mean_cosine(units) if units.size else np.nan,
            "n_units": units.shape[1],
            "n_outliers": len(outliers),
            "outliers": " ".join(map(str, outliers)),
            "outlier_share": float(variance[outliers].sum()) / total if total else 0.0,
        }
        for name, variant in variants.items():
            found[f"same {name}"] = _same(name, variant, layer, ranks, store)
        return found

    report(Progress("audit", None, 0, len(analysis.layers), "layers"))
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1), ThreadPoolExecutor(cores()) as pool:
        try:
            for done, row in enumerate(pool.map(one, analysis.layers), 1):
                rows.append(row)
                report(Progress("audit", None, done, len(analysis.layers), "layers"))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return pd.DataFrame(rows)


def _squared(rows: NDArray[np.floating], distance: str, layer: Layer) -> FloatArray:
    return squared_distances(rows, distance, layer=f"{layer[0]} layer {layer[1]}")


def _centred_ranks(squared: FloatArray) -> FloatArray:
    order, value = order_pairs(squared)
    ranks = np.empty(len(squared))
    ranks[order] = average_ranks(value).doubled
    ranks -= len(squared) + 1.0
    return ranks


def _same(name: str, variant: Analysis, layer: Layer, ranks: FloatArray, store: Store) -> float:
    """Spearman ρ of a layer's distances before and after; NaN where the pairs are others."""
    model = f"{layer[0]}@random" if name == CONTROL else layer[0]
    if (model, layer[1]) not in variant.layers or len(variant.stimuli) * (
        len(variant.stimuli) - 1
    ) != 2 * len(ranks):
        return float("nan")
    rows = representations_of(variant, model, store)[layer[1]]
    after = _centred_ranks(_squared(rows, variant.spec.distance, layer))
    scale = np.sqrt((ranks @ ranks) * (after @ after))
    return float(ranks @ after / scale) if scale > 0 else float("nan")


# --- what becomes of profiles, scores and RSA ------------------------------------------------


@dataclass(frozen=True)
class _Fit:
    """The results of an analysis that variants are compared by, of n_layers layers."""

    layers: list[Layer]
    terms: tuple[str, ...]
    profiles: FloatArray
    rho: FloatArray
    tau: FloatArray
    rsa: FloatArray

    @classmethod
    def of(cls, analysis: Analysis) -> _Fit:
        tables, rsa = analysis.subset(analysis.select())
        fits, importance = fitted(tables, analysis.spec.estimator)
        profiles = importance.mean(axis=1)
        return cls(
            analysis.layers,
            tables.columns.names,
            profiles,
            fits.rho.mean(axis=1),
            weighted_tau(profiles),
            rsa,
        )

    def top(self, at: int) -> str:
        """The most important feature of a layer; "" where nothing matters."""
        place = int(self.profiles[at].argmax())
        return self.terms[place] if self.profiles[at, place] > 0 else ""


def _aligned(variant: str, after: _Fit) -> _Fit:
    """The control's layers under the names of those that they are a control of."""
    if variant != CONTROL:
        return after
    return replace(after, layers=[(m.removesuffix("@random"), n) for m, n in after.layers])


def _compare(
    layers: Sequence[Layer], before: _Fit, after: _Fit
) -> tuple[pd.DataFrame, pd.DataFrame]:
    places = {layer: at for at, layer in enumerate(after.layers)}
    at = np.array([places.get(layer, -1) for layer in layers])
    # A layer that the variant does not have is one row of NaN.
    gone = at < 0

    def square(values: FloatArray) -> FloatArray:
        found = values[np.ix_(at, at)]
        found[gone] = found[:, gone] = np.nan
        return found

    rsa, tau = square(after.rsa), square(after.tau)
    change = rsa - before.rsa
    np.fill_diagonal(change, np.nan)
    rows = []
    for i, (model, layer) in enumerate(layers):
        known = np.isfinite(change[i])
        most = int(np.nanargmax(np.abs(change[i]))) if known.any() else None
        own = np.stack((before.profiles[i], after.profiles[at[i]]))
        rows.append(
            {
                "model": model,
                "layer": layer,
                "tau": np.nan if gone[i] else weighted_tau(own)[0, 1],
                "top": "" if gone[i] else after.top(int(at[i])),
                "top_before": before.top(i),
                **(_NONE if gone[i] else _reversal(before, i, after, int(at[i]))),
                "rho": np.nan if gone[i] else after.rho[at[i]],
                "rho_before": before.rho[i],
                "rsa_change": np.nan if most is None else change[i, most],
                "rsa_with": "" if most is None else f"{layers[most][0]}:{layers[most][1]}",
            }
        )
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


_NONE = {"less": "", "more": "", "lead": 0.0}


def _reversal(before: _Fit, i: int, after: _Fit, j: int) -> dict[str, Any]:
    """Two features that changed places: the most important ones, or those that did so most clearly.

    The lead of a reversal is the smaller of the two leads in importance, before and after.
    """
    own, new = before.profiles[i], after.profiles[j]
    leads = np.minimum(own[:, None] - own, new - new[:, None])
    tops = (int(own.argmax()), int(new.argmax()))
    f, g = np.unravel_index(leads.argmax(), leads.shape)
    if leads[tops] >= CLEAR_LEAD:
        f, g = np.intp(tops[0]), np.intp(tops[1])
    lead = float(leads[f, g])
    if lead <= 0:
        return _NONE
    return {"less": before.terms[f], "more": before.terms[g], "lead": lead}
