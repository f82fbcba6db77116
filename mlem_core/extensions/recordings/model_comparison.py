"""Models beside a group of subjects: RSA of each, the noise ceiling, and which models differ.

The RSA of a model is the mean over the subjects. Intervals and tests are over subjects and stimuli
together: the variance over either, less that of what both vary in together, which is in both; by t
with as many degrees of freedom as that sum has (Welch and Satterthwaite). A difference of two
models is one of the same subjects and the same blocks of stimuli. p is corrected by Holm (1979)
over all tests of a group, which holds however they depend on each other.

`rsatoolbox.inference.eval_dual_bootstrap` has the same values and is about the same two sources of
variance (Schütt et al. 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.model_source import NO_SUBJECTS
from mlem_core.analysis.subjects import subject_layers
from mlem_core.base.labels import Names
from mlem_core.base.text import many
from mlem_core.base.typing import FloatArray, Layer
from mlem_core.extensions.recordings.noise_ceilings import SubjectCeilings
from mlem_core.inference.group_means import mean_estimate
from mlem_core.inference.intervals import SIGNIFICANT, LayerIntervals, Left, family_of_tests
from mlem_core.inference.resample import Estimate

# What the features predict stands under this name beside models.
FEATURES = "features"
# Every two of more are not compared: they would be as many as a result has of nothing else.
MOST_MODELS = 40
DIFFERENCES = [
    *("group", "group_layer", "model_a", "layer_a", "model_b", "layer_b"),
    *("difference", "lower", "upper", "p", "p_corrected"),
]


@dataclass(frozen=True)
class ModelComparison:
    """Models beside groups of subjects; intervals and p are NaN where none were computed.

    Attributes
    ----------
    ceilings : group, layer (its number), lower, upper, n (subjects)
    models : model, layer, group, group_layer, rsa, share_of_lower, share_of_upper (of the
        ceilings), rsa_lower, rsa_upper, rsa_p, rsa_p_corrected, and to_ceiling, the lower ceiling
        less rsa, with the same four. Rows of `FEATURES` have no layer, and in the place of RSA the
        held-out ρ of what the features, weighted for each subject, predict of its distances
    differences : group, group_layer, model_a, layer_a, model_b, layer_b, difference (of a less b),
        lower, upper, p, p_corrected; none of more than `MOST_MODELS` models
    """

    ceilings: pd.DataFrame
    models: pd.DataFrame
    differences: pd.DataFrame

    @property
    def sentences(self) -> list[str]:
        """How many models are below the ceiling of each group, and how many pairs differ."""
        lines = []
        for group, models in self.models.groupby("group", sort=False):
            if models["rsa_p"].isna().all():
                continue
            below = (models["to_ceiling_p_corrected"] < SIGNIFICANT) & (models["to_ceiling"] > 0)
            line = (
                f"{below.sum()} of {many(len(models), 'RSA')} with {group} (of models, and of the "
            )
            line += "features) are below the lower noise ceiling"
            pairs = self.differences[self.differences["group"] == group]
            if len(pairs):
                n_different = (pairs["p_corrected"] < SIGNIFICANT).sum()
                line += f"; {n_different} of {many(len(pairs), 'difference')} between two are not 0"
            lines.append(f"{line} (p < .05 over subjects and stimuli, Holm).")
        return lines


def compare_models(
    context: SelectionContext,
    ceilings: pd.DataFrame,
    intervals: LayerIntervals | None = None,
    subject_ceilings: SubjectCeilings | None = None,
) -> ModelComparison | None:
    """Models of a selection beside the groups of subjects in it; None without such a group.

    Parameters
    ----------
    ceilings : of `NOISE_CEILINGS`
    intervals : of RSA in the same layers; without them there are no tests
    subject_ceilings : of `SUBJECT_CEILINGS`; without them nothing is tested against the ceiling
    """
    layers_by_group, available = subject_layers(context.analysis), {*context.selection.layers}
    is_available = [
        {*layers_by_group[row.group, row.layer]} <= available for row in ceilings.itertuples()
    ]
    ceilings, models, differences = ceilings[is_available], [], []
    if ceilings.empty:
        return None
    for group, number, lower, upper, _ in ceilings.itertuples(index=False):
        layers = models_beside(context, group)
        subjects, place = layers_by_group[group, number], {"group": group, "group_layer": number}
        values, left = _similarities(context, subjects, layers, intervals)
        table = pd.DataFrame([(FEATURES, None), *layers], columns=["model", "layer"])
        table = table.astype({"layer": "Int64"}).assign(**place)
        rsa = _estimate(values, left)
        table["rsa"] = rsa.value
        for name, end in (("share_of_lower", lower), ("share_of_upper", upper)):
            table[name] = table["rsa"] / (end if end > 0 else np.nan)
        reach, reach_left = _to_ceiling(values, left, lower, subject_ceilings, (group, number))
        to_ceiling = _estimate(reach, reach_left)
        models.append(table.assign(**_columns(rsa, "rsa"), **_columns(to_ceiling, "to_ceiling")))
        if left is not None and len(table) <= MOST_MODELS:
            a, b = np.triu_indices(len(table), 1)
            both = [
                table.loc[at, ["model", "layer"]].reset_index(drop=True).add_suffix(end)
                for at, end in ((a, "_a"), (b, "_b"))
            ]
            apart = Left(left.without[..., a] - left.without[..., b], left.sizes)
            difference = _estimate(values[:, a] - values[:, b], apart)
            tests = {"difference": difference.value, **difference.columns("lower", "upper", "p")}
            differences.append(pd.concat(both, axis=1).assign(**place, **tests))
    no_pairs = pd.DataFrame(columns=DIFFERENCES)
    return ModelComparison(
        ceilings,
        _corrected(pd.concat(models, ignore_index=True), "rsa_p", "to_ceiling_p"),
        _corrected(pd.concat(differences, ignore_index=True), "p")[DIFFERENCES]
        if differences
        else no_pairs,
    )


def models_beside(context: SelectionContext, group: str) -> list[Layer]:
    """Layers beside a group: those of its members are none, nor those of subjects of others."""
    spec = context.analysis.spec
    subjects = {name for name, which in spec.subjects if which != NO_SUBJECTS}
    grouped = {name for _, members in spec.groups for name in members if name in subjects}
    aside = grouped | {*dict(spec.groups)[group]}
    return [layer for layer in context.selection.layers if layer[0] not in aside]


def region_title(group: str, number: int, names: Names, n_groups: int) -> str:
    """The name of a region, after that of its group where there are several groups."""
    members = [model for model, name in names.groups.items() if name == group]
    region = names.own((members[0], number)) if members else ""
    is_enough = region and (n_groups == 1 or region.casefold() == group.casefold())
    return region if is_enough else f"{group} {region}".rstrip()


def _similarities(
    context: SelectionContext,
    subjects: Sequence[Layer],
    layers: Sequence[Layer],
    intervals: LayerIntervals | None,
) -> tuple[FloatArray, Left | None]:
    """(n_subjects, 1 + n_layers) held-out ρ of the features, and RSA of each layer.

    And the same without each block of stimuli.
    """
    analysis = context.analysis
    rho = context.results.scores.groupby(["model", "layer"])["rho"].mean().loc[list(subjects)]
    place = {layer: at for at, layer in enumerate(analysis.layers)}
    at, at_subjects = ([place[layer] for layer in few] for few in (layers, subjects))
    values = np.column_stack((rho, analysis.rsa[np.ix_(at_subjects, at)]))
    if intervals is None:
        return values, None
    at, at_subjects = intervals.places(layers), intervals.places(subjects)
    rsa = intervals.values_without[:, at_subjects][:, :, at]
    scores = intervals.scores_without[:, at_subjects, :1]
    return values, Left(np.concatenate((scores, rsa), axis=2), intervals.sizes)


def _to_ceiling(
    values: FloatArray,
    left: Left | None,
    lower: float,
    ceilings: SubjectCeilings | None,
    place: tuple[str, int],
) -> tuple[FloatArray, Left | None]:
    """Lower ceiling of each subject less the RSA of each model, as `_similarities`."""
    if ceilings is None or left is None:
        return lower - values, None
    group, number = place
    of_group = (ceilings.table["group"] == group) & (ceilings.table["layer"] == number)
    rows = of_group.to_numpy()
    by_subject, without = ceilings.table["lower"].to_numpy()[rows], ceilings.without[:, rows]
    # Of many stimuli those of subjects are from a sample.
    moved = lower - by_subject.mean()
    apart = Left((without + moved)[..., None] - left.without, left.sizes)
    return (by_subject + moved)[:, None] - values, apart


def _estimate(values: FloatArray, left: Left | None) -> Estimate:
    """Mean over the subjects of values (n_subjects, n); only that without `left`."""
    if left is None:
        mean = values.mean(axis=0)
        return Estimate(mean, *np.full((3, len(mean)), np.nan))
    return mean_estimate(values, left, counted_once=True)


def _columns(estimate: Estimate, name: str) -> dict[str, FloatArray]:
    ends = estimate.columns("lower", "upper", "p")
    return {name: estimate.value} | {f"{name}_{end}": values for end, values in ends.items()}


def _corrected(table: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The table with p-values that are corrected over all rows of a group."""
    parts = []
    for _, part in table.groupby("group", sort=False):
        for p in columns:
            part = family_of_tests(part, "", p, any_error=True).table
        parts.append(part)
    return pd.concat(parts)
