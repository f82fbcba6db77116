"""Files that mean something: read as they are meant, or with a notice, or refused in a sentence."""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from feeding import MOST_BYTES, MOST_SECONDS, no_sentence
from second_tables import Meant, plain, tables
from second_treebanks import treebanks
from second_workbooks import workbooks

from mlem_core.analysis.diagnostics import lint
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.text import short, visible
from mlem_core.cli.commands import main
from mlem_core.data.stimuli import StimulusSet
from mlem_core.data.stimulus_table import read_written

# What `lint` says of a column because of how its values are related is said of any good one too.
ABOUT_CELLS = ("identifier", "duplicates", "missing", "range")


def differences(stimuli: StimulusSet, meant: Meant) -> list[str]:
    """The columns that are not as they are meant."""
    wrong = []
    truth = {**meant.truth}
    if stimuli.sentences != truth.pop("sentence"):
        wrong.append("sentence")
    words = truth.pop("word", None)
    if words and (stimuli.level != "word" or stimuli.words != words):
        wrong.append("word")
    ids = truth.pop("sentence_id", None)
    if ids and stimuli.groups.tolist() != pd.factorize(np.array(ids))[0].tolist():
        wrong.append("sentence_id")
    features = {feature.name for feature in stimuli.features}
    more = features - set(truth) if meant.suffix != ".conllu" else set()
    wrong += sorted(more | (set(truth) - features))
    for name in set(truth) & features:
        own = [None if pd.isna(x) else x for x in stimuli.values(name)]
        same = len(own) == len(truth[name]) and all(
            type(a) is type(b) and a == b if isinstance(b, str) or b is None
            else not isinstance(a, str) and a is not None and float(a) == float(b)
            for a, b in zip(own, truth[name], strict=False)
        )  # fmt: skip
        wrong += [] if same else [name]
    return wrong


def fate_of(meant: Meant, path: Path) -> tuple[str, str]:
    """What became of a file (result, noticed, refused), or of what class its failure is."""
    try:
        stimuli = AnalysisSpec(stimuli=str(path)).load_stimuli()
        findings = [
            f for f in lint(stimuli).findings if f.kind in ABOUT_CELLS or f.severity == "problem"
        ]
    except InputError as error:
        wrong = no_sentence(str(error)) or (meant.fate == "read" and f"refused: {error}")
        return ("wrong", str(wrong)) if wrong else ("refused", str(error))
    except Exception as error:
        return "traceback", f"{type(error).__name__}: {error}"
    rows = [f"row {row}" for finding in findings for row in finding.rows]
    said = "\n".join([*stimuli.notes, *(f.sentence for f in findings), *rows])
    if meant.fate == "refused":
        return "wrong", f"was read: {said}"
    differ = differences(stimuli, meant)
    named = meant.says or tuple(map(short, differ))
    silent = [name for name in named if name.casefold() not in said.casefold()]
    if silent:
        return "silent", f"{silent} of {sorted(named)}; said: {said}"
    return ("noticed" if named else "result"), said


def feed(files: Iterable[Meant], folder: Path) -> tuple[Counter[str], list[str]]:
    """How many files came to what, and the failures."""
    counts, failures = Counter[str](), []
    for number, meant in enumerate(files):
        path = folder / f"{number}{meant.suffix}"
        path.write_bytes(meant.data)
        begun, had = time.monotonic(), peak()
        fate, why = fate_of(meant, path)
        if time.monotonic() - begun > MOST_SECONDS or peak() - had > MOST_BYTES:
            fate, why = "slow", f"{time.monotonic() - begun:.0f} s, {peak() - had:,} bytes"
        counts[fate] += 1
        if fate not in ("result", "noticed", "refused"):
            failures.append(f"{fate}: {meant.name}: {why}")
    return counts, failures


def peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def all_files(what: str, seed: int) -> list[Meant]:
    if what == "treebanks":
        return list(treebanks(seed))
    return [*tables(seed), *workbooks(plain(False, seed))]


@pytest.mark.parametrize(("what", "step"), [("tables", 9), ("treebanks", 11)])
def test_some_files_are_read_as_they_are_meant(tmp_path, what, step):
    counts, failures = feed(all_files(what, 1)[::step], tmp_path)
    assert not failures
    assert min(counts[fate] for fate in ("result", "noticed", "refused")) > 2, counts


@pytest.mark.faults
@pytest.mark.parametrize("what", ["tables", "treebanks"])
def test_all_files_are_read_as_they_are_meant(tmp_path, capsys, what):
    counts, failures = feed(all_files(what, 2), tmp_path)
    with capsys.disabled():
        print(f"\nsecond round of {what}: {counts.total()} files: {dict(counts)}")
    assert not failures


@pytest.mark.faults
def test_the_command_line_says_the_same(tmp_path, capsys):
    """`lint` and `stimuli` end with a result or one sentence, and what is written is read again."""
    for number, meant in enumerate([*all_files("tables", 3)[::7], *all_files("treebanks", 3)[::9]]):
        path, out = tmp_path / f"{number}{meant.suffix}", tmp_path / f"{number}-out.csv"
        path.write_bytes(meant.data)
        try:
            expected = AnalysisSpec(stimuli=str(path)).load_stimuli()
        except InputError as error:
            assert main(["stimuli", str(path), "--out", str(out)]) == 2
            assert str(error) in capsys.readouterr().err and not out.exists()
            continue
        assert main(["stimuli", str(path), "--out", str(out)]) in (0, None)
        said = capsys.readouterr().err
        assert all(visible(note) in said for note in expected.notes), meant.name
        assert read_written(out).sentences == expected.sentences, meant.name
        assert main(["lint", "--stimuli", str(path)]) in (0, None)
        capsys.readouterr()
