"""Files of arrays: in any format, type and order, damaged, lying, swelling; the same for a seed.

Each comes with the layers that it holds, written down beside it, or has to be refused (None); of a
few nobody can say (`ANY`).
"""

import io
import json
import re
import struct
import zipfile
import zlib
from itertools import chain, product

import numpy as np
import safetensors.numpy

from helpers.damaging import damaged_bytes, packed
from helpers.feeding import Hostile

N, UNITS = 12, 5


class Part(dict):
    """Layers of which some may be missing."""


ANY = Part()
BOTH, BINARY = (".npz", ".safetensors"), (".npz", ".npy", ".safetensors")
# Whole numbers from 0 to 100, which every kind of numbers holds, and both arrays differ.
PLAIN = {
    layer: np.random.default_rng(layer).integers(0, 100, (N, UNITS)).astype(float)
    for layer in (0, 1)
}


def _named(arrays):
    return {f"layer_{layer:02d}": array for layer, array in arrays.items()}


def _members(arrays):
    return {f"{name}.npy": _npy(array) for name, array in _named(arrays).items()}


def _npy(array):
    return content(".npy", {"": array})


def content(suffix, arrays, *, pack=False):
    """The arrays as bytes of a file; .npy and .csv hold the first of them."""
    file, first = io.BytesIO(), next(iter(arrays.values()))
    if suffix == ".npz":
        (np.savez_compressed if pack else np.savez)(file, **arrays)
    elif suffix == ".npy":
        np.save(file, first)
    elif suffix == ".safetensors":
        whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        return safetensors.numpy.save(whole)
    else:
        np.savetxt(file, first, delimiter=",", fmt="%g")
    return file.getvalue()


def hostile(name, suffix, data, holds, fate=None):
    """A file that holds this and nothing else; of None it has to be refused."""
    expected = "refused" if holds is None else "any" if holds is ANY else "read"
    raw = data.encode() if isinstance(data, str) else data
    return Hostile(name, suffix, raw, holds, fate or expected)


def _each(name, array, holds, fate=None, suffixes=BINARY):
    """One layer in several formats."""
    for suffix in suffixes:
        yield hostile(name, suffix, content(suffix, {"layer_00": array}), holds, fate)


def header(text, data=b"", version=(1, 0)):
    """An array in NumPy's format with this header."""
    raw = text.encode() if isinstance(text, str) else text
    length = struct.pack("<H" if version[0] == 1 else "<I", len(raw))
    return b"\x93NUMPY" + bytes(version) + length + raw + data


def any_content():
    """Arrays with odd headers and odd names, of which nobody knows what they mean."""
    data = PLAIN[0].tobytes()
    good = {"descr": "'<f8'", "fortran_order": "False", "shape": f"({N}, {UNITS})"}
    odd = (
        "(True, True)", "(-1, 5)", "(12.0, 5)", "12", "()", "((12,), 5)", "(12, 5, 1)", "(10**30,)",
        f"(12, {2**63})", "(12, 0)", "{12: 5}", "__import__('os')", "(12, 4)", "'|O'", "'<U5'",
        "'<c16'", "'<f16'", "None", "[('a', '|O')]", "('<f8', (2,))", "'<f8,<f8'", "'>f8' * 9",
    )  # fmt: skip
    texts = ["", "\0" * 118, "(" * 9_000, "{'descr':" * 300, "12\n", "{'descr': '<f8"]
    for key, value in product(good, odd):
        changed = {**good, key: value}
        texts.append("{" + ", ".join(f"'{k}': {v}" for k, v in changed.items()) + "}\n")
    for text in texts:
        for version in ((1, 0), (2, 0), (9, 9)):
            array = header(text, data, version)
            yield hostile(f"header {text[:70]} {version[0]}", ".npy", array, ANY)
        inside = packed({"layer_00.npy": header(text, data)})
        yield hostile(f"header {text[:70]}", ".npz", inside, ANY)
    for name in ("layer_" + "9" * 20, "layer_" + "0" * 500 + "9" * 18, "layer_01\nlayer_02",
                 "", "../../x", "/etc/x", "a\\..\\b", "\x1b[31m", "é" * 200):  # fmt: skip
        yield hostile(f"name {name[:30]!r}", ".npz", packed({f"{name}.npy": _npy(PLAIN[0])}), ANY)
        data = safetensors.numpy.save({name: PLAIN[0]})
        yield hostile(f"name {name[:30]!r}", ".safetensors", data, ANY)
    yield hostile("name of a folder", ".npz", packed({"layer_00.npy/": b""}), ANY)


