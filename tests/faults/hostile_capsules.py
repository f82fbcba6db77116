"""A small capsule of made-up layers, and capsules with something else in them; by seed."""

from __future__ import annotations

import copy
import csv
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from feeding import Fate, Hostile
from inputs import in_files, noise, words

from mlem_core.analysis.run import run
from mlem_core.base.schema import parsed
from mlem_core.report import capsule
from mlem_core.report.alike import INFORMATION
from mlem_core.report.contents import About, as_json
from mlem_core.report.figures import Drawing
from mlem_core.storage.store import Store

Files = dict[str, bytes]
Rows = list[list[str]]
Place = tuple[Any, ...]
# What a user may have chosen in the place of a recorded choice.
OTHERS = {
    "missing": "level", "estimator": "spearman", "distance": "cosine", "device": "cpu",
    "dtype": "bfloat16", "special_tokens": "none", "pooling": "mean", "positions": "first",
    "units": "standardized", "level": "sentence", "stimuli": "other.csv",
}  # fmt: skip
# Which a new run is told by the capsule alone, or does without.
FREE = {*INFORMATION, "by", "sha256", "file", "name", "included"}
# What may stand in the place of a value.
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 7, 3.5, 1e308, float("nan"), float("inf"), 10**30, "", "x", "\0", "\ud800",
    "a\nb", "../../etc/passwd", "/dev/zero", "~root", "=1+1", "<b>", [], [1], ["x"], [["x", 1]],
    [[]], [None], {}, {"x": 1}, {"": None}, {"x": {"x": []}}, [[[[[[[[]]]]]]]], "9" * 5000,
)  # fmt: skip


