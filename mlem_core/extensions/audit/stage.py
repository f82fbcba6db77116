"""An audit of every layer, so that an artefact is not taken for a finding.

What a layer's distances are made of (position 0, outlier units, one common direction), and what
becomes of its profile, its score and its RSA (or another similarity) with other layers in variants
of the analysis. The variants are runs on stored representations; only the control with random
weights runs a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.context import SelectionContext, Stage
from mlem_core.analysis.layer_sources import get_representations
from mlem_core.analysis.run import run
from mlem_core.analysis.similarities import compared
from mlem_core.analysis.transforms import outlier_units, variances
from mlem_core.base.errors import InputError
from mlem_core.base.parallel import cores, map_in_order
from mlem_core.base.typing import FloatArray, Layer, Progress, Report, counted, counting, layer_name
from mlem_core.extending import Check
from mlem_core.extensions.audit.flags import (
    CLEAR_LEAD,
    CONTROL,
    VARIANTS,
    Audit,
    check,
    flags,
    summary,
)
from mlem_core.figures.context import FigureContext
from mlem_core.measures.importance import fitted
from mlem_core.measures.similarity import pairs_of_layers, weighted_tau
from mlem_core.pairs.designs import PairDesign, resampled_part, row_slices
from mlem_core.pairs.distances import PRECOMPUTED, squared_distances
from mlem_core.pairs.ranks import pair_ranks
from mlem_core.pairs.similarities import SIMILARITIES
from mlem_core.representations.registry import base_name
from mlem_core.storage.store import Store
from mlem_core.tasks.followups import JobType

CHANGES = (
    *("model", "layer", "variant", "tau", "top", "top_before", "less", "more", "lead"),
    *("rho", "rho_before", "same", "{}_change", "{}_with"),
)
PAIRS = (
    *("model_a", "layer_a", "model_b", "layer_b", "variant"),
    *("{}", "{}_before", "tau", "tau_before"),
)


def compute_audit(context: SelectionContext) -> Audit:
    """Audit of every layer of an analysis, by the similarity of the selection.

    All its variants are kept in the store too.

    Raises InputError: the representations are no longer in the store; layers that cannot be
    compared so.
    """
    analysis, store = context.analysis, context.required_store
    similarity = context.selection.similarity
    before = LayerResults.from_analysis(analysis, similarity, store)
    variants, notices, changes, pairs = dict[str, Analysis](), [], [], []
    models = {model for model, _ in analysis.layers}
    precomputed = all(analysis.spec.neural_distance(model) == PRECOMPUTED for model in models)
    for variant in VARIANTS:
        changed = variant.change(analysis)
        if changed == analysis.spec or not (changed.models or changed.representations):
            continue
        if precomputed and variant.name != "without-first":
            continue
        by_distance = SIMILARITIES[similarity].depends_on_distance
        if not by_distance and changed == replace(analysis.spec, distance=changed.distance):
            continue

        def report(progress: Progress, says: str = variant.says) -> None:
            context.report(replace(progress, stage=f"{progress.stage} {says}"))

        try:
            result = run(changed, store, report)
            after = LayerResults.from_analysis(result, similarity, store)
        except InputError as error:
            notices.append(f"No result for the layers {variant.says}: {error}")
            continue
        variants[variant.name] = result
        if variant.name == CONTROL:
            after = replace(after, layers=[(base_name(m), number) for m, number in after.layers])
        layer_changes, pair_changes = compare_variant(before, after)
        changes.append(layer_changes.assign(variant=variant.name))
        pairs.append(pair_changes.assign(variant=variant.name))
    layers, same = layer_table(context, variants)
    layers["rho"], layers["top"] = before.rho, [before.top(i) for i in range(len(layers))]
    changes = [
        table.assign(same=distances)
        for table, distances in zip(changes, same.values(), strict=True)
    ]
    columns = [[name.format(similarity) for name in names] for names in (CHANGES, PAIRS)]
    all_changes, all_pairs = (
        pd.concat(tables or [pd.DataFrame(columns=names)], ignore_index=True)[names]
        for tables, names in zip((changes, pairs), columns, strict=True)
    )
    return Audit(layers, all_changes, all_pairs, tuple(notices))


def _audit_key(context: SelectionContext) -> dict[str, Any]:
    """An audit is of all features and layers."""
    analysis = context.analysis
    return analysis.key(analysis.select(similarity=context.selection.similarity))


AUDIT = Stage[Audit]("audit", 4, Audit, compute_audit, key=_audit_key)


@dataclass(frozen=True)
class LayerResults:
    """The results of an analysis that its variants are compared by.

    Attributes
    ----------
    layers : (model, layer) of n_layers layers
    terms : names of the n_columns features, interactions among them
    profiles : (n_layers, n_columns) importances, means over folds
    rho : (n_layers,) held-out scores
    tau, values : (n_layers, n_layers), of the profiles and by the similarity
    similarity : its name
    """

    layers: list[Layer]
    terms: tuple[str, ...]
    profiles: FloatArray
    rho: FloatArray
    tau: FloatArray
    values: FloatArray
    similarity: str

    @classmethod
    def from_analysis(cls, analysis: Analysis, similarity: str, store: Store) -> LayerResults:
        """Results with the estimator and the interactions of the analysis; raises as `compared`."""
        values = compared(analysis, similarity, store).values
        scores = fitted(analysis.pairs, analysis.spec.estimator).mean_scores
        profiles, parts = scores[:, 1:], analysis.pairs.columns.parts
        tau = weighted_tau(profiles)
        return cls(analysis.layers, parts, profiles, scores[:, 0], tau, values, similarity)

    def top(self, at: int) -> str:
        """The most important feature of a layer; "" where nothing matters."""
        place = int(self.profiles[at].argmax())
        return self.terms[place] if self.profiles[at, place] > 0 else ""


def compare_variant(before: LayerResults, after: LayerResults) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Layers of an analysis that a variant of it has too, and every two of them, in the variant.

    Returns
    -------
    The columns of `CHANGES` but variant and same, by the number of the layer in the analysis; and
    those of `PAIRS` but variant
    """
    name, layers = before.similarity, [layer for layer in before.layers if layer in {*after.layers}]
    at, to = ([of.layers.index(layer) for layer in layers] for of in (before, after))
    old, new = np.ix_(at, at), np.ix_(to, to)
    values, was = after.values[new], before.values[old]
    change = values - was
    np.fill_diagonal(change, np.nan)
    rows = []
    for i, j, (model, number), of_layer in zip(at, to, layers, change, strict=True):
        profiles = np.stack((before.profiles[i], after.profiles[j]))
        row = {
            "model": model,
            "layer": number,
            "tau": weighted_tau(profiles)[0, 1],
            "top": after.top(j),
            "top_before": before.top(i),
            **_reversal(before.terms, *profiles),
            "rho": after.rho[j],
            "rho_before": before.rho[i],
            f"{name}_change": np.nan,
            f"{name}_with": "",
        }
        if np.isfinite(of_layer).any():
            most = int(np.nanargmax(np.abs(of_layer)))
            row |= {f"{name}_change": of_layer[most], f"{name}_with": layer_name(layers[most])}
        rows.append(row)
    both = {name: values, f"{name}_before": was}
    pairs = pairs_of_layers(layers, **both, tau=after.tau[new], tau_before=before.tau[old])
    return pd.DataFrame(rows, index=at), pairs[np.isfinite(pairs[name])]


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
    less, more = (terms[f], terms[g]) if lead > 0 else ("", "")
    return {"less": less, "more": more, "lead": max(lead, 0.0)}


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
    means = [(len(group), float(group.mean())) for group in groups if len(group)]
    if total == 0 or len(means) < 2:
        return float("nan")
    return sum(n * (group_mean - mean) ** 2 for n, group_mean in means) / total


