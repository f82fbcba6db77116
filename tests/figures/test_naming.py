"""Every figure writes what features and models are called, and keeps their identifiers inside."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from itertools import product

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from mlem_core import figures
from mlem_core.base.labels import Names
from mlem_core.base.text import minus
from mlem_core.figures.naming import feature_name
from mlem_core.figures.style import uncrowded

FEATURES = ["f_one", "f_two"]
MODELS = ["m_one", "m_two"]
LAYERS = list(product(MODELS, (0, 1)))
NAMES = Names(
    features={"f_one": "Erstes <Merkmal>", "f_two": "عدد الكلمات"},
    models={"m_one": "Das $ Modell", "m_two": "模型"},
)
REGIONS = Names(layers={"m_two:0": "V1 <left>", "m_two:1": "IT"})


def importance() -> pd.DataFrame:
    rows = [(*layer, fold, f, 0.1 + fold) for layer in LAYERS for fold in (0, 1) for f in FEATURES]
    return pd.DataFrame(rows, columns=["model", "layer", "fold", "feature", "importance"])


def square(names: list[str]) -> pd.DataFrame:
    return pd.DataFrame(np.full((len(names),) * 2, -0.0001), index=names, columns=names)


def values() -> pd.DataFrame:
    rows = [
        (*layer, "f_one", a, b, 1.0, 0.1, 1.0, 3)
        for layer in LAYERS
        for a, b in (("u", "u"), ("u", "v"), ("v", "v"))
    ]
    columns = ["model", "layer", "feature", "value_a", "value_b"]
    return pd.DataFrame(rows, columns=[*columns, "distance", "sd", "separation", "n_pairs"])


def scores() -> pd.DataFrame:
    table = importance()[["model", "layer", "fold"]].drop_duplicates()
    return table.assign(rho=0.4, ceiling=0.6)


def layer_map() -> pd.DataFrame:
    rows = [(m, *layer, 0.0, float(layer[1])) for m in ("profiles", "rsa") for layer in LAYERS]
    return pd.DataFrame(rows, columns=["measure", "model", "layer", "x", "y"])


def audited() -> go.Figure:
    table = pd.DataFrame(LAYERS, columns=["model", "layer"]).assign(position0_ranks=0.1)
    changes = table.assign(
        variant="v", rho_before=0.5, rho=0.4, rsa_change=0.1, tau=0.3, rsa_with="m_one:0"
    )
    marks = ["measure", "model_a", "layer_a", "model_b", "layer_b", "variant", "reason"]
    return figures.audit_map(table, changes, pd.DataFrame(columns=marks), {"v": "V"}, "control")


def compared() -> pd.DataFrame:
    table = values()[:2].drop(columns=["model", "layer", "feature"])
    return table.assign(distance_a=[0.1, 0.2], distance_b=[0.2, 0.1], difference=0.1)


NAMED = [f"{model}:{layer}" for model, layer in LAYERS]
POINTS = pd.DataFrame(
    {"stimulus": [0, 1], "x": [0.0, 1.0], "y": [0.0, 1.0], "label": "s", "f_one": ["u", "v"]}
)
DRAWN: dict[str, Callable[[], go.Figure]] = {
    "profiles": lambda: figures.profiles(importance(), scores(), FEATURES),
    "similarity": lambda: figures.similarity_matrices(square(NAMED), square(NAMED)),
    "clustering": lambda: figures.rsa_matrix(square(NAMED), order="clustering"),
    "maps": lambda: figures.layer_maps(layer_map(), importance()),
    "compare": lambda: figures.importance_scatter(
        importance(), (LAYERS[0], LAYERS[-1]), FEATURES, -0.001, 0.5
    ),
    "stimuli": lambda: figures.stimulus_map(POINTS, "f_one", "nominal", "t"),
    "waterfall": lambda: figures.waterfall(
        pd.DataFrame({"term": [*FEATURES, "f_one × f_two"], "value": [0.1, -0.0001, 0.2]}), FEATURES
    ),
    "terms": lambda: figures.term_matrices({name: square(NAMED) for name in FEATURES}),
    "correlations": lambda: figures.feature_correlations(square(FEATURES)),
    "counts": lambda: figures.feature_counts(
        pd.DataFrame({name: ["u", "v"] for name in FEATURES}), [(f, "nominal") for f in FEATURES]
    ),
    "values": lambda: figures.value_matrices(values(), "f_one", LAYERS),
    "values over layers": lambda: figures.value_lines(values(), "f_one"),
    "values compared": lambda: figures.value_scatter(compared(), (LAYERS[0], LAYERS[-1]), 0.3),
    "audit": audited,
}
# What clicks, colours and groups go by, and what is never written.
HIDDEN = ("customdata", "legendgroup", "uid")


def written(figure: go.Figure) -> str:
    def texts(of: object) -> list[str]:
        if isinstance(of, dict):
            return [t for key, value in of.items() if key not in HIDDEN for t in texts(value)]
        if isinstance(of, list | tuple):
            return [t for value in of for t in texts(value)]
        return [of] if isinstance(of, str) else []

    return "\n".join(texts(json.loads(figure.to_json())))


@pytest.mark.parametrize("name", DRAWN)
def test_every_figure_writes_the_names_that_are_given(name: str) -> None:
    with figures.naming(NAMES):
        figure = DRAWN[name]()
    text = written(figure)
    assert not any(identifier in text for identifier in (*FEATURES, *MODELS))
    called = ("Erstes &lt;Merkmal&gt;", "\u2068عدد الكلمات\u2069", "Das &#36; Modell", "模型")
    assert any(one in text for one in called)
    assert "<Merkmal>" not in text and "Das $" not in text


@pytest.mark.parametrize(
    "name",
    ["profiles", "similarity", "clustering", "maps", "compare", "terms", "values", "audit"]
    + ["values over layers", "values compared"],
)
def test_every_figure_of_layers_writes_the_names_that_they_have(name: str) -> None:
    with figures.naming(REGIONS):
        text = written(DRAWN[name]())
    assert "IT" in text and "V1" not in written(DRAWN[name]())
    assert "<left>" not in text
    assert not any(wrong in text for wrong in ("m_two layer", "m_two, layer", "m_two 1"))


def test_ticks_have_the_names_of_layers_and_clicks_their_numbers() -> None:
    with figures.naming(REGIONS):
        profiles = figures.profiles(importance(), scores(), FEATURES)
        matrix = figures.rsa_matrix(square(NAMED))
        audit, maps = audited(), figures.layer_maps(layer_map(), importance())
    assert profiles.layout.xaxis.ticktext is None
    assert list(profiles.layout.xaxis2.ticktext) == ["V1…eft&gt;", "IT"]
    assert list(profiles.layout.xaxis2.tickvals) == [0, 1]
    assert list(matrix.layout.xaxis.ticktext)[2:] == list(profiles.layout.xaxis2.ticktext)
    assert matrix.data[1].hovertext[3] == "m_one 0 and m_two IT<br>Spearman ρ = 0.000"
    assert tuple(matrix.data[1].customdata[3]) == ("m_one", 0, "m_two", 1)
    assert "IT" in audit.layout.xaxis.ticktext
    assert [tuple(trace.text)[1] for trace in maps.data[:2]] == ["1", "IT"]


def test_two_layers_of_one_name_stay_apart_in_a_matrix() -> None:
    names = Names(layers={"m_one:0": "V1", "m_two:0": "V1", "m_two:1": "Ma1"})
    with figures.naming(names):
        ticks = list(figures.rsa_matrix(square(NAMED)).layout.xaxis.ticktext)
    assert len(set(ticks)) == 4 and all("1" in one for one in ticks)


@pytest.mark.parametrize("name", DRAWN)
def test_features_are_written_without_underscores(name: str) -> None:
    text = written(DRAWN[name]())
    assert not any(identifier in text for identifier in FEATURES)


@pytest.mark.parametrize("name", DRAWN)
def test_nothing_is_written_as_minus_nothing(name: str) -> None:
    text = written(DRAWN[name]())
    assert not any(f"{sign}0.{'0' * n}\n" in f"{text}\n" for sign in "-−" for n in (1, 2, 3))
    assert "-0.0" not in text and "−0.00" not in text.replace("−0.001", "")


def test_colours_and_clicks_go_by_the_identifier() -> None:
    plain = figures.profiles(importance(), scores(), FEATURES)
    with figures.naming(NAMES):
        named = figures.profiles(importance(), scores(), FEATURES)
        matrix = figures.rsa_matrix(square(NAMED))
    looks = [[(t.line.color, t.legendgroup) for t in one.data] for one in (plain, named)]
    assert looks[0] == looks[1]
    assert tuple(matrix.data[1].customdata[1]) == ("m_one", 0, "m_one", 1)


def test_names_hold_inside_and_in_their_own_thread_only() -> None:
    elsewhere: list[str] = []
    with figures.naming(NAMES):
        thread = threading.Thread(target=lambda: elsewhere.append(feature_name("f_one")))
        thread.start()
        thread.join()
        assert feature_name("f_one") == "Erstes &lt;Merkmal&gt;"
    assert elsewhere == [feature_name("f_one")] == ["f one"]
    with pytest.raises(ValueError), figures.naming(NAMES):
        raise ValueError
    assert feature_name("f_one") == "f one"


def test_long_names_are_short_in_the_legend_and_whole_on_hovering() -> None:
    long = [f"the animacy of the {one} noun of the relative clause" for one in ("first", "last")]
    table = importance().replace(dict(zip(FEATURES, long, strict=True)))
    figure = figures.profiles(table, scores(), long)
    lines = [t for t in figure.data if t.legendgroup in long and t.showlegend]
    assert len({line.name for line in lines}) == 2
    for line, name in zip(lines, long, strict=True):
        assert len(line.name) <= 26 and "…" in line.name
        assert line.hovertext[0].startswith(f"<b>{name}</b>")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-0.000", "0.000"),
        ("−0.01 and -0.00 [-0.000, -0.001]", "−0.01 and 0.00 [0.000, −0.001]"),
        ("-0", "0"),
        ("-0.05, -0e3 and gpt-0", "−0.05, −0e3 and gpt-0"),
    ],
)
def test_nothing_has_no_sign(text: str, said: str) -> None:
    assert minus(text) == said


def test_labels_of_crowded_points_are_left_out_before_they_stand_on_each_other() -> None:
    points = np.array([[0.5, 0.5], [0.505, 0.5], [0.5, 0.505], [0.505, 0.505], [0.1, 0.9]])
    names = [f"a label {i}" for i in range(5)]
    texts, places = uncrowded(points, names)
    assert len(places) == 5 and texts[4] == names[4]
    assert 1 < sum(map(bool, texts)) <= 5 and set(texts) <= {"", *names}
    same = np.full((30, 2), 0.5)
    assert sum(map(bool, uncrowded(same, ["a label"] * 30)[0])) <= 6
    assert uncrowded(points[:1], names[:1])[0] == names[:1]
    assert uncrowded(np.zeros((0, 2)), []) == ([], [])


def test_forty_features_have_their_legend_below_the_panels_in_print() -> None:
    features = [f"feature_{i}" for i in range(40)]
    table = pd.DataFrame(
        [("m", n, 0, f, 0.1) for n in (0, 1) for f in features],
        columns=["model", "layer", "fold", "feature", "importance"],
    )
    few, many = (
        figures.on_paper(
            figures.profiles(table, table[["model", "layer", "fold"]].drop_duplicates(), kept),
            figures.Paper(),
        )
        for kept in (features[:5], features)
    )
    assert few.layout.legend.orientation is None and many.layout.legend.orientation == "h"
