from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from inputs import refused
from scipy.spatial.distance import pdist, squareform

from mlem_core.analysis.source import StimulusSource
from mlem_core.data.given import euclidean, read_kept, save_rdms, with_rdm, with_vector
from mlem_core.data.reading.rdm_file import read_rdm
from mlem_core.data.stimulus_csv import from_frame, write_csv

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


def distances_of(found, name):
    """(n, n) of the stimuli, those without a value as NaN."""
    own, cells = found.rdms[name], found.values(name)
    full = np.full((len(found), len(found)), np.nan)
    for i, a in enumerate(cells):
        for j, b in enumerate(cells):
            if a is not None and b is not None:
                full[i, j] = own.distances[own.places[a], own.places[b]]
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
    np.testing.assert_allclose(distances_of(found, "semantics"), expected, rtol=1e-12)
    same = with_vector(given, "semantics", ["s*"])
    assert same.digest == found.digest != given.digest


def test_a_vector_lacks_where_one_of_its_numbers_does():
    table = stimuli().table.copy()
    table.loc[3, "s2"] = np.nan
    found = with_vector(from_frame(table, "made up"), "semantics", "s1,s2")
    assert found.values("semantics")[3] is None
    assert sum(value is None for value in found.values("semantics")) == 1


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_euclidean_distances_of_any_size(size):
    vectors = np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
    expected = np.array([[0, 5, 10], [5, 0, 5], [10, 5, 0]]) * size
    np.testing.assert_allclose(euclidean(vectors * size), expected, rtol=1e-14)


@pytest.mark.parametrize(
    "form", ["npy", "condensed", "csv", "semicolons", "savetxt", "row", "array"]
)
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
    np.testing.assert_allclose(distances_of(found, "own"), expected, atol=1e-12)


def test_an_rdm_that_pandas_wrote_with_its_index(tmp_path):
    square = pd.DataFrame(squareform(np.arange(1.0, 7)))
    path = tmp_path / "own.csv"
    for kept, what in (({"header": False}, "column"), ({"index": False}, "row")):
        square.to_csv(path, **kept)
        with refused(f"first {what}", "own.csv", "from 0"):
            read_rdm(path)
    stimuli = from_frame(
        pd.DataFrame({"sentence": list("abcd"), "item": [3, 2, 0, 1], "x": [1, 2, 2, 1]}), "s"
    )
    square.to_csv(path)
    with refused("0 to 3", "'item'", "first cell"):
        with_rdm(stimuli, "r", path)
    square.to_csv(path, index_label="item")
    assert with_rdm(stimuli, "r", path).values("r").tolist() == ["3", "2", "0", "1"]


@pytest.mark.parametrize("corner", ["", "item"])
def test_an_rdm_of_named_rows_in_any_order(corner, tmp_path):
    names = ["item2", "item0", "other", "item3", "item1"]
    expected = square(5)
    frame = pd.DataFrame(expected, index=names, columns=names).sample(frac=1, random_state=0)
    frame.to_csv(tmp_path / "own.csv", index_label=corner)
    given = stimuli()
    found = with_rdm(given, "own", tmp_path / "own.csv")
    at = [names.index(f"item{row % 4}") for row in range(N)]
    np.testing.assert_allclose(distances_of(found, "own"), expected[np.ix_(at, at)], atol=1e-12)
    assert found.rdms["own"].values == ("item2", "item0", "item3", "item1")
    assert "own.csv" in found.notes[0] and "'item'" in found.notes[0]
    same = with_rdm(given, "own", expected, names)
    assert same.digest == found.digest


def test_words_name_the_rows_of_an_rdm_and_an_empty_cell_is_a_missing_value():
    table = pd.DataFrame(
        {
            "sentence": ["dogs run", "dogs run", "cats run", "cats run"],
            "word_index": [0, 1, 0, 1],
            "tag": ["x", None, "y", "y"],
            "long": [1, 2, 3, 4],
        }
    )
    words = from_frame(table, "words")
    named = with_rdm(words, "own", square(3), ["run", "dogs", "cats"])
    assert list(named.values("own")) == ["dogs", "run", "cats", "run"]
    tagged = with_rdm(words, "own", square(2), ["x", "y"])
    assert list(tagged.values("own")) == ["x", None, "y", "y"]


def changed(row, column, value, both=True):
    found = square()
    found[row, column] = value
    if both:
        found[column, row] = value
    return found


