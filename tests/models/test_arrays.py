from __future__ import annotations

import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from tiny import sentence_stimuli, told

from mlem_core.base.errors import InputError
from mlem_core.data.stimuli import StimulusSet
from mlem_core.models.csv_array import CountsRows
from mlem_core.models.mapped import are_distances, not_finite, rounded_share
from mlem_core.models.representations import from_file


@pytest.fixture
def three() -> StimulusSet:
    return sentence_stimuli(["A cat.", "A dog.", "She runs."])


def layers(n: int = 3) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "layer_00": random.normal(size=(n, 4)),
        "layer_07": random.normal(size=(n, 2)).astype(np.float32),
        "layer_10": random.integers(0, 9, (n, 3)),
        "layer_11": random.normal(size=(n, 2)).astype(np.float16),
    }


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_is_a_model(three, tmp_path, suffix, compressed):
    arrays, path = layers(), tmp_path / f"brain{suffix}"
    if suffix == ".npz":
        (np.savez_compressed if compressed else np.savez)(path, **arrays, names=["a"])
    else:
        safetensors.numpy.save_file(arrays, path)
    ours = from_file(path, three)
    assert (ours.name, ours.layers, ours.n_stimuli) == ("brain", (0, 7, 10, 11), 3)
    assert from_file(path, three, "other").name == "other"
    kinds = {0: np.float64, 7: np.float32, 10: np.float64, 11: np.float32}
    for layer in ours.layers:
        assert np.array_equal(ours[layer], arrays[f"layer_{layer:02d}"])
        assert ours[layer].dtype == kinds[layer]
    json.dumps(dict(ours.facts))
    with pytest.raises(InputError, match=r"unknown layer of brain '3'.*0, 7, 10, 11"):
        ours[3]


def test_a_file_s_identity_is_its_content(three, tmp_path):
    for name, seed in (("a.npz", 0), ("b.npz", 0), ("c.npz", 1)):
        array = np.random.default_rng(seed).normal(size=(3, 2))
        np.savez(tmp_path / name, layer_00=array)
    a, b, c = (from_file(tmp_path / name, three).identity for name in ("a.npz", "b.npz", "c.npz"))
    assert a == b != c


def test_bfloat16(three, tmp_path):
    from safetensors.torch import save_file

    values = torch.tensor([[1.5, 2.0], [0.25, -3.0], [4.0, 5.0]])
    save_file({"layer_00": values.bfloat16()}, tmp_path / "m.safetensors")
    assert np.array_equal(from_file(tmp_path / "m.safetensors", three)[0], values.numpy())


def nan_at(value: float) -> dict[str, np.ndarray]:
    arrays = {"layer_07": layers()["layer_07"]}
    arrays["layer_07"][1, 1] = value
    return arrays


def test_a_layer_that_is_not_finite_is_left_out_of_the_others(three, tmp_path):
    np.savez(tmp_path / "net.npz", **{**layers(), **nan_at(np.inf)})
    found = from_file(tmp_path / "net.npz", three)
    assert found.layers == (0, 10, 11)
    assert found.left_out == (
        "array layer_07 of net.npz has inf in row 2, unit 2; expected finite numbers.",
    )
    np.testing.assert_array_equal(found[10], layers()["layer_10"])


