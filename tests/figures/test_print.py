"""What print and a dark page change of a figure: letters, rows, names at lines, the ramp."""

import itertools

import numpy as np
import pandas as pd
import pytest
from figure_tables import importance_of, scores_of, square_of
from plotly.colors import hex_to_rgb

from mlem_core import figures


def groups(n):
    rows = [(f"g{g}", 2, layer, f"f{f}") for g in range(4) for layer in range(3) for f in range(n)]
    table = pd.DataFrame(rows, columns=["group", "members", "layer", "feature"])
    table = table.assign(depth=table["layer"] / 2, importance=0.1 * table["layer"])
    return figures.group_profiles(table.assign(lower=np.nan, upper=np.nan), ["f0", "f1"])


def texts(figure):
    return [one.text for one in figure.layout.annotations]


@pytest.mark.parametrize(("n", "named"), [(3, True), (4, False)])
def test_few_lines_have_their_names_at_their_ends_for_a_legend(n, named):
    printed = figures.on_pages(groups(n), figures.Paper())[0]
    at_ends = [one for one in printed.layout.annotations if one.text in ("f0", "f1", "f2")]
    assert len(at_ends) == 3 * named and (printed.layout.showlegend is False) == named
    places = sorted(one.yshift for one in at_ends)  # all lines end at one point
    assert all(b - a >= 12 for a, b in itertools.pairwise(places))


def test_panels_have_letters_and_near_rows_that_say_their_axes_once():
    screen = groups(4)
    printed = figures.on_pages(screen, figures.Paper(width_mm=89))[0]
    assert [f"<b>{letter}</b>" for letter in "abcd"] == texts(printed)[4:8]
    assert printed.layout.height < screen.layout.height + 100
    titles = [axis.title.text for axis in printed.select_xaxes()][:4]
    assert titles == [None, "relative depth", "relative depth", "relative depth"]
    assert texts(printed).count("importance (drop in ρ)") == 1
    assert min(axis.domain[0] for axis in printed.select_yaxes()) == pytest.approx(0, abs=1e-6)
    (alone,) = figures.on_pages(
        figures.importance_scatter(
            importance_of(), (("a", 0), ("b", 1)), ("pos", "tense", "number"), 0.5, 0.4
        ),
        figures.Paper(),
    )
    assert "<b>a</b>" not in texts(alone)
    assert texts(screen) == [f"g{g} (n = 2)" for g in range(4)]


def test_on_a_dark_page_similar_layers_are_light_and_zero_is_dark():
    square = square_of({"a": 3})
    figure = figures.on_dark_page(figures.similarity_matrices(square, square))
    light = [sum(hex_to_rgb(color)) for _, color in figure.layout.coloraxis.colorscale]
    middle = len(light) // 2
    assert light[middle:] == sorted(light[middle:]) and light[: middle + 1] == sorted(
        light[: middle + 1], reverse=True
    )
    profiles = figures.profiles(importance_of(), scores_of(importance_of()), ("pos",))
    assert figures.on_dark_page(profiles) is profiles
