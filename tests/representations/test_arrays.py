"""Files of arrays as models: what they hold, bit for bit, and what is refused of them."""

import ast
import contextlib
import json
import os
import pickle
import struct
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import scipy.io
from helpers.inputs import for_each, refused
from helpers.tiny import sentence_stimuli

from mlem_core import InputError
from mlem_core.pairs.distances import condensed_from_matrix
from mlem_core.representations.array_files import CountsRows, read_arrays
from mlem_core.representations.arrays import from_file, n_subjects, natural_order
from mlem_core.stimuli.neural_rows import are_distances, not_finite

BOTH = pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
RANDOM = np.random.default_rng(0)
LAYERS = {
    "layer_00": RANDOM.normal(size=(3, 4)),
    "layer_07": RANDOM.normal(size=(3, 2)).astype(np.float32),
    "layer_10": RANDOM.integers(0, 9, (3, 3)),
    "layer_11": RANDOM.normal(size=(3, 2)).astype(np.float16),
}
FIRST = LAYERS["layer_00"]


@pytest.fixture
def three():
    return sentence_stimuli(["A cat.", "A dog.", "She runs."])


def save(path, arrays):
    """By the ending of the path; of .npy and .csv, the first layer."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    elif path.suffix == ".npy":
        np.save(path, arrays["layer_00"], allow_pickle=True)
    elif path.suffix == ".csv":
        np.savetxt(path, arrays["layer_00"], delimiter=",")
    else:
        arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        safetensors.numpy.save_file(arrays, path)
    return path


@for_each("packed", False, True)
def test_arrays_of_matlab_are_those_that_scipy_reads(tmp_path, three, packed):
    path, x = tmp_path / "it.mat", RANDOM.normal(size=(2, 3, 4))
    numbers = {"V1": x[0], "few": np.array([[1.0, 2.0, 3.0]]), "float": x.astype(np.float32)}
    numbers |= {"whole": np.arange(12).reshape(3, 4), "yes": x[0] > 0}
    scipy.io.savemat(path, numbers, do_compression=packed)
    found, theirs = read_arrays(path), scipy.io.loadmat(path)
    assert [*found] == [*numbers]
    for name, own in found.items():
        assert own.shape == theirs[name].shape and own.dtype == own.read().dtype
        np.testing.assert_array_equal(own.read(), theirs[name])
    scipy.io.savemat(path, {"IT": x[0], "V4": x[1]}, do_compression=packed)
    np.savez(path.with_suffix(".npz"), IT=x[0], V4=x[1])
    ours, other = (from_file(one, three) for one in (path, path.with_suffix(".npz")))
    assert ours.layers == other.layers and ours.facts["layer_names"] == other.facts["layer_names"]
    assert all(np.array_equal(ours[layer], other[layer]) for layer in ours.layers)
    # A condensed RDM is a row in MATLAB.
    rdm = {"IT": np.array([[1.0, 2.0, 3.0]])}
    scipy.io.savemat(path, rdm, do_compression=packed)
    assert from_file(path, three, distances=True)[0].tolist() == [[0, 1, 2], [1, 0, 3], [2, 3, 0]]
    assert n_subjects(path, distances=True) == 0
    # Whatever is damaged is refused, or is not in what is read.
    data = path.read_bytes()
    for n in range(8):
        wrong = bytearray(data[: RANDOM.integers(len(data) // 2, len(data) + 1)])
        wrong[RANDOM.integers(len(wrong))] = RANDOM.integers(256)
        path.write_bytes(wrong)
        with contextlib.suppress(InputError):
            for own in read_arrays(path).values():
                if n < 3:
                    own.read()


def test_models_of_one_file_are_layers(tmp_path, three):
    condensed, square = RANDOM.random((2, 3)), np.ones((2, 3, 3)) - np.eye(3)
    names, path = np.array([["a b"], ["c"]]), tmp_path / "models.npz"
    np.savez(path, RDMs=condensed, names=names)
    found = from_file(path, three, distances=True, split=True)
    assert found.facts["layer_names"] == {"0": "a b", "1": "c"} and found.distances
    for layer, distances in enumerate(condensed):
        np.testing.assert_array_equal(found[layer][np.triu_indices(3, 1)], distances)
    # Names of several arrays, and of none.
    np.savez(path, V1=condensed, V4=square, names=names)
    found = from_file(path, three, distances=True, split=True)
    assert [*found.facts["layer_names"].values()] == ["V1 a b", "V1 c", "V4 a b", "V4 c"]
    np.testing.assert_array_equal(found[3], square[1])
    np.savez(path, x=RANDOM.random((2, 3, 4)))
    found = from_file(path, three, split=True)
    assert [*found.facts["layer_names"].values()] == ["x 1", "x 2"] and found[1].shape == (3, 4)
    with refused("array x 1 of models.npz", "(3, 4)", "(3, 3)"):
        from_file(path, three, distances=True, split=True)
    np.savez(path, x=FIRST)
    with refused("no axis of models", "(models, stimuli, units)"):
        from_file(path, three, split=True)
    np.savez(path, x=condensed, names=np.array(["a", "a"]))
    with refused("two models named 'a'"):
        from_file(path, three, distances=True, split=True)
    assert "--subject NAME=none" in from_file(path, three, distances=True, subject=1).notes[-1]


def test_a_file_that_ends_scipys_reader_is_refused(tmp_path, three):
    path = tmp_path / "it.mat"
    scipy.io.savemat(path, {"IT": FIRST})
    data, tag = path.read_bytes(), struct.pack("<II", 9, FIRST.nbytes)  # 9: numbers of 64 bits
    assert data.count(tag) == 1
    path.write_bytes(data.replace(tag, struct.pack("<II", 5_000, FIRST.nbytes)))
    with refused("it.mat", "damaged"):
        from_file(path, three)


@for_each(
    "content, facts",
    ({"IT": FIRST + 1j}, ("array IT of it.mat", "complex")),
    (b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM" + bytes(500), ("it.mat", "damaged")),
    (b"nothing", ("it.mat", "no version from 5 to 7.3")),
)
def test_what_is_no_array_of_matlab_is_refused(tmp_path, three, content, facts):
    path = tmp_path / "it.mat"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        scipy.io.savemat(path, content, do_compression=True)
    with refused(*facts):
        from_file(path, three)


@for_each("suffix", ".npz", ".mat")
def test_arrays_that_do_not_fit_into_memory_are_refused(tmp_path, three, suffix, monkeypatch):
    path = tmp_path / f"it{suffix}"
    if suffix == ".npz":
        np.savez_compressed(path, IT=np.zeros((3, 1_000)))
    else:
        scipy.io.savemat(path, {"IT": np.zeros((3, 1_000))}, do_compression=True)
    monkeypatch.setattr("mlem_core.base.resources.free_memory", lambda: 20_000)
    with refused(f"array IT of it{suffix}", "memory"):
        from_file(path, three)


@BOTH
def test_a_file_is_a_model(three, tmp_path, suffix):
    path = save(tmp_path / f"brain{suffix}", LAYERS)
    if suffix == ".npz":
        np.savez_compressed(path, **LAYERS, names=["a"])
    ours = from_file(path, three)
    assert (ours.name, ours.layers, ours.n_stimuli) == ("brain", (0, 7, 10, 11), 3)
    assert from_file(path, three, "other").name == "other"
    kinds = {0: np.float64, 7: np.float32, 10: np.float64, 11: np.float32}
    for layer in ours.layers:
        assert np.array_equal(ours[layer], LAYERS[f"layer_{layer:02d}"])
        assert ours[layer].dtype == kinds[layer]
    json.dumps(dict(ours.facts))
    with refused("brain", "'3'", "0, 7, 10, 11"):
        ours[3]


def with_names(path, rows, names):
    """A file of one layer whose rows have names, by the ending of the path."""
    if path.suffix == ".csv":
        header = "id," + ",".join(map(str, range(rows.shape[1]))) + "\n"
        lines = [",".join(map(str, (n, *row))) for n, row in zip(names, rows, strict=True)]
        path.write_text(header * (path.stem == "header") + "\n".join(lines))
    elif path.suffix == ".npz":
        np.savez(path, IT=rows, stimuli=names)
    else:
        cells = np.array(names, dtype=object)
        label = cells if path.stem == "cells" else np.array(names)
        scipy.io.savemat(path, {"IT": rows, "stimuli": label})
    return path


NAMED_FILES = for_each("file", "header.csv", "no.csv", "x.npz", "x.mat", "cells.mat")


@NAMED_FILES
def test_rows_with_names_are_matched_with_a_column_of_the_stimuli(three, tmp_path, file):
    stimuli = replace(three, table=three.table.assign(item=["i1", "i2", "i3"]))
    rows = np.array([[2.0, 20.5], [9.0, 90.5], [0.0, 0.5], [1.0, 10.5]])
    path = with_names(tmp_path / file, rows, ["i3", "i9", "i1", "i2"])
    found = from_file(path, stimuli)
    np.testing.assert_array_equal(found[0], rows[[2, 3, 0]])
    (note,) = found.notes
    assert all(fact in note for fact in (file, "by name", "'item'"))
    other = replace(three, table=three.table.assign(item=["i3", "i2", "i1"]))
    assert from_file(path, other).identity != found.identity
    in_order = from_file(with_names(tmp_path / file, rows[[2, 3, 0]], ["i1", "i2", "i3"]), stimuli)
    np.testing.assert_array_equal(in_order[0], rows[[2, 3, 0]])
    assert in_order.notes == ()
    square = np.abs(np.subtract.outer(rows[:, 0], rows[:, 0]))
    path = with_names(tmp_path / file, square, ["i3", "i9", "i1", "i2"])
    distances = from_file(path, stimuli, distances=True)
    assert distances[0].tolist() == [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    path = with_names(tmp_path / file, square, ["i3", "i3", "i1", "i2"])
    with refused(file, "two rows named 'i3'"):
        from_file(path, stimuli, distances=True)
    with refused(file, "no row named 'i2'", "row 2", "'item'"):
        from_file(with_names(tmp_path / file, rows, ["i3", "i9", "i1", "i4"]), stimuli)


@NAMED_FILES
def test_rows_of_one_name_are_repetitions_or_their_mean(three, tmp_path, file):
    stimuli = replace(three, table=three.table.assign(item=["i1", "i2", "i3"]))
    rows = np.arange(12.0).reshape(6, 2) ** 2
    path = with_names(tmp_path / file, rows, ["i3", "i1", "i1", "i2", "i3", "i2"])
    repeated = from_file(path, stimuli, repetitions=True)
    np.testing.assert_array_equal(repeated[0], rows[[[1, 3, 0], [2, 5, 4]]])
    mean = from_file(path, stimuli)
    np.testing.assert_allclose(mean[0], rows[[[1, 3, 0], [2, 5, 4]]].mean(axis=0))
    assert "2 repetitions of each" in mean.notes[1]
    path = with_names(tmp_path / file, rows, ["i3", "i1", "i1", "i2", "i3", "i3"])
    unequal = from_file(path, stimuli)
    np.testing.assert_allclose(
        unequal[0], [rows[1:3].mean(axis=0), rows[3], rows[[0, 4, 5]].mean(axis=0)]
    )
    assert "1 to 3 rows" in unequal.notes[1] and unequal.identity != mean.identity
    with refused("no repetitions"):
        from_file(path, stimuli, repetitions=True)


@NAMED_FILES
def test_names_of_no_column_are_said_or_asked_about(three, tmp_path, file):
    path = with_names(tmp_path / file, FIRST, ["b", "a", "c"])
    if file.endswith(".csv"):
        with refused(file, "'b', 'a', 'c'", "no column", "NAME=skip", by=CountsRows):
            from_file(path, three)
        found = from_file(path, three, first_column="skip")
        with refused("'b' in row 1", "unit"):
            from_file(path, three, first_column="unit")
    else:
        found = from_file(path, three)
        (note,) = found.notes
        assert all(fact in note for fact in (f"stimuli of {file}", "text", "in the order"))
    np.testing.assert_array_equal(found[0], FIRST)


@for_each(
    "names, order",
    (["blocks.0.x", "blocks.1.x", "blocks.10.x", "blocks.2.x"], [0, 1, 3, 2]),
    (["h.1.10", "h.1.9", "embed", "h.0.11"], [3, 1, 2, 0]),
    (["10", "9", "-3"], [2, 1, 0]),
    (["IT", "V4", "V1", "FFA"], [0, 2, 1, 3]),
    (["-100 ms", "-50 ms", "0 ms", "50 ms"], [0, 1, 2, 3]),
    (["0.25 s", "0.5 s", "0.125 s"], [2, 0, 1]),
    (["block-10", "block-2"], [1, 0]),
)
def test_names_are_in_the_order_of_their_numbers(three, tmp_path, names, order):
    assert natural_order(names) == [names[place] for place in order]
    np.savez(tmp_path / "a.npz", **{name: np.full((3, 2), n) for n, name in enumerate(names)})
    found = from_file(tmp_path / "a.npz", three)
    assert [found[layer][0, 0] for layer in found.layers] == order
    assert bool(found.notes) == (order != [*range(len(names))])
    assert found.identity.endswith("reordered") == bool(found.notes)


def test_layers_of_safetensors_are_in_the_order_of_their_numbers(three, tmp_path):
    names = [f"blocks.{number}.hook_resid_post" for number in range(12)]
    arrays = {name: np.full((3, 2), number, "float32") for number, name in enumerate(names)}
    found = from_file(save(tmp_path / "x.safetensors", arrays), three)
    assert [found[layer][0, 0] for layer in found.layers] == [*range(12)]
    (note,) = found.notes
    assert names[0] in note and names[11] in note and "another order" in note


@for_each("value", np.nan, 1e-7, -1e-7, 0.5)
def test_the_diagonal_of_distances_is_not_looked_at(three, tmp_path, value):
    square = np.array([[value, 1, 2], [1, value, 3], [2, 3, value]], dtype=np.float32)
    assert are_distances(square)
    path = save(tmp_path / "rdm.npz", {"IT": square})
    assert from_file(path, three, distances=True)[0].tolist() == [[0, 1, 2], [1, 0, 3], [2, 3, 0]]
    np.testing.assert_allclose(condensed_from_matrix(square), [1, 4, 9])
    square[0, 2] = square[2, 0] = np.inf
    save(path, {"IT": square})
    with refused("array IT of rdm.npz has inf in row 1, column 3"):
        from_file(path, three, distances=True)
    assert not are_distances(np.eye(3)) and not are_distances(np.ones((3, 3)))


def test_units_that_are_nan_for_every_stimulus_are_left_out_and_counted(three, tmp_path):
    holes = np.where(np.arange(4) % 2, FIRST, np.nan)
    part = np.where(np.arange(3)[:, None] == 1, holes, FIRST)
    arrays = {"IT": holes, "V1": FIRST, "V4": part, "all": np.full((3, 2), np.nan)}
    found = from_file(save(tmp_path / "brain.npz", arrays), three)
    assert found.layers == (0, 1) and found[0].tolist() == FIRST[:, 1::2].tolist()
    assert found.facts["layer_names"] == {"0": "IT", "1": "V1"}
    np.testing.assert_array_equal(found[1], FIRST)
    (note,) = found.notes
    assert "brain.npz" in note and "2 of 4 units in IT." in note
    assert len(found.left_out) == 2 and "V4" in found.left_out[0]


@BOTH
@pytest.mark.parametrize("others", [["voxels"], ["Layer_01", "V1"], ["a/layer_01"]])
def test_arrays_beside_numbered_layers_are_no_layers_and_said(three, tmp_path, others, suffix):
    arrays = dict.fromkeys(["layer_00", *others], np.zeros((3, 2)))
    found = from_file(save(tmp_path / f"a{suffix}", arrays), three)
    assert found.layers == (0,) and "layer_names" not in found.facts
    (note,) = found.notes
    assert all(name in note for name in [*others, f"a{suffix}"])
    own = save(tmp_path / "own.npz", {name: arrays[name] for name in others})
    assert from_file(own, three).notes == ()


def mapped(array, path):
    """Whether the numbers lie where the file is mapped."""
    address = array.__array_interface__["data"][0]
    lines = Path("/proc/self/maps").read_text().splitlines()
    ranges = [line.split()[0].split("-") for line in lines if line.endswith(str(path))]
    return any(int(begin, 16) <= address < int(end, 16) for begin, end in ranges)


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".safetensors"])
@pytest.mark.parametrize("kind", ["<f4", "<f2", "<i4", ">f4", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_mapped_arrays_are_those_that_are_loaded(three, tmp_path, suffix, kind, order):
    array = np.array(FIRST * 9, dtype=kind, order=order)
    if suffix == ".safetensors" and kind == ">f4":
        array = array.astype("<f4")
    arrays = {"names": np.zeros(3), "layer_00": array} if suffix == ".npz" else {"layer_00": array}
    path = save(tmp_path / f"a{suffix}", arrays)
    found = from_file(path, three)
    expected = array.astype(np.result_type(array.dtype, np.float32) if "f" in kind else float)
    layer = found[0]
    assert layer.dtype == expected.dtype
    assert mapped(layer, path) == (array.dtype in ("<f4", "<f8"))
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found.rows(0, np.array([2, 0])), expected[[2, 0]])
    assert found.facts["arrays"]["layer_00"] in (str(array.dtype), "BOOL", "I32")


@pytest.mark.parametrize("block", [1, 7, 4_000_000])
def test_values_are_checked_in_blocks_of_rows(monkeypatch, block):
    monkeypatch.setattr("mlem_core.stimuli.neural_rows._BLOCK", block)
    random = np.random.default_rng(0)
    for _ in range(20):
        array = random.normal(size=(9, 3))
        array[random.random((9, 3)) < 0.1] = random.choice([np.nan, np.inf])
        places = np.argwhere(~np.isfinite(array))
        first = tuple(places[0]) if len(places) else (0, 0)
        assert not_finite(array) == (len(places), *first)
    square = np.abs(random.normal(size=(8, 8)))
    square = np.triu(square, 1) + np.triu(square, 1).T
    assert are_distances(square) and not are_distances(-square)
    assert not are_distances(square + square.max() * np.eye(8))
    for row, column, value in ((7, 0, 5.0), (0, 7, -1.0)):
        wrong = square.copy()
        wrong[row, column] = value
        assert not are_distances(wrong)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".csv"])
def test_distances_are_square(three, tmp_path, suffix):
    square = np.array([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]])
    good = save(tmp_path / f"good{suffix}", {"layer_00": square})
    ours = from_file(good, three, distances=True)
    np.testing.assert_array_equal(ours[0], square)
    np.testing.assert_array_equal(ours.rows(0, np.array([0, 2])), [[0, 2], [2, 0]])
    np.testing.assert_array_equal(from_file(good, three).rows(0, np.array([2])), [[2, 3, 0]])
    bad = save(tmp_path / f"bad{suffix}", {"layer_00": square[:, 1:]})
    with refused("(3, 2)", "(3, 3)"):
        from_file(bad, three, distances=True)


class Trap:
    def __reduce__(self):
        return (os._exit, (3,))


TWO = np.zeros((3, 2))
OBJECTS = {"layer_00": np.array([[Trap()]] * 3)}


def wrong_at(value):
    return {"layer_07": np.where(np.arange(6).reshape(3, 2) == 3, value, 1.0)}


@for_each(
    "arrays, facts, only",
    (wrong_at(np.nan), ("layer_07", "nan in row 2, unit 2"), ""),
    (wrong_at(-np.inf), ("layer_07", "-inf in row 2, unit 2"), ""),
    ({"layer_00": np.zeros((4, 2))}, ("layer_00", "4 rows", "3 stimuli"), ""),
    ({"layer_00": np.zeros(3)}, ("shape (3,)", "(stimuli, units)"), ""),
    ({"layer_00": np.zeros((3, 2, 2))}, ("2 rows", "3 stimuli"), ""),
    (
        {"layer_00": np.where(np.arange(24).reshape(4, 3, 2) == 14, np.nan, 1.0)},
        ("layer_00", "nan in repetition 3, row 2, unit 1"),
        "",
    ),
    ({"V1": TWO, "weights": np.zeros((4, 2))}, ("weights", "4 rows"), ""),
    ({"layer_1": TWO, "layer_01": TWO}, ("layer 1", "layer_01 and layer_1"), ""),
    (OBJECTS, ("layer_00", "pickle"), ".npz"),
    (OBJECTS, ("Python objects",), ".npy"),
    # np.save of a dict of layers
    ({"layer_00": np.array({"V1": 1})}, ("never read", "numpy.savez(file, layer_00="), ".npy"),
    ({"V1": np.zeros((2, 3))}, ("2 rows", "shape is (2, 3), so transpose it"), ""),
    ({"V1": np.zeros((4, 2, 3))}, ("2 rows", "shape is (4, 2, 3)", "save (3, units)"), ""),
    ({"V1": np.zeros((3, 5, 2))}, ("5 rows", "shape is (3, 5, 2)", "save (3, units)"), ""),
    ({"layer_00": np.array([["a"]] * 3)}, ("layer_00", "<U1", "real numbers"), ".npz"),
    ({"": TWO, "V1": TWO}, ("without a name",), ".npz"),
)
def test_unusable_arrays_are_refused_with_their_place(three, tmp_path, arrays, facts, only):
    for suffix in [only] if only else (".npz", ".safetensors"):
        path = save(tmp_path / f"bad{suffix}", arrays)
        with refused("bad", *facts):
            from_file(path, three)


PAIRS = np.array([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]])


@for_each(
    "square, said",
    (PAIRS, True),
    (np.tril(PAIRS), True),  # one triangle
    (1 - PAIRS / 4, True),  # similarities
    (PAIRS.astype(np.float16) * 1000, True),
    (PAIRS + np.diag([0.5, 0, 0]), False),
    (PAIRS[:, :2], False),
    (np.zeros((3, 3)), False),
    (np.eye(3)[[1, 2, 0]] + np.eye(3)[[0, 0, 0]], False),
)
def test_distances_that_are_read_as_units_are_told(three, tmp_path, square, said):
    for suffix in (".npz", ".npy", ".csv"):
        path = save(tmp_path / f"a{suffix}", {"layer_00": square})
        how = {"first_column": "unit"} if suffix == ".csv" else {}
        notes = " ".join(from_file(path, three, **how).notes)
        assert ("--precomputed NAME" in notes) is said
    both = {"a": square, "b": np.arange(9.0).reshape(3, 3)}
    assert from_file(save(tmp_path / "both.npz", both), three).notes == ()


def test_nothing_is_unpickled(three, tmp_path):
    """Neither a file nor a member of an archive."""
    path, trap = tmp_path / "bad.npz", pickle.dumps(Trap())
    path.write_bytes(trap)
    with refused("bad"):
        from_file(path, three)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("layer_00.npy", trap)
    with refused("bad"):
        from_file(path, three)


def test_a_file_with_another_ending_or_none_at_all(three, tmp_path):
    for name, facts in {"a.pt": ("pickle", "savez"), "a": (".npz", ".csv")}.items():
        (tmp_path / name).write_bytes(b"x")
        with refused(*facts):
            from_file(tmp_path / name, three)
    (tmp_path / "folder.npz").mkdir()
    for name in ("none.npz", "folder.npz"):
        with refused("no representations file"):
            from_file(tmp_path / name, three)


@for_each(
    "content",
    "0,1\n1.5,2\n-3,4e-2\n5,6\n",  # as pandas names columns
    '\ufeff"unit, first",unit 2\r\n1.5, 2\r\n\r\n-3,0.04\r\n5,6',
)
def test_a_csv_is_a_layer_and_one_of_another_content_is_read_again(three, tmp_path, content):
    path = tmp_path / "brain.csv"
    path.write_text(content, encoding="utf-8", newline="")
    ours = from_file(path, three)
    assert (ours.name, ours.layers, ours.left_out) == ("brain", (0,), ())
    np.testing.assert_array_equal(ours[0], [[1.5, 2], [-3, 0.04], [5, 6]])
    assert ours[0].dtype == np.float64
    json.dumps(dict(ours.facts))
    path.write_text("1\n2\n4.5\n")
    again = from_file(path, three)
    assert again[0][2, 0] == 4.5 and again.identity != ours.identity


@for_each(
    "text",
    ",0,1\n0,4,5\n1,6,7\n2,8,9\n",
    "n,0\n1,4\n2,6\n3,8\n",
    "0,4,5\n1,6,7\n2,8,9\n",
    "n,a\n101,4\n102,6\n103,8\n",
    "103,4\n101,6\n102,8\n",
    "n,a\n14,4\n12,6\n10,8\n",
    "Subject,a\n7,4\n7.5,6\n9,8\n",
    "stim_id,a\n7,4\n1,6\n9,8\n",
)
def test_a_first_column_that_counts_is_what_is_said(three, tmp_path, text):
    path = tmp_path / "brain.csv"
    path.write_text(text)
    with refused("index=False", "NAME=skip", "NAME=unit", by=CountsRows):
        from_file(path, three)
    without, whole = (from_file(path, three, first_column=how) for how in ("skip", "unit"))
    np.testing.assert_array_equal(without[0][:, 0], [4, 6, 8])
    np.testing.assert_array_equal(whole[0][:, 1:], without[0])
    assert whole[0].shape[1] == without[0].shape[1] + 1 and whole.identity != without.identity
    ids = [f"{number:g}" for number in whole[0][::-1, 0]]
    for item in (ids, ids[::-1]):
        stimuli = replace(three, table=three.table.assign(item=item))
        named = from_file(path, stimuli, first_column="names")
        assert named[0][:, 0].tolist() == ([8, 6, 4] if item is ids else [4, 6, 8])
        assert named.identity not in (whole.identity, without.identity)
    array = save(tmp_path / "brain.npy", {"layer_00": whole[0]})
    assert from_file(array, three).layers == (0,)
    with refused("brain.npy", "no CSV", "--first-column"):
        from_file(array, three, first_column="skip")


def test_a_header_that_threads_mix_up_is_read_again(tmp_path, monkeypatch):
    """CPython 3.11 raises SystemError where two threads read Python at once, as NumPy does."""
    np.save(tmp_path / "layer.npy", np.eye(3))
    read, mixed_up = ast.literal_eval, []

    def mixing(text):
        mixed_up.append(text)
        if len(mixed_up) == 1:
            raise SystemError("AST constructor recursion depth mismatch")
        return read(text)

    monkeypatch.setattr(ast, "literal_eval", mixing)
    stimuli = sentence_stimuli(["A.", "Bb.", "Ccc."])
    assert from_file(tmp_path / "layer.npy", stimuli).layers == (0,)
