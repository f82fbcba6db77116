"""Groups of models: mean profiles with the spread over models, and how universal terms are."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from mlem_core.figures.naming import feature_name
from mlem_core.figures.profiles import band
from mlem_core.figures.style import (
    GREY,
    PALETTE,
    as_number,
    feature_colors,
    in_full,
    panels,
    plain,
    quiet,
)

_ROW = 34  # px
BELOW = 100  # px between two rows of panels
_NAMES = {"rsa": "RSA"}


def group_profiles(
    profiles: pd.DataFrame, features: Sequence[str], *, across: int = 3
) -> go.Figure:
    """The mean importance of each feature over relative depth, a panel a group.

    A band is the interval over members, where there are two.

    Parameters
    ----------
    profiles : group, members, layer, depth, feature, importance, lower, upper
    features : of all analyses that are to have the same colours
    """
    groups = list(dict.fromkeys(profiles["group"]))
    sizes = profiles.groupby("group", sort=False)["members"].first()
    titles = [f"{plain(name, 18)} (n = {sizes[name]})" for name in groups]
    figure, places = panels(titles, height=300, across=across, below=BELOW)
    colors = feature_colors(features)
    for group, (row, column) in zip(groups, places, strict=True):
        own = profiles[profiles["group"] == group]
        for name, line in own.groupby("feature", sort=False):
            color, first = colors.get(str(name), GREY), group == groups[0]
            if line["lower"].notna().all():
                x, low, high = (line[end].to_numpy() for end in ("depth", "lower", "upper"))
                between = go.Scatter(band(x, low, high, color, str(name)))
                figure.add_trace(between, row=row, col=column)
            figure.add_trace(
                go.Scatter(
                    x=line["depth"],
                    y=line["importance"],
                    mode="lines+markers",
                    line={"color": color, "width": 2},
                    name=feature_name(str(name)),
                    legendgroup=str(name),
                    showlegend=first,
                    hovertext=[
                        f"{feature_name(str(name))}, layer {layer}: {as_number(value)}"
                        for layer, value in zip(line["layer"], line["importance"], strict=True)
                    ],
                    hoverinfo="text",
                ),
                row=row,
                col=column,
            )
    figure.update_xaxes(range=[-0.03, 1.03], title_text="relative depth")
    figure.update_yaxes(matches="y")
    figure.update_yaxes(title_text="importance (FI)", col=1)
    return figure


def universality(table: pd.DataFrame) -> go.Figure:
    """How much of what members of a group share is shared between groups, a bar a term.

    Parameters
    ----------
    table : term, universality, universality_lower, universality_upper; terms without one are left
        out
    """
    known = table[table["universality"].notna()]
    value = known["universality"]
    names = [in_full(_NAMES.get(term) or feature_name(term)) for term in map(str, known["term"])]
    figure = go.Figure(
        go.Bar(
            x=value,
            y=list(range(len(known))),
            orientation="h",
            marker={"color": PALETTE[0]},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": known["universality_upper"] - value,
                "arrayminus": value - known["universality_lower"],
                "color": GREY,
                "thickness": 1.5,
            },
            hovertext=[f"{name}: {as_number(x)}" for name, x in zip(names, value, strict=True)],
            hoverinfo="text",
        )
    )
    quiet(figure, height=_ROW * len(known) + 110)
    figure.add_vline(x=1, line={"color": GREY, "width": 1, "dash": "dot"})
    figure.update_xaxes(title_text="universality (between / within groups)", rangemode="tozero")
    figure.update_yaxes(
        tickvals=list(range(len(known))),
        ticktext=[plain(str(name), 24) for name in names],
        autorange="reversed",
        showgrid=False,
        zeroline=False,
    )
    return figure
