"""Tidy tables of random numbers, as the figures are drawn from, and what all figures keep to."""

import json
import re
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mlem_core.base.labels import Names
from mlem_core.figures.naming import naming
from mlem_core.figures.terms import HOVER

FEATURES = ("pos", "tense", "number")


def mean_importance(features=FEATURES, layers=None):
    """A row a layer, fold and feature; `layers` says how many each model has."""
    rng = np.random.default_rng(0)
    rows = [
        (model, layer, fold, feature, rng.uniform())
        for model, n in (layers or {"a": 3, "b": 2}).items()
        for layer, fold, feature in product(range(n), range(4), features)
    ]
    return pd.DataFrame(rows, columns=["model", "layer", "fold", "feature", "importance"])


def scores_of(importance):
    """A row a layer and fold."""
    scores = importance[["model", "layer", "fold"]].drop_duplicates().reset_index(drop=True)
    rng = np.random.default_rng(1)
    return scores.assign(rho=rng.uniform(size=len(scores)), ceiling=rng.uniform(size=len(scores)))


def square_of(layers, seed=2):
    """A similarity of every two layers, 1 of each with itself."""
    names = [f"{model}:{layer}" for model, n in layers.items() for layer in range(n)]
    values = np.random.default_rng(seed).uniform(-0.4, 1, (len(names), len(names)))
    values = (values + values.T) / 2
    np.fill_diagonal(values, 1)
    return pd.DataFrame(values, index=names, columns=names)


def layer_map_of(layers):
    """A point a layer on each of the two maps."""
    rng = np.random.default_rng(0)
    both = [(model, layer) for model, own in layers.items() for layer in own]
    every = product(("profiles", "rsa"), both)
    rows = [(measure, *layer, *rng.normal(size=2)) for measure, layer in every]
    return pd.DataFrame(rows, columns=["measure", "model", "layer", "x", "y"])


def named(figure, name):
    return [trace for trace in figure.data if trace.name == name]


def of_type(figure, kind):
    return [trace for trace in figure.data if trace.type == kind]


class UserTexts(NamedTuple):
    """What a user wrote: two features, two models of two layers each, two values of a feature."""

    features: tuple[str, str] = ("f_one", "f_two")
    models: tuple[str, str] = ("m_one", "m_two")
    values: tuple[str, str] = ("u", "v")

    @property
    def layers(self):
        return list(product(self.models, (0, 1)))

    @property
    def importance(self):
        return mean_importance(self.features, dict.fromkeys(self.models, 2))

    @property
    def square(self):
        return near_nothing([f"{model}:{layer}" for model, layer in self.layers])


def near_nothing(names):
    return pd.DataFrame(np.full((len(names),) * 2, -0.0001), index=names, columns=names)


PLAIN = UserTexts()
MARKUP = UserTexts(("<b>f</b>", "$x$ & %{y}"), ("<i>m</i>", "very long " * 20), ("<u>v</u>", "$z$"))
NAMES = Names(
    features={"f_one": "Erstes <Merkmal>", "f_two": "عدد الكلمات"},
    models={"m_one": "Das $ Modell", "m_two": "模型"},
)
REGIONS = Names(layers={"m_two:0": "V1 <left>", "m_two:1": "IT"})
# What clicks, colours and groups go by, and what is never written.
HIDDEN = ("customdata", "legendgroup", "uid")


def written_texts(figure):
    def texts(part):
        if isinstance(part, dict):
            return [t for key, value in part.items() if key not in HIDDEN for t in texts(value)]
        if isinstance(part, list | tuple):
            return [t for value in part for t in texts(value)]
        return [part] if isinstance(part, str) else []

    return "\n".join(texts(json.loads(figure.to_json())))


def check_texts(draw, *, of_layers=True):
    """What every figure keeps to; `draw` makes it of some `UserTexts`."""
    plain = written_texts(draw(PLAIN))
    assert not any(identifier in plain for identifier in PLAIN.features)
    assert not re.search(r"[-−]0?\.0+(?!\d)", plain), "a 0 with a sign"
    with naming(NAMES):
        named = written_texts(draw(PLAIN))
    assert not any(identifier in named for identifier in (*PLAIN.features, *PLAIN.models))
    called = ("Erstes &lt;Merkmal&gt;", "\u2068عدد الكلمات\u2069", "Das &#36; Modell", "模型")
    assert any(name in named for name in called)
    assert "<Merkmal>" not in named and "Das $" not in named
    with naming(REGIONS):
        regions = written_texts(draw(PLAIN))
    assert not of_layers or ("IT" in regions and "V1" not in plain)
    assert "<left>" not in regions
    if of_layers:
        assert not any(wrong in regions for wrong in ("m_two layer", "m_two, layer", "m_two 1"))
    # What a user wrote is text and no markup.
    figure = draw(MARKUP)
    text = written_texts(figure)
    assert "&lt;" in text or "&#36;" in text
    assert not [tag for tag in ("<b>f", "<i>", "<u>", "$", "long " * 20) if tag in text]
    assert all(trace.hovertemplate in (None, HOVER) for trace in figure.data)
    # Plotly, which checks each property, takes it; ground and text are left to the page.
    go.Figure(figure.to_dict())
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert figure.layout.font.color in (None, "#444")