def stimuli_at_first(first: NDArray[np.bool_], design: PairDesign) -> NDArray[np.uint8]:
    """Number of the two stimuli of each pair at position 0: (n_stimuli,) to (n_pairs,)."""
    ones = first.astype(np.uint8)
    number = np.repeat(ones[design.stimulus], np.diff(design.starts))
    if not design.is_complete:
        number += ones[design.partner]
        return number
    for i, where in row_slices(len(first)):
        number[where] += ones[i + 1 :]
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


def layer_table(
    context: SelectionContext, variants: Mapping[str, Analysis]
) -> tuple[pd.DataFrame, dict[str, pd.Series]]:
    """Measures of every layer, and the similarity of its distances in each variant.

    Returns
    -------
    model, layer, position0, position0_ranks, mean_cosine, n_units, n_outliers, outliers,
    outlier_share; and for each variant Spearman ρ of every layer's distances before and after (NaN
    where the pairs are others). Of a design of more than `RESAMPLED` pairs, from a part of it.
    """
    analysis, index = context.analysis, context.analysis.stimuli.word_index
    design = resampled_part(analysis.design, analysis.folds)
    at_first = None if index is None else stimuli_at_first(index == 0, design)
    progress, n = counting(context.report, "audit", "layers"), len(analysis.layers)
    progress(0, n)
    row_of = partial(_row, analysis, variants, design, at_first, context.required_store)
    table = pd.DataFrame(list(counted(map_in_order(row_of, analysis.layers, cores()), n, progress)))
    return table, {name: table.pop(f"same {name}") for name in variants}


