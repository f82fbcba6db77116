"""Figures of all layers: profiles, similarity, maps, the stimuli, the audit."""

from __future__ import annotations

import math
from functools import partial

import pandas as pd

from mlem_core import figures
from mlem_core.analysis.in_words import FOLDS, computed_on
from mlem_core.base.labels import distinct
from mlem_core.base.typing import Layer, layer_name
from mlem_core.estimators.registry import estimator_named
from mlem_core.measures import correlated
from mlem_core.measures.decomposition import Decomposition, decompose
from mlem_core.measures.importance import fitted
from mlem_core.measures.similarity import agreement
from mlem_core.pairs.similarities import RSA, SIMILARITIES, Similarity
from mlem_core.report import tables
from mlem_core.report.captions import STRESS, ceiling, correlated_features, joined, tau_by_chance
from mlem_core.report.shown import FigureContext, RenderedFigure, figure, held_out
from mlem_core.robustness.flags import marked, of_layers
from mlem_core.robustness.variants import CONTROL, SAYS


@figure(
    "profiles",
    "Importance over the layers",
    lambda shown: (
        f"What is lost of the prediction accuracy (ρ on {held_out(shown.analysis)}) when a feature "
        "is permuted, layer by layer."
    ),
    offered=True,
)
def profiles(shown: FigureContext) -> RenderedFigure:
    """Figure 3 of Salle et al. (2024)."""
    results, tested = shown.results, shown.score_tests
    reasons = {measure: shown.reasons(measure) for measure in ("profiles", "scores")}
    flags = of_layers(reasons, shown.selection.layers)
    table = tables.profile_table(results)
    if shown.intervals is not None:
        table = tables.profile_intervals(shown.intervals, results)
    return RenderedFigure(
        figures.profiles(
            results.importance,
            results.scores,
            shown.terms,
            across=shown.across,
            annotations=figures.Annotations(
                None if tested is None else tested.table, flags, marked=shown.marked_pair or ()
            ),
        ),
        "Importance of each feature over the layers",
        profiles_caption(
            shown.basis,
            shown.coding,
            "" if tested is None else tested.family,
            shown.over,
            flagged=bool(flags),
            warning=correlated_features(results.feature_correlations, shown.names),
        ),
        results.importance if tested is None else tested.table,
        table,
    )


def profiles_caption(
    basis: str,
    coding: str,
    family: str = "",
    over: str = "",
    *,
    flagged: bool = False,
    warning: str = "",
) -> str:
    """Caption of the importances over the layers.

    Parameters
    ----------
    coding : as in `mlem_core.pairs.columns.coding`
    family, over : what the p-values are corrected over, and what is drawn anew, see
        `mlem_core.pairs.resampling_units.Units.over`; empty where there are no intervals
    flagged : whether layers are flagged by an audit
    warning : about features that correlate
    """
    spread = f"Bands are {FOLDS}."
    if family:
        spread = (
            f"Bands are 95 % confidence intervals over {over}; a marker is open where the "
            f"importance is not above 0 (p > 0.05, corrected over a family of {family})."
        )
    return joined(
        "Feature importance (FI): the drop of Spearman ρ on pairs of held-out stimuli when the "
        "feature is permuted, computed as an expectation; mean over folds.",
        spread,
        f"Dashed: held-out ρ of the metric model. Dotted: the ceiling, {ceiling(coding)}.",
        "Triangles: layers of which a conclusion changes in the audit." if flagged else "",
        warning,
        basis,
    )


@figure(
    "similarity",
    "Similarity of every two layers",
    "How alike every two layers are, by their features and by their distances alone. Click a cell "
    "to choose its two layers.",
    offered=True,
)
def similarity(shown: FigureContext) -> RenderedFigure | None:
    """Figure 2 of Salle et al. (2024), or with another similarity in the place of RSA."""
    results, other = shown.results, shown.compared
    if not shown.several:
        return None
    profiles, square, agrees = (
        results.similarity_profiles,
        results.similarity_rsa,
        results.agreement,
    )
    measures, tested = ["rsa", "tau"], shown.similarity_tests
    if other is not None:
        square, agrees = other.square, agreement(profiles.to_numpy(), other.values)
        measures, tested = ["tau"], None
    flags = {measure: shown.reasons(measure) for measure in measures}
    small = shown.drawing.narrow or shown.drawing.screen
    return RenderedFigure(
        figures.similarity_matrices(
            profiles,
            square,
            across=1 if small else 2,
            order="clustering" if shown.drawing.options.get("order") == "clustering" else "model",
            pair=shown.marked_pair,
            annotations=figures.Annotations(None if tested is None else tested.table, flags),
        ),
        "Similarity of every two layers" + (f" ({other.similarity.short})" if other else ""),
        similarity_caption(
            shown.basis,
            SIMILARITIES[RSA] if other is None else other.similarity,
            None if tested is None else (tested.family, shown.over),
            flagged=other is None and any(flags.values()),
            agreement=agrees,
            n_features=results.n_profile_features,
        ),
        tables.pairs_of_layers(results, *([] if other is None else [square]))
        if tested is None
        else tested.table,
        None if tested is None else tables.tested_pairs(tested.table),
    )


