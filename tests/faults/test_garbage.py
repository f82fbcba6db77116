"""What can be read but can hardly be meant is said, with the row, the number and the choice."""

import numpy as np
import pandas as pd
import pytest
from inputs import refused
from tiny import sentence_stimuli, word_stimuli

from mlem_core import from_frame, read_csv
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.models.loading import open_model
from mlem_core.models.tokens import tokenize
from mlem_core.storage.store import Store

N = 40


def table(**columns):
    frame = pd.DataFrame({"sentence": [f"sentence {i} here" for i in range(N)], **columns})
    return frame.to_csv(index=False).encode()


def numbers(**cells):
    values = [str(i % 9) for i in range(N)]
    for place, cell in cells.items():
        values[int(place[1:])] = cell
    return values


@pytest.mark.parametrize("cell", ["TRUE", "5%", "1,000", "3 000", "x", "0x10", "1_0", "12 ms"])
def test_a_cell_that_makes_a_column_of_numbers_nominal_is_said(cell):
    found = read_csv(table(freq=numbers(r4=cell)))
    assert found.features[0].kind == "nominal"
    (note,) = [note for note in found.notes if "'freq'" in note]
    assert repr(cell) in note and "row 5" in note
    assert not read_csv(table(freq=numbers(r4=cell)), nominal=["freq"]).notes
    with refused("row 5", "number", repr(cell)):
        read_csv(table(freq=numbers(r4=cell)), ordered=["freq"])


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
    [(0, "<f4", 0), (1e3, "<f8", 0), (1e12, "<f8", 0), (1e14, "<f8", 1), (1e12, "<f4", 2),
     (1e6, "<f4", 1), (1e3, "<f4", 0)],
)  # fmt: skip
def test_an_offset_that_leaves_hardly_any_digits_is_said(tmp_path, offset, kind, said):
    rng = np.random.default_rng(0)
    layer = (0.1 * rng.normal(size=(N, 6)) + offset).astype(kind)
    np.savez(tmp_path / "far.npz", layer_00=layer, layer_01=rng.normal(size=(N, 6)))
    rows = {"sentence": [f"sentence {i} here" for i in range(N)], "x": numbers()}
    stimuli = from_frame(pd.DataFrame(rows), "rows")
    spec = AnalysisSpec(representations=(("far", str(tmp_path / "far.npz")),), folds=3)
    found = run(spec, Store(tmp_path / "store", overlays=()), False, stimuli)
    its = ("Array layer_00 of far.npz", "far layer 0")
    notes = [notice for notice in found.notices if notice.startswith(its)]
    assert len(notes) == (said > 0), notes
    if said == 1:
        assert "far from 0" in notes[0]
    if said == 2:
        assert "alike" in notes[0]
