"""Capsules with something else in them and fresh digests; the same for each seed."""

from __future__ import annotations

import copy
import csv
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from capsules import leaves, sealed

from mlem_core.report.alike import INFORMATION

Files = dict[str, bytes]
Rows = list[list[str]]
# What a user may have chosen in the place of a recorded choice.
OTHERS = {
    "missing": "level", "estimator": "spearman", "distance": "cosine", "device": "cpu",
    "dtype": "bfloat16", "special_tokens": "none", "pooling": "mean", "positions": "first",
    "units": "standardized", "level": "sentence", "stimuli": "other.csv",
}  # fmt: skip
# Which a new run is told by the capsule alone, or does without.
FREE = {*INFORMATION, "by", "sha256", "file", "name", "included"}


def _other(value: Any, key: Any) -> Any:
    """Another value that could stand there."""
    if key in OTHERS and isinstance(value, str):
        return OTHERS[key]
    if value is None:
        return {"layers": [0], "features": ["noun", "length"]}.get(key, 7)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return 2 * value + 1
    if isinstance(value, str):
        return {"nominal": "ordered", "ordered": "nominal"}.get(value, value[:-1] + "é")
    if isinstance(value, list):
        return value[:-1] if value else ["length"]
    return {"noun": "x"}


def recorded(document: Any) -> Iterator[tuple[str, Any, bool]]:
    """Copies of a document with one recorded value changed; whether that has to be found."""
    for place in leaves(document):
        made = copy.deepcopy(document)
        inside = made
        for part in place[:-1]:
            inside = inside[part]
        inside[place[-1]] = _other(inside[place[-1]], place[-1])
        must = not FREE & set(map(str, place))
        yield ".".join(map(str, place)), made, must


def _first(rows: Rows, ours: Callable[[str], bool], rng: np.random.Generator) -> tuple[int, int]:
    """Any cell of which that holds, but the diagonal of a square and its names."""
    found = [(i, j) for i, row in enumerate(rows) for j, cell in enumerate(row)
             if i and ours(cell) and rows[0][j] not in ("layer", "fold", "stimulus", "layer_a",
                                                        "layer_b")]  # fmt: skip
    return found[int(rng.integers(len(found)))] if found else (0, 0)


def _number(cell: str) -> bool:
    try:
        return abs(float(cell)) > 1e-3
    except ValueError:
        return False


def _cell(change: Callable[[str], str], ours: Callable[[str], bool] = _number) -> Any:
    def edit(rows: Rows, rng: np.random.Generator) -> Rows:
        at = _first(rows, ours, rng)
        if at == (0, 0):
            return rows
        rows[at[0]][at[1]] = change(rows[at[0]][at[1]])
        return rows

    return edit


def _scaled(factor: float, plus: float = 0.0) -> Callable[[str], str]:
    return lambda cell: repr(float(cell) * factor + plus)


# Edits of a table -> whether they have to be found, or to be the same; None: either.
EDITS: dict[str, tuple[Callable[[Rows, np.random.Generator], Rows], bool | None]] = {
    "a row twice": (lambda rows, rng: [*rows, rows[-1]], True),
    "a row in between twice": (lambda rows, rng: [*rows[:2], *rows[1:]], True),
    "a row less": (lambda rows, rng: rows[:-1], True),
    "no rows": (lambda rows, rng: rows[:1], True),
    "the header twice": (lambda rows, rng: [rows[0], *rows], True),
    "rows reversed": (lambda rows, rng: [rows[0], *rows[:0:-1]], False),
    "columns reversed": (lambda rows, rng: [row[::-1] for row in rows], None),
    "a column less": (lambda rows, rng: [row[:-1] for row in rows], True),
    "a column more": (lambda rows, rng: [[*row, "p" if not i else ".01"] for i, row in
                                         enumerate(rows)], True),
    "an empty column": (lambda rows, rng: [[*row, ""] for row in rows], None),
    "a column twice": (lambda rows, rng: [[*row, row[-1]] for row in rows], True),
    "a column renamed": (lambda rows, rng: [[*rows[0][:-1], rows[0][-1] + "_"], *rows[1:]], True),
    "a column in capitals": (lambda rows, rng: [[*rows[0][:-1], rows[0][-1].upper()], *rows[1:]],
                             True),
    "two columns exchanged": (lambda rows, rng: [[*rows[0][:-2], rows[0][-1], rows[0][-2]],
                                                 *rows[1:]], None),
    "a cell more": (lambda rows, rng: [*rows[:-1], [*rows[-1], "1"]], True),
    "the sign": (_cell(_scaled(-1)), True),
    "a hundredth": (_cell(_scaled(1, 0.01)), True),
    "a billionth of a thousandth": (_cell(_scaled(1, 1e-12)), False),
    "a millionth": (_cell(_scaled(1, 1e-6)), False),
    "not a number": (_cell(lambda cell: "nan"), True),
    "nothing": (_cell(lambda cell: ""), True),
    "infinite": (_cell(lambda cell: "inf"), True),
    "a word": (_cell(lambda cell: "n.s."), True),
    "a mark": (_cell(lambda cell: cell + "*"), True),
    "a percentage": (_cell(lambda cell: f"{cell}%"), True),
    "a decimal comma": (_cell(lambda cell: cell.replace(".", ",")), True),
    "an imaginary part": (_cell(lambda cell: cell + "j"), True),
    "written with a power": (_cell(lambda cell: f"{float(cell):.17e}"), False),
    "a word where nothing was": (_cell(lambda cell: "p < .001", lambda cell: not cell), True),
    "a number where nothing was": (_cell(lambda cell: "0.0", lambda cell: not cell), True),
    "a name": (_cell(lambda cell: cell + "2", lambda cell: bool(cell) and not _is_number(cell)),
               True),
}  # fmt: skip


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def rows_of(data: bytes) -> Rows:
    return list(csv.reader(io.StringIO(data.decode())))