def similarity_caption(
    basis: str,
    similarity: Similarity = SIMILARITIES[RSA],
    tested: tuple[str, str] | None = None,
    *,
    flagged: bool = False,
    agreement: float = math.nan,
    n_features: int = 0,
) -> str:
    """Caption of the two matrices of similarity.

    Parameters
    ----------
    similarity : what stands beside τ
    tested : `family` and `over`, as in `profiles_caption`, where there are intervals
    n_features : of the profiles, for what τ is by chance
    """
    agnostic = "RSA, Spearman ρ of the neural distances over all pairs"
    if similarity.name != RSA:
        agnostic = (
            f"the {similarity.called} ({similarity.meaning}), 0 on average for layers that have "
            "nothing to do with each other"
        )
    number = "" if math.isnan(agreement) else f", here {agreement:.2f}"
    intervals = ""
    if tested is not None:
        intervals = (
            f"In the table: 95 % confidence intervals over {tested[1]}, and p of RSA, corrected "
            f"over a family of {tested[0]}."
        )
    return joined(
        f"Feature-based: weighted Kendall τ of the importance profiles. Feature-agnostic: "
        f"{agnostic}. Their agreement is the Spearman ρ of the two upper triangles{number}.",
        similarity.no_terms,
        tau_by_chance(n_features),
        "Dots: pairs whose similarity changes in the audit." if flagged else "",
        intervals,
        basis,
    )


@figure(
    "layer_maps",
    "Maps of the layers",
    "Layers that are alike lie close together. Click two of them to compare them.",
    offered=True,
)
def layer_maps(shown: FigureContext) -> RenderedFigure | None:
    """The layers as points."""
    results = shown.results
    if not shown.several:
        return None
    across = 1 if shown.drawing.narrow else 2
    return RenderedFigure(
        figures.layer_maps(results.layer_map, results.importance, across, results.map_stress),
        "Maps of the layers",
        joined(
            "Metric MDS of 1 − similarity: layers that are alike lie close together; a line joins "
            "the layers of a model in order. The axes have no meaning of their own.",
            STRESS,
            shown.basis,
        ),
        results.layer_map,
    )


@figure(
    "why_layers",
    "What makes every two layers alike",
    "What each feature adds to the similarity of every two layers: orange makes them alike, blue "
    "sets them apart.",
    offered=True,
)
def why_layers(shown: FigureContext) -> RenderedFigure | None:
    """The terms of the similarity of every two layers; None of one that has none."""
    if not shown.several or (shown.compared and not shown.compared.similarity.divides):
        return None
    layers, split, compared = list(shown.selection.layers), decomposition(shown), shown.compared
    similarity = SIMILARITIES[RSA] if compared is None else compared.similarity
    means = models_alike(shown)
    return RenderedFigure(
        figures.term_matrices(
            {term: split.matrix(term, layers) for term in split.names},
            across=2 if shown.drawing.narrow else 3,
        ),
        "What makes every two layers alike",
        f"What each feature contributes to the {similarity.called} of every two layers (Shapley "
        "values, cross-fitted), and what these features do not explain. Orange: it makes the two "
        f"alike; blue: it sets them apart. {shown.computed_on}",
        split.table(layers).rename(columns={"rsa": similarity.name}),
        # A row two models: of these there are more than terms.
        means.set_index("term").T.rename_axis("models").rename_axis(columns=None).reset_index(),
    )


def decomposition(shown: FigureContext) -> Decomposition:
    """The similarity of every two layers as a sum: of RSA, or of what is chosen instead."""
    if (found := shown.compared) is None:
        return shown.once("sum", lambda: decompose(*shown.analysis.subset(shown.selection)))
    return shown.once(("sum", found.similarity.name), found.decomposed)


def models_alike(shown: FigureContext) -> pd.DataFrame:
    """What makes every two models alike: term, and a column of means a pair of models."""
    layers = list(shown.selection.layers)
    of = RSA if shown.compared is None else shown.compared.similarity.name
    summary = shown.once(("means", of), lambda: decomposition(shown).summary(layers))
    names = list(dict.fromkeys(model for model, _ in layers))
    called = dict(zip(names, distinct(names, list(map(shown.names.model, names))), strict=True))
    models = [summary[side].map(called) for side in ("model_a", "model_b")]
    return tables.means_of_models(summary.assign(model_a=models[0], model_b=models[1]))


@figure(
    "feature_correlations",
    "Correlations of the features",
    "Where two features vary together, their importances cannot be told apart well.",
    offered=True,
)
def feature_correlations(shown: FigureContext) -> RenderedFigure:
    """Figure S5 of Salle et al. (2024)."""
    results = shown.results
    return RenderedFigure(
        figures.feature_correlations(results.feature_correlations),
        "Correlations of the feature distances",
        "Pearson correlation of the distances of two features over all pairs of stimuli; where it "
        "is far from 0, the importances of the two cannot be told apart well. "
        f"{computed_on(results.n_stimuli, results.n_pairs)}",
        results.feature_correlations.rename_axis("feature").reset_index(),
    )


