"""HDF5 files as h5py writes them."""

import os
import sys

import h5py
import numpy as np
import pandas as pd
import pytest
from helpers.commands import output_of
from helpers.inputs import for_each, refused
from helpers.repository import ROOT
from helpers.tiny import sentence_stimuli

from mlem_core.representations.arrays import from_file, n_subjects

RANDOM = np.random.default_rng(0)
V1, V4 = RANDOM.normal(size=(3, 4)), RANDOM.normal(size=(3, 2)).astype(np.float32)


@pytest.fixture
def three():
    return sentence_stimuli(["A cat.", "A dog.", "She runs."])


@for_each("how", {}, {"chunks": (2, 1), "compression": "gzip"}, {"chunks": (1, 2)})
@for_each("suffix", ".h5", ".hdf5")
def test_datasets_are_layers_and_texts_name_the_rows(tmp_path, three, how, suffix):
    path, order = tmp_path / f"brain{suffix}", [2, 0, 1]
    with h5py.File(path, "w") as file:
        file.create_dataset("V1", data=V1[order], **how)
        file.create_dataset("more/V4", data=V4[order], **how)
        file["sentences"] = [["A cat.", "A dog.", "She runs."][row] for row in order]
        file["soft"], file["other"] = h5py.SoftLink("/V1"), h5py.ExternalLink("x.h5", "/V1")
    source = from_file(path, three)
    assert [*source.facts["layer_names"].values()] == ["V1", "more/V4"]
    np.testing.assert_array_equal(source[0], V1)
    np.testing.assert_array_equal(source[1], V4)
    assert "by name" in source.notes[0] and len(source.notes) == 1


def test_names_of_a_folder_are_of_its_arrays(tmp_path, three):
    names = ["A cat.", "A dog.", "She runs."]
    with h5py.File(tmp_path / "brain.h5", "w") as file:
        for session, order in (("a", [1, 2, 0]), ("b", [0, 1, 2]), ("c", [2, 1, 0])):
            file[f"{session}/V1"] = V1[order]
            file[f"{session}/names"] = [names[row] for row in order]
    source = from_file(tmp_path / "brain.h5", three)
    for layer in source.layers:
        np.testing.assert_array_equal(source[layer], V1)
    with h5py.File(tmp_path / "brain.h5", "a") as file:
        file["a/previous"] = [names[row] for row in (0, 2, 1)]
    with refused("array a/names of brain.h5", "array a/previous of brain.h5", "different rows"):
        from_file(tmp_path / "brain.h5", three)


# Reads 40 named rows in a process of its own, and prints by how much its memory grew at most. What
# getrusage gives begins with the memory of the process that started it.
READ_ROWS = """
import re, sys
from pathlib import Path
from helpers.tiny import sentence_stimuli
from mlem_core.representations.arrays import from_file
stimuli = sentence_stimuli([f"Item {place}." for place in range(40)])
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
before = peak()
layer = from_file(sys.argv[1], stimuli, rows=sys.argv[2])[0]
assert layer.shape[0] == 40 and (layer.T == range(40)).all()
print(peak() - before)
"""


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


def kilobytes_to_read(path, rows=""):
    around = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))}
    return int(output_of(sys.executable, "-c", READ_ROWS, str(path), str(rows), env=around))


def names_of_rows(n):
    """40 random rows, in the order of the stimuli, and a name for each of n rows."""
    rows = np.random.default_rng(1).permutation(n)[:40]
    names = np.array([f"other {row}" for row in range(n)], dtype=object)
    names[rows] = [f"Item {place}." for place in range(len(rows))]
    return rows, names


@needs_proc
@pytest.mark.slow
def test_rows_of_a_large_file_are_read_and_no_others(tmp_path):
    """Of a file of 20 GB with numbers in few places."""
    path, n, width = tmp_path / "large.h5", 500_000, 5_000
    rows, names = names_of_rows(n)
    with h5py.File(path, "w") as file:
        shape = (n, width)
        large = file.create_dataset("V1", shape, "f8", chunks=(50, width), compression="gzip")
        for place, row in enumerate(rows):
            large[row] = place
        file["names"] = names
    assert n * width * 8 == 2e10
    assert kilobytes_to_read(path) < 600_000


@needs_proc
@pytest.mark.slow
@for_each("kind", "npy", "h5", "packed")
def test_memory_stays_below_half_of_a_file(tmp_path, kind):
    n, width = 40_000, 2_000
    rows, names = names_of_rows(n)
    numbers = np.random.default_rng(2).integers(0, 2**15, (n, width)).astype(np.float32)
    numbers[rows] = np.arange(40)[:, None]
    path, table = tmp_path / f"V1.{kind.replace('packed', 'h5')}", tmp_path / "rows.csv"
    table.write_text("\n".join(["sentence", *names]))
    if kind == "npy":
        np.save(path, numbers)
    else:
        how = {"chunks": (50, width), "compression": "lzf"} if kind == "packed" else {}
        with h5py.File(path, "w") as file:
            file.create_dataset("V1", data=numbers, **how)
    assert numbers.nbytes == 3.2e8
    assert kilobytes_to_read(path, table) * 1024 < numbers.nbytes / 2


