"""Files of arrays: in any format, type and order, damaged, lying, swelling; the same for a seed.

Each comes with the layers that it holds, written down beside it, or has to be refused; of a few
nobody can say (`ANY`).
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from damaging import damaged_bytes
from feeding import Fate, Hostile

N, UNITS = 12, 5
Arrays = dict[int, np.ndarray]


class Part(dict[int, np.ndarray]):
    """Layers of which some may be missing."""


# Whole numbers from 0 to 100, which every kind of numbers holds, and both arrays differ.
PLAIN = {
    layer: np.random.default_rng(layer).integers(0, 100, (N, UNITS)).astype(float)
    for layer in (0, 3)
}
NAMED = {f"layer_{layer:02d}": array for layer, array in PLAIN.items()}
SUFFIXES = (".npz", ".npy", ".safetensors", ".csv")
ANY = Part()


def content(suffix: str, arrays: dict[str, np.ndarray] = NAMED, *, packed: bool = False) -> bytes:
    """The arrays as bytes of a file; .npy and .csv hold the first of them."""
    file, first = io.BytesIO(), next(iter(arrays.values()))
    if suffix == ".npz":
        (np.savez_compressed if packed else np.savez)(file, **arrays)
    elif suffix == ".npy":
        np.save(file, first)
    elif suffix == ".safetensors":
        whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        return safetensors.numpy.save(whole)
    else:
        np.savetxt(file, first, delimiter=",", fmt="%g")
    return file.getvalue()


def _file(
    name: str, suffix: str, data: bytes, holds: Arrays | None, fate: Fate | None = None
) -> Hostile:
    """A file that holds these layers and nothing else; of None it has to be refused."""
    expected: Fate = "refused" if holds is None else "any" if holds is ANY else "read"
    return Hostile(name, suffix, data, holds, fate or expected)


def _each(
    name: str,
    array: np.ndarray,
    holds: Arrays | None,
    fate: Fate | None = None,
    suffixes: tuple[str, ...] = SUFFIXES[:3],
) -> Iterator[Hostile]:
    """One layer in several formats."""
    for suffix in suffixes:
        yield _file(name, suffix, content(suffix, {"layer_00": array}), holds, fate)


def _made(rng: np.random.Generator, n_layers: int = 2) -> Arrays:
    return {layer: rng.standard_normal((N, UNITS)).round(6) for layer in range(n_layers)}


def _named(arrays: Arrays) -> dict[str, np.ndarray]:
    return {f"layer_{layer:02d}": array for layer, array in arrays.items()}


def _npy(array: np.ndarray) -> bytes:
    return content(".npy", {"": array})


def zipped(members: dict[str, bytes], how: int = zipfile.ZIP_STORED, comment: bytes = b"") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        archive.comment = comment
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def header(text: str | bytes, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    """An array in NumPy's format with this header."""
    raw = text.encode() if isinstance(text, str) else text
    length = struct.pack("<H" if version[0] == 1 else "<I", len(raw))
    return b"\x93NUMPY" + bytes(version) + length + raw + data


def made_up() -> Iterator[Hostile]:
    for make in (disguises, headers, safetensors_headers, names):
        yield from make()


def odd(seed: int) -> Iterator[Hostile]:
    """Files in which a second reading could find other numbers."""
    rng = np.random.default_rng(seed)
    for make in (types, shapes, values, zips, tensors, tables):
        yield from make(rng)


