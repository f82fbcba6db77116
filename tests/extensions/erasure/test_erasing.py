"""Linear erasure: the closed form, and the forward pass."""

import numpy as np
import pytest
from helpers import tiny
from sklearn.linear_model import LogisticRegression

from mlem_core.extensions.erasure.erasers import erased_passes, leace
from mlem_core.representations.extraction import passes
from mlem_core.representations.loading import open_model
from mlem_core.representations.tokens import tokenize

# By concept-erasure 0.2.4, LeaceFitter.fit(x, z, shrinkage=False), of `_waves`: its first rows.
THEIRS = [
    [-0.0463614541, -0.18866049, 0.6809881565],
    [0.8643650771, 0.4232756792, -0.677553284],
    [0.9255390506, 0.0355643083, 0.7132079096],
]


def _waves():
    n = np.arange(12.0)
    waves = np.sin(n), np.cos(2 * n) + 0.3 * np.sin(n), np.sin(3 * n + 1)
    return np.column_stack(waves), (n % 3 == 0).astype(float)[:, None]


def test_the_eraser_is_that_of_its_authors():
    x, z = _waves()
    np.testing.assert_allclose(leace(x, z)(x)[:3], THEIRS, atol=1e-9)


@pytest.mark.parametrize("flat", [False, True])
def test_nothing_linear_is_left_and_no_other_map_moves_less(flat):
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 200)
    z = np.column_stack((kind[:, None] == np.arange(3), rng.normal(size=200))).astype(float)
    x = rng.normal(size=(200, 6)) @ rng.normal(size=(6, 6)) + z @ rng.normal(size=(4, 6))
    if flat:  # a covariance that has no inverse
        x = np.column_stack((x, x[:, 0] + x[:, 1]))
    eraser = leace(x, z)
    y = eraser(x)
    assert len(eraser.right) == 3  # two of the kinds, and the number
    assert np.abs((y - y.mean(0)).T @ (z - z.mean(0))).max() < 1e-9
    guess = LogisticRegression(C=1e6).fit(y, kind).predict_proba(y)
    np.testing.assert_allclose(guess, np.tile(np.bincount(kind) / 200, (200, 1)), atol=1e-3)
    # Least squares for each row of the map, with no covariance as its constraint.
    centred = x - x.mean(0)
    sigma, shared = centred.T @ centred / 200, centred.T @ (z - z.mean(0)) / 200
    d, k = shared.shape
    system = np.block([[sigma, shared], [shared.T, np.zeros((k, k))]])
    best = np.linalg.lstsq(system, np.vstack((sigma, np.zeros((k, d)))), rcond=1e-12)[0][:d].T
    np.testing.assert_allclose(y, x.mean(0) + centred @ best.T, atol=1e-8)


def test_what_is_spared_stays_and_of_the_concept_only_what_that_says():
    rng = np.random.default_rng(0)
    spared, z = rng.normal(size=(2, 200, 2))
    x = rng.normal(size=(200, 6)) + spared @ rng.normal(size=(2, 6)) + z @ rng.normal(size=(2, 6))
    z += spared
    y = leace(x, z, spared)(x)
    np.testing.assert_allclose(*((a - a.mean(0)).T @ (spared - spared.mean(0)) for a in (x, y)))

    def predicted(of, by):
        by = np.column_stack((by, np.ones(200)))
        return by @ np.linalg.lstsq(by, of)[0]

    np.testing.assert_allclose(predicted(z, y), predicted(z, predicted(spared, x)), atol=1e-9)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama", "mamba"])
def test_a_layer_is_erased_in_the_forward_pass_of_each_architecture(kind, tmp_path):
    loaded = open_model(str(tiny.save(kind, tmp_path / kind)), "cpu")
    stimuli = tiny.word_stimuli()
    tokens = tokenize(stimuli, loaded)

    def states(**during):
        found = [np.zeros((len(stimuli), loaded.model.config.hidden_size)) for _ in range(4)]
        for rows, arrays in passes(tokens, loaded, "standard", range(4), **during):
            for own, array in zip(found, arrays, strict=True):
                own[rows] = array
        return found

    was = states()
    erasers = [leace(was[1], (np.arange(len(stimuli)) % k == 0)[:, None] * 1.0) for k in (2, 3)]
    fold = np.arange(len(tokens.tokens)) % 2
    shifts, moved = np.random.default_rng(0).normal(size=(len(stimuli), 1)), {}
    for positions in ("all", "stimuli"):
        how = 1, erasers, fold, positions, shifts
        now = states(during=erased_passes(loaded.model, loaded.n_layers, tokens, *how))
        for number, rows in enumerate(tokens.stimuli):
            expected = erasers[fold[number]](was[1][rows])
            expected += shifts[rows] @ erasers[fold[number]].left.T
            np.testing.assert_allclose(now[1][rows], expected, atol=1e-4)
        np.testing.assert_array_equal(now[0], was[0])
        moved[positions] = np.abs(now[3] - was[3]).max()
    assert min(moved.values()) > 1e-5
    assert all(map(np.array_equal, states(), was))  # the model is as it was