def bombs():
    """Arrays and headers that say that they are a thousand times their file."""
    lie = header("{'descr': '<f8', 'fortran_order': False, 'shape': (12, 100000000)}\n")
    wide = header(b" " * 2**25, version=(2, 0))
    for name, data in {"of a lie": lie, "in a header": wide}.items():
        inside = packed({"layer_00.npy": data}, zipfile.ZIP_DEFLATED)
        yield hostile(f"bomb {name}", ".npz", inside, None)
    yield hostile("no array", ".npz", packed({}), None)
    many = {f"layer_{i:05d}": np.zeros((N, 1), np.float32) for i in range(5_000)}
    yield hostile("many arrays", ".safetensors", safetensors.numpy.save(many), None)


def odd(seed):
    """Files in which a second reading could find other numbers."""
    rng = np.random.default_rng(seed)
    return chain.from_iterable(make(rng) for make in (types, shapes, values, zips, tensors, tables))


def types(rng):
    """Kinds of numbers: what a float64 holds is read, all else is refused or said."""
    for kind, order in product(("<f8", ">f4", "<f2", "i1", "u1", ">i4", "<u8"), "CF"):
        arrays = {n: array.astype(kind, order=order) for n, array in _named(PLAIN).items()}
        for suffix, pack in ((".npz", False), (".npz", True), (".safetensors", False)):
            if suffix == ".npz" or kind[0] != ">":
                data = content(suffix, arrays, pack=pack)
                yield hostile(f"type {kind} {order} {pack}", suffix, data, PLAIN)
        yield hostile(f"type {kind} {order}", ".npy", content(".npy", arrays), {0: PLAIN[0]})
    one = rng.standard_normal((N, UNITS))
    under = (one * 1e-6).astype("f2")
    with np.errstate(over="ignore"):
        over = (one * 1e5).astype("f2")
    for name, array, holds in (
        ("f2 below its range", under, {0: under.astype("f4")}),
        ("f2 above its range", over, None),
        ("truth", one > 0, {0: (one > 0).astype(float)}),
    ):
        yield from _each(f"type {name}", array, holds, "or said" if holds else None)
    for name, array in {
        "dates": (one * 1e6).astype("M8[s]"), "bytes": one.astype("S8"),
        "digits": (one * 100).astype("i4").astype("U4"), "complex": one + 0j,
        "long": one.astype(np.longdouble), "void": one.view("V8"),
        "one field": one.astype([("x", "f8")]), "whole objects": np.ones((N, UNITS), object),
    }.items():  # fmt: skip
        yield from _each(f"type {name}", array, None, suffixes=(".npz", ".npy"))


def shapes(rng):
    """Axes and orders."""
    one, three = rng.standard_normal((N, UNITS)), rng.standard_normal((3, N, UNITS))
    for kind in ("<f2", ">f4", "<i4"):
        array = (100 * three).astype(kind, order="F")
        wide = "f8" if kind == "<i4" else np.result_type(kind, "f4")
        mean = array.astype(wide).mean(0, dtype="f8")
        data = content(".npz", {"layer_00": array})
        yield hostile(f"shape repetitions {kind}", ".npz", data, {0: mean})
    for name, array in {
        "transposed": one.T, "flat": one.ravel(), "number": np.array(1.0), "no units": one[:, :0],
        "stimuli first": three.transpose(1, 0, 2), "four": three[None], "one less": one[1:],
        "one more": np.vstack([one, one[:1]]), "no repetitions": three[:0],
    }.items():  # fmt: skip
        for suffix in BOTH:
            data = content(suffix, {"layer_00": one, "layer_01": array})
            yield hostile(f"shape {name}", suffix, data, None)
    yield from _each("shape one unit", one[:, :1], {0: one[:, :1]})
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({N}, {UNITS}), }}"
    longs = text.replace(f"({N}, {UNITS})", f"({N}L, {UNITS}L)")
    fewer = text.replace(f"{UNITS})", f"{UNITS - 1})")
    raw, turned = one.tobytes(), one.ravel().reshape(N, UNITS, order="F")
    for name, data, holds, fate in (
        ("unaligned", header(text + " \n", raw), {0: one}, None),
        ("of Python 2", header(longs, raw), {0: one}, "or refused"),
        ("version 3", header(text, raw, (3, 0)), {0: one}, "or refused"),
        ("columns for rows", header(text.replace("False", "True"), raw), {0: turned}, None),
        ("fewer units than numbers", header(fewer, raw), None, None),
    ):
        yield hostile(f"shape header {name}", ".npy", data, holds, fate)
    for name, more in {"two": _npy(one + 1), "a line": b"\n"}.items():
        yield hostile(f"shape {name} behind the array", ".npy", _npy(one) + more, None)
        inside = packed({"layer_00.npy": _npy(one) + more})
        yield hostile(f"shape {name} behind the array", ".npz", inside, None)