def disguises() -> Iterator[Hostile]:
    """Files that hold the plain arrays, as they are in another format, type or order."""

    def held(suffix: str) -> Arrays:
        return {0: PLAIN[0]} if suffix == ".npy" else PLAIN

    types = ("<f8", ">f8", "<f4", ">f4", "<f2", "i1", "u1", "<i2", ">i4", "<i8", "<u8", ">u2")
    for kind in types:
        for order in "CF":
            arrays = {name: array.astype(kind, order=order) for name, array in NAMED.items()}
            for suffix in (".npz", ".npy"):
                yield _file(
                    f"disguise {kind} {order}", suffix, content(suffix, arrays), held(suffix)
                )
            if order == "C":
                packed = content(".npz", arrays, packed=True)
                yield _file(f"disguise {kind} packed", ".npz", packed, PLAIN)
                if kind[0] != ">":
                    data = content(".safetensors", arrays)
                    yield _file(f"disguise {kind}", ".safetensors", data, PLAIN)
    members = {f"{name}.npy": content(".npy", {name: a}) for name, a in NAMED.items()}
    for name, how in {"bzip2": zipfile.ZIP_BZIP2, "lzma": zipfile.ZIP_LZMA}.items():
        yield _file(f"disguise {name}", ".npz", zipped(members, how), PLAIN)
    swapped = dict(reversed(members.items()))
    yield _file("disguise swapped", ".npz", zipped(swapped), PLAIN)
    yield _file("disguise comment", ".npz", zipped(members, comment=b"by hand"), PLAIN)
    yield _file("disguise prefix", ".npz", b"#!/bin/sh\n" + zipped(members), PLAIN, "or refused")
    for renamed in ({"layer_0": 0, "layer_3": 3}, {"layer_0000": 0, "layer_0003": 3}):
        arrays = {name: PLAIN[layer] for name, layer in renamed.items()}
        for suffix in (".npz", ".safetensors"):
            yield _file(
                f"disguise {'+'.join(renamed)}", suffix, content(suffix, arrays), held(suffix)
            )
    beside = {**NAMED, "names": np.arange(3.0), "mask": np.ones((2, 2))}
    for suffix in (".npz", ".safetensors"):
        yield _file("disguise others beside", suffix, content(suffix, beside), PLAIN)


def headers() -> Iterator[Hostile]:
    """Arrays whose header is odd, as .npy and in an .npz file."""
    data = PLAIN[0].tobytes()
    good = {"descr": "'<f8'", "fortran_order": "False", "shape": f"({N}, {UNITS})"}
    odd = {
        "shape": (
            "(True, True)", f"({N}, True)", f"(True, {UNITS})", "(-1, 5)", "(12.0, 5)", "('12', 5)",
            "[12, 5]", "12", "()", "(12,)", "((12,), 5)", "(12, 5, 1)", "(12, None)", "(10**30,)",
            f"(12, {10**15})", f"(12, {2**63})", "(12, 0)", "(0, 5)", "(12, 0x5)", "(12, 5j)",
            "(12, 1e2)", "{12: 5}", "'ab'", "__import__('os')", f"({2**62}, {2**62})", "(12, 4)",
        ),
        "descr": (
            "'|O'", "'<U5'", "'|S8'", "'|V8'", "'<c16'", "'<f16'", "'<M8[s]'", "'<m8'", "'f3'",
            "''", "None", "[]", "[('a', '<f8')]", "[('a', '|O')]", "('<f8', (2,))", "'float64'",
            "'<f8,<f8'", "{'a': 1}", "'>f8' * 9", "'object'", "7", "'<i0'", "'|V0'", "'<f8' 'x'",
        ),
        "fortran_order": ("True", "1", "None", "'no'", "()", "2 ** 9"),
    }  # fmt: skip
    texts = {
        f"{key} {value}": "{" + ", ".join(f"'{k}': {v}" for k, v in changed.items()) + "}\n"
        for key, values in odd.items()
        for value in values
        for changed in [{**good, key: value}]
    }
    texts |= {
        "empty": "", "blank": " " * 90, "nul": "\0" * 118, "brackets": "(" * 9_000,
        "nested": "{'descr':" * 300, "long": " " * 60_000 + "\n", "no dict": "12\n",
        "open string": "{'descr': '<f8", "line end": "{'descr': '<f8',\n\n'shape'\\\n",
        "lacks shape": "{'descr': '<f8', 'fortran_order': False}",
        "more": "{'descr': '<f8', 'fortran_order': False, 'shape': (12, 5), 'x': 1}",
        "not utf-8": "{'descr': '\udcff'}",
    }  # fmt: skip
    for name, text in texts.items():
        raw = text.encode("utf-8", "surrogateescape")
        for version in ((1, 0), (2, 0)):
            array = header(raw, data, version)
            yield _file(f"header {name} {version[0]}", ".npy", array, ANY)
        packed = zipped({"layer_00.npy": header(raw, data)})
        yield _file(f"header {name}", ".npz", packed, ANY)
    for version in ((0, 0), (3, 0), (9, 9), (255, 255)):
        array = header("{'descr': '<f8', 'fortran_order': False, 'shape': (12, 5)}", data, version)
        yield _file(f"header version {version}", ".npy", array, ANY)


