"""Files of arrays and of distances: what is written beside them is read, or they are refused."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path

import hostile_arrays
import hostile_matrices
import numpy as np
import pytest
from feeding import Found, Hostile, feed, no_sentence
from hostile_arrays import N, Part
from hostile_matrices import Order
from tiny import sentence_stimuli

from mlem_core.base.errors import InputError
from mlem_core.models.representations import from_file
from mlem_core.pairs.distances import PRECOMPUTED, squared_distances

STIMULI = sentence_stimuli([f"Sentence {'x' * i} ends." for i in range(N)])


def differences(layers, holds):
    """Something, where layers are others, or missing where they may not be."""
    missing = set() if isinstance(holds, Part) else holds.keys() - layers.keys()
    other = [n for n, array in layers.items() if not np.array_equal(array, holds.get(n))]
    return [""] if missing or other else []


def read(path):
    source = from_file(path, STIMULI)
    layers = {layer: np.array(source[layer]) for layer in source.layers}
    assert layers
    for array in layers.values():
        assert array.dtype in (np.float32, np.float64), array.dtype
        assert array.shape[0] == N and array.shape[1] > 0 and np.isfinite(array).all()
    said = (*source.left_out, *source.notes)
    assert not any(map(no_sentence, said)), said
    return Found("\n".join(said), partial(differences, layers))


def distances(path, metric):
    """The distances of the first layer of a file."""
    source = from_file(path, STIMULI, distances=metric == PRECOMPUTED)
    if not source.layers:
        raise InputError(source.left_out[0])
    order = Order(squared_distances(source[source.layers[0]], metric))
    said = "\n".join((*source.left_out, *source.notes))
    return Found(said, lambda holds: [] if order.same(holds) else [""])


METRICS = ("euclidean", "manhattan", "cosine", "correlation")
ODD: dict[str, tuple[Callable[[int], Iterator[Hostile]], Callable[[Path], Found]]] = {
    "arrays": (hostile_arrays.odd, read),
    "precomputed": (hostile_matrices.precomputed, partial(distances, metric=PRECOMPUTED)),
}
for name in ("euclidean", "manhattan", "cosine", "correlation"):
    ODD[name] = partial(hostile_matrices.layers, metric=name), partial(distances, metric=name)


def test_made_up_files_and_some_that_are_damaged(tmp_path, monkeypatch):
    files = chain(hostile_arrays.made_up(), hostile_arrays.odd(3), hostile_arrays.damages(0, 200))
    fates = feed(files, read, tmp_path, monkeypatch)
    fates.none_fails()
    assert fates.counts["result"] > 100 and fates.counts["refused"] > 100, fates


@pytest.mark.parametrize("what", [one for one in ODD if one != "arrays"])
def test_some_matrices_and_layers_of_known_distances(what, tmp_path, monkeypatch):
    files, reader = ODD[what]
    feed(islice(files(7), 0, None, 3), reader, tmp_path, monkeypatch).none_fails()


def test_files_that_would_fill_the_memory_are_refused(tmp_path, monkeypatch):
    fates = feed(hostile_arrays.bombs(large=False), read, tmp_path, monkeypatch)
    fates.none_fails()
    assert fates.largest[0] < 1e9, fates


@pytest.mark.faults
def test_all_files(tmp_path, monkeypatch, capsys):
    made_up, bombs = hostile_arrays.made_up(), hostile_arrays.bombs(large=True)
    files = chain(made_up, bombs, hostile_arrays.damages(1, 3_000))
    feed(files, read, tmp_path, monkeypatch).none_fails("arrays", capsys)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("what", ODD)
def test_odd_files_hold_what_is_written_beside_them(what, seed, tmp_path, monkeypatch, capsys):
    files, reader = ODD[what]
    feed(files(seed), reader, tmp_path, monkeypatch).none_fails(f"odd {what}", capsys)
