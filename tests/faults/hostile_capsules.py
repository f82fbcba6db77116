"""A small capsule of made-up layers, and capsules with something else in them; by seed."""

import copy
import csv
import hashlib
import io
import json
import zipfile
from functools import reduce
from operator import getitem

import numpy as np
from damaging import packed
from feeding import Fate, Hostile
from inputs import in_files, noise, words

from mlem_core import Store, run
from mlem_core.base.files import parsed
from mlem_core.data.columns import NUMBER
from mlem_core.figures.plots import Drawing
from mlem_core.report import capsule
from mlem_core.report.contents import About, as_json

# What may stand in the place of a value.
VALUES = (
    None, True, -1, 3.5, float("nan"), 10**30, "", "x", "\0", "\ud800", "../../etc/passwd", "~root",
    "=1+1", [], ["x"], [["x", 1]], [None], {}, {"x": 1}, {"x": {"x": []}}, [[[[[]]]]], "9" * 5000,
)  # fmt: skip


def small(folder):
    """A capsule of 20 sentences in two layers of a file, its figures as HTML."""
    table = words(20)
    spec = in_files(folder, table, {"brain": noise(len(table))}, folds=3)
    analysis = run(spec, Store(folder / "store"))
    return capsule.write(analysis, folder / "small.zip", drawing=Drawing(images=False))


def zipped(files, target):
    target.write_bytes(packed(files))
    return target


def _digest(data):
    return hashlib.sha256(data).hexdigest()


def sealed(files):
    """The files with fresh digests, freshly sealed."""
    kept = dict(files)
    about = json.loads(kept.pop("capsule.json"))
    about["files"] = {name: _digest(data) for name, data in kept.items()}
    sealed_about = parsed(About, json.dumps(about).encode(), "it").sealed()
    return {**kept, "capsule.json": as_json(sealed_about)}


def forged(files, target, **changed):
    """A copy with other files (`tables__why` is tables/why; None removes it), freshly sealed."""
    files = {**files, **{name.replace("__", "/"): data for name, data in changed.items()}}
    return zipped(sealed({name: data for name, data in files.items() if data is not None}), target)


def places(value, place=(), leaves=False):
    """Where a document can be changed; leaves: only its values, and what is empty."""
    inside = []
    if isinstance(value, dict | list):
        inside = list(value.items() if isinstance(value, dict) else enumerate(value))
    if (place and not leaves) or (leaves and not inside):
        yield place
    for name, one in inside:
        yield from places(one, (*place, name), leaves)


def _at(document, place):
    """A copy of a document, and what in it has this place."""
    made = copy.deepcopy(document)
    return made, reduce(getitem, place[:-1], made)


def edited(document, place):
    """A copy of a document in which one field has another value of its kind."""
    made, inside = _at(document, place)
    old = inside[place[-1]]
    other = {bool: not old, str: f"{old}x", list: ["x"], dict: {"x": "x"}}
    number = 1 if old is None else 2 * old + 1 if isinstance(old, int | float) else None
    inside[place[-1]] = other.get(type(old), number)
    return made


def changed_values(files, n, seed):
    """Capsules in whose documents a value is changed, removed or added, so many of each."""
    rng = np.random.default_rng(seed)
    for name, times in n.items():
        document = json.loads(files[name])
        where = list(places(document))
        for _ in range(times):
            place = where[rng.integers(len(where))]
            how, value = rng.integers(10), VALUES[rng.integers(len(VALUES))]
            made, inside = _at(document, place)
            if how == 0:
                del inside[place[-1]]
            elif how == 1 and isinstance(inside, dict):
                inside["x"] = value
            else:
                inside[place[-1]] = value
            what = f"{name} {'.'.join(map(str, place))} {how}: {json.dumps(value)[:40]}"
            yield _capsule(what, {**files, name: json.dumps(made).encode()}, None)


def no_documents(files):
    """Capsules whose documents are no JSON."""
    good = files["capsule.json"]
    for name in ("capsule.json", "manifest.json"):
        for data in (
            b"", b"[", b"{", b"\xff\xfe", b"[" * 100_000, b'{"format":' + b"9" * 5000 + b"}",
            good[:-40], good.replace(b"3", b"NaN"), good + good, b"\xef\xbb\xbf" + good,
        ):  # fmt: skip
            yield _capsule(f"{name} of {data[:40]!r}", {**files, name: data}, None)


def _capsule(name, files, found):
    """A capsule in which something has to be found, or nothing (False), or either (None)."""
    fates: dict[bool | None, Fate] = {True: "refused", False: "read", None: "any"}
    data = files if isinstance(files, bytes) else packed(files)
    return Hostile(name, ".zip", data, fate=fates[found])


def _cell(change, ours=None):
    """Any cell with a number (or for which that holds) changed, but names of a square's rows."""
    ours = ours or (lambda cell: NUMBER.fullmatch(cell) and abs(float(cell)) > 1e-3)

    def edit(rows, rng):
        names = ("layer", "fold", "stimulus", "layer_a", "layer_b")
        found = [(i, j) for i, row in enumerate(rows) for j, cell in enumerate(row)
                 if i and ours(cell) and rows[0][j] not in names]  # fmt: skip
        if found:
            i, j = found[int(rng.integers(len(found)))]
            rows[i][j] = change(rows[i][j])
        return rows

    return edit


