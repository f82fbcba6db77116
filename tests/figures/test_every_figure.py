"""What every figure keeps to: names that are given, text that is no markup, numbers without −0."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from figure_tables import layer_map_of

from mlem_core import figures
from mlem_core.base.labels import Names
from mlem_core.base.text import minus
from mlem_core.figures.naming import feature_name
from mlem_core.figures.style import short_names, uncrowded


class Given(NamedTuple):
    """What a user wrote: two features, two models of two layers each, two values of a feature."""

    features: tuple[str, str] = ("f_one", "f_two")
    models: tuple[str, str] = ("m_one", "m_two")
    values: tuple[str, str] = ("u", "v")

    @property
    def layers(self) -> list[tuple[str, int]]:
        return list(product(self.models, (0, 1)))

    @property
    def importance(self) -> pd.DataFrame:
        rows = [
            (*layer, fold, f, 0.1 + fold)
            for layer in self.layers
            for fold in (0, 1)
            for f in self.features
        ]
        return pd.DataFrame(rows, columns=["model", "layer", "fold", "feature", "importance"])

    @property
    def scores(self) -> pd.DataFrame:
        table = self.importance[["model", "layer", "fold"]].drop_duplicates()
        return table.assign(rho=0.4, ceiling=0.6)

    @property
    def square(self) -> pd.DataFrame:
        return near_nothing([f"{model}:{layer}" for model, layer in self.layers])

    @property
    def points(self) -> pd.DataFrame:
        at = [0.0, 1.0]
        said = {"label": list(self.values), self.features[0]: list(self.values)}
        return pd.DataFrame({"stimulus": [0, 1], "x": at, "y": at, **said})

    @property
    def distances(self) -> pd.DataFrame:
        u, v = self.values
        rows = [
            (*layer, self.features[0], a, b, 1.0, 0.1, 1.0, 3)
            for layer in self.layers
            for a, b in ((u, u), (u, v), (v, v))
        ]
        columns = ["model", "layer", "feature", "value_a", "value_b"]
        return pd.DataFrame(rows, columns=[*columns, "distance", "sd", "separation", "n_pairs"])


def near_nothing(names: list[str] | tuple[str, ...]) -> pd.DataFrame:
    return pd.DataFrame(np.full((len(names),) * 2, -0.0001), index=names, columns=names)


def audited(of: Given) -> go.Figure:
    table = pd.DataFrame(of.layers, columns=["model", "layer"]).assign(position0_ranks=0.1)
    changes = table.assign(
        variant="v", rho_before=0.5, rho=0.4, rsa_change=0.1, tau=0.3, rsa_with=f"{of.models[0]}:0"
    )
    marks = ["measure", "model_a", "layer_a", "model_b", "layer_b", "variant", "reason"]
    return figures.audit_map(table, changes, pd.DataFrame(columns=marks), {"v": "V"}, "control")


def values_compared(of: Given) -> go.Figure:
    table = of.distances[:2].drop(columns=["model", "layer", "feature"])
    table = table.assign(distance_a=[0.1, 0.2], distance_b=[0.2, 0.1], difference=0.1)
    return figures.value_scatter(table, (of.layers[0], of.layers[-1]), 0.3)


def waterfall(of: Given) -> go.Figure:
    terms = [*of.features, " × ".join(of.features)]
    return figures.waterfall(
        pd.DataFrame({"term": terms, "value": [0.1, -0.0001, 0.2]}), of.features
    )


# A new figure gets a line here, and with it all tests of this file.
OF_LAYERS: dict[str, Callable[[Given], go.Figure]] = {
    "profiles": lambda of: figures.profiles(of.importance, of.scores, of.features),
    "similarity": lambda of: figures.similarity_matrices(of.square, of.square),
    "clustering": lambda of: figures.rsa_matrix(of.square, order="clustering"),
    "maps": lambda of: figures.layer_maps(
        layer_map_of(dict.fromkeys(of.models, (0, 1))), of.importance
    ),
    "compare": lambda of: figures.importance_scatter(
        of.importance, (of.layers[0], of.layers[-1]), of.features, -0.001, 0.5
    ),
    "terms": lambda of: figures.term_matrices(dict.fromkeys(of.features, of.square)),
    "values": lambda of: figures.value_matrices(of.distances, of.features[0], of.layers),
    "values over layers": lambda of: figures.value_lines(of.distances, of.features[0]),
    "values compared": values_compared,
    "audit": audited,
}
DRAWN = OF_LAYERS | {
    "stimuli": lambda of: figures.stimulus_map(of.points, of.features[0], "nominal", of.values[0]),
    "waterfall": waterfall,
    "correlations": lambda of: figures.feature_correlations(near_nothing(of.features)),
    "counts": lambda of: figures.feature_counts(
        pd.DataFrame(dict.fromkeys(of.features, of.values)),
        [(f, "nominal") for f in of.features],
    ),
}
PLAIN = Given()
MARKUP = Given(("<b>f</b>", "$x$ & %{y}"), ("<i>m</i>", "very long " * 20), ("<u>v</u>", "$z$"))
NAMES = Names(
    features={"f_one": "Erstes <Merkmal>", "f_two": "عدد الكلمات"},
    models={"m_one": "Das $ Modell", "m_two": "模型"},
)
REGIONS = Names(layers={"m_two:0": "V1 <left>", "m_two:1": "IT"})
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
def test_names_that_are_given_are_written_and_identifiers_are_not(name: str) -> None:
    with figures.naming(NAMES):
        text = written(DRAWN[name](PLAIN))
    assert not any(identifier in text for identifier in (*PLAIN.features, *PLAIN.models))
    called = ("Erstes &lt;Merkmal&gt;", "\u2068عدد الكلمات\u2069", "Das &#36; Modell", "模型")
    assert any(one in text for one in called)
    assert "<Merkmal>" not in text and "Das $" not in text


@pytest.mark.parametrize("name", OF_LAYERS)
def test_names_of_layers_are_written_where_they_are_given(name: str) -> None:
    with figures.naming(REGIONS):
        text = written(DRAWN[name](PLAIN))
    assert "IT" in text and "V1" not in written(DRAWN[name](PLAIN))
    assert "<left>" not in text
    assert not any(wrong in text for wrong in ("m_two layer", "m_two, layer", "m_two 1"))


@pytest.mark.parametrize("name", DRAWN)
def test_features_have_no_underscores_and_nothing_is_minus_nothing(name: str) -> None:
    text = written(DRAWN[name](PLAIN))
    assert not any(identifier in text for identifier in PLAIN.features)
    assert not any(f"{sign}0.{'0' * n}\n" in f"{text}\n" for sign in "-−" for n in (1, 2, 3))
    assert "-0.0" not in text and "−0.00" not in text.replace("−0.001", "")


@pytest.mark.parametrize("name", DRAWN)
def test_what_a_user_wrote_is_text_and_no_markup(name: str) -> None:
    figure = DRAWN[name](MARKUP)
    text = written(figure)
    assert "&lt;" in text or "&#36;" in text
    assert not [tag for tag in ("<b>f", "<i>", "<u>", "$", "long " * 20) if tag in text]
    assert all(trace.hovertemplate is None for trace in figure.data)


def test_ticks_have_the_names_of_layers_and_clicks_and_colours_go_by_identifiers() -> None:
    with figures.naming(REGIONS):
        profiles, matrix, audit, maps = (
            DRAWN[name](PLAIN) for name in ("profiles", "similarity", "audit", "maps")
        )
    assert profiles.layout.xaxis.ticktext is None
    assert list(profiles.layout.xaxis2.ticktext) == ["V1…eft&gt;", "IT"]
    assert list(profiles.layout.xaxis2.tickvals) == [0, 1]
    assert list(matrix.layout.xaxis.ticktext)[2:] == list(profiles.layout.xaxis2.ticktext)
    (cells, *_) = [t for t in matrix.data if (t.name or "").startswith("cells")]
    assert cells.hovertext[3].startswith("m_one 0 and m_two IT<br>")
    assert tuple(cells.customdata[3]) == ("m_one", 0, "m_two", 1)
    assert "IT" in audit.layout.xaxis.ticktext
    assert [tuple(trace.text)[1] for trace in maps.data[:2]] == ["1", "IT"]
    with figures.naming(NAMES):
        named = DRAWN["profiles"](PLAIN)
    looks = [[(t.line.color, t.legendgroup) for t in one.data] for one in (profiles, named)]
    assert looks[0] == looks[1]


def test_two_layers_of_one_name_stay_apart_in_a_matrix() -> None:
    names = Names(layers={"m_one:0": "V1", "m_two:0": "V1", "m_two:1": "Ma1"})
    with figures.naming(names):
        ticks = list(figures.rsa_matrix(PLAIN.square).layout.xaxis.ticktext)
    assert len(set(ticks)) == 4 and all("1" in one for one in ticks)


def test_names_hold_inside_and_in_their_own_thread_only() -> None:
    elsewhere: list[str] = []
    with pytest.raises(ValueError), figures.naming(NAMES):
        thread = threading.Thread(target=lambda: elsewhere.append(feature_name("f_one")))
        thread.start()
        thread.join()
        assert feature_name("f_one") == "Erstes &lt;Merkmal&gt;"
        raise ValueError
    assert elsewhere == [feature_name("f_one")] == ["f one"]


def test_long_names_are_short_in_the_legend_and_whole_on_hovering() -> None:
    long = [f"the animacy of the {one} noun of the relative clause" for one in ("first", "last")]
    of = PLAIN._replace(features=(long[0], long[1]))
    lines = [t for t in DRAWN["profiles"](of).data if t.legendgroup in long and t.showlegend]
    assert len({line.name for line in lines}) == 2
    for line, name in zip(lines, long, strict=True):
        assert len(line.name) <= 26 and "…" in line.name
        assert line.hovertext[0].startswith(f"<b>{name}</b>")


def test_short_names_stay_different() -> None:
    assert short_names(["noun", "verb"]) == ["noun", "verb"]
    long = [f"a very long name of a value, {one}" for one in ("one", "two")]
    alike = ["x" * 30 + one + "y" * 30 for one in "ab"]
    for names in (long, alike):
        short = short_names(names, 12)
        assert len(set(short)) == 2 and all(len(name) <= 40 for name in short)


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
