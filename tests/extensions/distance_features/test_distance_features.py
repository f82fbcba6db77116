"""Features that are given by distances: vectors, and matrices of files."""

import numpy as np
import pandas as pd
import pytest
from helpers.inputs import for_each, refused
from scipy.spatial.distance import pdist, squareform

from mlem_core.analysis.source import StimulusSource
from mlem_core.extensions.distance_features.features import euclidean, with_rdm, with_vector
from mlem_core.stimuli.saved_stimuli import RDMS, STIMULI, read_saved, save_stimuli
from mlem_core.stimuli.stimulus_csv import from_frame, write_csv

N = 12


def stimuli(n=N):
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((n, 3)).round(3)
    return from_frame(
        pd.DataFrame(
            {
                "sentence": [f"the animal number{row} runs" for row in range(n)],
                "item": [f"item{row % 4}" for row in range(n)],
                "noun": rng.choice(["a", "b"], n),
                "s1": vectors[:, 0],
                "s2": vectors[:, 1],
                "s3": vectors[:, 2],
            }
        ),
        "made up",
    )


def square(n=N, seed=0):
    return squareform(pdist(np.random.default_rng(seed).standard_normal((n, 4))))


def repetition_distances(found, name):
    """(n, n) of the stimuli, those without a value as NaN."""
    own, cells = found.rdms[name], found.values(name)
    full = np.full((len(found), len(found)), np.nan)
    for i, a in enumerate(cells):
        for j, b in enumerate(cells):
            if a is not None and b is not None:
                full[i, j] = own.distances[own.values.index(a), own.values.index(b)]
    return full


def test_a_vector_has_euclidean_distances_and_its_columns_are_carried_along():
    given = stimuli()
    found = with_vector(given, "semantics", "s1,s2,s3")
    assert [(f.name, f.kind) for f in found.features] == [
        ("noun", "nominal"),
        ("semantics", "vector"),
    ]
    assert {"_s1", "_s2", "_s3"} <= set(found.table)
    numbers = np.stack([given.values(name) for name in ("s1", "s2", "s3")], axis=1)
    expected = squareform(pdist(numbers))
    np.testing.assert_allclose(repetition_distances(found, "semantics"), expected, rtol=1e-12)
    assert with_vector(given, "semantics", ["s*"]).digest == found.digest != given.digest


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_euclidean_distances_of_any_size(size):
    vectors = np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
    expected = np.array([[0, 5, 10], [5, 0, 5], [10, 5, 0]]) * size
    np.testing.assert_allclose(euclidean(vectors * size), expected, rtol=1e-14)


@for_each("form", "npy", "condensed", "csv", "semicolons", "savetxt", "row", "array")
def test_an_rdm_in_the_order_of_the_stimuli(form, tmp_path):
    expected, flat = square(), square()[np.triu_indices(N, 1)]
    path = tmp_path / ("rdm.npy" if form in ("npy", "condensed") else "rdm.csv")
    if form == "npy":
        np.save(path, expected)
    elif form == "condensed":
        np.save(path, flat)
    elif form == "csv":
        path.write_text("\n".join(",".join(map(repr, row)) for row in expected.tolist()))
    elif form == "semicolons":
        rows = [";".join(map(repr, row)).replace(".", ",") for row in expected.tolist()]
        path.write_text("\n".join(rows))
    elif form == "savetxt":
        np.savetxt(path, expected)
    elif form == "row":
        path.write_text("\n".join(map(repr, flat.tolist())))
    found = with_rdm(stimuli(), "own", expected if form == "array" else path)
    assert found.features[-1].kind == "rdm"
    np.testing.assert_allclose(repetition_distances(found, "own"), expected, atol=1e-12)


@pytest.mark.parametrize("corner", ["", "item"])
def test_an_rdm_of_named_rows_in_any_order(corner, tmp_path):
    names = ["item2", "item0", "other", "item3", "item1"]
    expected = square(5)
    frame = pd.DataFrame(expected, index=names, columns=names).sample(frac=1, random_state=0)
    frame.to_csv(tmp_path / "own.csv", index_label=corner)
    given = stimuli()
    found = with_rdm(given, "own", tmp_path / "own.csv")
    at = [names.index(f"item{row % 4}") for row in range(N)]
    np.testing.assert_allclose(
        repetition_distances(found, "own"), expected[np.ix_(at, at)], atol=1e-12
    )
    assert with_rdm(given, "own", expected, names).digest == found.digest


