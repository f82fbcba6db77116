"""Findings of an analysis in three lines, each with its basis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.planning import CHOSEN, said_of_choice
from mlem_core.analysis.results import Results
from mlem_core.analysis.similarities import LayerSimilarity, compute_rsa
from mlem_core.base.labels import NAMES
from mlem_core.base.parameters import join_names
from mlem_core.base.text import fraction, listed, many
from mlem_core.base.typing import layer_name
from mlem_core.estimators.registry import estimator_named
from mlem_core.figures.context import held_out
from mlem_core.inference.explanation import best_known, explain
from mlem_core.inference.explanation_text import PENDING, Explanation, as_chosen, settled
from mlem_core.inference.importance_null import exceeds_chance
from mlem_core.inference.intervals import PERMUTATIONS, LayerIntervals, score_table
from mlem_core.inference.resample import HARDLY, ceiling_caveats
from mlem_core.measures.importance import leading_features, most_important


def summarize(
    analysis: Analysis,
    results: Results,
    intervals: LayerIntervals | None = None,
    compared: LayerSimilarity | None = None,
    sure: Callable[[Explanation], Explanation] | None = None,
    chance: pd.DataFrame | None = None,
) -> list[str]:
    """The two most similar layers, what they share, and which feature matters most.

    A line names a feature only where it is sure of it: as `Explanation.headline` for two layers,
    and in all layers where its importance is above 0 (by intervals, or else in every fold) in most
    of them. Each line says the coding, and what the numbers do not speak of.

    Parameters
    ----------
    results : all of the analysis
    intervals : of all its layers, where there are any; of the same similarity
    compared : all layers by the similarity that is looked at; None is RSA
    sure : gives an explanation of two layers its intervals, and what is chance in it
    chance : of `mlem_core.inference.importance_null.IMPORTANCE_CHANCE`, where it is known
    """
    by = compute_rsa(analysis) if compared is None else compared
    lines: list[str] = []
    if len(results.layers) > 1:
        pair = analysis.most_alike(values=by.values)
        why = explain(analysis, *pair, compared=by)
        if sure is not None and why.similarity.divides:
            why = sure(why)
        else:
            why = best_known(why, SelectionContext.from_analysis(analysis), intervals)
        why = as_chosen(why, analysis, analysis.layers, intervals, by.values)
        lines = [_alike(by, why), _shared(analysis, by, replace(why, group_mean=""))]
    lines.append(_matters(analysis, results, intervals, chance))
    rests = f"(features coded {results.coding}; {_each(analysis)})"
    lines_with_basis = [f"{line} {rests}" for line in lines]
    return [*lines_with_basis, *filter(None, [ceiling_caveats(results, analysis.spec.estimator)])]


def _alike(by: LayerSimilarity, why: Explanation) -> str:
    a, b = map(NAMES.layer_title, why.layers)
    short, row = by.similarity.short, why.whole.iloc[0]
    sure, low = "no confidence interval: add --bootstrap 1000", why.value
    if "lower" in row.index:
        low = float(row["lower"])
        sure = f"95 % CI {fraction(low)} to {fraction(row['upper'])}"
        sure += "; the lower bound holds for all of them at once" * bool(why.among)
    among = why.among or "1 pair of layers"
    if why.value < HARDLY or low <= 0:
        return f"Hardly similar: the highest {short} of {among} is {fraction(why.value)} ({sure})."
    sentence = (
        f"Most similar of {among}: {a} and {b}, {short} {fraction(why.value)} ({sure}). "
        f"`audit{_option(by)}` checks whether an artefact explains it."
    )
    return f"{why.group_mean} {sentence}" if why.group_mean else sentence


def _option(by: LayerSimilarity) -> str:
    """The option of the command line that names the similarity; none for RSA."""
    return "" if by.similarity.of_ranks else f" --similarity {by.similarity.name}"


def _settled(analysis: Analysis) -> str:
    """The options that name what an analysis has chosen, so that another of fewer layers has it."""
    if CHOSEN not in analysis.manifest:
        return ""
    values = join_names(analysis.pairs.resolved) or "none"
    return f" --estimator {analysis.spec.estimator} --values {values}"


def _shared(analysis: Analysis, by: LayerSimilarity, why: Explanation) -> str:
    if settled(why):
        return f"What they share: {why.headline}"
    a, b = map(layer_name, why.layers)
    how = f"`why {a} {b}{_option(by)}{_settled(analysis)} --bootstrap 1000`"
    return f"What they share: {PENDING} {how} adds chance and intervals."


def _matters(
    analysis: Analysis,
    results: Results,
    intervals: LayerIntervals | None,
    chance: pd.DataFrame | None,
) -> str:
    rho = results.scores.groupby(["model", "layer"])["rho"].mean()
    tested = f"on {held_out(analysis)}"
    if rho.max() < HARDLY:
        return f"Matters most: no feature does; ρ {tested} is at most {fraction(rho.max())}."
    by_fold = results.importance.pivot_table(
        index=["model", "layer"], columns="feature", values="importance", aggfunc=["mean", "min"]
    )
    means = by_fold["mean"]
    reached = rho.reindex(means.index) >= HARDLY
    means, above = means[reached], by_fold["min"][reached] > 0
    how = "in every fold"
    if intervals is not None:
        table = score_table(intervals).table
        table = table[table["quantity"] == "importance"]
        lower = table.pivot_table(index=["model", "layer"], columns="feature", values="lower")
        above = lower.reindex(index=means.index, columns=means.columns) > 0
        how = "by its 95 % CI"
    name = most_important(means)
    sure, first = int(above[name].sum()), int((means.idxmax(axis=1) == name).sum())
    layers = many(len(means), "layer")
    if not reached.all():
        layers += f" whose ρ reaches {HARDLY:g}"
    low, high = fraction(rho.min()), fraction(rho.max())
    scores = f"ρ {tested} is {low if low == high else f'{low} to {high}'}"
    if clause := said_of_choice(analysis.manifest, analysis.spec.estimator):
        scores += f", fitted with {estimator_named(analysis.spec.estimator).caption}{clause}"
    if sure <= len(means) / 2:
        return f"Matters most: no single feature in most layers; {scores}."
    of_layers = [analysis.layers.index(layer) for layer in means.index]
    own_rho = results.scores.pivot(index=["model", "layer"], columns="fold", values="rho")
    leading = leading_features(
        analysis.compute_pairs(analysis.select()).select_layers(of_layers),
        means,
        own_rho.loc[means.index].to_numpy(np.float64),
        analysis.spec.estimator,
    )
    if len(leading) > 1:
        return (
            f"Matters most: {leading[0]} or {leading[1]}, which cannot be told: permuted, "
            f"{leading[0]} lowers ρ more; left out and the model fitted again, {leading[1]} does; "
            f"{scores}."
        )
    average = means.mean()
    if (higher := str(average.idxmax())) != name:
        scores = f"{higher} is higher on average, {fraction(average[higher])}; {scores}"
    sentence = (
        f"Matters most: {name}, importance {fraction(average[name])} on average over {layers} "
        f"(highest in {first}, above 0 {how} in {sure}); {scores}."
    )
    if chance is None:
        return f"{sentence} Not compared with permuted labels: add --chance {PERMUTATIONS}."
    beyond = [exceeds_chance(chance, layer, name) for layer in means.index]
    return f"{sentence} It exceeds permuted labels in {sum(map(bool, beyond))} of {layers}."


def _each(analysis: Analysis) -> str:
    """Words for the source of each model: "one checkpoint each"."""
    files = {name for name, _ in analysis.spec.representations}
    models: Sequence[str] = [model for model, _ in analysis.layers]
    kinds = {"file" if model in files else "checkpoint" for model in models}
    what = listed(sorted(kinds), last="or")
    return f"one {what} each"
