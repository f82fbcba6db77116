"""The importances of an analysis over the layers, a panel a model."""

from __future__ import annotations

import pandas as pd

from mlem_core.analysis.flags import of_layers
from mlem_core.analysis.results import Results
from mlem_core.base.text import minus
from mlem_core.estimators.registry import estimator_named
from mlem_core.figures.captions import FLAGGED, FOLDS, NOISE, computed_on, joined
from mlem_core.figures.context import FigureContext, RenderedFigure, figure, held_out
from mlem_core.figures.profiles import profiles
from mlem_core.figures.style import Annotations
from mlem_core.inference.intervals import LayerIntervals, score_table
from mlem_core.measures import importance
from mlem_core.measures.importance import fitted


@figure(
    "profiles",
    "Importance over the layers",
    lambda context: (
        f"Drop in ρ on {held_out(context.analysis)} when a feature is permuted, layer by layer."
    ),
    offered=True,
)
def draw_profiles(context: FigureContext) -> RenderedFigure:
    """Figure 3 of Salle et al. (2024)."""
    results, tested, terms = context.results, context.score_tests, context.terms
    reasons = {measure: context.reasons(measure) for measure in ("profiles", "scores")}
    flags = of_layers(reasons, context.selection.layers)
    table = profile_table(results)
    if context.intervals is not None:
        table = profile_intervals(context.intervals, results)
    data = None if tested is None else tested.table
    chance, noise = context.importance_chance, context.noise_ceilings
    if noise is not None:
        members = pd.DataFrame(context.names.groups.items(), columns=["model", "group"])
        noise = noise.merge(members, on="group")
    marks = Annotations(data, flags, context.marked_pair or (), chance, noise)
    tables = results.importance, results.scores, terms
    return RenderedFigure(
        profiles(*tables, across=context.across, annotations=marks),
        f"Importance of each feature over {context.along}",
        profiles_caption(context, flagged=bool(flags)),
        results.importance if data is None else data,
        table,
    )


def profiles_caption(context: FigureContext, *, flagged: bool) -> str:
    """Caption of the importances over the layers; an audit may have flagged some."""
    spread = f"Bands: {FOLDS}."
    if context.score_tests is not None:
        spread = (
            f"Bands: 95 % CI over {context.over}. Open markers: p > .05, corrected over "
            f"{context.score_tests.family}."
        )
    return joined(
        "Drop in held-out ρ when a feature is permuted (mean over folds).",
        spread,
        "Dashed: held-out ρ.",
        "Dotted: feature ceiling." if context.results.scores["ceiling"].notna().any() else "",
        f"Triangles: {FLAGGED}." if flagged else "",
        "Grey: largest with permuted labels." if context.importance_chance is not None else "",
        f"{NOISE}." if context.noise_ceilings is not None else "",
        context.basis,
    )


def profile_table(results: Results) -> pd.DataFrame:
    """A row a layer: held-out ρ and the importance of each feature, as "mean (sd)" over folds."""

    def mean_sd(values: pd.Series[float]) -> str:
        return minus(f"{values.mean():.3f} ({values.std():.3f})")

    by = ["model", "layer"]
    scores = results.scores.groupby(by, sort=False)["rho"].agg(mean_sd).rename("ρ")
    features = list(dict.fromkeys(results.importance["feature"]))
    cells = results.importance.groupby([*by, "feature"], sort=False)["importance"].agg(mean_sd)
    table = pd.concat([scores, cells.unstack()[features]], axis=1)
    return table.reset_index()


def profile_intervals(intervals: LayerIntervals, results: Results) -> pd.DataFrame:
    """A row a layer: held-out ρ and importances with their 95 % intervals, as text."""
    table = score_table(intervals, results.layers).table
    table = table[table["quantity"] != "ceiling"]
    cells = [
        minus(f"{value:.3f} [{low:.3f}, {high:.3f}]")
        for value, low, high in zip(table["value"], table["lower"], table["upper"], strict=True)
    ]
    table = table.assign(cell=cells, feature=table["feature"].replace("", "ρ"))
    names = ["ρ", *dict.fromkeys(results.importance["feature"])]
    wide = table.pivot(index=["model", "layer"], columns="feature", values="cell")[names]
    return wide.loc[list(results.layers)].reset_index().rename_axis(columns=None)


@figure(
    "importance_left_out",
    "Importance where features correlate",
    "What is lost when the model has to do without the feature.",
)
def draw_left_out(context: FigureContext) -> RenderedFigure | None:
    """Importance where features correlate; None with an estimator that is slow to fit again."""
    results, selection = context.results, context.selection
    if estimator_named(selection.estimator).slow or len(selection.features) < 2:
        return None

    def importances() -> pd.DataFrame:
        pairs = context.analysis.pairs_of(selection)
        fits, _ = fitted(pairs, selection.estimator)
        return importance.importances(pairs, list(selection.layers), fits, selection.estimator)

    table = context.once("importances", importances)
    drawn = table.rename(columns={"left_out": "importance"}).assign(fold=0)
    folds = drawn[["model", "layer", "fold"]].drop_duplicates()
    value = "importance when left out (drop in ρ)"
    return RenderedFigure(
        profiles(drawn, folds, context.all_features, context.across, value),
        "Importance when left out of each feature",
        "Drop in held-out ρ when the model is refitted without the feature; it can be negative. "
        f"Mean over folds. {computed_on(results.n_stimuli, 0, results.n_folds)}",
        table,
    )