@figure(
    "feature_counts",
    "Values of the features",
    "How many stimuli have each value.",
    offered=True,
)
def feature_counts(shown: FigureContext) -> RenderedFigure:
    """The values of the features."""
    stimuli, names = shown.analysis.stimuli, list(shown.selection.features)
    kinds = [(f.name, f.kind) for f in stimuli.features if f.name in names]
    across = {"across": 2} if shown.drawing.narrow else {}
    return RenderedFigure(
        figures.feature_counts(stimuli.table, kinds, shown.all_features, **across),
        "Values of the features",
        f"How many of the {shown.results.n_stimuli:,} stimuli have each value.",
        tables.value_counts(stimuli.table, names),
    )


# Of each way: what its axis is called, and what it is.
_IMPORTANCES = {
    "conditional": (
        "conditional importance (FI)",
        "The drop of the held-out ρ when the feature is permuted among pairs that agree on all "
        "others. It is 0 for a feature that the others determine, however well a layer encodes it.",
    ),
    "left_out": (
        "importance when left out (FI)",
        "The drop of the held-out ρ when the model is fitted without the feature. It may be below "
        "0: a model with fewer weights may generalise better.",
    ),
    "group": (
        "importance of the group (FI)",
        "The drop of the held-out ρ when these features are permuted together; their links with "
        "each other stay.",
    ),
}


def _importances(shown: FigureContext, group: tuple[str, ...]) -> pd.DataFrame:
    """`correlated.importances`; of a group: model, layer, fold, feature, importance."""
    own, _ = shown.analysis.subset(shown.selection)
    fits, _ = fitted(own, shown.selection.estimator)
    layers = list(shown.selection.layers)
    if not group:
        return correlated.importances(own, layers, fits, shown.selection.estimator)
    by_layer = correlated.grouped_importance(own, fits.weights, group)
    rows = [
        (*layer, fold, " + ".join(group), value)
        for layer, values in zip(layers, by_layer, strict=True)
        for fold, value in enumerate(values)
    ]
    return pd.DataFrame(rows, columns=["model", "layer", "fold", "feature", "importance"])


def other_importance(shown: FigureContext, way: str) -> RenderedFigure | None:
    """Importance where features correlate; None with an estimator that is slow to fit again.

    That of a group is there where one is chosen.
    """
    group = tuple(shown.drawing.options.get("group", "").splitlines()) if way == "group" else ()
    few = not group if way == "group" else len(shown.selection.features) < 2
    if estimator_named(shown.selection.estimator).slow or few:
        return None
    table = shown.once(("importances", group), lambda: _importances(shown, group))
    names, drawn = list(dict.fromkeys(table["feature"])), table
    (value, meaning), results = _IMPORTANCES[way], shown.results
    if not group:
        names, drawn = shown.all_features, table.rename(columns={way: "importance"}).assign(fold=0)
    return RenderedFigure(
        figures.profiles(
            drawn,
            drawn[["model", "layer", "fold"]].drop_duplicates(),
            names,
            across=shown.across,
            value=value,
        ),
        f"{value.partition(' (')[0].capitalize()}" + " of each feature" * (not group),
        f"{meaning} Mean over {results.n_folds} folds, from the same tables, without sampling. "
        f"{computed_on(results.n_stimuli, held_out=held_out(shown.analysis))}",
        table,
    )


for _way, _line in (
    ("conditional", "The same question with the other features held fixed."),
    ("left_out", "What is lost when the model has to do without the feature."),
    ("group", "What is lost when these features are permuted together."),
):
    figure(f"importance_{_way}", "Importance where features correlate", _line)(
        partial(other_importance, way=_way)
    )


@figure(
    "audit",
    "Audit of every layer",
    "What an artefact could have made of each layer, from 0 (nothing) to 1; a dot: a conclusion "
    "changes.",
)
def audit(shown: FigureContext) -> RenderedFigure | None:
    """How much of each possible artefact there is; None where there is no audit."""
    audit, flagged = shown.audit, shown.flagged
    if audit is None or flagged is None:
        return None
    on = computed_on(len(shown.analysis.stimuli), shown.analysis.tables.n_pairs).removesuffix(".")
    return RenderedFigure(
        figures.audit_map(audit.layers, audit.changes, marked(flagged), SAYS, CONTROL),
        "Audit of every layer",
        "A row a possible artefact, a column a layer, from 0 (none) to 1; a dot marks a layer "
        "about which a conclusion changes by twice the limit or more. "
        f"{on} with all features of the analysis.",
        audit.layers,
        audit.layers.assign(layer=[layer_name(one) for one in _layers(audit.layers)])[
            ["layer", "rho", "top", "position0_ranks", "mean_cosine", "outlier_share"]
        ],
    )


def _layers(table: pd.DataFrame) -> list[Layer]:
    return list(zip(table["model"], table["layer"].astype(int), strict=True))
