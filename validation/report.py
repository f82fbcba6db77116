"""What the studies found, as tables in the README and as figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mlem_core.base.labels import SEPARATOR
from mlem_core.figures.export import can_write_images, image
from mlem_core.figures.style import DASHES, GREY, PALETTE, SYMBOLS, quiet
from validation import (
    budget,
    choice,
    chosen,
    crossfit,
    crossnobis,
    erasing,
    familywise,
    in_time,
    intervals,
    layers,
    noisy_profiles,
    onsets,
    populations,
    second_level,
    similarity_terms,
    simulations,
    subjects,
    units,
    values,
    what_else,
)
from validation.work import read

README = Path(__file__).resolve().parents[1] / "docs" / "validation" / "README.md"
PLUS_MINUS = " ± "


def report(folder: Path) -> None:
    """Write the summary tables (into README.md) and the figures of what is there."""
    found: dict[str, pd.DataFrame] = {}
    for study, tables in TABLES.items():
        rows = read(folder / f"{study}.csv")
        if rows.empty:
            continue
        found |= tables(rows)
        if can_write_images() and study in FIGURES:
            for name, (figure, width, height) in FIGURES[study](rows).items():
                content = image(figure, "svg", width=width, height=height)
                (folder / f"{name}.svg").write_bytes(content)
    text = README.read_text(encoding="utf-8") if README.exists() else ""
    for name, table in found.items():
        text = filled(text, name, markdown(table))
    (folder / "README.md").write_text(text, encoding="utf-8")


def filled(text: str, name: str, table: str) -> str:
    """The text with the table between its marks; marks at the end where there are none."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    block = f"{begin}\n{table}\n{end}"
    if begin not in text:
        return f"{text.rstrip()}\n\n{block}\n" if text else f"{block}\n"
    return re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: block, text, flags=re.DOTALL)


def markdown(table: pd.DataFrame) -> str:
    """A table with its index as the first column."""
    shown = table.reset_index()
    lines = [" | ".join(map(str, shown.columns)), " | ".join(["---"] * shown.shape[1])]
    lines += [" | ".join(map(str, row)) for row in shown.itertuples(index=False)]
    return "\n".join(f"| {line} |" for line in lines)


def spread(
    rows: pd.DataFrame, value: str, across: str, order: Sequence[str], digits: int = 3
) -> pd.DataFrame:
    """Mean ± standard deviation: a row an estimator, a column a value of `across`."""
    found = rows.groupby(["estimator", across])[value].agg(["mean", "std", "count"])

    def text(cell: pd.Series) -> str:
        mean = f"{cell['mean']:.{digits}f}"
        return mean + (f"{PLUS_MINUS}{cell['std']:.{digits}f}" if cell["count"] > 1 else "")

    table = found.apply(text, axis=1).unstack(across).fillna("")
    table = table.reindex([name for name in order if name in table.index])
    return table.rename(columns=lambda level: f"{level:g}").rename_axis(columns=None)


SIMULATED = (*simulations.FAST, *simulations.SLOW)
ESTIMATED = (*layers.FITS, *layers.PUBLISHED)


