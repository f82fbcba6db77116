"""Tables, workbooks, treebanks from outside: read as they are meant, with a notice, or refused."""

from itertools import chain, islice

import hostile_tables
import hostile_treebanks
import hostile_workbooks
import numpy as np
import pandas as pd
import pytest
from feeding import Found, feed

from mlem_core.analysis.diagnostics import lint
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.text import short

# What `lint` says of a column because of how its values are related is said of any good one too.
ABOUT_CELLS = ("identifier", "duplicates", "missing", "range")
LINTED: dict[str, str] = {}  # by the digest of stimuli: many files hold the same


def differences(stimuli, meant, more):
    """The columns that are not as they are meant; `more` features than those there may be."""
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
    wrong += sorted((set() if more else features - set(truth)) | (set(truth) - features))
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
    return Found(said, lambda meant: differences(stimuli, meant, path.suffix == ".conllu"))


def files(what, seed, n_damaged):
    """All files; those that are damaged are the last."""
    if what == "treebanks":
        made = hostile_treebanks
        return chain(made.changed(seed), made.damages(seed, n_damaged))
    made, sheet = hostile_tables, hostile_tables.plain(False, seed)
    return chain(
        made.changed(seed), made.files(seed), hostile_workbooks.workbooks(sheet.grid, sheet.truth),
        made.disguises(), made.odd(),
        made.damages(seed, n_damaged),
    )  # fmt: skip


@pytest.mark.parametrize(("what", "step"), [("tables", 23), ("treebanks", 9)])
def test_some_files(what, step, tmp_path, monkeypatch):
    fates = feed(islice(files(what, 1, 80), 0, None, step), read, tmp_path, monkeypatch)
    fates.none_fails()
    assert min(fates.counts[fate] for fate in ("result", "noticed", "refused")) > 2, fates


@pytest.mark.faults
@pytest.mark.parametrize(("what", "n_damaged"), [("tables", 1_200), ("treebanks", 400)])
def test_all_files(what, n_damaged, tmp_path, monkeypatch, capsys):
    more = hostile_workbooks.swelling(hostile_tables.plain(True, 0).grid)
    every = chain(files(what, 2, n_damaged), more if what == "tables" else ())
    feed(every, read, tmp_path, monkeypatch).none_fails(what, capsys)