def safetensors_headers() -> Iterator[Hostile]:
    """Headers of .safetensors files that are odd."""
    size = N * UNITS * 8
    about = {"dtype": "F64", "shape": [N, UNITS], "data_offsets": [0, size]}
    changes: dict[str, Any] = {
        "shape": (
            [True, True], [N], [], [-1, 5], [12.0, 5], ["12", 5], None, 12, [N, UNITS, 1],
            [N, 10**15], [2**63, 2], [10**30], [[12], 5], [N, 0], [6, 10], {},
        ),
        "dtype": ("F65", "", None, 7, "BOOL", "F8_E4M3", "I64", "U64", "F32", "C64", "f64"),
        "data_offsets": (
            [0, 8], [8, 0], [-8, size], [0, 2**63], [0], [], None, [0, size, 1], ["0", size],
            [8, size + 8], [0, 10**30], [True, size],
        ),
    }  # fmt: skip
    texts = {
        f"{key} {value}": json.dumps({"layer_00": {**about, key: value}})
        for key, values in changes.items()
        for value in values
    }
    one = json.dumps(about)
    texts |= {
        "twice": f'{{"layer_00": {one}, "layer_00": {one}}}',
        "list": "[]", "number": "7", "nothing": "", "blank": " " * 64, "brackets": "[" * 50_000,
        "metadata": json.dumps({"__metadata__": {"a": 1}, "layer_00": about}),
        "only metadata": json.dumps({"__metadata__": {"a": "1"}}),
        "not finite": '{"layer_00": NaN}', "not closed": one[:-1], "nul": "\0" * 40,
    }  # fmt: skip
    for name, text in texts.items():
        raw = text.encode()
        data = len(raw).to_bytes(8, "little") + raw + PLAIN[0].tobytes()
        yield _file(f"header {name}", ".safetensors", data, ANY)
    for length in (0, 1, 7, 10**6, 10**9, 2**63, 2**64 - 1):
        data = length.to_bytes(8, "little") + one.encode()
        yield _file(f"header of {length} bytes", ".safetensors", data, None)


def names() -> Iterator[Hostile]:
    """Arrays with odd names, many of them, or two of one name."""
    array = PLAIN[0]
    for name in (
        "layer_" + "9" * 20, "layer_" + "9" * 5_000, "layer_" + "0" * 500 + "9" * 18,
        "layer_1000000", "layer_01\nlayer_02",
    ):  # fmt: skip
        for suffix in (".npz", ".safetensors"):
            if len(name) < 5_000 or suffix != ".npz":
                yield _file(f"names {name[:30]!r}", suffix, content(suffix, {name: array}), ANY)
    for name in ("", " ", "../../x", "/etc/x", "a/../../x", "a\\..\\b", "\x1b[31m", "é" * 200):
        for suffix in (".npz", ".safetensors"):
            data = zipped({f"{name}.npy": content(".npy")})
            if suffix == ".safetensors":
                data = safetensors.numpy.save({name: array})
            out = suffix == ".npz" and (name.startswith("/") or "../" in name)
            yield _file(f"names {name[:30]!r}", suffix, data, None if out else ANY)
    yield _file("names folder", ".npz", zipped({"layer_00.npy/": b""}), ANY)
    yield _file("names none", ".npz", zipped({}), None)
    many = {f"layer_{i:05d}": np.zeros((N, 1), np.float32) for i in range(5_000)}
    yield _file("names many", ".safetensors", safetensors.numpy.save(many), None)


