"""Files from outside: read as they are meant, with a notice of what is hardly meant, or refused."""

from functools import partial
from itertools import chain, islice

import numpy as np
import pandas as pd
import pytest
from helpers import (
    hostile_arrays,
    hostile_matrices,
    hostile_tables,
    hostile_workbooks,
)
from helpers.damaging import damaged_bytes
from helpers.feeding import Found, Hostile, feed, no_sentence
from helpers.hostile_arrays import N, Part
from helpers.hostile_matrices import same_order
from helpers.inputs import refused
from helpers.tiny import sentence_stimuli, word_stimuli

from mlem_core import AnalysisSpec, InputError, Store, from_frame, run
from mlem_core.analysis.diagnostics import lint
from mlem_core.base.text import short
from mlem_core.pairs.distances import PRECOMPUTED, squared_distances
from mlem_core.representations.arrays import from_file
from mlem_core.representations.loading import open_model
from mlem_core.representations.tokens import tokenize
from mlem_core.stimuli.datasets import SETS

# What `lint` says of a column because of how its values are related is said of any good one too.
ABOUT_CELLS = ("identifier", "duplicates", "missing", "range")
LINTED: dict[str, str] = {}  # by the digest of stimuli: many files hold the same


def differences(stimuli, meant):
    """The columns that are not as they are meant."""
    wrong = []
    truth = {**meant}
    if stimuli.sentences != truth.pop("sentence"):
        wrong.append("sentence")
    words = truth.pop("word", None)
    if words and (stimuli.level != "word" or stimuli.words != words):
        wrong.append("word")
    ids = truth.pop("sentence_id", None)
    if ids and stimuli.groups.tolist() != pd.factorize(np.array(ids))[0].tolist():
        wrong.append("sentence_id")
    features = {feature.name for feature in stimuli.features}
    wrong += sorted(features ^ set(truth))
    for name in set(truth) & features:
        own = [None if pd.isna(x) else x for x in stimuli.values(name)]
        same = len(own) == len(truth[name]) and all(
            type(a) is type(b) and a == b if isinstance(b, str) or b is None
            else not isinstance(a, str) and a is not None and float(a) == float(b)
            for a, b in zip(own, truth[name], strict=False)
        )  # fmt: skip
        wrong += [] if same else [name]
    return [short(name) for name in wrong]


def linted(stimuli):
    """What the form says of the cells before a run."""
    if stimuli.digest not in LINTED:
        found = [
            one for one in lint(stimuli).findings
            if one.kind in ABOUT_CELLS or one.severity == "problem"
        ]  # fmt: skip
        rows = [f"row {row}" for one in found for row in one.rows]
        LINTED[stimuli.digest] = "\n".join([*(one.sentence for one in found), *rows])
    return LINTED[stimuli.digest]


def read(path):
    stimuli = AnalysisSpec(stimuli=str(path)).load_stimuli()
    for note in stimuli.notes:
        assert len(note.splitlines()) == 1, note
    assert len(stimuli) >= 2 and stimuli.features
    said = "\n".join([*stimuli.notes, linted(stimuli) if len(stimuli) < 1_000 else ""]).strip()
    return Found(said, lambda meant: differences(stimuli, meant))


def treebanks(seed, n):
    """Sentences of the shipped treebank with bytes changed."""
    blocks = SETS["treebank"].file.read_text("utf-8").split("\n\n")[:8]
    good, pieces = {".conllu": ["\n\n".join([*blocks, ""]).encode()]}, ("\0", "\t", "1-2", "\u2028")
    for name, suffix, data in damaged_bytes(good, seed, n, [*map(str.encode, pieces)]):
        yield Hostile(name, suffix, data, fate="any")


def tables(seed, n_damaged):
    """All tables; those that are damaged are the last."""
    sheet = hostile_tables.plain(False, seed)
    workbooks = hostile_workbooks.workbooks(sheet.grid, sheet.truth)
    return chain(
        hostile_tables.changed(seed), hostile_tables.files(seed), workbooks, hostile_tables.odd(),
        hostile_tables.damages(seed, n_damaged),
    )  # fmt: skip


def test_some_files(tmp_path, monkeypatch):
    files = chain(islice(tables(1, 80), 0, None, 21), treebanks(1, 15))
    fates = feed(files, read, tmp_path, monkeypatch)
    fates.none_fails()
    assert min(fates.counts[fate] for fate in ("result", "noticed", "refused")) > 2, fates


@pytest.mark.faults
@pytest.mark.parametrize(("what", "n_damaged"), [("tables", 1_200), ("treebanks", 400)])
def test_all_files(what, n_damaged, tmp_path, monkeypatch, capsys):
    files = treebanks(2, n_damaged)
    if what == "tables":
        swelling = hostile_workbooks.swelling(hostile_tables.plain(True, 0).grid)
        files = chain(tables(2, n_damaged), swelling)
    feed(files, read, tmp_path, monkeypatch).none_fails(what, capsys)


STIMULI = sentence_stimuli([f"Sentence {'x' * i} ends." for i in range(N)])


def other_layers(layers, holds):
    """Something, where layers are others, or missing where they may not be."""
    missing = set() if isinstance(holds, Part) else holds.keys() - layers.keys()
    other = [n for n, array in layers.items() if not np.array_equal(array, holds.get(n))]
    return [""] if missing or other else []


