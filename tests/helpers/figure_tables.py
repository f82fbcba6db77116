"""Tidy tables of random numbers, as the figures are drawn from."""

from itertools import combinations_with_replacement, product

import numpy as np
import pandas as pd

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


def repetition_distances(layers, feature, values):
    """Distances of every two values in some layers; some stimuli with the same value are apart."""
    both = product(layers, combinations_with_replacement(values, 2))
    rows = [(*layer, feature, *pair) for layer, pair in both]
    table = pd.DataFrame(rows, columns=["model", "layer", "feature", "value_a", "value_b"])
    same = table["value_a"] == table["value_b"]
    separation = np.where(same, 0, np.random.default_rng(0).random(len(table)))
    distance, n_pairs = separation + 0.1 * (1 + same), 10 + table.index % 7
    return table.assign(distance=distance, sd=0.01, separation=separation, n_pairs=n_pairs)


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