@pytest.mark.parametrize(
    ("distances", "fact"),
    [
        (square(N)[:, :5], "12 × 5"),
        (square(N - 1), "has 11 rows, but there are 12 stimuli"),
        (changed(2, 4, np.nan), "has nan in row 3, column 5"),
        (changed(2, 4, np.inf), "has inf in row 3, column 5"),
        (changed(2, 4, -0.5), "has -0.5 in row 3, column 5"),
        (changed(2, 4, 9.0, both=False), "not symmetric: 9 in row 3, column 5"),
        (changed(2, 2, 0.3), "has 0.3 in row 3, column 3, on its diagonal"),
        (np.zeros((N, N)), "the largest distance of the RDM of 'own' is 0"),
    ],
)
def test_what_is_wrong_with_an_rdm_is_said_with_its_place(distances, fact):
    with refused(fact):
        with_rdm(stimuli(), "own", distances)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("0,1\n1,0,2", ("row 2", "3 cells")),
        ("0,1\n1,x", ("'x'", "row 2, column 2")),
        (",a,b\na,0,\nb,1,0", ("empty cell", "row 2, column 3")),
        (",a,b\na,0,1\nc,1,0", ("row 'c'", "column")),
        (",a,a\na,0,1\na,1,0", ("2 rows", "'a'")),
        (",item0,item1\nitem0,0,1\nitem1,1,0", ("'item2'", "row 3")),
        ("0\n1\n2\n3", ("4 numbers in one row",)),
        ("", ("empty",)),
        (",a,b", ("no numbers",)),
        ("0,nan\nnan,0", ("nan", "row 1, column 2")),
        ("0,१\n१,0", ("'१'", "row 1, column 2")),
        ("0;1.234\n1.234;0,0", ("points", "commas")),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(text, facts, tmp_path):
    (tmp_path / "own.csv").write_text(text)
    with refused("own.csv", *facts):
        with_rdm(stimuli(), "own", tmp_path / "own.csv")


def test_no_pickle_is_opened_and_other_files_are_refused(tmp_path):
    np.save(tmp_path / "own.npy", np.array([{}], dtype=object), allow_pickle=True)
    with (tmp_path / "two.npy").open("wb") as file:
        np.save(file, square())
        np.save(file, square())
    np.save(tmp_path / "text.npy", np.array(["a"]))
    cases = {
        "own.npy": "pickled",
        "two.npy": "bytes behind",
        "text.npy": "expected numbers",
        "none.npy": "cannot be read",
        "own.mat": ".npy",
    }
    for name, fact in cases.items():
        with refused(name, fact):
            with_rdm(stimuli(), "own", tmp_path / name)


def test_a_file_of_too_many_rows_is_not_made_square(tmp_path, monkeypatch):
    np.save(tmp_path / "own.npy", np.ones(66))
    monkeypatch.setattr("mlem_core.data.reading.rdm_file.MOST_ROWS", 11)
    with refused("12 rows", "11"):
        with_rdm(stimuli(), "own", tmp_path / "own.npy")
    np.save(tmp_path / "own.npy", np.ones((12, 12), dtype=np.int8))
    with refused("144 numbers", "11 rows"):
        with_rdm(stimuli(), "own", tmp_path / "own.npy")


def test_names_columns_and_sizes_that_cannot_be(monkeypatch):
    given = stimuli()
    for columns, facts in (("s1,s9", ("'semantics'", "'s9'", "s1")), ("noun", ("'noun'",))):
        with refused(*facts):
            with_vector(given, "semantics", columns)
    for name, fact in (("noun", "'noun'"), ("_own", "underscore")):
        with refused(fact):
            with_rdm(given, name, square())
    monkeypatch.setattr("mlem_core.data.given.MOST_VALUES", 11)
    with refused("12 different values", "at most 11"):
        with_rdm(given, "own", square())
    monkeypatch.undo()
    with refused("'semantics'", "ordered"):
        with_vector(given, "semantics", "s1,s2").with_kinds(ordered=["semantics"])


def test_a_selection_of_the_stimuli_keeps_the_distances_and_the_digest_tells_them_apart():
    given = stimuli()
    found, other = (with_rdm(given, "own", square(seed=seed)) for seed in (0, 1))
    assert found.digest != other.digest
    assert found.select(["noun"]).digest == other.select(["noun"]).digest
    np.testing.assert_array_equal(
        distances_of(found[2:7], "own"), distances_of(found, "own")[2:7, 2:7]
    )


def test_what_is_written_is_read_again(tmp_path):
    found = with_rdm(with_vector(stimuli(), "semantics", "s*"), "own", square())
    write_csv(found, tmp_path / "stimuli.csv")
    save_rdms(found, tmp_path / "rdms.npz")
    kinds = {feature.name: feature.kind for feature in found.features}
    again = read_kept(tmp_path / "stimuli.csv", kinds, found.name, tmp_path / "rdms.npz")
    assert again.digest == found.digest and again.features == found.features
    with refused("'semantics'"):
        read_kept(tmp_path / "stimuli.csv", kinds, found.name)
    (tmp_path / "rdms.npz").write_bytes(b"PK no archive")
    with refused("no distances"):
        read_kept(tmp_path / "stimuli.csv", kinds, found.name, tmp_path / "rdms.npz")


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
