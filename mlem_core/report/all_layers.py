"""Figures of all layers: profiles, similarity, maps, the stimuli, other methods, the audit."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

from mlem_core import figures
from mlem_core.analysis.published import beside_published
from mlem_core.analysis.similarities import RSA, Compared
from mlem_core.base.labels import distinct
from mlem_core.base.typing import Layer, layer_name
from mlem_core.estimators.registry import estimator_named
from mlem_core.measures import correlated
from mlem_core.measures.decomposition import Decomposition, decompose
from mlem_core.measures.importance import fitted
from mlem_core.measures.similarity import agreement
from mlem_core.pairs.similarities import SIMILARITIES
from mlem_core.report import captions, captions_of_methods, tables
from mlem_core.report.shown import Drawn, Shown, figure, held_out
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
def profiles(shown: Shown) -> Drawn:
    """Figure 3 of Salle et al. (2024)."""
    results, tested = shown.results, shown.score_tests
    reasons = {measure: shown.reasons(measure) for measure in ("profiles", "scores")}
    flags = of_layers(reasons, shown.selection.layers)
    table = tables.profile_table(results)
    if shown.intervals is not None:
        table = tables.profile_intervals(shown.intervals, results)
    return Drawn(
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
        captions.profiles(
            shown.basis,
            shown.coding,
            "" if tested is None else tested.family,
            shown.over,
            flagged=bool(flags),
            warning=captions.correlated(results.feature_correlations, shown.names),
        ),
        results.importance if tested is None else tested.table,
        table,
    )


@figure(
    "similarity",
    "Similarity of every two layers",
    "How alike every two layers are, by their features and by their distances alone. Click a cell "
    "to choose its two layers.",
    offered=True,
)
def similarity(shown: Shown) -> Drawn | None:
    """Figure 2 of Salle et al. (2024)."""
    results, tested = shown.results, shown.similarity_tests
    if not shown.several:
        return None
    if shown.compared is not None:
        return _other_similarity(shown, shown.compared)
    flags = {measure: shown.reasons(measure) for measure in ("rsa", "tau")}
    return Drawn(
        figures.similarity_matrices(
            results.similarity_profiles,
            results.similarity_rsa,
            **_matrices(shown),
            annotations=figures.Annotations(None if tested is None else tested.table, flags),
        ),
        "Similarity of every two layers",
        captions.similarity(
            shown.basis,
            "" if tested is None else tested.family,
            shown.over,
            flagged=any(flags.values()),
            agreement=results.agreement,
            n_features=results.n_profile_features,
        ),
        tables.pairs_of_layers(results) if tested is None else tested.table,
        None if tested is None else tables.tested_pairs(tested.table),
    )


def _matrices(shown: Shown) -> dict[str, Any]:
    """How matrices of every two layers are drawn."""
    return {
        "across": 1 if shown.drawing.narrow or shown.drawing.screen else 2,
        "order": "clustering" if shown.drawing.options.get("order") == "clustering" else "model",
        "pair": shown.marked_pair,
    }


def _other_similarity(shown: Shown, compared: Compared) -> Drawn:
    """The same with another similarity in the place of RSA."""
    results, square = shown.results, compared.square
    return Drawn(
        figures.similarity_matrices(
            results.similarity_profiles,
            square,
            **_matrices(shown),
            annotations=figures.Annotations(None, {"tau": shown.reasons("tau")}),
        ),
        f"Similarity of every two layers ({compared.similarity.short})",
        captions.other_similarity(
            compared.similarity,
            shown.basis,
            agreement=agreement(results.similarity_profiles.to_numpy(), compared.values),
            n_features=results.n_profile_features,
        ),
        tables.pairs_of_layers(results, square),
    )


@figure(
    "layer_maps",
    "Maps of the layers",
    "Layers that are alike lie close together. Click two of them to compare them.",
    offered=True,
)
def layer_maps(shown: Shown) -> Drawn | None:
    """The layers as points."""
    results = shown.results
    if not shown.several:
        return None
    across = 1 if shown.drawing.narrow else 2
    return Drawn(
        figures.layer_maps(results.layer_map, results.importance, across, results.map_stress),
        "Maps of the layers",
        captions.layer_maps(shown.basis),
        results.layer_map,
    )


@figure(
    "why_layers",
    "What makes every two layers alike",
    "What each feature adds to the similarity of every two layers: orange makes them alike, blue "
    "sets them apart.",
    offered=True,
)
def why_layers(shown: Shown) -> Drawn | None:
    """The terms of the similarity of every two layers; None of one that has none."""
    if not shown.several or (shown.compared and not shown.compared.similarity.divides):
        return None
    layers, split, compared = list(shown.selection.layers), decomposition(shown), shown.compared
    similarity = SIMILARITIES["rsa"] if compared is None else compared.similarity
    means = models_alike(shown)
    return Drawn(
        figures.term_matrices(
            {term: split.matrix(term, layers) for term in split.names},
            across=2 if shown.drawing.narrow else 3,
        ),
        "What makes every two layers alike",
        captions.why_layers(shown.computed_on, similarity),
        split.table(layers).rename(columns={"rsa": similarity.name}),
        # A row two models: of these there are more than terms.
        means.set_index("term").T.rename_axis("models").rename_axis(columns=None).reset_index(),
    )


def decomposition(shown: Shown) -> Decomposition:
    """The similarity of every two layers as a sum: of RSA, or of what is chosen instead."""
    if (found := shown.compared) is None:
        return shown.once("sum", lambda: decompose(*shown.analysis.subset(shown.selection)))
    return shown.once(("sum", found.similarity.name), found.decomposed)


def models_alike(shown: Shown) -> pd.DataFrame:
    """What makes every two models alike: term, and a column of means a pair of models."""
    layers = list(shown.selection.layers)
    of = RSA if shown.compared is None else shown.compared.similarity.name
    summary = shown.once(("means", of), lambda: decomposition(shown).summary(layers))
    names = list(dict.fromkeys(model for model, _ in layers))
    called = dict(zip(names, distinct(names, list(map(shown.names.model, names))), strict=True))
    models = [summary[side].map(called) for side in ("model_a", "model_b")]
    return tables.means_of_models(summary.assign(model_a=models[0], model_b=models[1]))


@figure(
    "published",
    "Beside the first paper",
    "What the first paper found in these models, and what is found here.",
)
def published(shown: Shown) -> Drawn | None:
    """What Salle et al. (2024) found, beside these numbers; None where the models are others."""
    table = beside_published(shown.results)
    if table is None:
        return None
    called = {"agreement": "agreement (Spearman ρ)", "weighted_tau": "weighted τ"}
    return Drawn(
        figures.published_values(table),
        "Beside the first paper",
        captions_of_methods.published(shown.basis),
        table,
        table.assign(quantity=table["quantity"].map(called)),
    )


@figure(
    "feature_correlations",
    "Correlations of the features",
    "Where two features vary together, their importances cannot be told apart well.",
    offered=True,
)
def feature_correlations(shown: Shown) -> Drawn:
    """Figure S5 of Salle et al. (2024)."""
    results = shown.results
    return Drawn(
        figures.feature_correlations(results.feature_correlations),
        "Correlations of the feature distances",
        captions.feature_correlations(captions.computed_on(results.n_stimuli, results.n_pairs)),
        results.feature_correlations.rename_axis("feature").reset_index(),
    )


@figure(
    "feature_counts",
    "Values of the features",
    "How many stimuli have each value.",
    offered=True,
)
def feature_counts(shown: Shown) -> Drawn:
    """The values of the features."""
    stimuli, names = shown.analysis.stimuli, list(shown.selection.features)
    kinds = [(f.name, f.kind) for f in stimuli.features if f.name in names]
    across = {"across": 2} if shown.drawing.narrow else {}
    return Drawn(
        figures.feature_counts(stimuli.table, kinds, shown.all_features, **across),
        "Values of the features",
        captions.feature_counts(shown.results.n_stimuli),
        tables.value_counts(stimuli.table, names),
    )


_IMPORTANCES = {
    "conditional": "conditional importance (FI)",
    "left_out": "importance when left out (FI)",
    "group": "importance of the group (FI)",
}


def _importances(shown: Shown, group: tuple[str, ...]) -> pd.DataFrame:
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


def other_importance(shown: Shown, way: str) -> Drawn | None:
    """Importance where features correlate; None with an estimator that is slow to fit again.

    That of a group is there where one is chosen.
    """
    group = tuple(shown.drawing.options.get("group", "").splitlines()) if way == "group" else ()
    few = not group if way == "group" else len(shown.selection.features) < 2
    if estimator_named(shown.selection.estimator).slow or few:
        return None
    table = shown.once(("importances", group), lambda: _importances(shown, group))
    names, drawn = list(dict.fromkeys(table["feature"])), table
    if not group:
        names, drawn = shown.all_features, table.rename(columns={way: "importance"}).assign(fold=0)
    return Drawn(
        figures.profiles(
            drawn,
            drawn[["model", "layer", "fold"]].drop_duplicates(),
            names,
            across=shown.across,
            value=_IMPORTANCES[way],
        ),
        f"{_IMPORTANCES[way].partition(' (')[0].capitalize()}" + " of each feature" * (not group),
        captions.importance(
            way,
            shown.results.n_folds,
            captions.computed_on(shown.results.n_stimuli, held_out=held_out(shown.analysis)),
        ),
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
    takes_long=True,
)
def audit(shown: Shown) -> Drawn | None:
    """How much of each possible artefact there is; None where there is no audit."""
    audit, flagged = shown.audit, shown.flagged
    if audit is None or flagged is None:
        return None
    return Drawn(
        figures.audit_map(audit.layers, audit.changes, marked(flagged), SAYS, CONTROL),
        "Audit of every layer",
        captions.audit(len(shown.analysis.stimuli), shown.analysis.tables.n_pairs),
        audit.layers,
        audit.layers.assign(layer=[layer_name(one) for one in _layers(audit.layers)])[
            ["layer", "rho", "top", "position0_ranks", "mean_cosine", "outlier_share"]
        ],
    )


def _layers(table: pd.DataFrame) -> list[Layer]:
    return list(zip(table["model"], table["layer"].astype(int), strict=True))