class Trap:
    def __reduce__(self) -> Any:
        return (os._exit, (3,))


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "nan": (nan_at(np.nan), "array layer_07 of bad.* has nan in row 2, unit 2; expected finite"),
    "infinity": (nan_at(-np.inf), "array layer_07 of bad.* has -inf in row 2, unit 2"),
    "rows": (layers(4), "array layer_00 of bad.* has 4 rows; expected one for each of 3 stimuli"),
    "other rows": (
        {**layers(), "layer_07": np.zeros((2, 5))},
        "array layer_07 of bad.* has 2 rows; expected one for each of 3 stimuli",
    ),
    "one axis": ({"layer_00": np.zeros(3)}, r"shape \(3\); expected \(stimuli, units\)"),
    "four axes": ({"layer_00": np.zeros((1, 3, 2, 2))}, r"shape \(1, 3, 2, 2\); expected"),
    "rows of repetitions": ({"layer_00": np.zeros((3, 2, 2))}, "has 2 rows; expected one for each"),
    "nan in a repetition": (
        {"layer_00": np.where(np.arange(24).reshape(4, 3, 2) == 14, np.nan, 1.0)},
        "array layer_00 of bad.* has nan in repetition 3, row 2, unit 1; expected finite",
    ),
    "no units": ({"layer_00": np.zeros((3, 0))}, r"shape \(3, 0\); expected"),
    "no layer's shape": (
        {"V1": np.zeros((3, 2)), "weights": np.zeros((4, 2))},
        "array weights of .* has 4 rows",
    ),
    "twice": (
        {"layer_1": np.zeros((3, 2)), "layer_01": np.zeros((3, 2))},
        "two arrays for layer 1: layer_01 and layer_1",
    ),
}


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("case", BAD)
def test_a_file_that_cannot_be_used(three, tmp_path, case, suffix):
    arrays, says = BAD[case]
    path = tmp_path / f"bad{suffix}"
    if suffix == ".npz":
        np.savez(path, **arrays)
    else:
        safetensors.numpy.save_file(arrays, path)
    with pytest.raises(InputError, match=says) as error:
        from_file(path, three)
    told(error)


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.array([[Trap()]] * 3), "layer_00 of bad.npz holds Python objects .a pickle"),
        (np.array([["a"]] * 3), "layer_00 of bad.npz holds <U1; expected real numbers"),
        (np.ones((3, 2), dtype=complex), "holds complex128; expected real numbers"),
        (np.zeros((3, 1), dtype=[("a", "f8")]), "expected real numbers"),
    ],
)
def test_an_array_that_holds_no_numbers(three, tmp_path, array, says):
    np.savez(tmp_path / "bad.npz", layer_00=array)
    with pytest.raises(InputError, match=says) as error:
        from_file(tmp_path / "bad.npz", three)
    told(error)


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps(Trap()))


def pickled_member(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("layer_00.npy", pickle.dumps(Trap()))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text("sentence,layer_00\nA cat.,1\n" * 20)


def cut(path: Path) -> None:
    if path.suffix == ".npz":
        np.savez(path, **layers(3))
    else:
        safetensors.numpy.save_file(layers(3), path)
    os.truncate(path, path.stat().st_size * 2 // 3)


def garbled(path: Path) -> None:
    """The archive's list of contents is sound, one array's numbers are not."""
    if path.suffix == ".npz":
        np.savez(path, **layers(3))
        content = bytearray(path.read_bytes())
        begin = content.index(b"NUMPY") + 130
        content[begin : begin + 8] = b"\x7f" * 8
    else:
        safetensors.numpy.save_file(layers(3), path)
        content = bytearray(path.read_bytes())
        content[0:4] = b"\xff" * 4
    path.write_bytes(content)


def lying(path: Path) -> None:
    """A header that claims more numbers than there are."""
    if path.suffix == ".npz":
        with zipfile.ZipFile(path, "w") as archive, archive.open("layer_00.npy", "w") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<f8", "fortran_order": False, "shape": (3, 10**13)}
            )
            file.write(b"\x00" * 64)
    else:
        header = json.dumps(
            {"layer_00": {"dtype": "F64", "shape": [3, 10**9], "data_offsets": [0, 8]}}
        )
        path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + b"\x00" * 8)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("write", [pickled, pickled_member, empty, text, cut, garbled, lying])
def test_a_file_that_is_something_else(three, tmp_path, write, suffix):
    path = tmp_path / f"bad{suffix}"
    write(path)
    with pytest.raises(InputError, match="bad") as error:
        from_file(path, three)
    told(error)


def test_a_file_with_another_ending_or_none_at_all(three, tmp_path):
    for name in ("a.pt", "a.pkl", "a"):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(InputError, match=r"expected \.npz, .* or \.csv") as error:
            from_file(tmp_path / name, three)
        told(error)
    with pytest.raises(InputError, match="there is no representations file") as error:
        from_file(tmp_path / "none.npz", three)
    told(error)
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(InputError, match="there is no representations file"):
        from_file(tmp_path / "folder.npz", three)


# --- arrays as they lie in the file --------------------------------------------------------

KINDS = ("<f4", "<f8", "<f2", "<i4", ">f4", "?")


