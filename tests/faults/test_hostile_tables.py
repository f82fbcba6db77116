"""Tables, workbooks and treebanks from outside: read rightly or refused in one sentence."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import hostile_tables
import numpy as np
import pytest
from feeding import feed, no_sentence, none_fails
from hostile_tables import BANK, PLAIN
from hypothesis import given, settings
from hypothesis import strategies as st

from mlem_core.analysis.diagnostics import lint
from mlem_core.base.errors import InputError
from mlem_core.data.stimuli import StimulusSet
from mlem_core.data.stimulus_csv import read_csv
from mlem_core.data.treebank import read_treebank

LOOKED_AT: set[str] = set()  # of most files it is the same


class Read:
    """Stimuli as they were read; equal where the columns hold the same, in whatever order."""

    def __init__(self, stimuli: StimulusSet) -> None:
        self.stimuli = stimuli

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Read)
        ours, theirs = self.stimuli, other.stimuli
        if {f.name: f.kind for f in ours.features} != {f.name: f.kind for f in theirs.features}:
            return False
        same = ours.sentences == theirs.sentences and ours.level == theirs.level
        return same and all(
            np.array_equal(ours.table[name].isna(), theirs.table[name].isna())
            and ours.table[name].dropna().tolist() == theirs.table[name].dropna().tolist()
            for name in theirs.table
        )


def read(path: Path) -> Read:
    """The stimuli, looked at as the form looks at them before a run."""
    sentences = path.suffix == ".conllu"
    stimuli = read_treebank([path]) if sentences else read_csv(path)
    for note in stimuli.notes:
        assert len(note.splitlines()) == 1, note
    assert len(stimuli) >= 2 and stimuli.features
    if len(stimuli) < 200 and stimuli.digest not in LOOKED_AT:
        LOOKED_AT.add(stimuli.digest)
        lint(stimuli)
    return Read(stimuli)


TABLE, TREEBANK = Read(read_csv(PLAIN)), Read(read_treebank([BANK.encode()]))


def everything(n_damaged: int, seed: int) -> dict[str, list[hostile_tables.Hostile]]:
    """Files by what they are compared with."""
    files = chain(
        hostile_tables.disguises(), hostile_tables.odd(), hostile_tables.treebanks(),
        hostile_tables.damages(seed, n_damaged),
    )  # fmt: skip
    by: dict[str, list[hostile_tables.Hostile]] = {"tables": [], "treebanks": []}
    for file in files:
        by["treebanks" if file.suffix == ".conllu" else "tables"].append(file)
    return by


@pytest.mark.parametrize("what", ["tables", "treebanks"])
def test_some_files(tmp_path, monkeypatch, what):
    plain, step = {"tables": (TABLE, 9), "treebanks": (TREEBANK, 3)}[what]
    some = everything(80, 0)[what][::step]
    fates = feed(some, read, plain, tmp_path, monkeypatch)
    assert not fates.failures, (fates.line(), *fates.failures)
    assert fates.results > 20 and fates.refused > 5


@pytest.mark.faults
@pytest.mark.parametrize("what", ["tables", "treebanks"])
def test_all_files(tmp_path, monkeypatch, capsys, what):
    plain = {"tables": TABLE, "treebanks": TREEBANK}[what]
    files = everything(1_600, 1)[what]
    if what == "tables":
        files += hostile_tables.swelling()
    fates = feed(files, read, plain, tmp_path, monkeypatch)
    none_fails(fates, what, capsys)


@settings(max_examples=60)
@given(
    name=st.sampled_from([".csv", ".conllu"]),
    edits=st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=5)), min_size=1, max_size=4),
)
def test_any_edit_of_a_file_is_read_or_said(name, edits):
    data = bytearray(PLAIN if name == ".csv" else BANK.encode())
    for at, new in edits:
        data[at : at + len(new)] = new
    try:
        read_csv(bytes(data)) if name == ".csv" else read_treebank([bytes(data)])
    except InputError as error:
        assert not no_sentence(str(error))
