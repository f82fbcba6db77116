"""Flags of an audit on layers with their reasons, and the checks that two layers fail.

The thresholds are conventions, stated here and in `docs/audit.md`; the numbers behind them are in
the tables of the audit. How similar two layers are is computed again in its variants: where one of
them changes it by more than a flag allows, or random weights do about as well, that check fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.flags import (
    COLUMNS,
    MEASURES_OF_LAYERS,
    OUTLIER_SHARE,
    POSITION_SHARE,
    short_measure_name,
)
from mlem_core.analysis.spec import AnalysisSpec, with_files, with_models
from mlem_core.base.labels import NAMES, Names
from mlem_core.base.text import fraction, listed, many, percent, sentence_case
from mlem_core.base.typing import Layer
from mlem_core.extending import Check
from mlem_core.inference.resample import WEAKLY
from mlem_core.pairs.similarities import SIMILARITIES, Similarity


@dataclass(frozen=True)
class Variant:
    """Change of an analysis for an audit, and the beginning of the sentence on its effect."""

    name: str
    says: str
    change: Callable[[Analysis], AnalysisSpec]


def controls(analysis: Analysis) -> dict[str, str]:
    """The control of each model: the same architecture with random weights.

    Models of one architecture and size have other random weights each: with the same ones they
    would be similar for being one network.
    """
    found, seen = {}, Counter[tuple[str, tuple[int, ...]]]()
    for name, about in analysis.manifest["models"].items():
        if name not in analysis.spec.models or "@random" in name:
            continue
        network = about.get("architecture", ""), tuple(about.get("units", ()))
        found[name] = f"{name}@random{seen[network] or ''}"
        seen[network] += 1
    return found


def _control(analysis: Analysis) -> AnalysisSpec:
    return with_models(with_files(analysis.spec, ()), list(controls(analysis).values()))


def _changed(name: str, says: str, **field: Any) -> Variant:
    """The variant in which a field of the spec is another."""
    return Variant(name, says, lambda analysis: replace(analysis.spec, **field))


CONTROL = "random-weights"
VARIANTS = (
    _changed("without-first", "without position 0", positions="without-first"),
    _changed("without-outliers", "without its outlier units", units="without-outliers"),
    _changed("standardised", "with standardised units", units="standardised"),
    _changed("cosine", "with cosine distance", distance="cosine"),
    Variant(CONTROL, "with random weights", _control),
)
SAYS = {variant.name: variant.says for variant in VARIANTS}


@dataclass(frozen=True)
class Audit:
    """Tables on each layer, to be read before its results are believed.

    It is of one similarity of two layers, RSA or another, whose name columns have in its place.

    Attributes
    ----------
    layers : model, layer, position0 and position0_ranks (share of the variance of the distances
        and of their ranks, see `position_share`), mean_cosine, n_outliers, outliers (numbers of the
        units, largest first), outlier_share (of the variance of all units), rho (held-out), top
        (most important feature)
    changes : model, layer, variant, tau (of the two profiles), top and top_before, less, more and
        lead (two features that changed places, if any did, see `audit.compare`), rho and
        rho_before, same (Spearman ρ of the distances in both), rsa_change and rsa_with (where the
        layer's RSA with another layer changes most)
    pairs : model_a, layer_a, model_b, layer_b, variant, rsa, rsa_before, tau, tau_before
    notices : sentences about what could not be looked at
    """

    layers: pd.DataFrame
    changes: pd.DataFrame
    pairs: pd.DataFrame
    notices: tuple[str, ...]

    @property
    def similarity(self) -> Similarity:
        """The similarity of two layers that it is of: its column is the first after the variant."""
        return SIMILARITIES[self.pairs.columns[list(self.pairs.columns).index("variant") + 1]]


# From here on a layer, or a pair of layers, is flagged and its sentence says so.
MEAN_COSINE = 0.5  # two stimuli then have more in common than what tells them apart
# In ρ, between two importances; their standard errors over folds are 0.001 to 0.008 in the packaged
# models.
CLEAR_LEAD = 0.02
RHO_CHANGE = 0.1
RSA_CHANGE = 0.2
TAU_CHANGE = 0.4  # of the τ of two layers, which is coarse with few features
CONTROL_SHARE = 0.9  # of ρ, or of RSA, that random weights reach
LEAST = 0.1  # a ρ or RSA below it is not worth a comparison with random weights


def flags(audit: Audit, names: Names = NAMES) -> pd.DataFrame:
    """Table of layers, and pairs of layers, to be read with care, with reasons and severity.

    A profile is flagged where two features change places, both times with a lead in importance of
    at least `CLEAR_LEAD`; a score where ρ changes by at least `RHO_CHANGE`; the RSA or τ of two
    layers where it changes by at least `RSA_CHANGE` or `TAU_CHANGE`. Against random weights the
    conclusion is in doubt where they do *not* change it: where ρ or RSA reaches `CONTROL_SHARE` of
    that of the trained weights.

    Its severity is 0 where what one would say stays the same and only a number changes. Else it
    says by how many times the limit it changes: where another feature matters most, the lead;
    where two layers are similar (RSA or τ from `WEAKLY` on) in one of the two only, or their
    similarity has the other sign (both at least `LEAST`), the change. Against random weights it
    goes from 1 where they reach `CONTROL_SHARE` to 2 where they reach all of ρ, or of the RSA of
    two layers of different models that are similar, and on; layers of one model are so in any
    network that hands on its states.

    Parameters
    ----------
    names : how the reasons call features

    Returns
    -------
    measure ("profiles", "scores", "tau", and "rsa" or the name of another similarity), model_a,
    layer_a, model_b, layer_b ("" and -1 for a layer alone), variant, reason, severity; a row a
    measure and variant, by variant and layer
    """
    return pd.DataFrame(_layer_flags(audit.changes, names) + _pair_flags(audit), columns=COLUMNS)


def audit_tables(audit: Audit) -> dict[str, pd.DataFrame]:
    """The tables of an audit, and its `flags`, by the names of their files."""
    tables = {"": audit.layers, "_changes": audit.changes, "_pairs": audit.pairs}
    tables["_marks"] = flags(audit)
    return {f"audit{name}.csv": table for name, table in tables.items()}


def _layer_flags(changes: pd.DataFrame, names: Names) -> list[tuple[Any, ...]]:
    rows = []
    for row in changes.itertuples():
        layer = (row.model, row.layer, "", -1, row.variant)
        if row.variant == CONTROL:
            if row.rho_before >= LEAST and row.rho >= CONTROL_SHARE * row.rho_before:
                rho, trained = fraction(row.rho), fraction(row.rho_before)
                reason = f"random weights reach ρ = {rho} (trained {trained})"
                rows.append(("scores", *layer, reason, _reached(row.rho, row.rho_before)))
            continue
        says = SAYS[row.variant]
        if row.lead >= CLEAR_LEAD:
            tops = (row.less, row.more) == (row.top_before, row.top)
            verb = "matters most, not" if tops else "matters more than"
            more, less = names.feature(row.more), names.feature(row.less)
            reason = f"{says} {more} {verb} {less}{'' if tops else ', before less'}"
            rows.append(("profiles", *layer, reason, row.lead / CLEAR_LEAD if tops else 0.0))
        if abs(row.rho - row.rho_before) >= RHO_CHANGE:
            reason = f"{says} ρ is {fraction(row.rho)} instead of {fraction(row.rho_before)}"
            rows.append(("scores", *layer, reason, 0.0))
    return rows


def _reached(control: float, trained: float) -> float:
    """The severity of a ρ or RSA that random weights reach."""
    return 1.0 + (control / trained - CONTROL_SHARE) / (1.0 - CONTROL_SHARE)


def _concludes(value: float, before: float) -> bool:
    """Whether one would say something else of two layers."""
    turned = value * before < 0 and min(abs(value), abs(before)) >= LEAST
    return turned or (value >= WEAKLY) != (before >= WEAKLY)


def _pair_flags(audit: Audit) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    pairs, by = audit.pairs, audit.similarity
    control = pairs["variant"] == CONTROL
    reached = control & (pairs[f"{by.name}_before"] >= LEAST)
    reached &= pairs[by.name] >= CONTROL_SHARE * pairs[f"{by.name}_before"]
    for row in pairs[reached].to_dict("records"):
        after, before = row[by.name], row[f"{by.name}_before"]
        reason = f"with random weights {by.short} is {fraction(after)} (trained {fraction(before)})"
        alike = row["model_a"] != row["model_b"] and before >= WEAKLY
        severity = _reached(after, before) if alike else 0.0
        rows.append((by.name, *_ends(row), reason, severity))
    for measure, least in ((by.name, RSA_CHANGE), ("tau", TAU_CHANGE)):
        apart = (pairs[measure] - pairs[f"{measure}_before"]).abs() >= least
        for row in pairs[apart & ~control].to_dict("records"):
            after, before = row[measure], row[f"{measure}_before"]
            says = f"{SAYS[row['variant']]} {short_measure_name(measure)}"
            reason = f"{says} is {fraction(after)} instead of {fraction(before)}"
            severity = abs(after - before) / least if _concludes(after, before) else 0.0
            rows.append((measure, *_ends(row), reason, severity))
    return rows


def _ends(row: Mapping[Any, Any]) -> list[Any]:
    return [row[name] for name in ("model_a", "layer_a", "model_b", "layer_b", "variant")]


# A column of `Audit.layers`, from where on it is striking, and what that says.
_STRIKING = (
    (
        "position0_ranks",
        POSITION_SHARE,
        f"Position 0 accounts for at least {percent(POSITION_SHARE)} of the variance of the ranks",
    ),
    (
        "outlier_share",
        OUTLIER_SHARE,
        f"Outlier units account for at least {percent(OUTLIER_SHARE)} of the variance",
    ),
    (
        "mean_cosine",
        MEAN_COSINE,
        f"The mean cosine of two stimuli is at least {fraction(MEAN_COSINE, 1)}",
    ),
)


def summary(audit: Audit, names: Names = NAMES) -> list[str]:
    """The audit in a few sentences, for a reader who has not seen the tables.

    Parameters
    ----------
    names : how they call layers
    """
    layers, flagged, text = audit.layers, flags(audit), []
    for column, least, finding in _STRIKING:
        found = layers[layers[column] >= least]
        if len(found):
            chosen = list(zip(found["model"], found["layer"], strict=True))
            text.append(f"{finding}: {names.layers_title(chosen)}.")
    n, n_pairs = len(layers), len(layers) * (len(layers) - 1) // 2
    measures = {measure: (name, f"{n} layers") for measure, name in MEASURES_OF_LAYERS.items()}
    for measure in (audit.similarity.name, "tau"):
        measures[measure] = short_measure_name(measure), f"{n_pairs:,} pairs of layers"
    for variant in VARIANTS:
        counts = flagged.loc[flagged["variant"] == variant.name, "measure"].value_counts()
        parts = [
            f"the {name} of {counts[measure]} of {those}"
            for measure, (name, those) in measures.items()
            if measure in counts
        ]
        if parts and variant.name == CONTROL:
            text.append(f"Random weights do about as well for {listed(parts)}.")
        elif parts:
            text.append(
                f"{sentence_case(variant.says)} there is a clear change in {listed(parts)}."
            )
    return text or ["Nothing is striking in any layer."]


def check(audit: Audit | None, a: Layer, b: Layer) -> Check:
    """Audit checks of the similarity of two layers, in either order.

    What counts as a change are the `flags`, whose limits are conventions: a verdict "holds" is no
    proof.
    """
    claim = "No artefact makes them similar"
    if audit is None:
        return Check(claim, "not tested", "artefacts: not checked yet")
    ends = zip(*(audit.pairs[end] for end in COLUMNS[1:5]), strict=True)
    rows = audit.pairs[[{(m, i), (n, j)} == {a, b} for m, i, n, j in ends]]
    if rows.empty:
        return Check(claim, "not tested", "artefacts: cannot be checked")
    flagged = flags(replace(audit, changes=audit.changes.iloc[:0], pairs=rows))
    reasons = tuple(flagged.loc[flagged["measure"] == audit.similarity.name, "reason"])
    checks = many(len(rows), "check")
    if reasons:
        return Check(claim, "fails", f"fails {len(reasons)} of {checks}", reasons)
    return Check(claim, "holds", f"holds in {len(rows)} of {checks}")