def _row(
    analysis: Analysis,
    variants: Mapping[str, Analysis],
    design: PairDesign,
    at_first: NDArray[np.uint8] | None,
    store: Store,
    layer: Layer,
) -> dict[str, Any]:
    """The row of one layer, representations from the store.

    Parameters
    ----------
    design : of the pairs whose distances are looked at
    at_first : (n_pairs,) see `stimuli_at_first`, or None for whole sentences
    """
    rows = get_representations(analysis, layer[0], store)[layer[1]]
    distance = analysis.spec.neural_distance(layer[0])
    squared = _squared(rows, distance, layer, design)
    ranks = _centred_ranks(squared)
    # Distances have no units.
    units = rows[:, :0] if distance == PRECOMPUTED else rows
    variance = variances(units)
    outliers = outlier_units(variance)
    total = float(variance.sum())
    row = {
        "model": layer[0],
        "layer": layer[1],
        "position0": np.nan,
        "position0_ranks": np.nan,
        "mean_cosine": mean_cosine(units) if units.size else np.nan,
        "n_units": units.shape[1],
        "n_outliers": len(outliers),
        "outliers": " ".join(map(str, outliers)),
        "outlier_share": float(variance[outliers].sum()) / total if total else 0.0,
    }
    if at_first is not None:
        row["position0"] = position_share(np.sqrt(squared), at_first)
        row["position0_ranks"] = position_share(ranks, at_first)
    for name, variant in variants.items():
        row[f"same {name}"] = _correlation(ranks, name, variant, layer, store)
    return row


def _squared(
    rows: NDArray[np.floating], distance: str, layer: Layer, design: PairDesign
) -> FloatArray:
    return squared_distances(rows, distance, design=design, layer=f"{layer[0]} layer {layer[1]}")


def _centred_ranks(squared: FloatArray) -> FloatArray:
    return pair_ranks(squared).astype(np.float64) - (len(squared) + 1.0)


def _correlation(
    ranks: FloatArray, name: str, variant: Analysis, layer: Layer, store: Store
) -> float:
    """Spearman ρ of a layer's distances before and after; NaN where the pairs are others."""
    model = layer[0]
    if name == CONTROL:
        model = next((control for control, _ in variant.layers if base_name(control) == model), "")
    design = resampled_part(variant.design, variant.folds)
    if (model, layer[1]) not in variant.layers or design.n_pairs != len(ranks):
        return float("nan")
    rows = get_representations(variant, model, store)[layer[1]]
    distance = variant.spec.neural_distance(layer[0])
    after = _centred_ranks(_squared(rows, distance, layer, design))
    scale = np.sqrt((ranks @ ranks) * (after @ after))
    return float(ranks @ after / scale) if scale > 0 else float("nan")


def audit_flags(context: FigureContext) -> pd.DataFrame | None:
    """Flags of the audit in the names of a context, where it has been made."""
    known = AUDIT.find(context)
    if known is None:
        return None
    return context.once(("audit flags", repr(context.names)), lambda: flags(known, context.names))


def audit_checks(context: FigureContext) -> Check:
    """Audit checks of the two layers of a context."""
    pair = context.why.layers
    return context.once(("audit check", pair), lambda: check(AUDIT.find(context), *pair))


def sentences(context: FigureContext) -> list[str]:
    """The audit in a few sentences."""
    known = AUDIT.find(context)
    if known is None:
        return []
    key = ("audit in words", repr(context.names))
    return context.once(key, lambda: summary(known, context.names))


def tables(context: FigureContext) -> dict[str, tuple[pd.DataFrame, str, str]]:
    """Tables of the audit, each with its title and caption."""
    known, flagged = AUDIT.find(context), audit_flags(context)
    if known is None or flagged is None:
        return {}
    return {
        "audit-marks": (
            flagged.sort_values("severity", ascending=False, kind="stable"),
            "What changes, and why it is flagged",
            "A row a layer (or pair of layers) and variant whose result changes by a limit or "
            "more; severity: by how many times the limit, where that changes a conclusion. "
            "Figures mark those from 2 on.",
        ),
        "audit-changes": (
            known.changes,
            "Every layer in every variant",
            "tau: weighted Kendall τ of the layer's profile with that of the variant; rho: "
            "held-out score; rsa_change: the largest change of the layer's RSA with another "
            "layer.",
        ),
    }


def audit_example(
    analysis: Analysis, pair: tuple[Layer, Layer], store: Store, report: Report
) -> list[Path | None]:
    """Entry of the store with the audit of the example."""
    context = SelectionContext.from_analysis(analysis, store, report)
    AUDIT.get(context)
    return [AUDIT.folder(context)]


JOB = JobType(lambda context, options: AUDIT.get(context))