def small(folder: Path) -> Path:
    """A capsule of 20 sentences in two layers of a file, its figures as HTML."""
    table = words(20)
    spec = in_files(folder, table, {"brain": noise(len(table))}, folds=3)
    analysis = run(spec, Store(folder / "store"))
    return capsule.write(analysis, folder / "small.zip", drawing=Drawing(images=False))


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(
    members: Mapping[str, bytes] | list[tuple[Any, bytes]], how: int = 0, note: bytes = b""
) -> bytes:
    """An archive of members by name, or by names of which one may come twice."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        archive.comment = note
        for name, data in members.items() if isinstance(members, Mapping) else members:
            archive.writestr(name, data)
    return file.getvalue()


def zipped(files: Mapping[str, bytes], target: Path) -> Path:
    target.write_bytes(packed(files))
    return target


def sealed(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files with fresh digests, freshly sealed."""
    kept = dict(files)
    about: dict[str, Any] = json.loads(kept.pop("capsule.json"))
    about["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in kept.items()}
    return {
        **kept,
        "capsule.json": as_json(parsed(About, json.dumps(about).encode(), "it").sealed()),
    }


def forged(files: Mapping[str, bytes], target: Path, **changed: bytes | None) -> Path:
    """A copy with other files (`tables__why` is tables/why; None removes it), freshly sealed."""
    files = {**files, **{name.replace("__", "/"): data for name, data in changed.items()}}
    return zipped(sealed({name: data for name, data in files.items() if data is not None}), target)


def places(value: Any, place: Place = (), leaves: bool = False) -> Iterator[Place]:
    """Where a document can be changed; leaves: only its values, and what is empty."""
    inside: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        inside = list(value.items() if isinstance(value, dict) else enumerate(value))
    if (place and not leaves) or (leaves and not inside):
        yield place
    for name, one in inside:
        yield from places(one, (*place, name), leaves)


def at(document: Any, place: Place) -> Any:
    for part in place:
        document = document[part]
    return document


def with_value(document: Any, place: Place, value: Any) -> Any:
    """A copy of a document in which one field has another value."""
    made = copy.deepcopy(document)
    at(made, place[:-1])[place[-1]] = value
    return made


def edited(document: Any, place: Place) -> Any:
    """A copy of a document in which one field has another value of its kind."""
    old = at(document, place)
    other: dict[type, Any] = {bool: not old, str: f"{old}x", list: ["x"], dict: {"x": "x"}}
    number = 1 if old is None else 2 * old + 1 if isinstance(old, int | float) else None
    return with_value(document, place, other.get(type(old), number))


def changed_values(files: Files, n: Mapping[str, int], seed: int) -> Iterator[Hostile]:
    """Capsules in whose documents a value is changed, removed or added, so many of each."""
    rng = np.random.default_rng(seed)
    for name, times in n.items():
        document = json.loads(files[name])
        where = list(places(document))
        for _ in range(times):
            place = where[rng.integers(len(where))]
            how, value = rng.integers(10), VALUES[rng.integers(len(VALUES))]
            made = copy.deepcopy(document)
            inside = at(made, place[:-1])
            if how == 0:
                del inside[place[-1]]
            elif how == 1 and isinstance(inside, dict):
                inside["x"] = value
            else:
                inside[place[-1]] = value
            what = f"{name} {'.'.join(map(str, place))} {how}: {json.dumps(value)[:40]}"
            yield _capsule(what, {**files, name: json.dumps(made).encode()}, None)


def no_documents(files: Files) -> Iterator[Hostile]:
    """Capsules whose documents are no JSON."""
    good = files["capsule.json"]
    for name in ("capsule.json", "manifest.json"):
        for data in (
            b"", b"[", b"{", b"\xff\xfe", b"[" * 100_000, b'{"format":' + b"9" * 5000 + b"}",
            good[:-40], good.replace(b"3", b"NaN"), good + good, b"\xef\xbb\xbf" + good,
        ):  # fmt: skip
            yield _capsule(f"{name} of {data[:40]!r}", {**files, name: data}, None)


def _capsule(name: str, files: Files | bytes, found: bool | None) -> Hostile:
    """A capsule in which something has to be found, or nothing (False), or either (None)."""
    fates: dict[bool | None, Fate] = {True: "refused", False: "read", None: "any"}
    data = files if isinstance(files, bytes) else packed(files)
    return Hostile(name, ".zip", data, fate=fates[found])


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


def recorded(files: Files) -> Iterator[Hostile]:
    """One value changed of those that are recorded with the pair tables."""
    name = "pair_tables/analysis.json"
    document = json.loads(files[name])
    for place in places(document, leaves=True):
        made = with_value(document, place, _other(at(document, place), place[-1]))
        must = True if not FREE & set(map(str, place)) else None
        changed = sealed({**files, name: json.dumps(made).encode()})
        yield _capsule(f"recorded {'.'.join(map(str, place))}", changed, must)


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


def edited_tables(files: Files, seed: int) -> Iterator[tuple[str, str, bytes, bool | None]]:
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


def archives(files: Files) -> Iterator[Hostile]:
    """Archives that are written oddly, or whose members and digests are others."""
    own = list(files.items())
    plain, table = packed(own), files["tables/scores.csv"]
    other = table.replace(b"0.", b"1.", 1)
    for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        yield _capsule(f"packed by {how}", packed(own, how), False)
    yield _capsule("in another order", packed(own[::-1]), False)
    yield _capsule("with a note", packed(own, note=b"see PK\x05\x06"), None)
    yield _capsule("behind a script", b"#!/bin/sh\n" + plain, None)
    yield _capsule("behind another", packed([("a", b"b")]) + plain, None)
    yield _capsule("cut", plain[:-40], True)
    yield _capsule("a member twice", packed([*own, ("tables/scores.csv", table)]), True)
    yield _capsule("another of one name", packed([("tables/scores.csv", other), *own]), True)
    link = zipfile.ZipInfo("tables/scores.csv")
    link.external_attr = 0o120777 << 16
    yield _capsule(
        "a link", packed([(link if n == link.filename else n, data) for n, data in own]), None
    )
    yield _capsule(
        "a link out",
        packed([(link, b"/etc/passwd") if n == link.filename else (n, data) for n, data in own]),
        True,
    )
    for name in ("/etc/x", "../x", "tables/../../x", "a\\b", "C:/x", "tables/", "tables/Scores.csv",
                 "TABLES/scores.csv", "tables/scores.csv ", "tables//scores.csv",
                 "./tables/scores.csv", "tables/scores.csv.", "tables/new.csv", "new.html",
                 "figures/new.html", "figures/new.svg", "pair_tables/new.npy", "latex/new.tex",
                 "__MACOSX/._README.txt", ".DS_Store", "tables/e\u0301.csv", "stimuli.CSV",
                 "representations/01.npz", "manifest.json\x00x", "a\nb", "rdms.npz"):  # fmt: skip
        yield _capsule(f"also {name!r}", packed([*own, (name, table)]), True)
        yield _capsule(f"also {name!r}, listed", packed(sealed({**files, name: table})), True)
    for name in files:
        if name != "capsule.json" and "plotly" not in name:
            less = {n: data for n, data in files.items() if n != name}
            yield _capsule(f"no {name}", less, True)
            yield _capsule(f"no {name}, not listed", sealed(less), True)
    about = json.loads(files["capsule.json"])
    for what, digest in {"stale": "0" * 64, "empty": "", "short": "0", "of another": about["files"][
            "README.txt"]}.items():  # fmt: skip
        told = {**about, "files": {**about["files"], "tables/scores.csv": digest}}
        made = {**files, "capsule.json": json.dumps(told).encode()}
        yield _capsule(f"a digest {what}", made, True)
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
            yield _capsule(f"{name} {what}", made, must)


def _other_file(files: Files, what: str, changed: Files) -> Iterator[Hostile]:
    if all(files[name] != data for name, data in changed.items()):
        yield _capsule(what, sealed({**files, **changed}), True)


def texts(files: Files) -> Iterator[Hostile]:
    """Texts with one digit, word or line changed, with fresh digests: each has to be found."""
    for name, data in files.items():
        if not name.endswith((".md", ".tex", ".txt", ".bib")) or name == "versions.txt":
            continue
        changes = {
            "a word": data.replace(b"the ", b"no ", 1),
            "a line less": b"".join(data.splitlines(keepends=True)[:-1]),
            "a line more": data + b"All p < .001.\n",
        }
        for i in range(len(data) // 2, len(data)):
            if chr(data[i]).isdigit():
                changes["a digit"] = data[:i] + b"%d" % ((data[i] - 43) % 10) + data[i + 1 :]
                break
        for what, own in changes.items():
            yield from _other_file(files, f"{name} {what}", {name: own})


def inputs(files: Files) -> Iterator[Hostile]:
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
        yield from _other_file(files, f"stimuli.csv {what}", {"stimuli.csv": data})
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
        changed = {**said, name: file.getvalue()}
        yield _capsule(f"{name} {what}", sealed({**files, **changed}), True)