def saved(path: Path, array: np.ndarray) -> None:
    if path.suffix == ".npz":
        np.savez(path, names=np.zeros(3), layer_00=array)
    elif path.suffix == ".npy":
        np.save(path, array)
    else:
        safetensors.numpy.save_file({"layer_00": np.ascontiguousarray(array)}, path)


def mapped(array: Any) -> bool:
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".safetensors"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_mapped_arrays_are_those_that_are_loaded(three, tmp_path, suffix, kind, order):
    array = np.array(layers()["layer_00"] * 9, dtype=kind, order=order)
    path = tmp_path / f"a{suffix}"
    if suffix == ".safetensors" and kind == ">f4":
        array = array.astype("<f4")
    saved(path, array)
    found = from_file(path, three)
    expected = array.astype(np.result_type(array.dtype, np.float32) if "f" in kind else float)
    assert found[0].dtype == expected.dtype and mapped(found[0]) == (array.dtype in ("<f4", "<f8"))
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found.of(0, np.array([2, 0])), expected[[2, 0]])
    assert found.facts["arrays"]["layer_00"] in (str(array.dtype), "BOOL", "I32")


def test_a_compressed_array_is_loaded(three, tmp_path):
    np.savez_compressed(tmp_path / "a.npz", layer_00=layers()["layer_00"])
    assert not mapped(from_file(tmp_path / "a.npz", three)[0])


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_an_array_that_is_cut_short(three, tmp_path, suffix):
    path = tmp_path / f"bad{suffix}"
    saved(path, layers()["layer_00"])
    os.truncate(path, path.stat().st_size - 8)
    with pytest.raises(InputError, match="is damaged") as error:
        from_file(path, three)
    told(error)


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize("more", [b"\n", layers()["layer_00"].tobytes()])
def test_what_is_behind_an_array_is_not_left_unread(three, tmp_path, suffix, more):
    np.save(tmp_path / "bad.npy", layers()["layer_00"])
    data = (tmp_path / "bad.npy").read_bytes() + more
    (tmp_path / "bad.npy").write_bytes(data)
    for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "bad.npz", "w", how) as archive:
            archive.writestr("layer_00.npy", data)
        with pytest.raises(InputError, match=f"{len(more)} bytes are behind an array") as error:
            from_file(tmp_path / f"bad{suffix}", three)
        told(error)


def test_an_npy_that_holds_objects_is_not_read(three, tmp_path):
    np.save(tmp_path / "bad.npy", np.array([[Trap()]] * 3), allow_pickle=True)
    with pytest.raises(InputError, match=r"bad\.npy holds Python objects"):
        from_file(tmp_path / "bad.npy", three)


@pytest.mark.parametrize("block", [1, 7, 4_000_000])
def test_values_are_checked_in_blocks_of_rows(monkeypatch, block):
    monkeypatch.setattr("mlem_core.models.mapped._BLOCK", block)
    random = np.random.default_rng(0)
    for _ in range(20):
        array = random.normal(size=(9, 3))
        array[random.random((9, 3)) < 0.1] = random.choice([np.nan, np.inf])
        places = np.argwhere(~np.isfinite(array))
        first = tuple(places[0]) if len(places) else (0, 0)
        assert not_finite(array) == (len(places), *first)
    square = np.abs(random.normal(size=(8, 8)))
    square = np.triu(square, 1) + np.triu(square, 1).T
    assert are_distances(square)
    for row, column, value in ((2, 2, 1.0), (7, 0, 5.0), (0, 7, -1.0)):
        wrong = square.copy()
        wrong[row, column] = value
        assert not are_distances(wrong)
    assert not are_distances(-square)


# --- a CSV of one layer --------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "1.5,2\n-3,4e-2\n5,6\n",
        "a,b\n1.5,2\n-3,4e-2\n5,6\n",
        "0,1\n1.5,2\n-3,4e-2\n5,6\n",  # as pandas names columns
        '\ufeff"unit, first",unit 2\r\n1.5, 2\r\n\r\n-3,0.04\r\n5,6',
    ],
)
def test_a_csv_is_a_layer(three, tmp_path, content):
    (tmp_path / "brain.csv").write_text(content, encoding="utf-8", newline="")
    ours = from_file(tmp_path / "brain.csv", three)
    assert (ours.name, ours.layers, ours.left_out) == ("brain", (0,), ())
    np.testing.assert_array_equal(ours[0], [[1.5, 2], [-3, 0.04], [5, 6]])
    assert ours[0].dtype == np.float64
    json.dumps(dict(ours.facts))


