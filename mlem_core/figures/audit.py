"""What may be an artefact in which layer, and in how many universes a claim holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mlem_core.figures.style import (
    GREY,
    LINE,
    PALETTE,
    SEQUENTIAL,
    SIZE,
    as_number,
    model_blocks,
    panel_ref,
    panel_title,
    plain,
    quiet,
    sparse_ticks,
)

HOLDS, FAILS = PALETTE[0], PALETTE[1]


def audit_map(
    layers: pd.DataFrame,
    changes: pd.DataFrame,
    marks: pd.DataFrame,
    says: Mapping[str, str],
    control: str,
) -> go.Figure:
    """How much of each possible artefact there is in each layer, from 0 to 1; marks are dots.

    A row a quantity: the share of position 0 in the variance of the ranks, the share of outlier
    units in the variance, the mean cosine, for each variant the layer's largest change of RSA, and
    the share of ρ that random weights reach. A dot says that a conclusion about the layer changes.

    Parameters
    ----------
    layers, changes : of an `mlem_core.robustness.audit.Audit`
    marks : of `mlem_core.robustness.flags.marks`; only those of a layer alone are drawn
    says : how each variant is called, in the order of the rows
    control : the variant with random weights
    """
    names = list(zip(layers["model"], layers["layer"], strict=True))
    titles, rows, texts = _quantities(layers, changes, names, says, control)
    blocks = model_blocks(names)
    values = np.array(rows, dtype=np.float64)
    figure = go.Figure(
        go.Heatmap(
            z=np.clip(values, 0.0, 1.0),
            x=np.arange(len(names)),
            y=np.arange(len(titles)),
            hovertext=[
                [
                    f"<b>{plain(m)}:{n}</b><br>{text}"
                    for (m, n), text in zip(names, own, strict=True)
                ]
                for own in texts
            ],
            hoverinfo="text",
            hoverongaps=False,
            colorscale=SEQUENTIAL,
            zmin=0.0,
            zmax=1.0,
            xgap=1,
            ygap=3,
            colorbar={
                "thickness": 10,
                "outlinewidth": 0,
                "tickvals": [0, 0.5, 1],
                "len": 0.9,
            },
            name="quantities",
        )
    )
    alone = marks[marks["layer_b"] == -1]
    places = {variant: y for y, variant in enumerate((*_ROWS, *says))}
    dots: dict[tuple[int, int], list[str]] = {}
    for row in alone.itertuples():
        at = (row.model_a, row.layer_a)
        if at in names and places.get(row.variant, len(titles)) < len(titles):
            dots.setdefault((names.index(at), places[row.variant]), []).append(row.reason)
    figure.add_trace(
        go.Scatter(
            x=[x for x, _ in dots],
            y=[y for _, y in dots],
            mode="markers",
            marker={"color": "white", "size": 7, "line": {"color": "#444", "width": 1}},
            hovertext=[
                f"<b>{plain(names[x][0])}:{names[x][1]}</b><br>"
                + "<br>".join(plain(reason, 120) for reason in own)
                for (x, _), own in dots.items()
            ],
            hoverinfo="text",
            name="a conclusion changes",
            showlegend=False,
        )
    )
    quiet(figure, height=34 * len(titles) + 130)
    # Many names have no room beside each other on a small screen.
    slanted = len(blocks) > 3
    for start, stop, model in blocks:
        if start:
            figure.add_vline(x=start - 0.5, line={"color": GREY, "width": 1.5})
        figure.add_annotation(
            x=(start + stop - 1) / 2,
            y=0,
            yref="paper",
            yshift=-24 if slanted else -42,
            text=plain(model, 20),
            showarrow=False,
            **({"textangle": -30, "xanchor": "right", "yanchor": "top"} if slanted else {}),
        )
    figure.update_xaxes(
        range=[-0.5, len(names) - 0.5], showgrid=False, **sparse_ticks(names, blocks)
    )
    figure.update_yaxes(
        tickvals=list(range(len(titles))),
        ticktext=titles,
        range=[len(titles) - 0.5, -0.5],
        showgrid=False,
        zeroline=False,
    )
    figure.update_layout(margin={"l": 262, "r": 16, "t": 16, "b": 90 if slanted else 70})
    return figure


# The first rows of the map; then come the variants, with their marks.
_ROWS = ("position0_ranks", "outlier_share", "mean_cosine")


def _quantities(
    layers: pd.DataFrame,
    changes: pd.DataFrame,
    names: Sequence[tuple[str, int]],
    says: Mapping[str, str],
    control: str,
) -> tuple[list[str], list[list[float]], list[list[str]]]:
    by = changes.set_index(["variant", "model", "layer"])
    titles, rows, texts = [], [], []
    for name in (*_ROWS, *says):
        if name in layers:
            titles.append(
                {
                    "position0_ranks": "position 0: share of variance",
                    "outlier_share": "outlier units: share of variance",
                    "mean_cosine": "mean cosine",
                }[name]
            )
            own = layers[name].to_numpy(dtype=np.float64)
            rows.append(list(own))
            said = [f"{titles[-1]} {as_number(value, 2)}" for value in own]
            if name == "outlier_share":
                said = [
                    f"{text}<br>{n} of {units} units"
                    for text, n, units in zip(
                        said, layers["n_outliers"], layers["n_units"], strict=True
                    )
                ]
            texts.append(said)
            continue
        titles.append(
            "random weights: share of ρ" if name == control else f"{says[name]}: change of RSA"
        )
        values, said = [], []
        for model, layer in names:
            if (name, model, layer) not in by.index:
                values.append(np.nan)
                said.append(f"{says[name]}: not known")
                continue
            row = by.loc[(name, model, layer)]
            rho = f"ρ {as_number(row['rho'], 2)} (before {as_number(row['rho_before'], 2)})"
            if name == control:
                values.append(row["rho"] / row["rho_before"] if row["rho_before"] > 0 else np.nan)
                said.append(f"{says[name]} {rho}")
            else:
                values.append(abs(row["rsa_change"]))
                said.append(
                    f"{says[name]} {rho}, τ of the profiles {as_number(row['tau'], 2)}<br>"
                    f"RSA changes most with {plain(row['rsa_with'])}, "
                    f"by {as_number(row['rsa_change'], 2)}"
                )
        rows.append(values)
        texts.append(said)
    return titles, rows, texts


def specification_curve(curve: pd.DataFrame, dimensions: Sequence[str], claim: str) -> go.Figure:
    """The margin of a claim in every universe, and below it the choices that each is made of.

    Parameters
    ----------
    curve : of `mlem_core.robustness.claims.curve`
    dimensions : the columns of choices
    claim : in words
    """
    rows = [(name, value) for name in dimensions for value in dict.fromkeys(_first(curve, name))]
    dots = max(0.25, min(0.7, 0.05 * len(rows)))
    figure = make_subplots(
        2, 1, shared_xaxes=True, row_heights=[1 - dots, dots], vertical_spacing=0.04
    )
    colors = np.where(curve["holds"], HOLDS, FAILS)
    choices = [
        "<br>".join(f"{_name(name)}: {plain(row[name])}" for name in dimensions)
        for _, row in curve.iterrows()
    ]
    for holds, label in ((True, "holds"), (False, "does not hold")):
        at = np.flatnonzero(curve["holds"].to_numpy() == holds)
        figure.add_trace(
            go.Scatter(
                x=curve["place"].to_numpy()[at],
                y=curve["margin"].to_numpy()[at],
                mode="markers",
                name=label,
                marker={"color": HOLDS if holds else FAILS, "size": 7},
                hovertext=[
                    f"<b>{label}</b>, margin {as_number(curve['margin'].iloc[i])}<br>{choices[i]}"
                    for i in at
                ],
                hoverinfo="text",
                showlegend=len(at) > 0,
            ),
            row=1,
            col=1,
        )
    own = curve[curve["own"].to_numpy(dtype=bool)]
    figure.add_trace(
        go.Scatter(
            x=own["place"],
            y=own["margin"],
            mode="markers",
            name="this analysis",
            marker={"color": "rgba(0,0,0,0)", "size": 14, "line": {"color": GREY, "width": 2}},
            hoverinfo="skip",
        ),
        row=1,
        col=1,
    )
    for y, (name, value) in enumerate(rows):
        at = np.flatnonzero((curve[name] == value).to_numpy())
        figure.add_trace(
            go.Scatter(
                x=curve["place"].to_numpy()[at],
                y=np.full(len(at), y),
                mode="markers",
                name=f"{name}={value}",
                marker={"color": list(colors[at]), "size": 5, "symbol": "square"},
                hovertext=[f"{_name(name)}: {plain(value)}"] * len(at),
                hoverinfo="text",
                showlegend=False,
            ),
            row=2,
            col=1,
        )
    quiet(figure, height=240 + 20 * len(rows) + 60)
    panel_title(
        figure, f"{plain(claim, 90)}: {int(curve['holds'].sum())} of {len(curve)}", panel_ref(0)
    )
    figure.add_hline(y=0, line={"color": LINE, "width": 1.5}, row=1, col=1)
    figure.update_xaxes(showticklabels=False, showgrid=False)
    figure.update_xaxes(title_text="universes, by margin", row=2, col=1)
    figure.update_yaxes(title_text="margin", row=1, col=1)
    firsts = dict(reversed(rows))
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=[
            f"{_name(name)}  {plain(value)}" if firsts[name] == value else plain(value)
            for name, value in rows
        ],
        range=[len(rows) - 0.4, -0.6],
        zeroline=False,
        row=2,
        col=1,
    )
    figure.update_layout(
        margin={"l": 200, "r": 16, "t": 56, "b": 56},
        # The curve rises, so that this corner is free.
        legend={"x": 0.01, "xanchor": "left", "y": 1.0, "yanchor": "top"},
        legend_font_size=SIZE - 1,
    )
    return figure


def _first(curve: pd.DataFrame, name: str) -> pd.Series:
    return curve.sort_values("universe")[name]


def _name(dimension: str) -> str:
    return dimension.replace("_", " ")
