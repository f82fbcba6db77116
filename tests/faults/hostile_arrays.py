"""Files of arrays that are damaged, lie, swell, or are good in disguise; the same for each seed."""

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
from feeding import Hostile

N, UNITS = 12, 5
# Whole numbers from 0 to 100, which every kind of numbers holds, and both arrays differ.
PLAIN = {
    f"layer_{layer:02d}": np.random.default_rng(layer).integers(0, 100, (N, UNITS)).astype(float)
    for layer in (0, 3)
}
SUFFIXES = (".npz", ".npy", ".safetensors", ".csv")


def content(suffix: str, arrays: dict[str, np.ndarray] = PLAIN, *, packed: bool = False) -> bytes:
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


def write(data: bytes, path: Path) -> None:
    path.write_bytes(data)


def _file(name: str, suffix: str, data: bytes, equals: str = "any") -> Hostile:
    return Hostile(f"{name} {suffix}", suffix, partial(write, data), equals)


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


def disguises() -> Iterator[Hostile]:
    """Files that hold the plain arrays, as they are in another format, type or order."""
    types = ("<f8", ">f8", "<f4", ">f4", "<f2", "i1", "u1", "<i2", ">i4", "<i8", "<u8", ">u2")
    for kind in types:
        for order in "CF":
            arrays = {name: array.astype(kind, order=order) for name, array in PLAIN.items()}
            for suffix in (".npz", ".npy"):
                yield _file(f"disguise {kind} {order}", suffix, content(suffix, arrays), "plain")
            if order == "C":
                packed = content(".npz", arrays, packed=True)
                yield _file(f"disguise {kind} packed", ".npz", packed, "plain")
                if kind[0] != ">":
                    data = content(".safetensors", arrays)
                    yield _file(f"disguise {kind}", ".safetensors", data, "plain")
    members = {f"{name}.npy": content(".npy", {name: a}) for name, a in PLAIN.items()}
    for name, how in {"bzip2": zipfile.ZIP_BZIP2, "lzma": zipfile.ZIP_LZMA}.items():
        yield _file(f"disguise {name}", ".npz", zipped(members, how), "plain")
    swapped = dict(reversed(members.items()))
    yield _file("disguise swapped", ".npz", zipped(swapped), "plain")
    yield _file("disguise comment", ".npz", zipped(members, comment=b"by hand"), "plain")
    yield _file("disguise prefix", ".npz", b"#!/bin/sh\n" + zipped(members), "or refused")
    for renamed in ({"layer_0": 0, "layer_3": 3}, {"layer_0000": 0, "layer_0003": 3}):
        arrays = {name: PLAIN[f"layer_{layer:02d}"] for name, layer in renamed.items()}
        for suffix in (".npz", ".safetensors"):
            yield _file(f"disguise {'+'.join(renamed)}", suffix, content(suffix, arrays), "plain")
    beside = {**PLAIN, "names": np.arange(3.0), "mask": np.ones((2, 2))}
    for suffix in (".npz", ".safetensors"):
        yield _file("disguise others beside", suffix, content(suffix, beside), "plain")
    plain = content(".csv").decode()
    names = ",".join(f"unit{i}" for i in range(UNITS))
    for name, text in {
        "mark": "\ufeff" + plain,
        "windows": plain.replace("\n", "\r\n"),
        "header": f"{names}\n{plain}",
        "numbered": f"{','.join(map(str, range(UNITS)))}\n{plain}",
        "quoted": "\n".join(
            ",".join(f'"{cell}"' for cell in line.split(",")) for line in plain.splitlines()
        ),
        "empty lines": plain.replace("\n", "\n\n"),
        "exponents": plain.replace(",", "e0,"),
        "spaces": plain.replace(",", " , "),
        "no last line end": plain.rstrip("\n"),
    }.items():
        yield _file(f"disguise {name}", ".csv", text.encode(), "plain")


def headers() -> Iterator[Hostile]:
    """Arrays whose header is odd, as .npy and in an .npz file."""
    data = PLAIN["layer_00"].tobytes()
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
            yield _file(f"header {name} {version[0]}", ".npy", array)
        packed = zipped({"layer_00.npy": header(raw, data)})
        yield _file(f"header {name}", ".npz", packed)
    for version in ((0, 0), (3, 0), (9, 9), (255, 255)):
        array = header("{'descr': '<f8', 'fortran_order': False, 'shape': (12, 5)}", data, version)
        yield _file(f"header version {version}", ".npy", array)


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
        data = len(raw).to_bytes(8, "little") + raw + PLAIN["layer_00"].tobytes()
        yield _file(f"header {name}", ".safetensors", data)
    for length in (0, 1, 7, 10**6, 10**9, 2**63, 2**64 - 1):
        data = length.to_bytes(8, "little") + one.encode()
        yield _file(f"header of {length} bytes", ".safetensors", data, "refused")