def test_a_csv_of_another_content_is_read_again(three, tmp_path):
    path = tmp_path / "brain.csv"
    path.write_text("1\n2\n3\n")
    first = from_file(path, three)
    path.write_text("1\n2\n4.5\n")
    again = from_file(path, three)
    assert again[0][2, 0] == 4.5 and again.identity != first.identity


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "bad.csv is empty"),
        (b"a,b\n", r"bad.csv has 0 rows; expected one for each of 3 stimuli"),
        (b"1,2\n3,4\n", "bad.csv has 2 rows; expected one for each of 3 stimuli"),
        (b"a\n1\n2\n3\n4\n", "bad.csv has 4 rows"),
        (b"1,2\n3,4,5\n6,7\n", "row 2 of bad.csv has 3 cells; the first one has 2"),
        (b"a,b\n1,2\n3,four\n5,6\n", "bad.csv has 'four' in row 2, column 2; expected a number"),
        (b"1,2\n3,\n5,6\n", "bad.csv has '' in row 2, column 2"),
        (b"1,2\n3,nan\n5,6\n", "bad.csv has nan in row 2, unit 2; expected finite numbers"),
        (b"1;2\n3;4\n5;6\n", "separated by semicolons"),
        (b",0,1\n0,1,2\n1,3,4\n2,5,6\n", "first column of bad.csv has no name"),
        (b",a\n9,1\n7,3\n8,5\n", "first column of bad.csv has no name"),
        (b"0,1.5\n1,2\n2,3\n", "first column of bad.csv counts its rows, 0 to 2"),
        (b"id,0,1\n0,1.5,7\n1.0,2,8\n2,3,9\n", "first column of bad.csv counts its rows, 0 to 2"),
        (b"1,1.5\n2,2\n3,3\n", "first column of bad.csv counts its rows, 1 to 3"),
        (b"a,b\n1,2\n1_0,4\n5,6\n", "bad.csv has '1_0' in row 2, column 1"),
        ("a,b\n1,2\n१२,4\n5,6\n".encode(), "bad.csv has '१२' in row 2, column 1"),
        (b"1.5,2,x\n1,2,3\n4,5,6\n7,8,9\n", "the first row of bad.csv has 'x' beside numbers"),
        (b"\xff\xfe1\n", "bad.csv is damaged or no CSV file"),
        (b'"1\n2\n3\n', "bad.csv is damaged or no CSV file"),
    ],
)
def test_a_csv_that_cannot_be_used(three, tmp_path, content, says):
    (tmp_path / "bad.csv").write_bytes(content)
    with pytest.raises(InputError, match=says) as error:
        from_file(tmp_path / "bad.csv", three)
    told(error)


INDEXED = (",0,1\n0,4,5\n1,6,7\n2,8,9\n", "n,0\n1,4\n2,6\n3,8\n", "0,4,5\n1,6,7\n2,8,9\n")


@pytest.mark.parametrize("text", INDEXED)
def test_a_first_column_that_counts_is_what_is_said(three, tmp_path, text):
    path = tmp_path / "brain.csv"
    path.write_text(text)
    with pytest.raises(CountsRows, match=r"index=False.*NAME=skip or NAME=unit"):
        from_file(path, three)
    without, whole = (from_file(path, three, first_column=one) for one in ("skip", "unit"))
    np.testing.assert_array_equal(without[0][:, 0], [4, 6, 8])
    np.testing.assert_array_equal(whole[0][:, 1:], without[0])
    assert np.ptp(whole[0][:, 0]) == 2 and whole.identity != without.identity
    np.save(tmp_path / "brain.npy", whole[0])
    assert from_file(tmp_path / "brain.npy", three).layers == (0,)
    with pytest.raises(InputError, match=r"brain\.npy is no CSV"):
        from_file(tmp_path / "brain.npy", three, first_column="skip")


def test_what_only_looks_like_counting_is_read(three, tmp_path):
    path = tmp_path / "brain.csv"
    distances = "0.,1.,2.\n1.,0.,1.\n2.,1.,0.\n"
    for text in ("1\n2\n3\n", "0,9\n2,9\n1,8\n", "0,9\n1,9\n2.5,8\n", distances):
        path.write_text(text)
        assert from_file(path, three)[0].shape == (3, len(text.split()[0].split(",")))


