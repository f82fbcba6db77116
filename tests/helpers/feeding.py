"""Files fed to a reader one after the other: read as they are meant, or refused in a sentence."""

import re
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from mlem_core.base.errors import InputError

MOST_SECONDS, MOST_BYTES = 60.0, 4_000_000_000
LONGEST = 2_000  # characters of a sentence
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\ufeff\ud800-\udfff]")
Fate = Literal["read", "or refused", "or said", "refused", "any"]


@dataclass(frozen=True)
class Hostile:
    """A file and its meaning.

    data : its content
    holds : what has to be read
    fate : "read" (just that), "or refused", "or said" (something else, too, if a notice names what
        differs), "refused" (a result is wrong), or "any" (a sound result or a sentence)
    says : what a notice has to have where the file is read, even where nothing differs
    """

    name: str
    suffix: str
    data: bytes
    holds: Any = None
    fate: Fate = "or said"
    says: tuple[str, ...] = ()


def later(change):
    """What makes of the arguments of a change one that is done to what it is given."""
    return lambda *args, **more: lambda to: change(to, *args, **more)


class Found(NamedTuple):
    """What was read: what is said of it, and names of what differs from what a file holds."""

    said: str
    differs: Callable[[Any], list[str]]


@dataclass
class Fates:
    """How many files came to what, and which should not have.

    largest : bytes that a reading took beside what the process had before it
    """

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")
    largest: tuple[int, str] = (0, "")

    def __str__(self):
        return (
            f"{self.counts.total()} files: {dict(self.counts)}; slowest {self.slowest[0]:.1f} s "
            f"({self.slowest[1]}), most memory {self.largest[0] / 1e9:.2f} GB ({self.largest[1]})"
        )

    def none_fails(self, what="", capsys=None):
        """Fail where a file did what it should not; say what became of all, where that is asked."""
        if capsys is not None:
            with capsys.disabled():
                print(f"\n{what}: {self}")
        assert not self.failures, self.failures


def feed(files, read, folder, monkeypatch):
    """Have every file read, in a folder of its own."""
    fates, temporary = Fates(), folder / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    for number, (file, path) in enumerate(_written(files, folder)):
        place = path.parent
        counted, had, begun = _reset_peak(), _memory("VmRSS"), time.monotonic()
        fate, wrong = _fate_of(file, read, path)
        took, most = time.monotonic() - begun, _memory("VmHWM") - had if counted else 0
        fates.slowest = max(fates.slowest, (took, file.name))
        fates.largest = max(fates.largest, (most, file.name))
        if took > MOST_SECONDS or most > MOST_BYTES:
            wrong = wrong or f"took {took:.0f} s and {most / 1e9:.1f} GB"
        if list(place.iterdir()) != [path] or any(temporary.iterdir()):
            wrong = wrong or "left something behind"
        if wrong:
            fates.failures.append(f"{number} {file.name} {file.suffix}: {wrong}")
        fates.counts["failure" if wrong else fate] += 1
        shutil.rmtree(place)
    return fates


def _written(files, folder):
    """Each file and where it lies; many at a time, as `watched.stamp` waits for what is new."""
    numbered = enumerate(files)
    while some := list(islice(numbered, 64)):
        placed = [(file, folder / f"{k}" / f"hostile{file.suffix}") for k, file in some]
        for file, path in placed:
            path.parent.mkdir()
            path.write_bytes(file.data)
        yield from placed


def _fate_of(file, read, path):
    """What became of a file (result, noticed, refused), and what is wrong with that."""
    try:
        found = read(path)
        differ = [] if file.fate in ("any", "refused") else found.differs(file.holds)
    except InputError as error:
        refused = f"refused: {error}" if file.fate == "read" else ""
        return "refused", no_sentence(str(error)) or refused
    except Exception as error:
        return "traceback", f"{type(error).__name__}: {str(error)[:300]}"
    if file.fate == "refused":
        return "wrong", f"was read: {found.said}"
    if differ and file.fate != "or said":
        return "wrong", f"was read as something else: {differ}; said: {found.said}"
    named = file.says or tuple(differ)
    silent = [name for name in named if name.casefold() not in found.said.casefold()]
    if silent or (named and not found.said):
        return "silent", f"{silent} of {sorted(named)} are not named; said: {found.said}"
    return ("noticed" if named else "result"), ""


def no_sentence(text):
    """What keeps a message from being one sentence; "" for nothing."""
    if len(text.splitlines()) != 1 or _UNSEEN.search(text):
        return f"not one printable line: {text[:300]!r}"
    if not text.endswith(".") or not re.search(r"\w", text) or len(text) > LONGEST:
        return f"no sentence of up to {LONGEST} characters: {text[:300]!r}"
    if "Traceback" in text or re.search(r"<\w+ object at 0x", text):
        return f"no words for a user: {text[:300]!r}"
    return ""


def _reset_peak():
    """Have the kernel begin anew with the most memory that was taken; whether it does that."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _memory(field):
    """Bytes of this process: resident now (VmRSS) or at most so far (VmHWM)."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(found[1]) if found else 0
