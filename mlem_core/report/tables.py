"""The numbers of figures as CSV, and as a paper's tables: a row a layer, a pair or a feature."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.results import Results
from mlem_core.analysis.selection import Selection
from mlem_core.base.text import minus, number
from mlem_core.base.typing import Layer, layer_name, parse_layer
from mlem_core.data.stimulus_csv import write_table
from mlem_core.inference.intervals import LayerIntervals
from mlem_core.inference.tables import score_table
from mlem_core.measures.decomposition import score_terms, tau_terms


def csv_bytes(table: pd.DataFrame) -> bytes:
    """A table as CSV; cells that a spreadsheet would run are escaped."""
    file = BytesIO()
    write_table(table, file)
    return file.getvalue()


def pairs_of_layers(results: Results, *others: pd.DataFrame) -> pd.DataFrame:
    """Both similarities of every two different layers: layer_a, layer_b, weighted_tau, rsa.

    Each pair once, as it stands above the diagonal. `others` are squares of further similarities,
    as `mlem_core.analysis.similarities.LayerSimilarity.square` has them, each a further column.
    """
    names = [layer_name(layer) for layer in results.layers]
    above = np.triu_indices(len(names), 1)
    squares = {"weighted_tau": results.similarity_profiles, "rsa": results.similarity_rsa}
    squares |= {str(square.columns.name): square for square in others}
    named = {"layer_a": above[0], "layer_b": above[1]}
    return pd.DataFrame(
        {name: [names[at] for at in places] for name, places in named.items()}
        | {name: square.loc[names, names].to_numpy()[above] for name, square in squares.items()}
    )


def tested_pairs(table: pd.DataFrame) -> pd.DataFrame:
    """Both similarities of every two layers with their intervals as text, and p of RSA.

    Parameters
    ----------
    table : of `mlem_core.inference.tables.similarity_table`
    """
    cells = {
        heading: [
            f"{number(value)} [{number(low)}, {number(high)}]"
            for value, low, high in table[[name, f"{name}_lower", f"{name}_upper"]].to_numpy()
        ]
        for name, heading in (("weighted_tau", "τ [95 %]"), ("rsa", "RSA [95 %]"))
    }
    return table[["layer_a", "layer_b"]].assign(**cells, rsa_p_corrected=table["rsa_p_corrected"])


def importance_of(results: Results, a: str, b: str) -> pd.DataFrame:
    """Mean importance of each feature in two layers "model:layer"; the largest in `a` first."""
    means = results.importance.groupby(["model", "layer", "feature"], sort=False)["importance"]
    table = means.mean()
    columns = {name: table.loc[parse_layer(name)] for name in dict.fromkeys((a, b))}
    return pd.DataFrame(columns).sort_values(a, ascending=False).reset_index()


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


def terms_of_tau(results: Results, a: Layer, b: Layer) -> pd.DataFrame:
    """The weighted Kendall τ of the profiles of two layers as a sum: term, value."""
    means = results.importance.groupby(["model", "layer", "feature"], sort=False)["importance"]
    profiles = means.mean().unstack("feature")[list(dict.fromkeys(results.importance["feature"]))]
    two = profiles.loc[[a, b]]
    terms = tau_terms(two.to_numpy())[:, 0, 1]
    return pd.DataFrame({"term": list(two.columns), "value": terms})


def terms_of_score(
    analysis: Analysis, selection: Selection, results: Results, layer: Layer
) -> pd.DataFrame:
    """What each feature contributes to the held-out ρ of a layer: term, value (mean over folds).

    Parameters
    ----------
    results : of the selection, which has the layer
    """
    own, _ = analysis.subset(replace(selection, layers=(layer,)))
    weights = results.weights
    of_layer = weights[(weights["model"] == layer[0]) & (weights["layer"] == layer[1])]
    wide = of_layer.pivot(index="fold", columns="feature", values="weight").sort_index()
    terms = score_terms(own, wide[list(own.columns.names)].to_numpy()[None])
    return pd.DataFrame({"term": list(own.features), "value": terms[0].mean(axis=0)})


def means_of_models(summary: pd.DataFrame) -> pd.DataFrame:
    """A row a term, a column a pair of models: the mean over their pairs of layers.

    Parameters
    ----------
    summary : of `mlem_core.measures.decomposition.Decomposition.summary`
    """
    both = summary["model_a"] + " and " + summary["model_b"]
    alone = "within " + summary["model_a"]
    pairs = both.where(summary["model_a"] != summary["model_b"], alone)
    wide = summary.assign(pair=pairs).pivot(index="term", columns="pair", values="mean")
    return (
        wide.loc[summary["term"].unique(), pairs.unique()].reset_index().rename_axis(columns=None)
    )


def value_counts(table: pd.DataFrame, features: list[str]) -> pd.DataFrame:
    """feature, value, count of some columns of the stimuli; missing (an empty value) last."""
    rows: list[tuple[str, object, int]] = []
    for name in features:
        counts = table[name].value_counts(dropna=True).sort_index()
        rows += [
            (name, f"{value:g}" if isinstance(value, float) else value, int(count))
            for value, count in counts.items()
        ]
        missing = int(table[name].isna().sum())
        rows += [(name, None, missing)] if missing else []
    return pd.DataFrame(rows, columns=["feature", "value", "count"])
