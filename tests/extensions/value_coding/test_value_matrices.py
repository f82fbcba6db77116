"""Matrices of the distances between values are those of their table."""

from itertools import combinations_with_replacement, product

import numpy as np
import pandas as pd
import pytest
from helpers.figure_tables import check_texts, of_type

from mlem_core.extensions.value_coding.figures import value_matrices

THREE = [("m", 0), ("m", 4), ("n", 1)]
VALUES = ["<b>noun</b>", "verb", "a value, one", "a value, two"]


def repetition_distances(layers, feature, values):
    """Distances of every two values in some layers; some stimuli with the same value are apart."""
    both = product(layers, combinations_with_replacement(values, 2))
    rows = [(*layer, feature, *pair) for layer, pair in both]
    table = pd.DataFrame(rows, columns=["model", "layer", "feature", "value_a", "value_b"])
    same = table["value_a"] == table["value_b"]
    separation = np.where(same, 0, np.random.default_rng(0).random(len(table)))
    distance, n_pairs = separation + 0.1 * (1 + same), 10 + table.index % 7
    return table.assign(distance=distance, sd=0.01, separation=separation, n_pairs=n_pairs)


@pytest.fixture
def distances():
    """Of every two values in three layers; no pair of stimuli has the second value twice."""
    table = repetition_distances(THREE, "pos", VALUES)
    table.loc[(table["value_a"] == "verb") & (table["value_b"] == "verb"), "n_pairs"] = 0
    return table


def test_matrices_of_values_share_a_scale_and_leave_out_what_no_pair_tells(distances):
    figure = value_matrices(distances, "pos", THREE[:2])
    # The layer that is not drawn counts too.
    assert figure.layout.coloraxis.cmin == 0
    assert figure.layout.coloraxis.cmax == pytest.approx(distances["distance"].max())
    for trace, (model, layer) in zip(of_type(figure, "heatmap"), THREE[:2], strict=True):
        rows = distances[(distances["model"] == model) & (distances["layer"] == layer)]
        np.testing.assert_allclose(trace.z, np.transpose(trace.z))
        for row in rows.itertuples():
            i, j = VALUES.index(row.value_a), VALUES.index(row.value_b)
            seen = row.n_pairs > 0
            np.testing.assert_equal(trace.z[i][j], row.distance if seen else np.nan)
            assert (f"{row.n_pairs} pairs" in trace.hovertext[i][j]) == seen


def test_its_texts_are_those_of_the_user():
    check_texts(
        lambda user: value_matrices(
            repetition_distances(user.layers, user.features[0], user.values),
            user.features[0],
            user.layers,
        )
    )
