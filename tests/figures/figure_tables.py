"""Tidy tables of random numbers, as the figures are drawn from."""

from itertools import product

import numpy as np
import pandas as pd

FEATURES = ("pos", "tense", "number")


def importance_of(features=FEATURES, layers=None):
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
    rows = [
        (measure, model, layer, *rng.normal(size=2))
        for measure in ("profiles", "rsa")
        for model, own in layers.items()
        for layer in own
    ]
    return pd.DataFrame(rows, columns=["measure", "model", "layer", "x", "y"])


def named(figure, name):
    return [trace for trace in figure.data if trace.name == name]


def of_type(figure, kind):
    return [trace for trace in figure.data if trace.type == kind]
