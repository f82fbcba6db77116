"""Run a capsule again, from its stimuli and models, and say which numbers differ."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.run import run
from mlem_core.analysis.source import as_written
from mlem_core.analysis.spec import AnalysisSpec, with_files
from mlem_core.base.errors import InputError
from mlem_core.base.text import listed
from mlem_core.base.typing import Report
from mlem_core.data.stimulus_table import read_written
from mlem_core.report.contents import (
    FORMAT,
    WHY,
    as_csv_file,
    selection_as_shown,
    tables_as_csv,
    why_alike,
)
from mlem_core.storage.files import scratch
from mlem_core.storage.store import Store, sha256_file

# Other versions of torch and of the processor's libraries differ in the last bits of float32;
# the numbers that follow differ less than this.
TOLERANCE = 1e-4
# A zip may unpack to anything: nothing larger than this is unpacked.
LARGEST = 1_000_000_000
MOST_FILES = 2_000

_KEYS = (
    "measure", "model", "layer", "fold", "feature", "stimulus", "value_a", "value_b", "model_a",
    "layer_a", "model_b", "layer_b", "term",
)  # fmt: skip
_SQUARES = ("similarity_profiles.csv", "similarity_rsa.csv", "feature_correlations.csv")
_TABLES = ("scores.csv", "importance.csv", "weights.csv", "folds.csv", *_SQUARES, "layer_map.csv")
# What only some analyses, or only later capsules, have.
_SOME = ("value_distances.csv", "pair_errors.csv", *WHY)
_FILE = re.compile(r"representations/\d{2}\.(npz|npy|safetensors|csv)")


@dataclass(frozen=True)
class Compared:
    """A table of a capsule beside the same table of the new run.

    Attributes
    ----------
    name : file name of the table
    largest : largest absolute difference of two numbers that are in both
    n_values, n_different : how many numbers were compared, how many differ by more than `TOLERANCE`
    worst : in words, the number that differs most; empty where none differs
    n_missing : how many rows are in one of the two only
    """

    name: str
    largest: float
    n_values: int
    n_different: int
    worst: str = ""
    n_missing: int = 0

    @property
    def same(self) -> bool:
        """Whether no number differs and no row is missing."""
        return not self.n_different and not self.n_missing

    def __str__(self) -> str:
        if self.same:
            return (
                f"{self.name}: the same ({self.n_values:,} numbers, largest difference "
                f"{self.largest:.1e}, tolerance {TOLERANCE:g})"
            )
        parts = []
        if self.n_different:
            parts.append(
                f"{self.n_different:,} of {self.n_values:,} numbers differ by more than "
                f"{TOLERANCE:g}, most (by {self.largest:.3g}) {self.worst}"
            )
        if self.n_missing:
            parts.append(f"{self.n_missing:,} rows are in one of the two only")
        return f"{self.name}: {'; '.join(parts)}"


@dataclass(frozen=True)
class Verification:
    """What running a capsule again gave.

    Attributes
    ----------
    tables : each table of the capsule beside that of the new run
    changed : files of the capsule whose content is not what was written
    findings : sentences about what could not be run again, or is another model than it was
    versions : sentences about versions that differ; no difference by themselves
    derived : tables of the capsule that are not computed again
    """

    tables: list[Compared]
    changed: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    derived: list[str] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return all(table.same for table in self.tables) and not self.changed and not self.findings

    def lines(self) -> list[str]:
        """The report, a line each."""
        return [
            *(str(table) for table in self.tables),
            *(f"{name}: its content is not what was written" for name in self.changed),
            *self.findings,
            *self.versions,
            *(
                [f"not computed again, as they take long: {listed(self.derived)}"]
                if self.derived
                else []
            ),
            "nothing differs" if self.same else "the capsule differs from the new run",
        ]


def verify(path: Path | str, progress: Report | None = None) -> Verification:
    """Run a capsule again in an empty store and compare every table.

    Nothing of the capsule but its stimuli, its representation files and its parameters goes into
    the new run; what this machine has in its store does not either.

    Parameters
    ----------
    progress : called as the run goes on

    Raises
    ------
    InputError
        It is no capsule, is damaged, or unpacks to too much; none of its models can be had here.
    """
    files, digests = _read(Path(path))
    try:
        about = json.loads(files["capsule.json"])
        manifest = json.loads(files["manifest.json"])
        if about["format"] != FORMAT:
            raise InputError(
                f"the capsule {Path(path).name} has the format {about['format']!r}; this version "
                f"reads format {FORMAT}."
            )
        spec = AnalysisSpec.from_dict(about["spec"])
        written = {str(name): str(digest) for name, digest in about["files"].items()}
        kinds = {str(name): str(kind) for name, kind in about["kinds"].items()}
        sources = {str(name): dict(one) for name, one in about["representations"].items()}
        models = {str(name): str(identity) for name, identity in about["models"].items()}
        shown = dict(about["shown"])
        # Older capsules have neither.
        pair = [(str(model), int(layer)) for model, layer in about.get("pair") or ()]
        derived = [str(name) for name in about.get("derived", ())]
        versions = dict(manifest["versions"])
        names = [*_TABLES, *(name for name in _SOME if f"tables/{name}" in files)]
        expected = {name: files[f"tables/{name}"] for name in names}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise _no_capsule(path, "an entry is missing or not of the right form") from error
    changed = sorted(name for name, digest in written.items() if digests.get(name) != digest)
    with scratch("verify") as folder:
        spec, findings = _unpacked(spec, files, kinds, sources, Path(folder))
        stimuli = read_written(spec.stimuli, ordered=spec.ordered, nominal=spec.nominal)
        analysis = run(spec, Store(Path(folder) / "store"), progress, stimuli)
        shown, missing = _still_there(shown, analysis)
        selection = selection_as_shown(analysis, shown)
        computed = tables_as_csv(analysis.results_of(selection))
        if len(pair) == 2 and set(pair) <= set(analysis.layers):
            why = why_alike(analysis, selection, (pair[0], pair[1]))
            computed |= {name: as_csv_file(table) for name, table in why.items()}
    findings += missing
    findings += [
        f"the model {name} is not the one of the capsule: its weights are "
        f"{analysis.manifest['models'][name]['weights'][:12]}, not {identity[:12]}."
        for name, identity in models.items()
        if name in analysis.manifest["models"]
        and analysis.manifest["models"][name].get("weights") != identity
    ]
    now = analysis.manifest["versions"]
    # A table that is no longer made has no rows now.
    computed = {name: computed.get(name, expected[name].partition(b"\n")[0]) for name in names}
    return Verification(
        tables=[_compare(name, expected[name], computed[name], path) for name in names],
        changed=changed,
        findings=findings,
        versions=[
            f"version of {name}: {before} in the capsule, {now.get(name)} here"
            for name, before in versions.items()
            if before != now.get(name)
        ],
        derived=derived,
    )


def _no_capsule(path: Path | str, why: str) -> InputError:
    return InputError(
        f"{Path(path).name} is no capsule that can be verified: {why}; expected a zip as the "
        "program writes it."
    )


def _read(path: Path) -> tuple[dict[str, bytes], dict[str, str]]:
    """The files of a capsule that a run needs, and the digest of every file."""
    import hashlib

    if not path.is_file():
        raise InputError(f"there is no capsule {str(path)!r}.")
    files: dict[str, bytes] = {}
    digests: dict[str, str] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            names = [entry.filename for entry in entries]
            if len(entries) > MOST_FILES or len(set(names)) < len(names):
                raise _no_capsule(path, f"it has {len(entries):,} files, or two of one name")
            total = sum(entry.file_size for entry in entries)
            if total > LARGEST:
                raise _no_capsule(
                    path, f"it unpacks to {total / 1e9:.1f} GB, over {LARGEST / 1e9:g} GB"
                )
            left = LARGEST
            for entry in entries:
                name = entry.filename
                if name.startswith("/") or "\\" in name or ".." in name.split("/"):
                    raise _no_capsule(path, f"it holds the path {name[:60]!r}, outside of itself")
                digest, parts = hashlib.sha256(), []
                needed = _needed(name)
                with archive.open(entry) as file:
                    # What an entry says of its size may not be true: counted as it comes.
                    while part := file.read(2**20):
                        left -= len(part)
                        if left < 0:
                            raise _no_capsule(path, f"it unpacks to over {LARGEST / 1e9:g} GB")
                        digest.update(part)
                        if needed:
                            parts.append(part)
                digests[name] = digest.hexdigest()
                if needed:
                    files[name] = b"".join(parts)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        UnicodeDecodeError,
    ) as error:
        raise _no_capsule(path, "it is damaged or no zip") from error
    for name in ("capsule.json", "manifest.json", "stimuli.csv"):
        if name not in files:
            raise _no_capsule(path, f"it has no {name}")
    return files, digests


def _needed(name: str) -> bool:
    return (
        name in ("capsule.json", "manifest.json", "stimuli.csv")
        or (name.startswith("tables/") and name[7:] in (*_TABLES, *_SOME))
        or _FILE.fullmatch(name) is not None
    )


def _unpacked(
    spec: AnalysisSpec,
    files: Mapping[str, bytes],
    kinds: Mapping[str, str],
    sources: Mapping[str, Mapping[str, Any]],
    folder: Path,
) -> tuple[AnalysisSpec, list[str]]:
    """The analysis on files under names of our own, and what cannot be run again."""
    (folder / "stimuli.csv").write_bytes(files["stimuli.csv"])
    findings, there = [], []
    for number, (name, path) in enumerate(spec.representations):
        data = files.get(path) if _FILE.fullmatch(path) else None
        if data is None or name not in sources:
            digest = str(sources.get(name, {}).get("sha256", ""))[:12]
            findings.append(
                f"{name} cannot be run again: its representations file (SHA-256 {digest}) is too "
                "large to be in the capsule."
            )
            continue
        target = folder / f"{number:02d}{Path(path).suffix}"
        target.write_bytes(data)
        if sha256_file(target) != sources[name].get("sha256"):
            findings.append(f"the representations file of {name} is not the one of the run.")
        there.append((name, str(target)))
    return (
        replace(
            with_files(as_written(spec, str(folder / "stimuli.csv")), there),
            ordered=tuple(name for name, kind in kinds.items() if kind == "ordered"),
            nominal=tuple(name for name, kind in kinds.items() if kind == "nominal"),
        ),
        findings,
    )


def _still_there(shown: dict[str, Any], analysis: Analysis) -> tuple[dict[str, Any], list[str]]:
    """What is shown without the layers that the new run does not have, and why it has not."""
    findings = [notice for notice in analysis.notices if " was left out: " in notice]
    if shown["layers"] is None:
        return shown, findings
    layers = [one for one in shown["layers"] if (str(one[0]), int(one[1])) in analysis.layers]
    return {**shown, "layers": layers}, findings


def _parsed(data: bytes, path: Path | str, name: str) -> pd.DataFrame:
    try:
        return pd.read_csv(BytesIO(data), keep_default_na=False, na_values=[""])
    except (ValueError, UnicodeDecodeError) as error:
        raise _no_capsule(path, f"its table {name} cannot be read") from error


def _compare(name: str, old: bytes, new: bytes, path: Path | str) -> Compared:
    """Compare two tables number by number; a row is known by what is no measurement in it."""
    before, now = (_long(_parsed(data, path, name), name) for data in (old, new))
    if name == "layer_map.csv":
        before, now = _distances(before), _distances(now)
    both = before.merge(now, on="key", how="outer", suffixes=("_before", "_now"), indicator=True)
    n_missing = int((both["_merge"] != "both").sum())
    both = both[both["_merge"] == "both"]
    a, b = (
        pd.to_numeric(both[side], errors="coerce").to_numpy(dtype=np.float64)
        for side in ("value_before", "value_now")
    )
    apart = np.abs(a - b)
    apart[np.isnan(a) & np.isnan(b)] = 0.0
    apart[np.isnan(apart)] = np.inf
    worst = ""
    if len(apart) and apart.max() > TOLERANCE:
        at = int(apart.argmax())
        worst = f"{both['key'].iloc[at]}: {a[at]:.6g} in the capsule, {b[at]:.6g} now"
    return Compared(
        name=name,
        largest=float(apart.max(initial=0.0)),
        n_values=len(apart),
        n_different=int((apart > TOLERANCE).sum()),
        worst=worst,
        n_missing=n_missing,
    )


def _long(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """A row a number: `key` says in words which one it is, `value` is the number."""
    if name in _SQUARES and len(table.columns):
        first = str(table.columns[0])
        keys = [first]
    else:
        keys = [column for column in table.columns if column in _KEYS]
        if name == "folds.csv":
            keys = ["stimulus"] if "stimulus" in table else []
    table = table.assign(**{column: table[column].astype(str) for column in keys})
    table = table.rename(columns={"value": "contribution"})  # the name that `melt` gives
    values = [column for column in table.columns if column not in keys]
    long = table.melt(id_vars=keys, value_vars=values)
    if name in _SQUARES:
        words = long[keys[0]] + " and " + long["variable"].astype(str) if keys else long["variable"]
    else:
        words = long["variable"].astype(str)
        for column in keys:
            words = words + f", {column} " + long[column]
    return pd.DataFrame({"key": words, "value": long["value"]}).drop_duplicates("key")


def _distances(long: pd.DataFrame) -> pd.DataFrame:
    """Of a map its distances: turning or mirroring it changes nothing that it says."""
    points = long.copy()
    points["axis"] = points["key"].str.slice(0, 1)
    points["place"] = points["key"].str.slice(3)
    wide = points.pivot_table(index="place", columns="axis", values="value", sort=False)
    rows = []
    for measure, positions in wide.groupby(wide.index.str.extract(r"^measure (\w+)", expand=False)):
        xy = positions.to_numpy(dtype=np.float64)
        square = np.linalg.norm(xy[:, None] - xy[None, :], axis=-1)
        names = [place.partition(", ")[2] for place in positions.index]
        rows += [
            (f"distance in the map of {measure} of {names[i]} and {names[j]}", square[i, j])
            for i in range(len(names))
            for j in range(i)
        ]
    return pd.DataFrame(rows, columns=["key", "value"])
