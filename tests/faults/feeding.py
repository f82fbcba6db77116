"""Files fed to a reader, one after the other: each ends in a result or in one sentence."""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mlem_core.base.errors import InputError

MOST_SECONDS, MOST_BYTES = 60.0, 4_000_000_000
LONGEST = 2_000  # characters of a sentence
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\ufeff\ud800-\udfff]")


@dataclass(frozen=True)
class Hostile:
    """A file: how it is called, how it is written, and what a reader may make of it.

    equals : the result has to be that of the plain file ("plain": nothing else will do, "or
        refused": a sentence will, too; "or said": so will another one that says something of
        itself), or may be any ("any"), or has to be a sentence ("refused")
    expected : what is compared in the place of the plain file's result
    """

    name: str
    suffix: str
    write: Callable[[Path], None]
    equals: str = "any"
    kind: str = ""
    expected: Any = None


@dataclass
class Fates:
    """What became of the files: counts of results and sentences, and what should not have been.

    largest : bytes that a reading took beside what the process had before it
    """

    results: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, str] = (0.0, "")
    largest: tuple[int, str] = (0, "")

    def line(self) -> str:
        return (
            f"{self.results + self.refused + len(self.failures)} files: {self.results} results, "
            f"{self.refused} refused in a sentence, {len(self.failures)} failures; slowest "
            f"{self.slowest[0]:.1f} s ({self.slowest[1]}), most memory {self.largest[0] / 1e9:.2f} "
            f"GB ({self.largest[1]})"
        )


def feed(
    files: Iterable[Hostile],
    read: Callable[[Path], Any],
    plain: Any,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Fates:
    """Have every file read, in a folder of its own.

    Parameters
    ----------
    read : what is made of a path; compared with `plain` by ==
    """
    fates, temporary = Fates(), folder / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    for number, file in enumerate(files):
        place = folder / f"{number}"
        place.mkdir()
        path = place / f"hostile{file.suffix}"
        file.write(path)
        there, said = sorted(place.iterdir()), _reset_peak()
        had = _memory("VmRSS")
        begun, wrong = time.monotonic(), ""
        try:
            found = read(path)
        except InputError as error:
            fates.refused += 1
            wrong = no_sentence(str(error))
            if file.equals == "plain":
                wrong = wrong or f"refused: {error}"
        except Exception as error:
            wrong = f"{type(error).__name__}: {str(error)[:300]}"
        else:
            fates.results += 1
            expected = plain if file.expected is None else file.expected
            if file.equals == "refused":
                wrong = "was read"
            elif file.equals == "or said" and found.said:
                pass
            elif file.equals != "any" and found != expected:
                wrong = "was read as something else"
        took, most = time.monotonic() - begun, _memory("VmHWM") - had if said else 0
        fates.slowest = max(fates.slowest, (took, file.name))
        fates.largest = max(fates.largest, (most, file.name))
        if took > MOST_SECONDS or most > MOST_BYTES:
            wrong = wrong or f"took {took:.0f} s and {most / 1e9:.1f} GB"
        if sorted(place.iterdir()) != there or any(temporary.iterdir()):
            wrong = wrong or "left something behind"
        if wrong:
            fates.failures.append(f"{number} {file.name}: {wrong}")
        fates.kinds[file.kind or file.name.split(" ")[0]] += 1
        shutil.rmtree(place)
    return fates


def none_fails(fates: Fates, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Say what became of all files, and fail where one of them did what it should not."""
    with capsys.disabled():
        print(f"\n{what}: {fates.line()}; {dict(fates.kinds)}")
    assert not fates.failures, fates.failures


def no_sentence(text: str) -> str:
    """What keeps a message from being one sentence; "" for nothing."""
    if len(text.splitlines()) != 1 or _UNSEEN.search(text):
        return f"not one printable line: {text[:300]!r}"
    if not text.endswith(".") or not re.search(r"\w", text) or len(text) > LONGEST:
        return f"no sentence of up to {LONGEST} characters: {text[:300]!r}"
    if "Traceback" in text or re.search(r"<\w+ object at 0x", text):
        return f"no words for a user: {text[:300]!r}"
    return ""


def _reset_peak() -> bool:
    """Have the kernel begin anew with the most memory that was taken; whether it does that."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _memory(field: str) -> int:
    """Bytes of this process: resident now (VmRSS) or at most so far (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    return 1024 * int(found[1]) if found else 0
