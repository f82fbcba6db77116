"""Files of arrays from outside: each is read rightly or refused in one sentence."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import hostile_arrays
import numpy as np
import pytest
from feeding import Hostile, feed, none_fails
from hostile_arrays import PLAIN, N
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import sentence_stimuli

from mlem_core.base.errors import InputError
from mlem_core.models.representations import from_file

STIMULI = sentence_stimuli([f"Sentence {'x' * i} ends." for i in range(N)])


class Read:
    """Layers as they were read; equal to the plain ones where all that it has is theirs."""

    def __init__(self, layers: dict[int, np.ndarray]) -> None:
        self.layers = layers

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Read)
        known = other.layers
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
    return Read(layers)


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