def _deflated(n_bytes: int, head: bytes) -> tuple[bytes, int]:
    """Zeros after a head, packed as tight as it goes, without packing them all; and their CRC."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = bytes(2**24)
    parts = [packer.compress(head), packer.flush(zlib.Z_FULL_FLUSH)]
    one = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
    parts += [one] * (n_bytes // len(piece))
    crc = zlib.crc32(head)
    for _ in range(n_bytes // len(piece)):
        crc = zlib.crc32(piece, crc)
    return b"".join(parts) + packer.flush(), crc


def bomb(n_bytes: int, kind: str, path: Path) -> None:
    """An .npz file with an array of so many bytes of zeros, packed to a thousandth."""
    n_bytes = n_bytes // 2**24 * 2**24
    units = n_bytes // np.dtype(kind).itemsize // N
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({N}, {units})}}\n"
    head = header(text)
    data, crc = _deflated(n_bytes, head)
    name, size = b"layer_00.npy", len(head) + n_bytes
    common = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 0x21, crc, len(data), size, len(name), 0)
    local = b"PK\x03\x04" + common + name
    entry = b"PK\x01\x02" + struct.pack("<H", 20) + common + struct.pack("<HHHII", 0, 0, 0, 0, 0)
    entry += name
    end = struct.pack("<HHHHIIH", 0, 0, 1, 1, len(entry), len(local) + len(data), 0)
    path.write_bytes(local + data + entry + b"PK\x05\x06" + end)


def bombs() -> Iterator[Hostile]:
    """Arrays that unpack to a thousand times their file."""
    for n_bytes in (120_000_000, 2_000_000_000, 4_000_000_000):
        for kind in ("|u1", "<f8"):
            make = partial(bomb, n_bytes, kind)
            yield Hostile(f"bomb {n_bytes:,} {kind}", ".npz", make, None, "refused")
    head = header("{'descr': '<f8', 'fortran_order': False, 'shape': (12, 100000000)}\n")
    for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        yield _file("bomb of a lie", ".npz", zipped({"layer_00.npy": head}, how), None)
    wide = header(b" " * 2**25, version=(2, 0))
    tight = zipped({"layer_00.npy": wide}, zipfile.ZIP_DEFLATED)
    yield _file("bomb in a header", ".npz", tight, None)


def types(rng: np.random.Generator) -> Iterator[Hostile]:
    """Kinds of numbers: what a float64 holds is read, all else is refused or said."""
    one = rng.standard_normal((N, UNITS))
    large = 2**60 + rng.integers(0, 50, (N, UNITS))
    under = (one * 1e-6).astype("f2")
    with np.errstate(over="ignore"):
        over, long = (one * 1e5).astype("f2"), one.astype(np.longdouble)
    for name, array, holds in (
        ("f2 below its range", under, {0: under.astype("f4")}),
        ("f2 above its range", over, None),
        ("i8 beyond floats", large, {0: large - 2**60}),
        ("u8 beyond floats", large.astype("u8") + np.uint64(2**63), {0: large - 2**60}),
        ("truth", one > 0, {0: (one > 0).astype(float)}),
    ):
        yield from _each(f"type {name}", array, holds, "or said" if holds else None)
    both = {0: one.astype("f4"), 1: rng.integers(0, 9, (N, UNITS), "i2").astype(float)}
    mixed = {"layer_00": both[0], "layer_01": both[1].astype("i2")}
    for suffix in (".npz", ".safetensors"):
        yield _file("type mixed", suffix, content(suffix, mixed), both)
    for name, array in {
        "dates": (one * 1e6).astype("M8[s]"), "spans": (one * 1e6).astype("m8[s]"),
        "bytes": one.astype("S8"), "digits": (one * 100).astype("i4").astype("U4"),
        "complex": one + 0j, "long": long, "huge long": long * np.longdouble("1e4000"),
        "void": one.view("V8"), "one field": one.astype([("x", "f8")]),
        "fields": np.rec.fromarrays([one, one]), "whole objects": np.ones((N, UNITS), object),
    }.items():  # fmt: skip
        yield from _each(f"type {name}", array, None, suffixes=(".npz", ".npy"))
    wrong = {"layer_00": one, "layer_01": one + 1j}
    yield _file("type one complex of two", ".npz", content(".npz", wrong), None)


def shapes(rng: np.random.Generator) -> Iterator[Hostile]:
    """Axes and orders."""
    one, three = rng.standard_normal((N, UNITS)), rng.standard_normal((3, N, UNITS))
    for order in "CF":
        for kind in ("<f2", ">f4", "<f8", "<i4"):
            array = (100 * three).astype(kind, order=order)
            mean = array.astype("f8" if kind == "<i4" else np.result_type(kind, "f4")).mean(
                0, dtype="f8"
            )
            yield _file(f"shape repetitions {kind} {order}", ".npz",
                        content(".npz", {"layer_00": array}), {0: mean})  # fmt: skip
    yield _file("shape one repetition", ".npy", _npy(one[None]), {0: one})
    for name, array in {
        "transposed": one.T, "flat": one.ravel(), "number": np.array(1.0), "stimuli": one[:, 0],
        "stimuli first": three.transpose(1, 0, 2), "four": three[None], "no units": one[:, :0],
        "no rows": one[:0], "one less": one[1:], "one more": np.vstack([one, one[:1]]),
        "no repetitions": three[:0],
    }.items():  # fmt: skip
        for suffix in (".npz", ".safetensors"):
            data = content(suffix, {"layer_00": one, "layer_01": array})
            yield _file(f"shape {name}", suffix, data, None)
    unit = one[:, :1]
    yield from _each("shape one unit", unit, {0: unit})
    column = "\n".join(repr(float(x)) for x in unit[:, 0]).encode()
    yield _file("shape one unit", ".csv", column, {0: unit})
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({N}, {UNITS}), }}"
    raw = one.tobytes()
    yield _file("shape header unaligned", ".npy", header(text + " \n", raw), {0: one})
    yield _file("shape header of Python 2", ".npy",
                header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({N}L, {UNITS}L)}}\n",
                       raw), {0: one}, "or refused")  # fmt: skip
    yield _file("shape header version 3", ".npy", header(text, raw, (3, 0)), {0: one}, "or refused")
    yield _file("shape columns in the header swapped for rows", ".npy",
                header(text.replace("False", "True"), raw), {0: one.ravel().reshape(N, UNITS,
                order="F")})  # fmt: skip
    for name, more in {"two": _npy(one + 1), "numbers": bytes(8 * N), "a line": b"\n"}.items():
        yield _file(f"shape {name} behind the array", ".npy", _npy(one) + more, None)
        inside = zipped({"layer_00.npy": _npy(one) + more})
        yield _file(f"shape {name} behind the array", ".npz", inside, None)
    fewer = text.replace(f"{UNITS})", f"{UNITS - 1})")
    yield _file("shape fewer units than numbers", ".npy", header(fewer, raw), None)


def values(rng: np.random.Generator) -> Iterator[Hostile]:
    """Numbers of any size, and such as are none."""
    both = _made(rng)
    at = int(rng.integers(N)), int(rng.integers(UNITS))
    for bad in (np.nan, np.inf, -np.inf):
        marred = {**both, 1: both[1].copy()}
        marred[1][at] = bad
        for suffix in (".npz", ".safetensors"):
            yield _file(f"value {bad} in one cell", suffix, content(suffix, _named(marred)),
                        {0: both[0]}, "or said")  # fmt: skip
    alike = np.repeat(both[0][:1], N, axis=0)
    constant = both[0].copy()
    constant[:, 2] = 7.0
    for name, array in {
        "huge": both[0] * 2.0**900, "tiny": both[0] * 2.0**-900, "denormal": both[0] * 2.0**-1060,
        "one huge": np.where(both[0] == both[0][at], 1e300, both[0]), "alike": alike,
        "constant": constant, "minus zero": both[0] * -0.0, "offset": both[0] + 1e12,
        "two rows alike": np.vstack([both[0][:-1], both[0][:1]]),
        "far": both[0].astype("f4") * np.float32(1e36),
    }.items():  # fmt: skip
        yield from _each(f"value {name}", array, {0: array}, "or said")
    twice = {0: both[0], 1: both[0]}
    yield _file("value the same layer twice", ".npz", content(".npz", _named(twice)), twice)


def _entry(data: bytes, at: int) -> int:
    """Where the entry of a member in the central directory begins."""
    place = -1
    for _ in range(at + 1):
        place = data.index(b"PK\x01\x02", place + 1)
    return place


def _patched(data: bytes, place: int, form: str, value: int) -> bytes:
    new = struct.pack(form, value)
    return data[:place] + new + data[place + len(new) :]


class _Pipe(io.BytesIO):
    """A file in which nothing is looked for, so that sizes follow what they are of."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise io.UnsupportedOperation


