"""Capsules with one thing changed: what is another result is found, what is none is not."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import odd_capsules
import pytest
from capsules import contents, sealed, small
from feeding import MOST_SECONDS, no_sentence
from odd_capsules import Files, written

from mlem_core.base.errors import InputError
from mlem_core.report import capsule
from mlem_core.report.compared import compare
from mlem_core.report.verify import Verification, verify

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    """Those of a capsule without drawings, which take most of the time and are not looked at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capsule, "_figure_files", lambda *_: {})
        yield contents(small(tmp_path_factory.mktemp("small")))


class Tried:
    """What became of the capsules: how many of each kind, and what should not have been."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.wrong: list[str] = []

    def verified(self, path: Path, what: str) -> Verification | None:
        """What verify says; None where it is one sentence."""
        begun = time.monotonic()
        try:
            return verify(path)
        except InputError as error:
            if wrong := no_sentence(str(error)):
                self.wrong.append(f"{what}: {wrong}")
        except Exception as error:
            self.wrong.append(f"{what}: {type(error).__name__}: {str(error)[:200]}")
        finally:
            if time.monotonic() - begun > MOST_SECONDS:
                self.wrong.append(f"{what}: took {time.monotonic() - begun:.0f} s")
        return None

    def one(self, kind: str, what: str, path: Path, must: bool | None) -> None:
        """Have a capsule verified: something has to be found, or not (False), or either (None)."""
        n = len(self.wrong)
        said = self.verified(path, f"{kind} {what}")
        found = said is None or not said.same
        self.kinds[kind] += 1
        if must is not None and found != must and len(self.wrong) == n:
            self.wrong.append(f"{kind} {what}: {'found' if found else 'not found'}")

    def done(self, capsys: pytest.CaptureFixture[str]) -> None:
        with capsys.disabled():
            print(f"\ncapsules: {dict(self.kinds)}, {len(self.wrong)} failures")
        assert not self.wrong, self.wrong


def test_values_recorded_with_the_pair_tables(files: Files, tmp_path: Path, capsys) -> None:
    tried, name = Tried(), "pair_tables/analysis.json"
    for what, made, must in list(odd_capsules.recorded(json.loads(files[name])))[::3]:
        path = written(sealed({**files, name: json.dumps(made).encode()}), tmp_path / "x.zip")
        tried.one("recorded", what, path, True if must else None)
    tried.done(capsys)


def test_each_edit_of_each_table(files: Files, capsys) -> None:
    tried = Tried()
    for what, name, data, must in odd_capsules.edited(files, seed=1):
        tried.kinds["table"] += 1
        try:
            found = not compare(name.removeprefix("tables/"), data, files[name]).same
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
            found = True  # verify says that it is no table
        if must is not None and found != must:
            tried.wrong.append(f"{name} {what}: {'found' if found else 'not found'}")
    tried.done(capsys)


def test_each_archive_and_text(files: Files, tmp_path: Path, capsys) -> None:
    tried = Tried()
    for what, data, must in odd_capsules.archives(files):
        path = tmp_path / "x.zip"
        path.write_bytes(data)
        tried.one("archive", what, path, must)
    for kind, edits in (("text", odd_capsules.texts), ("input", odd_capsules.inputs)):
        for what, changed in edits(files):
            if all(files[name] != data for name, data in changed.items()):
                path = written(sealed({**files, **changed}), tmp_path / "x.zip")
                tried.one(kind, what, path, True)
    tried.done(capsys)
