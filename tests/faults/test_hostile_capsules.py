from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capsules import contents, small, zipped

from mlem_core.base.errors import InputError
from mlem_core.report.verify import Verification, verify

# What may stand in the place of a value.
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 7, 3.5, 1e308, float("nan"), float("inf"), 10**30, "", "x", "\0", "\ud800",
    "a\nb", "../../etc/passwd", "/dev/zero", "~root", "=1+1", "<b>", [], [1], ["x"], [["x", 1]],
    [[]], [None], {}, {"x": 1}, {"": None}, {"x": {"x": []}}, [[[[[[[[]]]]]]]], "9" * 5000,
)  # fmt: skip


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a value can be changed, from the outside in."""
    if place:
        yield place
    if isinstance(value, dict):
        for name in value:
            yield from places(value[name], (*place, name))
    elif isinstance(value, list):
        for at in range(len(value)):
            yield from places(value[at], (*place, at))


def changes(document: Any, n: int, seed: int) -> Iterator[tuple[str, Any]]:
    """So many copies of a document, in each a value changed, removed or added."""
    rng = np.random.default_rng(seed)
    where = list(places(document))
    for _ in range(n):
        made = copy.deepcopy(document)
        place = where[rng.integers(len(where))]
        inside = made
        for part in place[:-1]:
            inside = inside[part]
        how, value = rng.integers(10), VALUES[rng.integers(len(VALUES))]
        if how == 0:
            del inside[place[-1]]
        elif how == 1 and isinstance(inside, dict):
            inside["x"] = value
        else:
            inside[place[-1]] = value
        yield f"{'.'.join(map(str, place))} {how}: {json.dumps(value)[:40]}", made


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return contents(small(tmp_path_factory.mktemp("small")))


def outcome(path: Path) -> str:
    """ "" where it ends as it should, in a report or a sentence; else what else it ends in."""
    try:
        found = verify(path)
    except InputError as error:
        said = str(error)
        return "" if "\n" not in said and said.endswith(".") and len(said) < 1500 else said
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "" if isinstance(found, Verification) and found.lines() else "no report"


def all_ends(files: dict[str, bytes], folder: Path, n: dict[str, int], seed: int) -> list[str]:
    bad = []
    for name, times in n.items():
        for what, made in changes(json.loads(files[name]), times, seed):
            data = json.dumps(made).encode()
            found = outcome(zipped({**files, name: data}, folder / "x.zip"))
            if found:
                bad.append(f"{name} {what}: {found[:300]}")
    return bad


def only_read(files: dict[str, bytes]) -> dict[str, bytes]:
    """The same without the stimuli, so that what passes the check ends there."""
    return {**files, "stimuli.csv": b"sentence\n"}


def test_changed_values_end_in_one_sentence(files: dict[str, bytes], tmp_path: Path) -> None:
    n = {"capsule.json": 250, "manifest.json": 50}
    assert not all_ends(only_read(files), tmp_path, n, seed=1)


def test_what_is_no_json_ends_in_one_sentence(files: dict[str, bytes], tmp_path: Path) -> None:
    good = files["capsule.json"]
    for data in (
        b"", b"[", b"{", b"\xff\xfe", b"[" * 100_000, b'{"format":' + b"9" * 5000 + b"}",
        good[:-40], good.replace(b"3", b"NaN"), good + good, b"\xef\xbb\xbf" + good,
    ):  # fmt: skip
        for name in ("capsule.json", "manifest.json"):
            bad = zipped({**only_read(files), name: data}, tmp_path / "x.zip")
            assert not outcome(bad), data[:40]


@pytest.mark.faults
def test_900_capsules_with_changed_values(files: dict[str, bytes], tmp_path: Path) -> None:
    assert not all_ends(files, tmp_path, {"capsule.json": 750, "manifest.json": 150}, seed=2)
