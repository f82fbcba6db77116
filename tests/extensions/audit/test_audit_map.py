"""The map of the audit shows every quantity of its tables."""

import numpy as np
import pandas as pd
from helpers.figure_tables import check_texts

from mlem_core.extensions.audit.figures import audit_map

MARKED = ["measure", "model_a", "layer_a", "model_b", "layer_b", "variant", "reason", "severity"]
MARKS = pd.DataFrame(
    [
        ("profiles", "a", 1, "", -1, "without-first", "f matters most, not g", 4.0),
        ("scores", "a", 1, "", -1, "without-first", "ρ is 0.1 instead of 0.4", 0.0),
        ("scores", "a", 0, "", -1, "random-weights", "random weights reach ρ = 0.4", 2.0),
        ("rsa", "a", 0, "<b>", 2, "cosine", "RSA is 0.9 instead of 0.1", 4.0),
    ],
    columns=MARKED,
)


def test_the_map_of_the_audit_shows_every_quantity_and_dots_the_marked():
    frame = pd.DataFrame([("a", 0), ("a", 1), ("<b>", 2)], columns=["model", "layer"])
    layers = frame.assign(position0_ranks=[0.1, 0.7, np.nan], mean_cosine=[-0.2, 0.6, 0.3])
    layers = layers.assign(outlier_share=[0.0, 0.9, 0.2], n_outliers=[0, 2, 1], n_units=50)
    first = frame.assign(variant="without-first", rsa_change=[-0.3, 0.8, 0.1], rho=0.1)
    random = frame[:2].assign(variant="random-weights", rsa_change=0.0, rho=[0.4, 0.1])
    changes = pd.concat([first, random], ignore_index=True)
    changes = changes.assign(rho_before=0.4, tau=0.5, rsa_with="a:0")
    figure = audit_map(layers, changes, MARKS)
    heat, dots = figure.data
    rows = [text.replace(":<br>", ": ") for text in figure.layout.yaxis.ticktext]
    # Between the two models stands an empty column.
    values = dict(zip(rows, np.delete(np.array(heat.z, dtype=float), 2, axis=1), strict=True))
    for row, expected in {
        "position 0: share of variance": [0.1, 0.7, np.nan],
        "outlier units: share of variance": [0.0, 0.9, 0.2],
        "mean cosine": [0.0, 0.6, 0.3],
        "without position 0: change of RSA": [0.3, 0.8, 0.1],
        "random weights: share of ρ": [1.0, 0.25, np.nan],
        "with cosine distance: change of RSA": [np.nan] * 3,
    }.items():
        np.testing.assert_allclose(values[row], expected, err_msg=row)
    at = [(x, rows[y]) for x, y in zip(dots.x, dots.y, strict=True)]
    assert at == [(1, "without position 0: change of RSA"), (0, "random weights: share of ρ")]
    assert "f matters most, not g<br>ρ is 0.1" in dots.hovertext[0]


def audited(user):
    table = pd.DataFrame(user.layers, columns=["model", "layer"]).assign(position0_ranks=0.1)
    values = {"rho_before": 0.5, "rho": 0.4, "rsa_change": 0.1, "tau": 0.3}
    changes = table.assign(variant="cosine", rsa_with=f"{user.models[0]}:0", **values)
    return audit_map(table, changes, MARKS[:0])


def test_its_texts_are_those_of_the_user():
    check_texts(audited)