def _streamed(members: dict[str, bytes], how: int) -> bytes:
    with _Pipe() as file:
        with zipfile.ZipFile(file, "w", how) as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        return file.getvalue()


def zips(rng: np.random.Generator) -> Iterator[Hostile]:
    """Archives in which the directory and the members say different things."""
    both = _made(rng)
    other = {layer: array + 1 for layer, array in both.items()}
    members = {f"{name}.npy": _npy(array) for name, array in _named(both).items()}
    first, second = members["layer_00.npy"], members["layer_01.npy"]
    for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        kind = "stored" if how == zipfile.ZIP_STORED else "packed"
        plain = zipped(members, how)
        local, central = 0, _entry(plain, 0)
        for name in ("layer_00.npy", "layer_01.npy"):
            hidden = zipped({"layer_00.npy": first, "layer_01.npy": second, "layer_0x.npy": second},
                            how)  # fmt: skip
            data = hidden.replace(b"layer_0x.npy", name.encode())
            yield _file(f"zip {name} twice {kind}", ".npz", data, None)
        for field, place, form in (
            ("crc", central + 16, "<I"), ("size", central + 24, "<I"),
            ("packed size", central + 20, "<I"), ("method", central + 10, "<H"),
            ("flags", central + 8, "<H"),
        ):  # fmt: skip
            value = 1 if field == "flags" else 8 if field == "method" and kind == "stored" else 0
            data = _patched(plain, place, form, value)
            yield _file(f"zip other {field} in the directory {kind}", ".npz", data, None)
        for field, place, form in (
            ("crc", local + 14, "<I"), ("size", local + 22, "<I"), ("method", local + 8, "<H"),
            ("date", local + 10, "<I"),
        ):  # fmt: skip
            data = _patched(plain, place, form, 99)
            yield _file(f"zip other {field} at the member {kind}", ".npz", data, both, "or refused")
        renamed = plain.replace(b"layer_00.npy", b"layer_05.npy", 1)
        yield _file(f"zip other name at the member {kind}", ".npz", renamed, None)
        # The directory leads to the second member under both names.
        swapped = _patched(plain, central + 42, "<I", struct.unpack_from(
            "<I", plain, _entry(plain, 1) + 42)[0])  # fmt: skip
        yield _file(f"zip two names for one member {kind}", ".npz", swapped, None)
        behind = zipped({f"{name}.npy": _npy(array) for name, array in _named(other).items()}, how)
        yield _file(f"zip before a zip {kind}", ".npz", plain + behind, other, "or refused")
        yield _file(f"zip with sizes behind {kind}", ".npz", _streamed(members, how), both)
        forced = io.BytesIO()
        with zipfile.ZipFile(forced, "w", how) as archive:
            for name, array in members.items():
                with archive.open(name, "w", force_zip64=True) as file:
                    file.write(array)
        yield _file(f"zip of 64 bits {kind}", ".npz", forced.getvalue(), both)
        forged = zipped({**members, "layer_01.npy": _npy(other[1])}, how)
        crc = _patched(forged, _entry(forged, 1) + 16, "<I", zlib.crc32(second))
        yield _file(f"zip forged {kind}", ".npz", crc, None)
        end = plain.rindex(b"PK\x05\x06")
        note = plain[:end] + _patched(plain[end:], 20, "<H", 22) + plain[end:]
        yield _file(f"zip a directory in its comment {kind}", ".npz", note, both, "or refused")
    link = zipfile.ZipInfo("layer_01.npy")
    link.external_attr = 0o120777 << 16
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("layer_00.npy", first)
        archive.writestr(link, b"/etc/passwd")
    yield _file("zip link", ".npz", file.getvalue(), None)
    for name in ("layer_0.npy", "layer_00.npy.npy", "LAYER_00.npy", "layer_02.NPY", "layer_02.npz",
                 "layer_02 .npy", " layer_02.npy", "./layer_02.npy", "layer_1e0.npy",
                 "layer_-1.npy", "layer_٢.npy", "Layer_01.npy", "layer_02"):  # fmt: skip
        data = zipped({"layer_00.npy": first, name: second})
        yield _file(f"zip {name!r} beside", ".npz", data, {0: both[0]}, "or said")
    for name in ("a\x1b[2Jb", "a\rb", "a\nb", "\u202eb", "a,b", "a:3", '"a"', "=1+1", "a" * 300):
        data = zipped({"V1.npy": first, f"{name}.npy": second})
        yield _file(f"zip layers named {name[:9]!r}", ".npz", data, both, "or said")
    for name in ("V1 ", "v1", "V1\u200b", "Ｖ1", "V1\x00"):
        data = zipped({"V1.npy": first, f"{name}.npy": second})
        yield _file(f"zip layers V1 and {name!r}", ".npz", data, both, "or said")