# --- distances -----------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".csv"])
def test_distances_are_square(three, tmp_path, suffix):
    square = np.array([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]])
    good, bad = tmp_path / f"good{suffix}", tmp_path / f"bad{suffix}"
    for path, array in ((good, square), (bad, square[:, 1:])):
        if suffix == ".npz":
            np.savez(path, layer_00=array)
        elif suffix == ".safetensors":
            safetensors.numpy.save_file({"layer_00": array.copy()}, path)
        else:
            np.savetxt(path, array, delimiter=",")
    ours = from_file(good, three, distances=True)
    np.testing.assert_array_equal(ours[0], square)
    np.testing.assert_array_equal(ours.of(0, np.array([0, 2])), [[0, 2], [2, 0]])
    np.testing.assert_array_equal(from_file(good, three).of(0, np.array([2])), [[2, 3, 0]])
    with pytest.raises(InputError, match=r"shape \(3, 2\); precomputed .* shape \(3, 3\)") as error:
        from_file(bad, three, distances=True)
    told(error)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_layers_with_names_of_their_own(three, tmp_path, suffix):
    arrays = {name: np.full((3, 2), number) for number, name in enumerate(("IT", "V1"))}
    path = tmp_path / f"brain{suffix}"
    if suffix == ".npz":
        np.savez(path, **arrays)
    else:
        safetensors.numpy.save_file(arrays, path)
    found = from_file(path, three)
    assert found.layers == (0, 1)
    assert found.facts["layer_names"] == {"0": "IT", "1": "V1"}
    np.testing.assert_array_equal(found[1], arrays["V1"])


@pytest.mark.parametrize(
    "others", [["voxels"], ["Layer_01", "V1"], ["layer_x", "a/layer_01", "layer-1"]]
)
def test_arrays_beside_numbered_layers_are_no_layers_and_said(three, tmp_path, others):
    arrays = dict.fromkeys(["layer_00", *others], np.zeros((3, 2)))
    np.savez(tmp_path / "a.npz", **arrays)
    safetensors.numpy.save_file(arrays, tmp_path / "a.safetensors")
    for path in (tmp_path / "a.npz", tmp_path / "a.safetensors"):
        found = from_file(path, three)
        assert found.layers == (0,) and "layer_names" not in found.facts
        assert len(found.notes) == 1 and all(
            name in found.notes[0] for name in [*others, path.name]
        )
    np.savez(tmp_path / "own.npz", **{name: arrays[name] for name in others})
    assert from_file(tmp_path / "own.npz", three).notes == ()


def test_an_array_without_a_name(three, tmp_path):
    np.savez(tmp_path / "a.npz", **{"": np.zeros((3, 2)), "V1": np.zeros((3, 2))})
    with pytest.raises(InputError, match="array without a name"):
        from_file(tmp_path / "a.npz", three)


@pytest.mark.parametrize("kind", ["<f4", "<f8"])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_share_of_rounding_is_that_of_rounded_numbers(kind, scale):
    exact = np.random.default_rng(0).normal(size=(500, 8))
    space = 2.0**-4 if kind == "<f4" else 2.0**-33
    offset = 2.0 ** (23 if kind == "<f4" else 52) * space  # so that its floats are `space` apart
    rounded = np.round(exact / space) * space
    found = rounded_share(((rounded + offset) * scale).astype(kind))
    assert found == pytest.approx(((rounded - exact) ** 2).mean() / exact.var(), rel=0.7)
    for plain in (exact * scale, exact * 0, exact * 0 + 7.0):
        assert rounded_share(plain.astype(kind)) < 1e-12


@pytest.mark.parametrize("kind", ["<i8", "<u8", ">i8"])
def test_whole_numbers_beyond_floats_are_noted(three, tmp_path, kind):
    exact = np.random.default_rng(0).integers(0, 2_000, (3, 4))
    for offset, noted in ((2**40, False), (2**53 - 2_000, False), (2**62, True)):
        np.save(tmp_path / "a.npy", (exact + offset).astype(kind))
        notes = from_file(tmp_path / "a.npy", three).notes
        assert [("is rounding" in note) for note in notes] == [True] * noted