def read_arrays(path):
    source = from_file(path, STIMULI)
    layers = {layer: np.array(source[layer]) for layer in source.layers}
    assert layers
    for array in layers.values():
        assert array.dtype in (np.float32, np.float64), array.dtype
        assert array.shape[0] == N and array.shape[1] > 0 and np.isfinite(array).all()
    said = (*source.left_out, *source.notes)
    assert not any(map(no_sentence, said)), said
    return Found("\n".join(said), partial(other_layers, layers))


def read_distances(path, metric):
    """The distances of the first layer of a file."""
    source = from_file(path, STIMULI, distances=metric == PRECOMPUTED)
    if not source.layers:
        raise InputError(source.left_out[0])
    distances = np.asarray(squared_distances(source[source.layers[0]], metric))
    said = "\n".join((*source.left_out, *source.notes))
    return Found(said, lambda holds: [] if same_order(distances, holds) else [""])


METRICS = ("euclidean", "manhattan", "cosine", "correlation", PRECOMPUTED)


def matrices(seed, metric):
    """Files of distances, or of layers whose distances are known."""
    made = hostile_matrices
    return made.precomputed(seed) if metric == PRECOMPUTED else made.layers(seed, metric)


def test_odd_arrays_and_some_that_are_damaged(tmp_path, monkeypatch):
    made = chain(
        hostile_arrays.any_content(), hostile_arrays.odd(3), hostile_arrays.damages(0, 200)
    )
    fates = feed(made, read_arrays, tmp_path, monkeypatch)
    fates.none_fails()
    assert fates.counts["result"] > 100 and fates.counts["refused"] > 100, fates


@pytest.mark.parametrize("metric", METRICS)
def test_some_matrices_and_layers_of_known_distances(metric, tmp_path, monkeypatch):
    reader = partial(read_distances, metric=metric)
    feed(islice(matrices(7, metric), 0, None, 3), reader, tmp_path, monkeypatch).none_fails()


def test_files_that_would_fill_the_memory_are_refused(tmp_path, monkeypatch):
    fates = feed(hostile_arrays.bombs(), read_arrays, tmp_path, monkeypatch)
    fates.none_fails()
    assert fates.largest[0] < 1e9, fates


@pytest.mark.faults
def test_all_files_of_arrays(tmp_path, monkeypatch, capsys):
    every = chain(*map(hostile_arrays.odd, range(3)), hostile_arrays.damages(1, 3_000))
    feed(every, read_arrays, tmp_path, monkeypatch).none_fails("arrays", capsys)


@pytest.mark.faults
@pytest.mark.parametrize("metric", METRICS)
def test_all_matrices_and_layers_of_known_distances(metric, tmp_path, monkeypatch, capsys):
    reader, made = partial(read_distances, metric=metric), (matrices(n, metric) for n in range(3))
    feed(chain(*made), reader, tmp_path, monkeypatch).none_fails(metric, capsys)


ROWS = 40


@pytest.mark.slow
def test_words_that_a_model_does_not_know_are_counted(tmp_path):
    known = ["the cat sleeps here", "a dog runs there", "she sees him", "the old man sings"] * 3
    some = [f"{text} {'猫' if i < 5 else 'x'} {i}" for i, text in enumerate(known)]
    stimuli = word_stimuli(some, length=[i % 7 for i in range(sum(len(s.split()) for s in some))])
    spec = AnalysisSpec(models=("mini-bert",), layers=(0,), folds=3)
    found = run(spec, Store(tmp_path, overlays=()), False, stimuli)
    (note,) = [notice for notice in found.notices if "token" in notice]
    assert f"5 of {len(stimuli)} stimuli" in note


@pytest.mark.slow
@pytest.mark.parametrize("make", [word_stimuli, sentence_stimuli])
def test_stimuli_of_which_a_model_knows_none_are_refused(make):
    texts = ["猫 在 家裏", "狗 在 外面", "她 跑 得 很快"]
    n = len(make(texts))
    with refused("mini-bert", n):
        tokenize(make(texts), open_model("mini-bert", "cpu"))


@pytest.mark.parametrize(
    ("offset", "kind", "said"),
    [(0, "<f4", 0), (1e3, "<f8", 0), (1e12, "<f8", 0), (1e12, "<f4", 2), (1e3, "<f4", 0)],
)
def test_an_offset_that_leaves_no_digits_is_said(tmp_path, offset, kind, said):
    rng = np.random.default_rng(0)
    layer = (0.1 * rng.normal(size=(ROWS, 6)) + offset).astype(kind)
    np.savez(tmp_path / "far.npz", layer_00=layer, layer_01=rng.normal(size=(ROWS, 6)))
    rows = {
        "sentence": [f"sentence {i} here" for i in range(ROWS)],
        "x": [str(i % 9) for i in range(ROWS)],
    }
    stimuli = from_frame(pd.DataFrame(rows), "rows")
    spec = AnalysisSpec(representations=(("far", str(tmp_path / "far.npz")),), folds=3)
    found = run(spec, Store(tmp_path / "store", overlays=()), False, stimuli)
    its = ("Array layer_00 of far.npz", "far layer 0")
    notes = [notice for notice in found.notices if notice.startswith(its)]
    assert len(notes) == (said > 0), notes
    if said == 2:
        assert "the same distance" in notes[0]