def names() -> Iterator[Hostile]:
    """Arrays with odd names, many of them, or two of one name."""
    array = PLAIN["layer_00"]
    for name in (
        "layer_" + "9" * 20, "layer_" + "9" * 5_000, "layer_" + "0" * 500 + "9" * 18,
        "layer_1000000", "layer_01\nlayer_02",
    ):  # fmt: skip
        for suffix in (".npz", ".safetensors"):
            if len(name) < 5_000 or suffix != ".npz":
                yield _file(f"names {name[:30]!r}", suffix, content(suffix, {name: array}))
    for name in ("", " ", "../../x", "/etc/x", "a/../../x", "a\\..\\b", "\x1b[31m", "é" * 200):
        for suffix in (".npz", ".safetensors"):
            data = zipped({f"{name}.npy": content(".npy")})
            if suffix == ".safetensors":
                data = safetensors.numpy.save({name: array})
            out = suffix == ".npz" and (name.startswith("/") or "../" in name)
            yield _file(f"names {name[:30]!r}", suffix, data, "refused" if out else "any")
    both = [content(".npy", {"": array}), content(".npy", {"": array + 1})]
    for first, second in (("layer_00.npy", "layer_00.npy"), ("layer_00", "layer_00.npy")):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(first, both[0])
            archive.writestr("layer_0x.npy", both[1])
        data = file.getvalue().replace(b"layer_0x.npy", second.encode())
        yield _file(f"names twice {first}", ".npz", data, "refused")
    yield _file("names folder", ".npz", zipped({"layer_00.npy/": b""}))
    yield _file("names none", ".npz", zipped({}), "refused")
    many = {f"layer_{i:05d}": np.zeros((N, 1), np.float32) for i in range(5_000)}
    yield _file("names many", ".safetensors", safetensors.numpy.save(many), "refused")


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
            yield Hostile(f"bomb {n_bytes:,} {kind}", ".npz", make, "refused")
    head = header("{'descr': '<f8', 'fortran_order': False, 'shape': (12, 100000000)}\n")
    for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        yield _file("bomb of a lie", ".npz", zipped({"layer_00.npy": head}, how), "refused")
    wide = header(b" " * 2**25, version=(2, 0))
    tight = zipped({"layer_00.npy": wide}, zipfile.ZIP_DEFLATED)
    yield _file("bomb in a header", ".npz", tight, "refused")


def values() -> Iterator[Hostile]:
    """Arrays with odd numbers."""
    whole = PLAIN["layer_00"]
    with np.errstate(over="ignore"):
        arrays = {
            "nan": np.where(whole > 50, np.nan, whole),
            "infinite": np.where(whole > 50, np.inf, whole),
            "huge": whole * 1e300, "tiny": whole * 1e-310, "offset": whole + 1e12,
            "zeros": whole * 0, "one unit": whole[:, :1], "long": whole.astype(np.longdouble),
            "huge long": whole.astype(np.longdouble) * np.longdouble("1e4000"), "bool": whole > 50,
            "complex": whole + 1j, "text": whole.astype(str), "rows": whole[:-1],
            "objects": whole.astype(object), "far": whole.astype("f4") * np.float32(1e36),
        }  # fmt: skip
    for name, array in arrays.items():
        for suffix in (".npz", ".npy", ".safetensors"):
            if suffix == ".safetensors" and array.dtype.kind not in "fb":
                continue
            if suffix == ".safetensors" and array.dtype.itemsize > 8:
                continue
            yield _file(f"values {name}", suffix, content(suffix, {"layer_00": array}))
    for cell in (
        "",
        "x",
        "1;2",
        "0x10",
        "1_0",
        "1e999",
        "NaN",
        "-",
        "१२",
        '"',
        "1" * 200_000,
        "\0",
    ):
        text = content(".csv").decode().replace("\n", f",{cell}\n", 1)
        yield _file(f"values {cell[:10]!r}", ".csv", text.encode())


def damages(seed: int, n: int) -> Iterator[Hostile]:
    """Plain files with bytes flipped, cut away, doubled, zeroed or put in."""
    rng = np.random.default_rng(seed)
    for number in range(n):
        suffix = SUFFIXES[number % len(SUFFIXES)]
        packed = bool(rng.integers(2))
        data = bytearray(content(suffix, packed=packed))
        # Half of it where the headers are.
        near = 200 if rng.integers(2) else len(data)
        at = int(rng.integers(min(near, len(data))))
        how = ("flip", "cut", "double", "zero", "put in", "swap")[int(rng.integers(6))]
        length = int(rng.integers(1, 40))
        if how == "flip":
            data[at] ^= 1 << int(rng.integers(8))
        elif how == "cut":
            del data[at : at + (length if rng.integers(2) else len(data))]
        elif how == "double":
            data[at:at] = data[at : at + length]
        elif how == "zero":
            data[at : at + length] = bytes(len(data[at : at + length]))
        elif how == "put in":
            data[at:at] = rng.bytes(length)
        else:
            data[at : at + 2] = data[at : at + 2][::-1]
        # Only an .npz file has checksums, and they are of what is in the arrays.
        equals = "or refused" if suffix == ".npz" else "any"
        yield _file(f"damage {number} {how} at {at}", suffix, bytes(data), equals)