def _tensors(about: str | dict, data: bytes) -> bytes:
    text = about if isinstance(about, str) else json.dumps(about)
    return len(text.encode()).to_bytes(8, "little") + text.encode() + data


def tensors(rng: np.random.Generator) -> Iterator[Hostile]:
    """Headers of .safetensors that lead elsewhere."""
    both = _made(rng)
    size, raw = 8 * N * UNITS, both[0].tobytes() + both[1].tobytes()

    def entry(begin: int, end: int, **more: object) -> dict:
        return {"dtype": "F64", "shape": [N, UNITS], "data_offsets": [begin, end], **more}

    two = {"layer_00": entry(0, size), "layer_01": entry(size, 2 * size)}
    for name, about, data in (
        ("overlap", {**two, "layer_01": entry(8, size + 8)}, raw),
        ("one place for two", {**two, "layer_01": entry(0, size)}, raw[:size]),
        ("a hole", {**two, "layer_01": entry(size + 8, 2 * size + 8)}, raw + bytes(8)),
        ("bytes behind", two, raw + bytes(8)),
        ("a byte behind", two, raw + b"\n"),
        ("short", two, raw[:-8]),
        ("beyond", {**two, "layer_01": entry(size, 2 * size + 800)}, raw),
        ("other size", {**two, "layer_01": entry(size, 2 * size, shape=[N, UNITS - 1])}, raw),
        ("no end", {**two, "layer_01": entry(size, size)}, raw),
    ):
        yield _file(f"tensors {name}", ".safetensors", _tensors(about, data), None)
    one = json.dumps(entry(0, size))
    yield _file("tensors named twice", ".safetensors",
                _tensors(f'{{"layer_00": {one}, "layer_00": {one}}}', raw[:size]), {0: both[0]},
                "or refused")  # fmt: skip
    later = json.dumps(entry(size, 2 * size))
    text = f'{{"layer_00": {one}, "layer_01": {later}, "layer_00": {later}}}'
    yield _file("tensors another of one name", ".safetensors", _tensors(text, raw), None)
    crossed = {"layer_01": two["layer_00"], "layer_00": two["layer_01"]}
    for pad in range(0, 8, 3):
        text = json.dumps(crossed) + " " * pad
        yield _file(f"tensors crossed, {pad} blanks", ".safetensors", _tensors(text, raw),
                    {0: both[1], 1: both[0]})  # fmt: skip
    top = both[0].astype("<f4").view("<u4") >> 16
    kept = (top << 16).astype("<u4").view("<f4")
    about = {"dtype": "BF16", "shape": [N, UNITS], "data_offsets": [0, 2 * N * UNITS]}
    brain = _tensors({"layer_00": about}, top.astype("<u2").tobytes())
    yield _file("tensors bfloat16", ".safetensors", brain, {0: kept})
    for kind, width in (("F8_E4M3", 1), ("F8_E5M2", 1), ("C64", 8), ("F4", 1)):
        about = {"dtype": kind, "shape": [N, UNITS], "data_offsets": [0, width * N * UNITS]}
        yield _file(f"tensors {kind}", ".safetensors",
                    _tensors({"layer_00": about}, bytes(width * N * UNITS)), None)  # fmt: skip
    note = {"__metadata__": {"layer_01": "{}"}, **two}
    yield _file("tensors with a note", ".safetensors", _tensors(note, raw), both)