def values(rng):
    """Numbers of any size."""
    one, at = rng.standard_normal((N, UNITS)), (int(rng.integers(N)), int(rng.integers(UNITS)))
    for bad in (np.nan, -np.inf):
        marred = one.copy()
        marred[at] = bad
        for suffix in BOTH:
            data = content(suffix, _named({0: one, 1: marred}))
            yield hostile(f"value {bad} in one cell", suffix, data, {0: one}, "or said")
    for name, array in {
        "huge": one * 2.0**900, "denormal": one * 2.0**-1060, "minus zero": one * -0.0,
        "one huge": np.where(one == one[at], 1e300, one), "alike": np.repeat(one[:1], N, axis=0),
        "constant": np.where(np.arange(UNITS) == 2, 7.0, one), "offset": one + 1e12,
        "far": one.astype("f4") * np.float32(1e36),
    }.items():  # fmt: skip
        yield from _each(f"value {name}", array, {0: array}, "or said")


def _patched(data, place, form, value):
    new = struct.pack(form, value)
    return data[:place] + new + data[place + len(new) :]


def zips(rng):
    """Archives in which the directory and the members say different things."""
    members = _members(PLAIN)
    first, second = members.values()
    other = {layer: array + 1 for layer, array in PLAIN.items()}
    for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        plain = packed(members, how)
        # Where the entries of both members begin in the directory.
        entry, next_entry = (found.start() for found in re.finditer(rb"PK\x01\x02", plain))
        (there,) = struct.unpack_from("<I", plain, next_entry + 42)
        hidden = packed({**members, "layer_0x.npy": second}, how)
        forged = packed({**members, "layer_01.npy": _npy(other[1])}, how)
        end = plain.rindex(b"PK\x05\x06")
        note = plain[:end] + _patched(plain[end:], 20, "<H", 22) + plain[end:]
        for name, data, holds in (
            ("a name twice", hidden.replace(b"layer_0x.npy", b"layer_00.npy"), None),
            ("other name at the member", plain.replace(b"layer_00", b"layer_05", 1), None),
            ("two names for one member", _patched(plain, entry + 42, "<I", there), None),
            ("forged", _patched(forged, next_entry + 16, "<I", zlib.crc32(second)), None),
            ("before a zip", plain + packed(_members(other), how), other),
            ("with a directory in its comment", note, PLAIN),
            ("behind a line", b"#!/bin/sh\n" + plain, PLAIN),
        ):
            yield hostile(f"zip {name} {how}", ".npz", data, holds, holds and "or refused")
        for field, place, form, value in (
            ("crc", 16, "<I", 0), ("size", 24, "<I", 0), ("packed size", 20, "<I", 0),
            ("method", 10, "<H", 0 if how else 8), ("flags", 8, "<H", 1),
        ):  # fmt: skip
            data = _patched(plain, entry + place, form, value)
            yield hostile(f"zip other {field} in the directory {how}", ".npz", data, None)
        for field, place, form in (("crc", 14, "<I"), ("size", 22, "<I"), ("method", 8, "<H")):
            data = _patched(plain, place, form, 99)
            yield hostile(
                f"zip other {field} at its place {how}", ".npz", data, PLAIN, "or refused"
            )
    for how in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        swapped = packed(dict(reversed(members.items())), how, b"by hand")
        yield hostile(f"zip swapped {how}", ".npz", swapped, PLAIN)
    for name in ("layer_0.npy", "layer_00.npy.npy", "LAYER_00.npy", "layer_02.NPY", "layer_02 .npy",
                 "./layer_02.npy", "layer_-1.npy", "layer_٢.npy", "names.npy", "0"):  # fmt: skip
        data = packed({"layer_00.npy": first, name: second})
        yield hostile(f"zip {name!r} beside", ".npz", data, {0: PLAIN[0]}, "or said")
    for name in ("a\x1b[2Jb", "a\nb", "\u202eb", '"a"', "=1+1", "a" * 300, "v1", "V1\u200b"):
        data = packed({"V1.npy": first, f"{name}.npy": second})
        yield hostile(f"zip layers V1 and {name[:9]!r}", ".npz", data, PLAIN, "or said")