def _as_text(rows: Rows) -> bytes:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue().encode()


def edited(files: Files, seed: int) -> Iterator[tuple[str, str, bytes, bool | None]]:
    """What was done, a table, its new content, and whether it has to be found."""
    tables = {name: data for name, data in files.items() if name.startswith("tables/")}
    for what, (edit, must) in EDITS.items():
        rng = np.random.default_rng(seed)
        for name, data in tables.items():
            made = _as_text(edit(rows_of(data), rng))
            if made != data:
                yield what, name, made, must
    for what, change, must in (
        ("line ends of Windows", lambda data: data.replace(b"\n", b"\r\n"), False),
        ("a mark before", lambda data: b"\xef\xbb\xbf" + data, None),
        ("blank lines", lambda data: data.replace(b"\n", b"\n\n"), False),
        ("semicolons", lambda data: data.replace(b",", b";"), True),
        ("two bytes a letter", lambda data: data.decode().encode("utf-16"), True),
        ("quoted", lambda data: b'"' + data.replace(b",", b'","').replace(b"\n", b'"\n"')[:-1],
         False),
        ("empty", lambda data: b"", True),
        ("half", lambda data: data[: len(data) // 2], True),
    ):  # fmt: skip
        for name, data in tables.items():
            yield what, name, change(data), must


def _zip(
    members: list[tuple[str | zipfile.ZipInfo, bytes]], how: int = 0, note: bytes = b""
) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        archive.comment = note
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


def archives(files: Files) -> Iterator[tuple[str, bytes, bool | None]]:
    """Bytes of a zip, and whether something has to be found."""
    own = list(files.items())
    plain, table = _zip(own), files["tables/scores.csv"]
    other = table.replace(b"0.", b"1.", 1)
    for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        yield f"packed by {how}", _zip(own, how), False
    yield "in another order", _zip(own[::-1]), False
    yield "with a note", _zip(own, note=b"see PK\x05\x06"), None
    yield "behind a script", b"#!/bin/sh\n" + plain, None
    yield "behind another", _zip([("a", b"b")]) + plain, None
    yield "cut", plain[:-40], True
    yield "a member twice", _zip([*own, ("tables/scores.csv", table)]), True
    yield "another of one name", _zip([("tables/scores.csv", other), *own]), True
    link = zipfile.ZipInfo("tables/scores.csv")
    link.external_attr = 0o120777 << 16
    yield "a link", _zip([(link if n == link.filename else n, data) for n, data in own]), None
    yield "a link out", _zip([(link, b"/etc/passwd") if n == link.filename else (n, data)
                              for n, data in own]), True  # fmt: skip
    for name in ("/etc/x", "../x", "tables/../../x", "a\\b", "C:/x", "tables/", "tables/Scores.csv",
                 "TABLES/scores.csv", "tables/scores.csv ", "tables//scores.csv",
                 "./tables/scores.csv", "tables/scores.csv.", "tables/new.csv", "new.html",
                 "figures/new.html", "figures/new.svg", "pair_tables/new.npy", "latex/new.tex",
                 "__MACOSX/._README.txt", ".DS_Store", "tables/e\u0301.csv", "stimuli.CSV",
                 "representations/01.npz", "manifest.json\x00x", "a\nb", "rdms.npz"):  # fmt: skip
        yield f"also {name!r}", _zip([*own, (name, table)]), True
        yield f"also {name!r}, listed", _zip(list(sealed({**files, name: table}).items())), True
    for name in files:
        if name != "capsule.json" and "plotly" not in name:
            less = {n: data for n, data in files.items() if n != name}
            yield f"no {name}", _zip(list(less.items())), True
            yield f"no {name}, not listed", _zip(list(sealed(less).items())), True
    about = json.loads(files["capsule.json"])
    for what, digest in {"stale": "0" * 64, "empty": "", "short": "0", "of another": about["files"][
            "README.txt"]}.items():  # fmt: skip
        told = {**about, "files": {**about["files"], "tables/scores.csv": digest}}
        yield f"a digest {what}", _zip(list({**files, "capsule.json": json.dumps(told).encode()}
                                            .items())), True  # fmt: skip
    for name in ("capsule.json", "manifest.json"):
        good = files[name]
        again = json.loads(good)
        for what, data, must in (
            ("indented", json.dumps(again, indent=8).encode(), None),
            ("in another order", json.dumps(dict(reversed(again.items()))).encode(), None),
            ("line ends of Windows", good.replace(b"\n", b"\r\n"), None),
            ("a mark before", b"\xef\xbb\xbf" + good, None),
            ("an entry twice", b'{"format": 9,' + good.lstrip()[1:], None),
            ("an entry more", json.dumps({**again, "note": "p < .001"}).encode(), None),
            ("two bytes a letter", good.decode().encode("utf-16"), None),
            ("a comment", b"// by hand\n" + good, True),
        ):
            made = {**files, name: data}
            made = made if name == "capsule.json" else sealed(made)
            yield f"{name} {what}", _zip(list(made.items())), must


def texts(files: Files) -> Iterator[tuple[str, Files]]:
    """Files with one digit, word or number changed: each has to be found."""
    for name, data in files.items():
        if not name.endswith((".md", ".tex", ".txt", ".bib")) or name == "versions.txt":
            continue
        at = next((i for i in range(len(data) // 2, len(data)) if chr(data[i]).isdigit()), None)
        if at is not None:
            digit = b"%d" % ((data[at] - 48 + 5) % 10)
            yield f"{name} a digit at {at}", {name: data[:at] + digit + data[at + 1 :]}
        yield f"{name} a word", {name: data.replace(b"the ", b"no ", 1)}
        yield f"{name} a line less", {name: b"".join(data.splitlines(keepends=True)[:-1])}
        yield f"{name} a line more", {name: data + b"All p < .001.\n"}


def inputs(files: Files) -> Iterator[tuple[str, Files]]:
    """Stimuli and arrays that are others, with fresh digests: each has to be found."""
    stimuli = files["stimuli.csv"]
    lines = stimuli.splitlines(keepends=True)
    for what, data in {
        "two rows exchanged": b"".join([lines[0], lines[2], lines[1], *lines[3:]]),
        "a row less": b"".join(lines[:-1]), "a row twice": b"".join([*lines, lines[-1]]),
        "a word": lines[0] + stimuli[len(lines[0]) :].replace(b"dog", b"cat", 1),
        "a column more": b"".join(line.rstrip() + (b",x\n" if not i else b",%d\n" % (i % 2))
                                  for i, line in enumerate(lines)),
        "a number": stimuli[::-1].replace(b"1", b"2", 1)[::-1],
    }.items():  # fmt: skip
        if data != stimuli:
            yield f"stimuli.csv {what}", {"stimuli.csv": data}
    name = "representations/00.npz"
    with np.load(io.BytesIO(files[name])) as kept:
        arrays = {one: kept[one] for one in kept.files}
    for what, change in {
        "a number": lambda a: np.where(np.arange(a.size).reshape(a.shape) == 3, a + 1, a),
        "rows exchanged": lambda a: a[::-1], "single precision": lambda a: a.astype("f2"),
        "a unit less": lambda a: a[:, 1:],
    }.items():  # fmt: skip
        file = io.BytesIO()
        np.savez(file, **{one: change(array) for one, array in arrays.items()})
        digest = hashlib.sha256(file.getvalue()).hexdigest().encode()
        old = hashlib.sha256(files[name]).hexdigest().encode()
        said = {n: data.replace(old, digest) for n, data in files.items() if n.endswith(".json")}
        yield f"{name} {what}", {**said, name: file.getvalue()}


def written(files: Files, path: Path) -> Path:
    path.write_bytes(_zip(list(files.items())))
    return path