def changed(row, column, value, both=True):
    found = square()
    found[row, column] = value
    if both:
        found[column, row] = value
    return found


@for_each(
    "distances, fact",
    (square(N - 1), "has 11 rows, but there are 12 stimuli"),
    (changed(2, 4, np.nan), "has nan in row 3, column 5"),
    (changed(2, 4, -0.5), "has -0.5 in row 3, column 5"),
    (changed(2, 4, 9.0, both=False), "has 9 in row 3, column 5 and is not symmetric"),
    (1 - square() / square().max(), "is largest on its diagonal (1)"),
    (np.zeros((N, N)), "the largest distance of the RDM of 'own' is 0"),
)
def test_what_is_wrong_with_an_rdm_is_said_with_its_place(distances, fact):
    with refused(fact):
        with_rdm(stimuli(), "own", distances)


@for_each(
    "text, facts",
    ("0,1\n1,0,2", ("row 2", "3 cells")),
    (",a,b\na,0,\nb,1,0", ("empty cell", "row 2, column 3")),
    (",a,b\na,0,1\nc,1,0", ("1 row and 0 columns", "'c'")),
    (",a,a\na,0,1\na,1,0", ("2 rows", "'a'")),
    (",item0,item1\nitem0,0,1\nitem1,1,0", ("'item2'", "row 3")),
    ("0,1\n0,4\n1,0\n", ("3 × 2", "square")),  # as pandas writes its columns
    ("", ("empty",)),
    ("0,nan\nnan,0", ("nan", "row 1, column 2")),
    ("0,१\n१,0", ("'१'", "row 1, column 2")),
    ("0;1.234\n1.234;0,0", ("points", "commas")),
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(text, facts, tmp_path):
    (tmp_path / "own.csv").write_text(text)
    with refused("own.csv", *facts):
        with_rdm(stimuli(), "own", tmp_path / "own.csv")


def test_no_pickle_is_opened_and_other_files_are_refused(tmp_path):
    np.save(tmp_path / "own.npy", np.array([{}], dtype=object), allow_pickle=True)
    cases = {"own.npy": "pickled", "none.npy": "cannot be read", "own.mat": ".npy"}
    for name, fact in cases.items():
        with refused(name, fact):
            with_rdm(stimuli(), "own", tmp_path / name)


def test_a_selection_of_the_stimuli_keeps_the_distances_and_the_digest_tells_them_apart():
    given = stimuli()
    found, other = (with_rdm(given, "own", square(seed=seed)) for seed in (0, 1))
    assert found.digest != other.digest
    assert found.select(["noun"]).digest == other.select(["noun"]).digest
    np.testing.assert_array_equal(
        repetition_distances(found[2:7], "own"), repetition_distances(found, "own")[2:7, 2:7]
    )


def test_what_is_written_is_read_again(tmp_path):
    found = with_rdm(with_vector(stimuli(), "semantics", "s*"), "own", square())
    save_stimuli(found, tmp_path)
    kinds = {feature.name: feature.kind for feature in found.features}
    again = read_saved(tmp_path / STIMULI, kinds, found.name)
    assert again.digest == found.digest and again.features == found.features
    (tmp_path / RDMS).unlink()
    with refused("'semantics'"):
        read_saved(tmp_path / STIMULI, kinds, found.name)


def test_a_source_reads_them_and_sees_that_a_file_has_changed(tmp_path):
    write_csv(stimuli(), tmp_path / "words.csv")
    np.save(tmp_path / "own.npy", square())
    source = StimulusSource(
        str(tmp_path / "words.csv"),
        vectors=["semantics=s1,s2"],
        rdms={"own": str(tmp_path / "own.npy")},
    )
    found = source.load_stimuli()
    kinds = {feature.name: feature.kind for feature in found.features}
    assert kinds == {"noun": "nominal", "s3": "ordered", "semantics": "vector", "own": "rdm"}
    np.save(tmp_path / "own.npy", 2 * square(seed=1)[:, ::-1][::-1])
    assert source.load_stimuli().digest != found.digest
    for text in ("semantics", "=s1", "semantics="):
        with refused("NAME=COLUMN"):
            StimulusSource(vectors=[text])
        with refused("NAME=FILE"):
            StimulusSource(rdms=[text])
