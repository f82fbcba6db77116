"""Figures of the decomposition: what is drawn is what the tables say."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from mlem_core import figures

FEATURES = ("pos", "tense", "number")


def terms_of(interval: bool = False) -> pd.DataFrame:
    terms = pd.DataFrame({"term": [*FEATURES, "unexplained"], "value": [0.1, 0.3, -0.05, 0.2]})
    if interval:
        terms["lower"], terms["upper"] = terms["value"] - 0.04, terms["value"] + 0.06
    return terms


def test_a_waterfall_runs_from_0_to_the_similarity() -> None:
    figure = figures.waterfall(terms_of(), FEATURES)
    json.loads(figure.to_json())
    bars, total = figure.data
    assert list(bars.customdata) == ["tense", "pos", "number", "unexplained"]
    np.testing.assert_allclose(bars.x, [0.3, 0.1, -0.05, 0.2])
    # Each bar begins where the one before it ended.
    np.testing.assert_allclose(np.array(bars.base, dtype=float), [0.0, 0.3, 0.4, 0.35], atol=1e-12)
    assert total.x[0] == pytest.approx(0.55)
    colors = figures.feature_colors(FEATURES)
    red, green, blue = (int(colors["tense"][i : i + 2], 16) for i in (1, 3, 5))
    assert bars.marker.color[0].startswith(f"rgba({red},{green},{blue}")
    assert figure.data[0].error_x.array is None


@pytest.mark.parametrize("interval", [False, True])
def test_a_waterfall_is_what_plotly_takes_when_it_checks_it(interval: bool) -> None:
    drawn = json.loads(figures.waterfall(terms_of(interval), FEATURES).to_json())
    assert json.loads(go.Figure(drawn).to_json()) == drawn


def test_a_waterfall_shares_nothing_with_the_one_before_it() -> None:
    before = figures.waterfall(terms_of(), FEATURES)
    drawn = before.to_json()
    before.update_layout(margin_t=99, xaxis_title_text="changed").update_yaxes(range=[0, 1])
    assert figures.waterfall(terms_of(), FEATURES).to_json() == drawn


@pytest.mark.parametrize("scale", [1.0, 0.013, -0.4, 250.0, 0.0, np.nan])
def test_the_grid_of_a_waterfall_stays_clear_of_its_numbers(scale: float) -> None:
    terms = terms_of().assign(value=[0.1 * scale, 0.3 * scale, -0.05 * scale, 0.2 * scale])
    figure = figures.waterfall(terms, FEATURES)
    ticks = figure.layout.xaxis.tickvals
    numbers = min(note.x for note in figure.layout.annotations)
    assert all(tick < numbers for tick in ticks) or np.isnan(scale)
    if scale and np.isfinite(scale):
        assert 0.0 in ticks and 3 <= len(ticks) <= 7
        steps = np.diff(ticks)
        np.testing.assert_allclose(steps, steps[0])


def test_a_waterfall_draws_intervals_that_need_not_be_symmetric() -> None:
    bars = figures.waterfall(terms_of(interval=True), FEATURES).data[0]
    np.testing.assert_allclose(bars.error_x.array, 0.06)
    np.testing.assert_allclose(bars.error_x.arrayminus, 0.04)
    assert "95 %" in bars.hovertext[0]


def test_a_feature_keeps_its_colour_when_another_one_is_left_out() -> None:
    bars = figures.waterfall(terms_of().iloc[1:], FEATURES).data[0]
    all_bars = figures.waterfall(terms_of(), FEATURES).data[0]
    assert bars.marker.color[0] == all_bars.marker.color[0]


def test_matrices_share_one_scale_about_0_and_leave_the_diagonal_blank() -> None:
    names = ["a:0", "a:1", "b:0"]
    rng = np.random.default_rng(0)
    terms = {}
    for term in (*FEATURES, "unexplained"):
        values = rng.uniform(-0.2, 0.4, (3, 3))
        np.fill_diagonal(values, 9.0)
        terms[term] = pd.DataFrame((values + values.T) / 2, index=names, columns=names)
    figure = figures.term_matrices(terms)
    json.loads(figure.to_json())
    assert [trace.name for trace in figure.data] == list(terms)
    off = ~np.eye(3, dtype=bool)
    for trace, square in zip(figure.data, terms.values(), strict=True):
        np.testing.assert_allclose(np.array(trace.z)[off], square.to_numpy()[off])
        assert np.isnan(np.diag(np.array(trace.z, dtype=float))).all()
    largest = {term: np.abs(m.to_numpy()[off]).max() for term, m in terms.items()}
    for axis, expected in (
        (figure.layout.coloraxis, max(largest[feature] for feature in FEATURES)),
        (figure.layout.coloraxis2, largest["unexplained"]),
    ):
        assert axis.cmax == -axis.cmin == pytest.approx(expected)


@pytest.mark.parametrize("n_features", [1, 2, 8])
def test_the_bars_of_both_scales_stand_one_above_the_other(n_features: int) -> None:
    square = pd.DataFrame(np.eye(2), index=["a:0", "b:0"], columns=["a:0", "b:0"])
    names = [*(f"feature {k}" for k in range(n_features)), "unexplained"]
    layout = figures.term_matrices(dict.fromkeys(names, square)).layout
    upper, lower = layout.coloraxis.colorbar, layout.coloraxis2.colorbar
    room = layout.height - layout.margin.t - layout.margin.b
    assert upper.y - upper.len / room > lower.y + 20 / room
    assert lower.y - lower.len / room > -40 / room and upper.len >= 50


def test_text_of_users_is_no_mark_up() -> None:
    nasty = ("<b>x</b>",)
    terms = pd.DataFrame({"term": [*nasty, "unexplained"], "value": [0.1, 0.2]})
    assert "<b>x" not in figures.waterfall(terms, nasty).to_json()