def tables(rng: np.random.Generator) -> Iterator[Hostile]:
    """Text that could be taken for other numbers."""
    array = rng.standard_normal((N, UNITS)).round(3) + 10
    rows = [[repr(float(cell)) for cell in row] for row in array]

    def text(cells: list[list[str]], separator: str = ",", end: str = "\n") -> str:
        return "".join(separator.join(row) + end for row in cells)

    plain, names = text(rows), ",".join(f"unit{i}" for i in range(UNITS)) + "\n"
    comma = [[cell.replace(".", ",") for cell in row] for row in rows]
    for name, data in {
        "mark": "\ufeff" + plain, "windows": plain.replace("\n", "\r\n"), "header": names + plain,
        "numbered": ",".join(map(str, range(UNITS))) + "\n" + plain,
        "empty lines": plain.replace("\n", "\n\n"), "exponents": plain.replace(",", "e0,"),
        "spaces": plain.replace(",", " , "), "no last line end": plain.rstrip("\n"),
        "quoted": text([[f'"{cell}"' for cell in row] for row in rows]),
    }.items():  # fmt: skip
        yield _file(f"table {name}", ".csv", data.encode(), {0: array})
    for name, data in {
        "old line ends": text(rows, end="\r"), "mixed line ends": plain.replace("\n", "\r\n", 3),
        "padded": text([[f"  {cell}\t" for cell in row] for row in rows]),
        "signs": text([[f"+{cell}" for cell in row] for row in rows]),
        "powers": text([[f"{float(cell):.17E}" for cell in row] for row in rows]),
        "header and mark": "\ufeff" + names + plain,
    }.items():  # fmt: skip
        yield _file(f"table {name}", ".csv", data.encode(), {0: array}, "or refused")
    at = int(rng.integers(1, N)), int(rng.integers(UNITS))
    for cell in (
        "1_0", "１２", "१२", "1 2", "1,5", "1.234,5", "1'000", "0x1F", "1e", "--1", "1-", "nan",
        "NA", "inf", "-Infinity", "", "None", "True", "1f", "1d0", "٫5", "½", "10%", "$1", "(1)",
        "#N/A", "1\u00a0000", "1e400", "infinity", "1;2", "-", '"', "\0", "x", "1" * 200_000,
    ):  # fmt: skip
        odd = [list(row) for row in rows]
        odd[at[0]][at[1]] = f'"{cell}"' if "," in cell else cell
        yield _file(f"table cell {cell[:20]!r}", ".csv", text(odd).encode(), None)
    wrong: dict[str, str | bytes] = {
        "decimal commas": text(comma, ";"), "tabs": text(rows, "\t"), "semicolons": text(rows, ";"),
        "blanks": text(rows, " "), "mixed separators": text(rows[:6]) + text(rows[6:], ";"),
        "mixed in a line": plain.replace(",", ";", 1), "a comma behind": plain.replace("\n", ",\n"),
        "one cell less": plain.replace(",", "", 1), "a comment": "# by hand\n" + plain,
        "a comment behind": plain + "# by hand\n", "header twice": names + names + plain,
        "header below": plain + names, "two bytes": plain.encode("utf-16"),
        "nul": plain.replace(".", ".\0", 1), "a row more": plain + text(rows[:1]),
        "a row less": text(rows[1:]), "a row less below a header": names + text(rows[1:]),
        "index without a name": "," + names + "".join(f"{i},{','.join(r)}\n" for i, r in
                                                      enumerate(rows)),
        "index of numbers": "".join(f"{i},{','.join(r)}\n" for i, r in enumerate(rows)),
        "index from 1": names.join(["row,", ""]) + "".join(
            f"{i},{','.join(r)}\n" for i, r in enumerate(rows, 1)),
        "transposed": text([list(column) for column in zip(*rows, strict=True)]),
        "open quote": plain.replace("1", '"1', 1), "JSON": json.dumps(array.tolist()),
        "first row marred": plain.replace(rows[0][1], "x", 1),
        "first row marred and one more": plain.replace(rows[0][1], "x", 1) + text(rows[:1]),
    }  # fmt: skip
    for name, data in wrong.items():
        raw = data if isinstance(data, bytes) else data.encode()
        yield _file(f"table {name}", ".csv", raw, None)


def damages(seed: int, n: int) -> Iterator[Hostile]:
    """The plain file with bytes changed; only .npz has checksums, of what is in the arrays."""
    good = {suffix: [content(suffix), content(suffix, packed=True)] for suffix in SUFFIXES}
    for name, suffix, data in damaged_bytes(good, seed, n, most=1):
        npz = suffix == ".npz"
        yield _file(name, suffix, data, Part(PLAIN) if npz else ANY, "or refused" if npz else None)