@for_each("subject", 1, 2)
def test_trials_of_several_subjects_and_sessions_by_a_table(tmp_path, three, subject):
    names = ["A cat.", "A dog.", "She runs."]
    trials = [(s, run, k) for s in ("s1", "s2") for run in (1, 2) for k in RANDOM.permutation(3)]
    responses = RANDOM.normal(size=(len(trials), 4))
    with h5py.File(tmp_path / "responses.h5", "w") as file:
        file.create_dataset("betas", data=responses, chunks=(2, 4))
    table = tmp_path / "trials.csv"
    lines = [f"{s},{run},{names[k]}" for s, run, k in trials]
    table.write_text("\n".join(["subject,session,stimulus", *lines]))
    how = {"rows": str(table)}
    source = from_file(tmp_path / "responses.h5", three, subject=subject, repetitions=True, **how)
    for run in (1, 2):
        rows = [trials.index((f"s{subject}", run, k)) for k in range(3)]
        np.testing.assert_array_equal(source[0][run - 1], responses[rows])
    assert any("2 sessions" in note for note in source.notes)
    assert n_subjects(tmp_path / "responses.h5", **how) == 2
    with refused("responses.h5", "2 subjects", "s1", "--subject NAME=all"):
        from_file(tmp_path / "responses.h5", three, **how)
    table.write_text("\n".join(["stimulus", *names]))
    with refused("array betas of responses.h5 has 12 rows", "column 'stimulus'", "names 3"):
        from_file(tmp_path / "responses.h5", three, **how)
    table.write_text("\n".join(["stimulus", *"abcdefghijkl"]))
    with refused("no column of trials.csv", "responses.h5"):
        from_file(tmp_path / "responses.h5", three, **how)


def test_trials_of_many_sessions_as_things_has_them(tmp_path):
    """Voxels by trials, with tables of both: the commands of docs/brain.md."""
    train, test = [f"train {k}" for k in range(24)], [f"test {k}" for k in range(12)]
    trials = pd.DataFrame(
        [(s, 1 + k % 2, kind, name)
         for s in (1, 2, 3)
         for kind, names in (("train", train[s - 1 :: 3]), ("test", test))
         for k, name in enumerate(RANDOM.permutation(names))],
        columns=["session", "run", "trial_type", "stimulus"],
    )  # fmt: skip
    trials.to_csv(tmp_path / "stimulus-metadata.csv", index=False)
    responses = RANDOM.normal(size=(50, len(trials)))
    in_roi = RANDOM.random(50) < 0.5
    with h5py.File(tmp_path / "brain.h5", "w") as file:
        file["V1"] = responses[in_roi].T
    how = {"rows": str(tmp_path / "stimulus-metadata.csv")}
    every = sentence_stimuli([*train, *test])
    source = from_file(tmp_path / "brain.h5", every, **how)
    means = pd.DataFrame(responses[in_roi].T).groupby(trials["stimulus"].to_numpy()).mean()
    np.testing.assert_allclose(source[0], means.loc[[*train, *test]])
    assert any("1 to 3 rows of each stimulus" in note for note in source.notes)
    tests = from_file(tmp_path / "brain.h5", sentence_stimuli(test), repetitions=True, **how)
    assert tests[0].shape == (3, 12, in_roi.sum())
    with h5py.File(tmp_path / "turned.h5", "w") as file:
        file["betas"] = responses
    with refused("turned.h5 has 50 rows", "names 60", "transpose the array"):
        from_file(tmp_path / "turned.h5", every, **how)
    with h5py.File(tmp_path / "responses.h5", "w") as file:
        # As pandas writes a DataFrame with PyTables.
        table = file.create_group("ResponseData")
        table.attrs["pandas_type"] = b"frame"
        table["axis0"], table["block0_values"] = [str(k) for k in range(60)], responses
    with refused("responses.h5 is a table of pandas (ResponseData)", "pandas.read_hdf"):
        from_file(tmp_path / "responses.h5", every, **how)
    # Texts that are as many as no rows, beside those that name them.
    with h5py.File(tmp_path / "brain.h5", "a") as file:
        file["session"] = ["1", "2", "3"]
    assert from_file(tmp_path / "brain.h5", every, **how).notes == source.notes


def test_what_is_no_array_of_hdf5_is_refused(tmp_path, three):
    path = tmp_path / "brain.h5"
    path.write_bytes(b"a text, no recording")
    with refused("brain.h5", "damaged or no .h5 file"):
        from_file(path, three)
    raw = tmp_path / "secret"
    raw.write_bytes(V1.tobytes())
    contents = (
        ({"external": [(str(raw), 0, V1.nbytes)], "shape": V1.shape, "dtype": "f8"}, "other files"),
        ({"data": V1 + 1j}, "complex"),
        ({"data": np.zeros((3, 4), [("a", "f8")])}, "[('a', '<f8')]"),
    )
    for content, fact in contents:
        with h5py.File(path, "w") as file:
            file.create_dataset("V1", **content)
        with refused("array V1 of brain.h5", fact):
            from_file(path, three)
