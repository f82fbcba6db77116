"""Files of arrays from outside: each is read rightly or refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import hostile_arrays
import numpy as np
import odd_matrices
import pytest
from feeding import Hostile, feed, no_sentence, none_fails
from hostile_arrays import PLAIN, N
from hypothesis import given, settings
from hypothesis import strategies as st
from odd_arrays import odd_arrays
from odd_matrices import UPPER, Order
from tiny import sentence_stimuli

from mlem_core.base.errors import InputError
from mlem_core.data.reading.rdm_file import read_rdm
from mlem_core.models.representations import from_file
from mlem_core.pairs.distances import PRECOMPUTED, squared_distances

STIMULI = sentence_stimuli([f"Sentence {'x' * i} ends." for i in range(N)])


class Read:
    """Layers as they were read, and what was said of them.

    Equal to the plain ones where all that it has is theirs, and to arrays where it has just these.
    """

    def __init__(self, layers: dict[int, np.ndarray], said: tuple[str, ...] = ()) -> None:
        self.layers, self.said = layers, said

    def __eq__(self, other: object) -> bool:
        known = other.layers if isinstance(other, Read) else other
        assert isinstance(known, dict)
        if not isinstance(other, Read) and self.layers.keys() != known.keys():
            return False
        return self.layers.keys() <= known.keys() and all(
            np.array_equal(array, known[layer]) for layer, array in self.layers.items()
        )


def read(path: Path) -> Read:
    source = from_file(path, STIMULI)
    layers = {layer: np.array(source[layer]) for layer in source.layers}
    assert layers
    for array in layers.values():
        assert array.dtype in (np.float32, np.float64), array.dtype
        assert array.shape[0] == N and array.shape[1] > 0 and np.isfinite(array).all()
    said = (*source.left_out, *source.notes)
    assert not any(map(no_sentence, said)), said
    return Read(layers, said)


PLAINLY = Read({int(name[-2:]): array for name, array in PLAIN.items()})


def made_up() -> chain[Hostile]:
    makers = (
        hostile_arrays.disguises, hostile_arrays.headers, hostile_arrays.safetensors_headers,
        hostile_arrays.names, hostile_arrays.values,
    )  # fmt: skip
    return chain.from_iterable(make() for make in makers)


def test_made_up_files(tmp_path, monkeypatch):
    fates = feed(made_up(), read, PLAINLY, tmp_path, monkeypatch)
    assert not fates.failures, (fates.line(), *fates.failures)
    assert fates.results > 100 and fates.refused > 100


def test_files_that_would_fill_the_memory_are_refused(tmp_path, monkeypatch):
    small = [one for one in hostile_arrays.bombs() if ",000,000,000" not in one.name]
    fates = feed(small, read, PLAINLY, tmp_path, monkeypatch)
    assert not fates.failures and fates.refused == len(small), fates.failures
    assert fates.largest[0] < 1e9, fates.line()


def test_some_damaged_files(tmp_path, monkeypatch):
    fates = feed(hostile_arrays.damages(0, 200), read, PLAINLY, tmp_path, monkeypatch)
    assert not fates.failures, (fates.line(), *fates.failures)


@pytest.mark.faults
def test_many_damaged_files(tmp_path, monkeypatch, capsys):
    files = chain(made_up(), hostile_arrays.bombs(), hostile_arrays.damages(1, 3_000))
    fates = feed(files, read, PLAINLY, tmp_path, monkeypatch)
    none_fails(fates, "arrays", capsys)


def _distances(metric: str) -> Callable[[Path], Order]:
    """What reads a layer of a file and gives its distances."""

    def of(path: Path) -> Order:
        source = from_file(path, STIMULI, distances=metric == PRECOMPUTED)
        if not source.layers:
            raise InputError(source.left_out[0])
        order = Order(squared_distances(source[source.layers[0]], metric))
        order.said = (*source.left_out, *source.notes)
        return order

    return of


def _rdm(path: Path) -> Order:
    return Order(read_rdm(path).distances[UPPER])


METRICS = ("euclidean", "manhattan", "cosine", "correlation")
ODD: dict[str, tuple[Callable[[int], Iterator[Hostile]], Callable[[Path], Any]]] = {
    "arrays": (odd_arrays, read),
    "rdms": (odd_matrices.rdms, _rdm),
    "precomputed": (odd_matrices.precomputed, _distances(PRECOMPUTED)),
    **{one: (partial(odd_matrices.layers, metric=one), _distances(one)) for one in METRICS},
}


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("what", ODD)
def test_odd_files_hold_what_is_written_beside_them(what, seed, tmp_path, monkeypatch, capsys):
    files, reader = ODD[what]
    none_fails(feed(files(seed), reader, None, tmp_path, monkeypatch), f"odd {what}", capsys)


@settings(max_examples=150)
@given(
    suffix=st.sampled_from(hostile_arrays.SUFFIXES),
    edits=st.lists(st.tuples(st.integers(0, 600), st.binary(max_size=6)), min_size=1, max_size=4),
)
def test_any_edit_of_a_file_is_read_or_said(tmp_path_factory, suffix, edits):
    data = bytearray(hostile_arrays.content(suffix))
    for at, new in edits:
        data[at : at + len(new)] = new
    path = tmp_path_factory.mktemp("edits") / f"edited{suffix}"
    path.write_bytes(data)
    try:
        found = read(path)
    except InputError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert suffix != ".npz" or found == PLAINLY