# Edits of a table -> whether they have to be found, or to be the same; None: either.
EDITS = {
    "a row in between twice": (lambda rows, rng: [*rows[:2], *rows[1:]], True),
    "a row less": (lambda rows, rng: rows[:-1], True),
    "no rows": (lambda rows, rng: rows[:1], True),
    "rows reversed": (lambda rows, rng: [rows[0], *rows[:0:-1]], False),
    "columns reversed": (lambda rows, rng: [row[::-1] for row in rows], None),
    "a column less": (lambda rows, rng: [row[:-1] for row in rows], True),
    "a column more": (lambda rows, rng: [[*row, "p" if not i else ".01"]
                                         for i, row in enumerate(rows)], True),
    "a column renamed": (lambda rows, rng: [[*rows[0][:-1], rows[0][-1] + "_"], *rows[1:]], True),
    "a cell more": (lambda rows, rng: [*rows[:-1], [*rows[-1], "1"]], True),
    "a hundredth": (_cell(lambda cell: repr(float(cell) + 0.01)), True),
    "a millionth": (_cell(lambda cell: repr(float(cell) + 1e-6)), False),
    "the sign": (_cell(lambda cell: repr(-float(cell))), True),
    "written with a power": (_cell(lambda cell: f"{float(cell):.17e}"), False),
    **{how: (_cell(how.format), True) for how in ("nan", "", "n.s.", "{}*", "{}%", "{}j")},
    "a number where nothing was": (_cell(lambda cell: "0.0", lambda cell: not cell), True),
    "a name": (_cell("{}2".format, lambda cell: bool(cell) and not NUMBER.fullmatch(cell)), True),
}  # fmt: skip


def edited_tables(files, seed):
    """What was done, a table, its new content, and whether it has to be found."""
    tables = {name: data for name, data in files.items() if name.startswith("tables/")}
    for what, (edit, must) in EDITS.items():
        rng = np.random.default_rng(seed)
        for name, data in tables.items():
            rows, file = list(csv.reader(io.StringIO(data.decode()))), io.StringIO()
            csv.writer(file, lineterminator="\n").writerows(edit(rows, rng))
            if file.getvalue().encode() != data:
                yield what, name, file.getvalue().encode(), must
    for what, change, must in (
        ("line ends of Windows", lambda data: data.replace(b"\n", b"\r\n"), False),
        ("semicolons", lambda data: data.replace(b",", b";"), True),
        ("two bytes a letter", lambda data: data.decode().encode("utf-16"), True),
        ("half", lambda data: data[: len(data) // 2], True),
    ):  # fmt: skip
        for name, data in tables.items():
            yield what, name, change(data), must


def archives(files):
    """Archives that are written oddly, or whose members and digests are others."""
    own = list(files.items())
    plain, table = packed(own), files["tables/scores.csv"]
    other = table.replace(b"0.", b"1.", 1)
    for how in (zipfile.ZIP_STORED, zipfile.ZIP_LZMA):
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
    others = [(name, data) for name, data in own if name != link.filename]
    yield _capsule("a link out", packed([*others, (link, b"/etc/passwd")]), True)
    for name in ("/etc/x", "../x", "a\\b", "C:/x", "tables/", "tables/Scores.csv",
                 "./tables/scores.csv", "tables/new.csv", "new.html", "figures/new.svg",
                 "pair_tables/new.npy", "__MACOSX/._README.txt", "tables/e\u0301.csv",
                 "representations/01.npz", "manifest.json\x00x", "a\nb"):  # fmt: skip
        yield _capsule(f"also {name!r}", packed([*own, (name, table)]), True)
        yield _capsule(f"also {name!r}, listed", packed(sealed({**files, name: table})), True)
    for name in files:
        if name != "capsule.json" and "plotly" not in name:
            less = {n: data for n, data in files.items() if n != name}
            yield _capsule(f"no {name}", less, True)
            must = True if "tables/" in name or name.endswith((".json", "csv", "npz")) else None
            yield _capsule(f"no {name}, not listed", sealed(less), must)
    about = json.loads(files["capsule.json"])
    for what, digest in {"stale": "0" * 64, "of another": about["files"]["README.txt"]}.items():
        told = {**about, "files": {**about["files"], "tables/scores.csv": digest}}
        made = {**files, "capsule.json": json.dumps(told).encode()}
        yield _capsule(f"a digest {what}", made, True)
    for name in ("capsule.json", "manifest.json"):
        again = json.loads(files[name])
        for what, data, must in (
            ("indented", json.dumps(again, indent=8).encode(), None),
            ("an entry twice", b'{"format": 9,' + files[name].lstrip()[1:], None),
            ("an entry more", json.dumps({**again, "note": "p < .001"}).encode(), None),
            ("a comment", b"// by hand\n" + files[name], True),
        ):
            made = {**files, name: data}
            yield _capsule(f"{name} {what}", made if name == "capsule.json" else sealed(made), must)


def inputs(files):
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
        assert data != stimuli, what
        yield _capsule(f"stimuli.csv {what}", sealed({**files, "stimuli.csv": data}), True)
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
        old, new = (_digest(one).encode() for one in (files[name], file.getvalue()))
        said = {n: data.replace(old, new) for n, data in files.items() if n.endswith(".json")}
        yield _capsule(f"{name} {what}", sealed({**files, **said, name: file.getvalue()}), True)
