"""Figures of all layers: profiles, similarity, maps, the stimuli, other methods, the audit."""

from __future__ import annotations

import pandas as pd

from mlem_core import figures
from mlem_core.analysis.published import beside_published
from mlem_core.analysis.similarities import Compared
from mlem_core.base.labels import distinct
from mlem_core.base.typing import Layer, layer_name
from mlem_core.estimators.registry import estimator_named
from mlem_core.measures.decomposition import decompose
from mlem_core.measures.similarity import agreement
from mlem_core.pairs.similarities import SIMILARITIES
from mlem_core.report import captions, captions_of_methods, tables
from mlem_core.report.shown import Drawn, Shown, held_out
from mlem_core.robustness.flags import of_layers
from mlem_core.robustness.variants import CONTROL, SAYS


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
            annotations=figures.Annotations(None if tested is None else tested.table, flags),
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
            across=1 if shown.drawing.narrow else 2,
            annotations=figures.Annotations(None if tested is None else tested.table, flags),
            order="clustering" if shown.drawing.options.get("order") == "clustering" else "model",
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


def _other_similarity(shown: Shown, compared: Compared) -> Drawn:
    """The same with another similarity in the place of RSA."""
    results, square = shown.results, compared.square
    return Drawn(
        figures.similarity_matrices(
            results.similarity_profiles,
            square,
            across=1 if shown.drawing.narrow else 2,
            annotations=figures.Annotations(None, {"tau": shown.reasons("tau")}),
            order="clustering" if shown.drawing.options.get("order") == "clustering" else "model",
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


def why_layers(shown: Shown) -> Drawn | None:
    """The terms of the similarity of every two layers; None of one that has none."""
    if not shown.several or (shown.compared and not shown.compared.similarity.divides):
        return None
    analysis, layers = shown.analysis, list(shown.selection.layers)
    compared, similarity = shown.compared, SIMILARITIES["rsa"]
    if compared is None:
        split = decompose(*analysis.subset(shown.selection))
    else:
        split, similarity = compared.decomposed(), compared.similarity
    summary = split.summary(layers)
    names = list(dict.fromkeys(model for model, _ in layers))
    called = dict(zip(names, distinct(names, list(map(shown.names.model, names))), strict=True))
    models = [summary[side].map(called) for side in ("model_a", "model_b")]
    means = tables.means_of_models(summary.assign(model_a=models[0], model_b=models[1]))
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


def feature_correlations(shown: Shown) -> Drawn:
    """Figure S5 of Salle et al. (2024)."""
    results = shown.results
    return Drawn(
        figures.feature_correlations(results.feature_correlations),
        "Correlations of the feature distances",
        captions.feature_correlations(captions.computed_on(results.n_stimuli, results.n_pairs)),
        results.feature_correlations.rename_axis("feature").reset_index(),
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
}


def other_importance(shown: Shown, way: str) -> Drawn | None:
    """Importance where features correlate; None with an estimator that is slow to fit again."""
    if estimator_named(shown.selection.estimator).slow or len(shown.selection.features) < 2:
        return None
    table = shown.other_importances
    drawn = table.rename(columns={way: "importance"}).assign(fold=0)
    return Drawn(
        figures.profiles(
            drawn,
            drawn[["model", "layer", "fold"]].drop_duplicates(),
            shown.all_features,
            across=shown.across,
            value=_IMPORTANCES[way],
        ),
        f"{_IMPORTANCES[way].partition(' (')[0].capitalize()} of each feature",
        captions.importance(
            way,
            shown.results.n_folds,
            captions.computed_on(shown.results.n_stimuli, held_out=held_out(shown.analysis)),
        ),
        table,
    )


def audit(shown: Shown) -> Drawn | None:
    """How much of each possible artefact there is; None where there is no audit."""
    audit, flagged = shown.audit, shown.flagged
    if audit is None or flagged is None:
        return None
    return Drawn(
        figures.audit_map(audit.layers, audit.changes, flagged, SAYS, CONTROL),
        "Audit of every layer",
        captions.audit(len(shown.analysis.stimuli), shown.analysis.tables.n_pairs),
        audit.layers,
        audit.layers.assign(layer=[layer_name(one) for one in _layers(audit.layers)])[
            ["layer", "rho", "top", "position0_ranks", "mean_cosine", "outlier_share"]
        ],
    )


def _layers(table: pd.DataFrame) -> list[Layer]:
    return list(zip(table["model"], table["layer"].astype(int), strict=True))
