"""Content of the four views of all layers: what is drawn is what the tables say."""

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import for_each

from mlem_core import Store
from mlem_core.base.text import fraction
from mlem_core.figures.layer_views import (
    KINDS,
    MOST_LINKS,
    importance_content,
    layer_map_content,
    surprise_content,
    surprising_pairs,
)
from mlem_core.figures.plots import FigureContext

LAYERS = [("one", 0), ("one", 1), ("two", 0), ("two", 2)]


@pytest.fixture(scope="module")
def shown(systems, tmp_path_factory):
    """Four of the six layers of two systems, without what other tests keep of them."""
    chosen = systems.analysis.select(layers=tuple(LAYERS))
    return FigureContext(systems.analysis, chosen, Store(tmp_path_factory.mktemp("empty")))


@pytest.fixture(scope="module")
def shipped(example, tmp_path_factory):
    """The example, which has intervals."""
    return FigureContext.from_analysis(example, Store(tmp_path_factory.mktemp("empty")))


def spreads(context):
    """Importances with their standard deviations over folds, as of an interval."""
    folds = context.results.importance.groupby(["feature", "model", "layer"])["importance"]
    mean, spread = folds.mean(), folds.std()
    return pd.DataFrame({"value": mean, "lower": mean - spread, "upper": mean + spread})


def intervals(context):
    rows = context.score_tests.table.query("quantity == 'importance'")
    return rows.set_index(["feature", "model", "layer"])[["value", "lower", "upper"]]


@for_each("name, table, over", ("shown", spreads, "± 1 sd"), ("shipped", intervals, "95 % CI"))
def test_profiles_are_the_importances_with_what_is_known_of_them(request, name, table, over):
    context = request.getfixturevalue(name)
    content, layers = importance_content(context), [*context.selection.layers]
    assert [each["name"] for each in content["features"]] == context.terms
    for each in content["features"]:
        drawn = np.array([each[end] for end in ("values", "lower", "upper")], dtype=float).T
        np.testing.assert_allclose(drawn, table(context).loc[each["name"]].loc[layers], atol=6e-4)
    assert content["spread"].startswith(over)
    scores = context.results.scores.groupby(["model", "layer"]).mean(numeric_only=True).loc[layers]
    for name in ("rho", "ceiling"):
        np.testing.assert_allclose(np.array(content[name], float), scores[name], atol=6e-4)
    # Layers are marked, with the reason, where an audit or their variance gives one.
    flagged = {layer for layer, why in zip(layers, content["flags"], strict=True) if why}
    reasons = {*context.reasons("profiles"), *context.reasons("scores")}
    assert flagged == reasons & {*layers}


@for_each("stress, drawn", (0.0, True), (0.2, True), (0.2001, False), (np.nan, False))
@pytest.mark.parametrize("place, measure", [*enumerate(("rsa", "profiles"))])
def test_a_map_of_layers_is_drawn_up_to_a_stress(shown, monkeypatch, place, measure, stress, drawn):
    monkeypatch.setitem(shown.results.map_stress, measure, stress)
    content = layer_map_content(shown)[place]
    assert (content is not None) is drawn
    if content is not None:
        points = shown.results.layer_map.set_index(["measure", "model", "layer"]).loc[measure]
        drawn_points = np.column_stack((content["x"], content["y"]))
        np.testing.assert_allclose(drawn_points, points.loc[LAYERS, ["x", "y"]], atol=6e-4)
        assert content["stress"] == stress


def test_surprises_link_to_the_first_discordant_pairs(shipped):
    layers, rsa = shipped.selection.layers, shipped.results.similarity_rsa
    table, links = surprising_pairs(shipped, explained=False), surprise_content(shipped)
    assert len(links) == MOST_LINKS <= len(table)
    for link, row in zip(links, table.to_dict("records"), strict=False):
        a, b = (f"{model}:{number}" for model, number in (layers[at] for at in link["pair"]))
        assert (a, b, rsa.loc[a, b]) == (row["layer_a"], row["layer_b"], row["rsa"])
        assert row["rsa_lower"] < row["rsa"] < row["rsa_upper"]
        assert link["why"].startswith(f"{KINDS[row['kind']]}: RSA {fraction(row['rsa'])} (above ")
        assert f"τ {fraction(row['tau'])} (above " in link["why"]
    # What explains every two layers adds pairs, and takes none away.
    more = surprising_pairs(shipped).query("kind != 'unexplained'")
    assert more["layer_a"].tolist() == table["layer_a"].tolist()
