"""Uploaded files, read by a process of its own: what a file unpacks to shows only in reading.

The process has the memory and the time of a run, and ends with whoever waits for it. What it found
comes back as JSON, CSV and .npz, never as code. It takes a second to start, so one that
is done waits for the next file.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from mlem_core.analysis.grouped import EVERY
from mlem_core.analysis.source import StimulusSource, cached_table
from mlem_core.base.errors import InputError
from mlem_core.base.parameters import frozen
from mlem_core.base.room import Shared
from mlem_core.base.work import check_cancelled
from mlem_core.data.columns import missing_marks
from mlem_core.data.distance_features import read_kept, save_rdms
from mlem_core.data.reading.content import ReadAs
from mlem_core.data.reading.table import Table
from mlem_core.data.reading.workbook import is_workbook
from mlem_core.data.roles import guess_roles
from mlem_core.data.stimuli import StimulusSet
from mlem_core.data.stimulus_csv import write_csv
from mlem_core.models.array_files import CountsRows
from mlem_core.models.arrays import (
    HowRead,
    check_repeated,
    n_subjects,
    open_arrays,
    seem_distances,
)
from mlem_core.pairs.distances import condensed_from_matrix
from mlem_core.tasks import limits
from mlem_core.tasks.processes import command_of

# Text of that size is read here, in less time than another process needs to answer: it unpacks to
# nothing, and the longest of its kind takes 0.7 s and 50 MB.
_SMALL = 1_000_000
_TEXTS = (".csv", ".tsv", ".tab", ".txt")
_LOOK = 0.05  # seconds between two looks at the process
_LARGE = 500e6  # bytes: a process that holds more when it is done does not wait for the next file
_LESS = "upload a smaller file"
_FOUND = "found.json"


class Broken(InputError):
    """The process ended for a reason that is not in the file."""


class FoundTable(NamedTuple):
    """A table, the roles that are guessed, and what in each column is taken for missing."""

    table: Table
    roles: dict[str, str]
    marks: dict[str, list[str]]


class FoundArrays(NamedTuple):
    """The names of a file's layers, what is to be known, and whether they seem to be distances.

    `problem` says why there are none; where it `asks`, it has to be said what a first column is.
    """

    names: dict[int, str]
    notes: tuple[str, ...]
    seem_distances: bool
    problem: str = ""
    asks: bool = False


class _Reading(NamedTuple):
    """A way to read files: `find` reads them; `dump` brings over what it found, as JSON and as
    files of a folder; `load` restores it from them."""

    find: Callable[..., Any]
    dump: Callable[[Any, Path], Mapping[str, Any]]
    load: Callable[[Mapping[str, Any], Path], Any]


def read_upload(what: str, request: Mapping[str, Any], root: Path) -> Any:
    """The content of uploaded files: `FoundTable`, a `StimulusSet` or `FoundArrays`.

    Parameters
    ----------
    what : "table", "stimuli" or "arrays"
    request : as JSON has it: path and the fields of `ReadAs`; the fields of `StimulusSource`; or
        the arguments of `arrays_of`
    root : of the store of whoever asks

    Raises
    ------
    InputError
        As `read_table`, `StimulusSource.load_stimuli` and `open_arrays`; it takes more memory or
        time than a run may; `Broken`.
    What `mlem_core.base.work.cancelled_by` raises ends the process.
    """
    reading = _READINGS[what]
    if all(map(_is_small_text, _files(what, request))):
        return reading.find(**request)
    with tempfile.TemporaryDirectory(prefix="read.", dir=root / "unfinished") as folder:
        message = {"what": what, "request": request, "folder": folder}
        _asked(message, limits.of_store(root) or Shared())
        text = (Path(folder) / _FOUND).read_text(encoding="utf-8", errors="surrogatepass")
        return reading.load(json.loads(text), Path(folder))


def _files(what: str, request: Mapping[str, Any]) -> list[Path]:
    if what == "stimuli":
        source = _source(request)
        return [*source.stimulus_files, *(Path(path) for _, path in source.rdms)]
    return [Path(request["path"])]


def _is_small_text(path: Path) -> bool:
    """Whether a file is text of a table that is not large; also where there is none to be read."""
    try:
        if path.suffix.lower() not in _TEXTS or path.stat().st_size > _SMALL:
            return not path.exists()
        return not is_workbook(path.read_bytes())
    except OSError:
        return True


# What is read, there and here


def _source(request: Mapping[str, Any]) -> StimulusSource:
    return StimulusSource(
        **{each.name: frozen(request[each.name]) for each in fields(StimulusSource)}
    )


def _stimuli_of(**request: Any) -> StimulusSet:
    return _source(request).load_stimuli()


def _dump_stimuli(stimuli: StimulusSet, folder: Path) -> dict[str, Any]:
    write_csv(stimuli, folder / "stimuli.csv")
    if stimuli.rdms:
        save_rdms(stimuli, folder / "rdms.npz")
    kinds = {feature.name: feature.kind for feature in stimuli.features}
    return {"name": stimuli.name, "kinds": kinds, "notes": stimuli.notes}


def _load_stimuli(about: Mapping[str, Any], folder: Path) -> StimulusSet:
    path = folder / "stimuli.csv"
    stimuli = read_kept(path, about["kinds"], about["name"], folder / "rdms.npz")
    return replace(stimuli, notes=tuple(about["notes"]))


def _read_as(choices: Mapping[str, Any]) -> ReadAs:
    return ReadAs(**{name: frozen(value) for name, value in choices.items()})


def _cells(table: Table) -> dict[str, list[str | None]]:
    return {name: table.frame[name].tolist() for name in table.frame}


def _table_of(path: str, **choices: Any) -> FoundTable:
    table = cached_table(Path(path), _read_as(choices))
    missing = table.read_as.missing
    marks = {name: sorted(missing_marks(cells, missing)) for name, cells in _cells(table).items()}
    return FoundTable(table, guess_roles(table), marks)


def _dump_table(found: FoundTable, folder: Path) -> dict[str, Any]:
    table = {**vars(found.table), "frame": _cells(found.table)}
    return {**found._asdict(), "table": {**table, "read_as": asdict(found.table.read_as)}}


def _load_table(about: Mapping[str, Any], folder: Path) -> FoundTable:
    table = about["table"]
    frame, notes = pd.DataFrame(table["frame"], dtype=object), tuple(table["notes"])
    table = Table(table["name"], frame, _read_as(table["read_as"]), notes)
    return FoundTable(table, about["roles"], about["marks"])


def arrays_of(
    path: str,
    n_stimuli: int,
    of_distances: bool = False,
    repeated: bool = False,
    first_column: str = "",
    subject: str = "",
) -> FoundArrays:
    """The content of a file of representations, checked.

    Parameters
    ----------
    of_distances : its arrays are distances between the stimuli
    repeated : the distance is one over repetitions, which the arrays must have
    first_column : as of `open_arrays`
    subject : the one that is read; "all": the first of them is checked
    """
    file, how = Path(path), HowRead(distances=of_distances, first_column=first_column)
    try:
        if subject == EVERY or (of_distances and not subject):
            needed = subject == EVERY
            n = n_subjects(file, distances=of_distances, first_column=first_column, needed=needed)
            subject = str(min(n, 1))
        how["subject"] = int(subject or 0)
        arrays = open_arrays(file, n_stimuli, **how)
    except CountsRows as error:
        return FoundArrays({}, (), False, str(error), asks=True)
    if repeated and not of_distances:
        check_repeated(file, arrays, n_stimuli)
    for layer, name in arrays.names.items():
        if of_distances:
            condensed_from_matrix(arrays.read(layer), layer=name)
    names = arrays.names if arrays.named else {layer: str(layer) for layer in arrays.names}
    left_out = (f"A layer is left out: {why}" for why in arrays.left_out)
    distances = of_distances or seem_distances(arrays, n_stimuli)
    return FoundArrays(names, (*left_out, *arrays.notes), distances)


def _dump_arrays(found: FoundArrays, folder: Path) -> dict[str, Any]:
    return {**found._asdict(), "names": list(found.names.items())}


def _load_arrays(about: Mapping[str, Any], folder: Path) -> FoundArrays:
    return FoundArrays(**{**about, "names": dict(about["names"]), "notes": tuple(about["notes"])})


_READINGS = {
    "stimuli": _Reading(_stimuli_of, _dump_stimuli, _load_stimuli),
    "table": _Reading(_table_of, _dump_table, _load_table),
    "arrays": _Reading(arrays_of, _dump_arrays, _load_arrays),
}


# The process, seen from here


class _Reader:
    """A process that reads one file after the other."""

    def __init__(self) -> None:
        command, environment = command_of("mlem_core.tasks.reading")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=environment,
        )

    def answer(self, message: Mapping[str, Any], settings: Shared) -> dict[str, Any]:
        """Answer to a message; raises `InputError` where it takes too much, or `Broken`."""
        assert self.process.stdin is not None and self.process.stdout is not None
        began = time.monotonic()
        with contextlib.suppress(OSError):  # one that has ended does not answer
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        while not select.select([self.process.stdout], [], [], _LOOK)[0]:
            check_cancelled()
            took = time.monotonic() - began
            sentence = limits.excess(
                settings, took, limits.memory(self.process.pid), "reading the file", _LESS
            )
            if sentence:
                raise InputError(sentence)
        line = self.process.stdout.readline()
        if not line:
            raise Broken(
                "the process that read the file ended without an answer, as one does for which "
                f"the machine has no memory; try again, or {_LESS}."
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """End it at once."""
        self.process.kill()
        with self.process:
            pass  # waits for it and closes its pipes


_waiting: list[_Reader] = []
_taking = threading.Lock()


def _asked(message: Mapping[str, Any], settings: Shared) -> None:
    """Have a process read files; raises `InputError` as it does, or of what becomes of it."""
    with _taking:
        reader = _waiting.pop() if _waiting else None
    if reader is None or reader.process.poll() is not None:
        reader = _Reader()
    done = False
    try:
        answer = reader.answer(message, settings)
        with _taking:
            done = not _waiting and limits.memory(reader.process.pid) < _LARGE
            if done:
                _waiting.append(reader)
    finally:
        if not done:
            reader.end()
    if "error" in answer:
        raise (InputError if answer["of_file"] else Broken)(answer["error"])


# The process, seen from within


def _answer(message: Mapping[str, Any]) -> dict[str, Any]:
    reading, folder = _READINGS[message["what"]], Path(message["folder"])
    try:
        about = reading.dump(reading.find(**message["request"]), folder)
        text = json.dumps(about, ensure_ascii=False)
        (folder / _FOUND).write_text(text, encoding="utf-8", errors="surrogatepass")
    except InputError as error:
        return {"error": str(error), "of_file": True}
    except MemoryError:
        return {"error": f"there is too little memory to read the file; {_LESS}.", "of_file": False}
    except Exception:
        traceback.print_exc()  # into the log of the server
        return {"error": "the file cannot be read; the server's log says why.", "of_file": False}
    return {}


def _serve() -> None:
    """Answer messages, a line each, until whoever sends them is gone."""
    with contextlib.suppress(OSError):  # where memory runs out, this one goes and not the server
        Path("/proc/self/oom_score_adj").write_text("1000")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    messages: queue.SimpleQueue[str] = queue.SimpleQueue()

    def hear() -> None:
        for line in sys.stdin:
            messages.put(line)
        os._exit(0)

    threading.Thread(target=hear, daemon=True).start()
    while True:
        print(json.dumps(_answer(json.loads(messages.get()))), file=answers, flush=True)


if __name__ == "__main__":
    _serve()
