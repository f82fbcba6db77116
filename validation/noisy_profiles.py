"""Weights and importances under noise (figures S4, S5 and S8 of Jalouzot et al. 2024)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mlem_core.base.labels import SEPARATOR
from mlem_core.figures.style import DASHES, PALETTE, SYMBOLS, quiet
from mlem_core.measures.similarity import weighted_tau
from mlem_core.pairs.column_builder import metric_terms
from validation import layers
from validation.work import Row, Task

ESTIMATORS = ("spearman-I", "FR-RSA-I")
SEED = 0
MOST = 4  # terms of each kind that are drawn: of the highest importance, of the largest weight


def noisy(level: float) -> list[Row]:
    """Weights (of norm 1) and importances of every term and fold at a level of noise."""
    data = layers.data_of(layers.with_noise(level, SEED), interactions=True)
    found = []
    for name in ESTIMATORS:
        pairs, weights, importance = layers.profiles(name, data)
        n_features = len(pairs.features)
        weights = layers.unit_metrics(weights, n_features)[:, *metric_terms(n_features)]
        for fold, term in np.ndindex(weights.shape):
            found.append(
                {
                    "estimator": name,
                    "noise": level,
                    "fold": fold,
                    "term": pairs.columns.names[term],
                    "weight": float(weights[fold, term]),
                    "importance": float(importance[fold, term]),
                }
            )
    return found


def tasks(quick: bool) -> list[Task]:
    """A task a level of noise; without any first."""
    levels = (0.0, layers.NOISE[1]) if quick else (0.0, *layers.NOISE)
    return [Task(str(level), noisy, (level,)) for level in levels]


def shown_terms(rows: pd.DataFrame) -> list[str]:
    """Without noise those of the highest importance, then those of the largest weight."""
    clean = rows[rows["noise"] == 0].assign(weight=lambda t: t["weight"].abs())
    means = clean.groupby("term", sort=False)[["importance", "weight"]].mean()
    order = [means[one].nlargest(MOST).index for one in ("importance", "weight")]
    return list(dict.fromkeys([*order[0], *order[1]]))


def draw(rows: pd.DataFrame) -> dict[str, tuple[go.Figure, int, int]]:
    """Weights above, importances below, a column an estimator, a line a term."""
    figure = make_subplots(
        2, 2, subplot_titles=ESTIMATORS, shared_yaxes=True, shared_xaxes=True,
        horizontal_spacing=0.04, vertical_spacing=0.08,
    )  # fmt: skip
    for column, name in enumerate(ESTIMATORS, 1):
        for line, value in enumerate(("weight", "importance"), 1):
            of = rows[rows["estimator"] == name].assign(weight=lambda t: t["weight"].abs())
            stats = of.groupby(["term", "noise"])[value].agg(["mean", "std"]).fillna(0.0)
            for place, term in enumerate(shown_terms(rows)):
                own = stats.loc[term]
                figure.add_scatter(
                    x=own.index,
                    y=own["mean"],
                    error_y={"array": own["std"], "thickness": 1, "width": 2},
                    name=term.replace("_", " "),
                    legendgroup=term,
                    showlegend=column == line == 1,
                    mode="lines+markers",
                    line={
                        "color": PALETTE[place % len(PALETTE)],
                        "dash": DASHES[place // len(PALETTE) % len(DASHES)],
                        "width": 2,
                    },
                    marker={"symbol": SYMBOLS[place % len(SYMBOLS)], "size": 7},
                    row=line,
                    col=column,
                )
    quiet(figure, 640)
    figure.update_xaxes(title_text="noise level (standard deviations of each unit)", row=2)
    figure.update_yaxes(title_text="absolute weight (W of norm 1)", row=1, col=1)
    figure.update_yaxes(title_text="importance (FI)", row=2, col=1)
    return {
        "noisy-profiles": (figure, 1100, 680),
        "noise-agreement": (draw_agreement(agreement(rows)), 900, 380),
    }


def agreement(rows: pd.DataFrame) -> pd.DataFrame:
    """Agreement of the two estimators by noise and fold: noise, fold, frobenius, tau.

    frobenius is the Frobenius distance of their matrices W, each of norm 1; tau the weighted
    Kendall τ of their importances.
    """
    keys = ["noise", "fold"]
    by_name = [
        rows[rows["estimator"] == name].pivot(index=keys, columns="term") for name in ESTIMATORS
    ]
    terms = by_name[0]["weight"].columns
    # An entry beside the diagonal stands in the matrix twice.
    times = np.array([1.0 + (SEPARATOR in term) for term in terms])
    weights, profiles = (
        np.stack([table[value][terms].to_numpy() for table in by_name], axis=1)
        for value in ("weight", "importance")
    )
    return (
        by_name[0]
        .index.to_frame(index=False)
        .assign(
            frobenius=np.sqrt((weights[:, 0] - weights[:, 1]) ** 2 @ times),
            tau=[weighted_tau(both)[0, 1] for both in profiles],
        )
    )


def draw_agreement(table: pd.DataFrame) -> go.Figure:
    """Frobenius distance on the left, weighted τ on the right: mean and sd over folds by noise."""
    titles = {"frobenius": "Frobenius distance of W", "tau": "weighted τ of importances"}
    figure = make_subplots(1, 2, horizontal_spacing=0.1)
    for column, (measure, title) in enumerate(titles.items(), 1):
        stats = table.groupby("noise")[measure].agg(["mean", "std"]).fillna(0.0)
        figure.add_scatter(
            x=stats.index,
            y=stats["mean"],
            error_y={"array": stats["std"], "thickness": 1, "width": 2},
            mode="lines+markers",
            line={"color": PALETTE[column - 1], "width": 2},
            showlegend=False,
            row=1,
            col=column,
        )
        figure.update_yaxes(title_text=title, rangemode="tozero", row=1, col=column)
    quiet(figure, 360)
    figure.update_xaxes(title_text="noise level (standard deviations of each unit)")
    return figure


def tables_from(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """By noise: how much weight goes to interactions, and how much importance."""
    part = rows.assign(
        of=np.where(rows["term"].str.contains(SEPARATOR, regex=False), "interactions", "features"),
        weight=rows["weight"].abs(),
    )
    sums = part.groupby(["estimator", "noise", "fold", "of"])[["weight", "importance"]].sum()
    shares = sums.xs("interactions", level="of") / sums.groupby(level=[0, 1, 2]).sum()
    means = shares.groupby(["estimator", "noise"]).mean()
    cells = {
        f"{name}, {value}": means.loc[name, value].map("{:.2f}".format)
        for name in ESTIMATORS
        for value in ("weight", "importance")
    }
    table = pd.DataFrame(cells).T.rename_axis("share of the interactions in")
    return {"noisy profiles": table.rename(columns="{:g}".format).rename_axis(columns=None)}
