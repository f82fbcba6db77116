"""Held-out Procrustes and CCA: SciPy's rotation, scikit-learn's directions, and no chance."""

from __future__ import annotations

import numpy as np
import pytest
from inputs import refused
from scipy.linalg import orthogonal_procrustes
from scipy.stats import ortho_group
from sklearn.cross_decomposition import CCA
from sklearn.decomposition import PCA

from mlem_core.pairs.alignments import COMPONENTS, cca, components, every_two, procrustes
from mlem_core.pairs.similarities import SIMILARITIES

N = 90
FOLDS = np.arange(N) % 3


def layer(seed: int, units: int = 7, n: int = N) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, units)) * np.linspace(3, 1, units)


def two(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two layers with much in common."""
    rng = np.random.default_rng(seed)
    one = layer(seed)
    return one, one @ rng.standard_normal((7, 7)) + rng.standard_normal((N, 7))


def by_hand(one, other, turned) -> float:
    product, squares = 0.0, np.zeros(2)
    for fold in range(3):
        train, test = fold != FOLDS, fold == FOLDS
        means = one[train].mean(axis=0), other[train].mean(axis=0)
        trained = [x[train] - mean for x, mean in zip((one, other), means, strict=True)]
        tested = [x[test] - mean for x, mean in zip((one, other), means, strict=True)]
        a, b = turned(*trained, *tested)
        product += np.trace(a.T @ b)
        squares += [np.sum(a**2), np.sum(b**2)]
    return product / np.sqrt(np.prod(squares))


def test_components_are_those_of_scikit_learn():
    for rows in (layer(0), layer(1, units=200)):
        found = components(rows)
        expected = PCA(n_components=found.shape[1]).fit_transform(rows)
        np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-8)
    # One for ten stimuli, and at most fifty.
    assert components(layer(1, units=200)).shape[1] == 9
    assert components(layer(1, units=80, n=900)).shape[1] == COMPONENTS
    twice = np.tile(layer(0, units=3), (1, 3))
    assert components(twice).shape[1] == 3
    assert components(np.ones((N, 4))).size == 0


def test_the_rotation_is_that_of_scipy():
    def turned(a, b, left_a, left_b):
        return left_a @ orthogonal_procrustes(a, b)[0], left_b

    one, other = two()
    expected = by_hand(one, other, turned)
    assert procrustes(one, other, FOLDS) == pytest.approx(expected, abs=1e-9)
    assert procrustes(other, one, FOLDS) == pytest.approx(expected, abs=1e-9)
    assert 0.3 < expected < 1


def test_the_directions_are_those_of_scikit_learn():
    def turned(a, b, left_a, left_b):
        fitted = CCA(n_components=7, scale=False, max_iter=100_000, tol=1e-14).fit(a, b)
        x, y = fitted.transform(a, b)
        left = fitted.transform(left_a, left_b)
        return left[0] / np.linalg.norm(x, axis=0), left[1] / np.linalg.norm(y, axis=0)

    one, other = two(1)
    expected = by_hand(one, other, turned)
    assert cca(one, other, FOLDS) == pytest.approx(expected, abs=1e-4)
    assert 0.3 < expected < 1


@pytest.mark.parametrize("aligned", [procrustes, cca])
def test_a_layer_is_itself_however_it_is_turned(aligned):
    one = layer(0)
    turned = 3 * one @ ortho_group.rvs(7, random_state=0) + 5
    assert aligned(components(one), components(turned), FOLDS) == pytest.approx(1.0)
    squeezed = components(one @ np.diag([1, 5, 0.1, 1, 1, 1, 2]))
    if aligned is cca:
        assert aligned(components(one), squeezed, FOLDS) == pytest.approx(1.0)
    else:
        assert aligned(components(one), squeezed, FOLDS) < 0.95


@pytest.mark.parametrize("aligned", [procrustes, cca])
@pytest.mark.parametrize("units", [7, 120])
def test_layers_that_have_nothing_in_common_have_0_on_average(aligned, units):
    found = [
        aligned(components(layer(2 * k, units)), components(layer(2 * k + 1, units)), FOLDS)
        for k in range(40)
    ]
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found)) < 3 * error
    assert np.std(found) < 0.12
    # In-sample it is large: what a rotation makes of chance.
    a, b = components(layer(0, units)), components(layer(1, units))
    u, _, vt = np.linalg.svd(a.T @ b)
    inside = np.trace((a @ (u @ vt)).T @ b) / np.linalg.norm(a) / np.linalg.norm(b)
    assert inside > 0.2


@pytest.mark.parametrize("aligned", [procrustes, cca])
def test_what_is_planted_in_both_is_found_and_grows_with_it(aligned):
    rng = np.random.default_rng(3)
    common = layer(0, 5)
    found = []
    for noise in (3.0, 1.0, 0.1):
        a, b = (
            common @ ortho_group.rvs(5, random_state=seed) + noise * rng.standard_normal((N, 5))
            for seed in (1, 2)
        )
        found.append(aligned(components(a), components(b), FOLDS))
    assert 0 < found[0] < found[1] < found[2] and found[2] > 0.95


def test_stimuli_of_no_fold_have_no_part():
    one, other = two(2)
    folds = np.where(np.arange(N) < 80, FOLDS, -1)
    moved = other.copy()
    moved[80:] *= 100
    for aligned in (procrustes, cca):
        assert aligned(one, other, folds) == aligned(one, moved, folds)
        assert aligned(one, np.zeros((N, 0)), folds) == 0.0


def test_every_two_layers():
    one, other = two(3)
    done = []
    found = every_two(
        procrustes,
        [lambda: one, lambda: other, lambda: np.ones((N, 2))],
        FOLDS,
        lambda *both: done.append(both),
    )
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(np.diag(found), [1, 1, 0], atol=1e-12)
    assert found[0, 1] == pytest.approx(procrustes(components(one), components(other), FOLDS))
    assert done == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("name", ["procrustes", "cca"])
def test_they_have_no_terms_and_say_so(name):
    similarity = SIMILARITIES[name]
    assert not similarity.divides and similarity.no_terms and similarity.meaning
    with refused(name, "no sum", "rsa, cka or neigh"):
        similarity.of(np.ones(10))
    assert SIMILARITIES["cka"].no_terms == ""