def paired(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """FR-RSA-I minus spearman-I on the same data: mean ± sd, and how often it is above 0."""
    by = ["truth", "noise", "seed"]
    found = []
    for ours in ("spearman-I", "spearman-I, published", "spearman-I, published, true ranks"):
        two = [
            rows[rows["estimator"] == name].set_index(by)[value].rename("value")
            for name in (ours, ours.replace("spearman", "FR-RSA"))
        ]
        gap = (two[1] - two[0]).dropna().reset_index()
        if gap.empty:
            continue
        found.append(gap.assign(recipe=ours.replace("spearman-I", "").strip(", ") or "exact"))
    table = pd.concat(found)
    table["case"] = table["truth"] + ", " + table["recipe"]

    def text(gaps: pd.Series) -> str:
        return f"{gaps.mean():+.3g}{PLUS_MINUS}{gaps.std():.2g} ({(gaps > 0).sum()}/{len(gaps)})"

    wide = table.groupby(["case", "noise"], sort=False)["value"].agg(text).unstack("noise")
    wide = wide[sorted(wide.columns)].fillna("")
    return wide.rename(columns=lambda level: f"{level:g}").rename_axis(columns=None)


def of_simulations(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    found = {"frobenius paired": paired(rows, "frobenius")}
    for truth, own in rows.groupby("truth", sort=False):
        found[f"frobenius {truth}"] = spread(own, "frobenius", "noise", SIMULATED)
        found[f"rho {truth}"] = spread(own, "rho", "noise", (simulations.PLANTED, *SIMULATED))
    steps = rows.dropna(subset="steps")
    if len(steps):
        found["steps"] = spread(steps, "steps", "noise", SIMULATED, digits=0)
        found["steps paired"] = paired(steps, "steps")
    return found


def of_noise(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {
        "tau by noise": spread(rows, "tau", "noise", ESTIMATED),
        "tau of features by noise": spread(rows, "tau_features", "noise", ESTIMATED),
        "weights by noise": spread(rows, "frobenius", "noise", ESTIMATED),
    }


def of_strength(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    rows = rows.assign(layer=rows["model"] + " " + rows["layer"].astype(str))
    rows["column"] = [
        name if np.isnan(value) else f"{value:g}"
        for name, value in zip(rows["estimator"], rows["strength"], strict=True)
    ]
    order = [f"{value:g}" for value in layers.STRENGTHS]
    order += ["spearman, published, true ranks", "ridge", "ridge on ranks", "spearman"]
    names = [f"{model} {layer}" for model, layer in layers.LAYERS]

    def table(score: str) -> pd.DataFrame:
        wide = rows.pivot(index="layer", columns="column", values=score)
        wide = wide.reindex([name for name in names if name in wide.index])
        wide = wide.reindex(columns=[c for c in order if c in wide.columns])
        wide.loc["mean"] = wide.mean()
        return wide.map(lambda v: "" if np.isnan(v) else f"{v:.3f}").rename_axis(columns=None)

    return {"rho by strength": table("rho"), "rho_a by strength": table("rho_a")}


def of_stability(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    sd = rows.groupby(["varies", "estimator", "feature"])["importance"].agg(["mean", "std"])
    sd = sd.reset_index()
    plain = ~sd["feature"].str.contains(SEPARATOR, regex=False)
    wholes = []
    for (varies, name), own in sd.groupby(["varies", "estimator"]):
        features = own[plain.loc[own.index]]
        wholes.append(
            {
                "estimator": name,
                "what varies": varies,
                "seeds": rows.query("varies == @varies and estimator == @name")["seed"].nunique(),
                "mean sd, features": f"{features['std'].mean():.4f}",
                "largest sd, features": f"{features['std'].max():.4f}",
                "mean sd, all terms": f"{own['std'].mean():.4f}",
            }
        )
    whole = pd.DataFrame(wholes)
    whole = whole.sort_values("estimator", key=lambda names: names.map(ESTIMATED.index))
    # Importances of features beside interactions are those of their own terms alone.
    diagonal = sd[~sd["estimator"].str.contains("-I", regex=False)]
    features = list(dict.fromkeys(rows.loc[rows["estimator"] == "ridge", "feature"]))
    cells = diagonal.assign(
        cell=[
            f"{m:.3f}{PLUS_MINUS}{s:.4f}"
            for m, s in zip(diagonal["mean"], diagonal["std"], strict=True)
        ]
    ).pivot(index="feature", columns="estimator", values="cell")
    order = [name for name in ESTIMATED if name in cells.columns]
    cells = cells.reindex(features)[order].rename_axis(columns=None)
    return {"stability": whole.set_index("estimator"), "stability by feature": cells}


def of_permutations(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    most = rows["permutations"].max()
    features = list(dict.fromkeys(rows["feature"]))
    last = rows[rows["permutations"] == most].set_index("feature")
    table = pd.DataFrame(index=pd.Index(features, name="feature"))
    table["exact"] = last["exact"].map("{:.5f}".format)
    for n, own in rows.groupby("permutations"):
        own = own.set_index("feature")
        table[f"{n} permutations"] = [
            f"{m:.5f}{PLUS_MINUS}{s:.5f}"
            for m, s in zip(
                own["monte_carlo"][features], own["standard_error"][features], strict=True
            )
        ]
    off = (last["monte_carlo"] - last["exact"]) / last["standard_error"]
    table[f"difference at {most}, in standard errors"] = off.map("{:+.1f}".format)
    return {"permutations": table}


TABLES: dict[str, Callable[[pd.DataFrame], dict[str, pd.DataFrame]]] = {
    "simulations": of_simulations,
    "noise": of_noise,
    "noisy-profiles": noisy_profiles.tables_from,
    "strength": of_strength,
    "stability": of_stability,
    "permutations": of_permutations,
    "crossfit": crossfit.tables_from,
    "values": values.tables_from,
    "intervals": intervals.tables_from,
    "words": intervals.recurring_tables_from,
    "budget": budget.tables_from,
    "populations": populations.of_populations,
    "subjects": subjects.of_subjects,
    "model-differences": subjects.difference_tables,
    "in-time": in_time.tables_from,
    "groups-in-time": in_time.group_tables,
    "onsets": onsets.tables_from,
    "second-level": second_level.of_second_level,
    "units": units.of_units,
    "familywise": familywise.of_families,
    "choice": choice.tables_from,
    "chosen": chosen.of_chosen,
    "erasing": erasing.of_cases,
    "crossnobis": crossnobis.tables_from,
    "what-else": what_else.of_candidates,
    "similarity-terms": similarity_terms.of_similarity_terms,
}

Figures = dict[str, tuple[go.Figure, int, int]]


def lines(
    rows: pd.DataFrame, panels: dict[str, pd.DataFrame], value: str, title: str, x: str
) -> go.Figure:
    """Mean and standard deviation of each estimator by noise level, a panel a table."""
    figure = make_subplots(
        1,
        len(panels),
        subplot_titles=list(panels),
        shared_yaxes=True,
        horizontal_spacing=0.04,
    )
    names = [n for n in dict.fromkeys((*SIMULATED, *ESTIMATED)) if n in set(rows["estimator"])]
    seen = set()
    for column, table in enumerate(panels.values(), 1):
        for place, name in enumerate(names):
            own = table[table["estimator"] == name].groupby(x)[value].agg(["mean", "std"])
            if own.empty:
                continue
            # Side by side, so that the bars of several estimators can be told apart.
            at = own.index.to_numpy() + 0.015 * (place - len(names) / 2)
            color = PALETTE[place % len(PALETTE)]
            figure.add_scatter(
                x=at,
                y=own["mean"],
                error_y={"array": own["std"].fillna(0), "thickness": 1, "width": 2},
                name=name,
                legendgroup=name,
                showlegend=name not in seen,
                mode="lines+markers",
                line={"color": color, "dash": DASHES[place // 4 % len(DASHES)], "width": 2},
                marker={"symbol": SYMBOLS[place % len(SYMBOLS)], "size": 7},
                row=1,
                col=column,
            )
            seen.add(name)
    quiet(figure, 420)
    figure.update_xaxes(title_text="noise level (standard deviations of each dimension)")
    figure.update_yaxes(title_text=title, col=1)
    return figure


def draw_simulations(rows: pd.DataFrame) -> Figures:
    own = rows[rows["estimator"] != simulations.PLANTED]
    titles = {
        "make_spd_matrix": "truth of the paper (distances not Euclidean)",
        "Euclidean": "truth that points can have",
    }
    panels = {titles[truth]: part for truth, part in own.groupby("truth", sort=False)}
    found = {
        "simulations": (
            lines(own, panels, "frobenius", "Frobenius distance to the planted W", "noise"),
            1100,
            440,
        )
    }
    steps = own.dropna(subset="steps")
    if len(steps):
        figure = lines(steps, {"": steps}, "steps", "steps until it stopped", "noise")
        figure.update_yaxes(rangemode="tozero")
        found["steps"] = (figure, 800, 440)
    return found


def draw_noise(rows: pd.DataFrame) -> Figures:
    full = rows["estimator"].str.contains("-I", regex=False)
    panels = {"diagonal W": rows[~full], "with interactions": rows[full]}
    title = "weighted τ with the noiseless profile"
    return {"noise": (lines(rows, panels, "tau", title, "noise"), 1100, 440)}


def draw_strength(rows: pd.DataFrame) -> Figures:
    known = rows.groupby(["model", "layer"], sort=False)
    figure = make_subplots(
        2,
        max(1, -(-len(known) // 2)),
        subplot_titles=[f"{model}, layer {layer}" for (model, layer), _ in known],
        vertical_spacing=0.17,
        horizontal_spacing=0.07,
    )
    across = max(1, -(-len(known) // 2))
    for n, (_, own) in enumerate(known):
        at = {"row": n // across + 1, "col": n % across + 1}
        curve = own.dropna(subset="strength").sort_values("strength")
        for score, dash in (("rho", "solid"), ("rho_a", "dot")):
            label = {"rho": "ρ", "rho_a": "ρₐ"}[score]
            figure.add_scatter(
                x=curve["strength"],
                y=curve[score],
                mode="lines+markers",
                line={"color": PALETTE[0], "dash": dash},
                name=f"published recipe, {label}",
                showlegend=n == 0,
                **at,
            )
            flat = own[own["strength"].isna()].set_index("estimator")[score]
            for place, name in enumerate(flat.index, 1):
                figure.add_scatter(
                    x=[curve["strength"].min(), curve["strength"].max()],
                    y=[flat[name]] * 2,
                    mode="lines",
                    line={
                        "color": (*PALETTE[1:], GREY)[(place - 1) % len(PALETTE)],
                        "dash": dash,
                        "width": 1.5,
                    },
                    name=f"{name}, {label}",
                    showlegend=n == 0,
                    **at,
                )
    quiet(figure, 640)
    figure.update_xaxes(type="log", exponentformat="power", dtick=2)
    figure.update_xaxes(title_text="strength of the soft rank", row=2)
    figure.update_yaxes(title_text="held-out score", col=1)
    return {"strength": (figure, 1100, 660)}


def draw_stability(rows: pd.DataFrame) -> Figures:
    plain = rows[~rows["feature"].str.contains(SEPARATOR, regex=False)]
    sd = plain.groupby(["varies", "estimator", "feature"])["importance"].std().reset_index()
    figure = make_subplots(
        1, 2, subplot_titles=["other folds", "other sampled pairs"], shared_yaxes=True
    )
    for column, varies in enumerate(("folds", "pairs"), 1):
        own = sd[sd["varies"] == varies]
        for place, feature in enumerate(dict.fromkeys(plain["feature"])):
            part = own[own["feature"] == feature].set_index("estimator")["importance"]
            part = part.reindex([name for name in ESTIMATED if name in part.index])
            figure.add_scatter(
                x=list(part.index),
                y=part,
                mode="markers",
                marker={
                    "color": PALETTE[place % len(PALETTE)],
                    "symbol": SYMBOLS[place % len(SYMBOLS)],
                    "size": 9,
                },
                name=feature,
                legendgroup=feature,
                showlegend=column == 1,
                row=1,
                col=column,
            )
    quiet(figure, 440)
    figure.update_yaxes(title_text="sd of the importance over seeds", col=1, rangemode="tozero")
    return {"stability": (figure, 1100, 480)}


def draw_permutations(rows: pd.DataFrame) -> Figures:
    figure = go.Figure()
    for place, (feature, own) in enumerate(rows.groupby("feature", sort=False)):
        figure.add_scatter(
            x=own["permutations"] * 1.04 ** (place - 4),
            y=own["monte_carlo"] - own["exact"],
            error_y={"array": own["standard_error"], "thickness": 1, "width": 2},
            mode="markers",
            marker={
                "color": PALETTE[place % len(PALETTE)],
                "symbol": SYMBOLS[place % len(SYMBOLS)],
                "size": 8,
            },
            name=feature,
        )
    quiet(figure, 400)
    figure.update_xaxes(type="log", title_text="permutations", tickvals=list(layers.PERMUTATIONS))
    figure.update_yaxes(title_text="Monte-Carlo minus exact importance")
    return {"permutations": (figure, 800, 420)}


FIGURES: dict[str, Callable[[pd.DataFrame], Figures]] = {
    "simulations": draw_simulations,
    "noise": draw_noise,
    "noisy-profiles": noisy_profiles.draw,
    "strength": draw_strength,
    "stability": draw_stability,
    "permutations": draw_permutations,
}