def _tensors(about, data):
    text = (about if isinstance(about, str) else json.dumps(about)).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensors(rng):
    """Headers of .safetensors that lead elsewhere."""
    size, raw = 8 * N * UNITS, PLAIN[0].tobytes() + PLAIN[1].tobytes()

    def entry(begin, dtype="F64", units=UNITS, size=size):
        return {"dtype": dtype, "shape": [N, units], "data_offsets": [begin, begin + size]}

    first, second = entry(0), entry(size)
    for name, other, data in (
        ("overlap", entry(8), raw), ("one place for two", first, raw[:size]),
        ("a hole", entry(size + 8), raw + bytes(8)), ("bytes behind", second, raw + bytes(8)),
        ("short", second, raw[:-8]), ("other size", entry(size, units=UNITS - 1), raw),
    ):  # fmt: skip
        both = _tensors({"layer_00": first, "layer_01": other}, data)
        yield hostile(f"tensors {name}", ".safetensors", both, None)
    one, later = json.dumps(first), json.dumps(second)
    text = f'{{"layer_00": {one}, "layer_01": {later}, "layer_00": {later}}}'
    yield hostile("tensors another of one name", ".safetensors", _tensors(text, raw), None)
    crossed = _tensors(json.dumps({"layer_01": first, "layer_00": second}) + " " * 3, raw)
    yield hostile("tensors crossed", ".safetensors", crossed, {0: PLAIN[1], 1: PLAIN[0]})
    top = rng.standard_normal((N, UNITS)).astype("<f4").view("<u4") >> 16
    kept = {0: (top << 16).astype("<u4").view("<f4")}
    for kind, data, holds in (
        ("BF16", top.astype("<u2").tobytes(), kept), ("F8_E4M3", bytes(N * UNITS), None),
    ):  # fmt: skip
        both = _tensors({"layer_00": entry(0, kind, size=len(data))}, data)
        yield hostile(f"tensors {kind}", ".safetensors", both, holds)


def tables(rng):
    """Text that could be taken for other numbers."""
    array = rng.standard_normal((N, UNITS)).round(3) + 10
    rows = [[repr(float(cell)) for cell in row] for row in array]

    def text(cells, separator=",", end="\n"):
        return "".join(separator.join(row) + end for row in cells)

    plain, names = text(rows), ",".join(f"unit{i}" for i in range(UNITS)) + "\n"
    comma = [[cell.replace(".", ",") for cell in row] for row in rows]
    counted = "".join(f"{i},{','.join(row)}\n" for i, row in enumerate(rows))
    held = {
        "mark": "\ufeff" + plain, "windows": plain.replace("\n", "\r\n"), "header": names + plain,
        "empty lines": plain.replace("\n", "\n\n"), "exponents": plain.replace(",", "e0,"),
        "spaces": plain.replace(",", " , "), "no last line end": plain.rstrip("\n"),
        "quoted": text([[f'"{cell}"' for cell in row] for row in rows]),
    }  # fmt: skip
    refused = {
        "decimal commas": text(comma, ";"), "tabs": text(rows, "\t"),
        "mixed separators": text(rows[:6]) + text(rows[6:], ";"),
        "a comma behind": plain.replace("\n", ",\n"), "one cell less": plain.replace(",", "", 1),
        "a comment": "# by hand\n" + plain, "header twice": names + names + plain,
        "header below": plain + names, "nul": plain.replace(".", ".\0", 1),
        "a row less": names + text(rows[1:]),
        "index without a name": "," + names + counted, "index of numbers": counted,
        "transposed": text([list(column) for column in zip(*rows, strict=True)]),
        "JSON": json.dumps(array.tolist()), "two bytes": plain.encode("utf-16"),
    }  # fmt: skip
    at = int(rng.integers(1, N)), int(rng.integers(UNITS))
    for cell in ("1_0", "１２", "1 2", "1,5", "0x1F", "1-", "nan", "", "½", "10%", "1\u00a0000",
                 "1e400", '"', "\0"):  # fmt: skip
        odd = [list(row) for row in rows]
        odd[at[0]][at[1]] = f'"{cell}"' if "," in cell else cell
        refused[f"cell {cell[:20]!r}"] = text(odd)
    for holds, files in (({0: array}, held), (None, refused)):
        for name, data in files.items():
            yield hostile(f"table {name}", ".csv", data, holds)


def damages(seed, n):
    """The plain file with bytes changed; only .npz has checksums, of what is in the arrays."""
    arrays = _named(PLAIN)
    good = {
        suffix: [content(suffix, arrays), content(suffix, arrays, pack=True)]
        for suffix in (*BINARY, ".csv")
    }
    for name, suffix, data in damaged_bytes(good, seed, n, most=1):
        npz = suffix == ".npz"
        yield hostile(
            name, suffix, data, Part(PLAIN) if npz else ANY, "or refused" if npz else None
        )
