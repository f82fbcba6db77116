"""An analysis run again from its manifest, and which of its tables differ."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.layer_sources import LEFT_OUT
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec, further_files, unread_options, with_files
from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.files import scratch
from mlem_core.base.text import many, short
from mlem_core.base.typing import Report
from mlem_core.report.analysis_tables import MANIFEST, Manifest, analysis_tables, read_manifest
from mlem_core.report.formats import csv_bytes
from mlem_core.stimuli.datasets import SETS
from mlem_core.stimuli.formats import find_files, ordered_steps
from mlem_core.stimuli.saved_stimuli import STIMULI, read_saved
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.storage.digests import sha256_file
from mlem_core.storage.store import Store

# Versions of torch and processors differ in the last bits of float32; tables then differ by less.
TOLERANCE = 1e-4
# It follows from the tables of similarities, whose last bits may turn it as a whole.
NOT_COMPARED = "layer_map.csv"
# The files of a zip that are read; others, such as figures, are left in it.
_READ = re.compile(r"manifest\.json|rdms\.npz|[\w-]{1,99}\.csv")
# Bytes that these may unpack to.
LARGEST = 1_000_000_000


@dataclass(frozen=True)
class Rerun:
    """Outcome of running an analysis again.

    Attributes
    ----------
    differences : of each table, in words, by its file name; empty where there is none
    notes : sentences about models that are missing or have other weights, and other versions
    """

    differences: dict[str, str]
    notes: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether all tables are equal."""
        return not any(self.differences.values())

    def lines(self) -> list[str]:
        """A line for each table that differs, the notes, and the outcome."""
        differing = [f"{name}: {text}" for name, text in self.differences.items() if text]
        compared = f"{many(len(self.differences), 'table')} compared"
        outcome = f"all are equal within {TOLERANCE:g}"
        if differing:
            outcome = f"{len(differing)} not equal within {TOLERANCE:g}"
        return [*differing, *self.notes, f"{compared}: {outcome}."]


def rerun(
    path: Path | str,
    *,
    stimuli: str | None = None,
    representations: Mapping[str, str] | None = None,
    progress: Report | None = None,
) -> Rerun:
    """Run an analysis again in an empty store, and compare its tables.

    Parameters
    ----------
    path : `manifest.json` beside the tables of `analyze`, or a zip of `mlem_core.report.archive`
    stimuli : file of the stimuli, where it is not beside the manifest
    representations : file of each model that is given by one, where it is not beside the manifest
    progress : called as the run goes on

    Raises
    ------
    InputError
        It is no such manifest or zip; its inputs are not there, or are others; none of its models
        can be had.
    """
    given, report = Path(path), progress or (lambda _: None)
    with scratch("rerun") as home:
        folder = given.parent
        if given.suffix != ".json":
            folder = home / "unpacked"
            _unpack(given, folder)
        manifest = read_manifest(given if given.suffix == ".json" else folder / MANIFEST)
        if not manifest.written.get("analyze"):
            raise InputError(
                f"{given.name} lists no table of analyze, so there is none to compare."
            )
        spec = _with_files(manifest, given.parent, representations or {})
        if manifest.stimuli.as_written and stimuli is None:
            stimuli = str(folder / STIMULI)
        stimulus_set = _read_stimuli(manifest, spec, given.parent, stimuli)
        store = Store(home / "store", overlays=())
        analysis = run(spec, store, report, stimulus_set)
        results = analysis.results()
        tables = analysis_tables(analysis, results, manifest.table_options, store, report).tables
        differences = {
            name: _difference(folder / name, tables.get(name))
            for name in sorted({*manifest.written["analyze"], *tables} - {NOT_COMPARED})
        }
    return Rerun(differences, tuple(_notes(manifest, analysis)))


def _unpack(path: Path, folder: Path) -> None:
    """Unpack the files of a zip that a rerun reads.

    Raises InputError: it is no zip, is damaged, or unpacks to too much.
    """
    if not path.is_file():
        raise InputError(f"there is no file {short(str(path))}; expected manifest.json or a zip.")
    left = LARGEST
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if not _READ.fullmatch(entry.filename):
                    continue
                target = folder / entry.filename
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as packed, target.open("wb") as file:
                    # An entry's own size may be a lie, so bytes are counted as they come.
                    while part := packed.read(2**20):
                        left -= len(part)
                        if left < 0:
                            raise InputError(f"{path.name} unpacks to more than {LARGEST:,} bytes.")
                        file.write(part)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, UnicodeDecodeError) as error:
        raise InputError(f"{path.name} is no zip of Download all, or is damaged.") from error


def _input_file(name: str, folder: Path, option: str) -> str:
    """Path of an input file: in the folder, or else where the manifest names it.

    Raises InputError: it is not there.
    """
    for candidate in (folder / Path(name).name, Path(name)):
        if any(path.is_file() for path in find_files(str(candidate))):
            return str(candidate)
    raise InputError(f"there is no {short(name)} beside the manifest; name the file by {option}.")


def _with_files(
    manifest: Manifest, folder: Path, representations: Mapping[str, str]
) -> AnalysisSpec:
    """The analysis with the representations files of this machine.

    Raises InputError: an entry of another form; a file that is missing or another one.
    """
    spec = manifest.requested
    for name in representations:
        check_choice("representations", name, dict(spec.representations))
    files = []
    for name, path in spec.representations:
        if name not in manifest.models:
            continue  # it was left out
        option = f"--representations {name}=FILE"
        file = representations.get(name) or _input_file(path, folder, option)
        if sha256_file(Path(file)) != manifest.models[name].get("sha256"):
            raise InputError(
                f"the representations file {short(Path(file).name)} of {name} is not the file of "
                f"the analysis; name that one by {option}."
            )
        files.append((name, file))
    spec = with_files(spec, files)
    changes: dict[str, Any] = {
        field: tuple(
            (name, _input_file(path, folder, f"the entry {field} of the manifest"))
            for name, path in getattr(spec, field)
        )
        for field in further_files()
    }
    spec = replace(spec, **changes)
    spec.check()
    return spec


def _read_stimuli(
    manifest: Manifest, spec: AnalysisSpec, folder: Path, given: str | None
) -> StimulusSet:
    """The stimuli of the analysis, from the file that is given or that of the manifest.

    Raises InputError: they are not there, or others.
    """
    about, option = manifest.stimuli, "--stimuli FILE"
    if given is not None and about.as_written:
        stimuli = read_saved(Path(given), about.features, about.name)
    elif given is None and spec.stimuli in SETS:
        stimuli = spec.load_stimuli()
    else:
        file = given or _input_file(spec.stimuli, folder, option)
        named: dict[str, Any] = {
            step.name: tuple(
                (name, _input_file(path, folder, option)) for name, path in getattr(spec, step.name)
            )
            for step in ordered_steps()
            if step.names_files
        }
        stimuli = replace(spec, stimuli=file, **named).load_stimuli()
    if stimuli.select(spec.features).digest != about.digest:
        raise InputError(
            f"the stimuli {short(stimuli.name)} are not those of the analysis; name the file of "
            f"these by {option}."
        )
    return stimuli


def _difference(file: Path, table: pd.DataFrame | None) -> str:
    """Difference of a table's file from the table of the rerun, in words."""
    if table is None:
        return "the rerun does not make it"
    if not file.is_file():
        return "it is not there"
    written = csv_bytes(table)
    if file.stat().st_size > 20 * len(written) + 1_000_000:
        return "it is far larger than that of the rerun"
    try:
        before = pd.read_csv(file)
    except (ValueError, LookupError, OverflowError):
        return "it cannot be read as a table"
    return table_difference(before, pd.read_csv(io.BytesIO(written)))


def table_difference(before: pd.DataFrame, now: pd.DataFrame) -> str:
    """What pandas says of two tables that are not equal, and their largest difference."""
    try:
        pd.testing.assert_frame_equal(
            before, now, check_dtype=False, rtol=TOLERANCE, atol=TOLERANCE
        )
    except (AssertionError, TypeError, ValueError) as error:
        # Below it pandas prints both columns.
        message = str(error).partition("\n[")[0].rpartition("\n")[2]
    else:
        return ""
    if before.shape == now.shape and [*before] == [*now]:
        changes = before.select_dtypes("number") - now.select_dtypes("number")
        largest = changes.abs().max().max()
        message += f"; the largest difference of two numbers is {largest:.3g}"
    return message


def _notes(manifest: Manifest, analysis: Analysis) -> list[str]:
    """Sentences on models that are missing or others, and on other versions."""
    notes = [notice for notice in analysis.notices if LEFT_OUT.search(notice)]
    notes += unread_options(manifest.parameters)
    for name, facts in analysis.manifest["models"].items():
        before = manifest.models.get(name, {}).get("weights")
        if before is not None and before != facts.get("weights"):
            notes.append(f"The model {name} has other weights than the model of the analysis.")
    versions = analysis.manifest["versions"]
    changed = [
        f"{name} {before} then, {versions.get(name)} now"
        for name, before in manifest.versions.items()
        if before != versions.get(name)
    ]
    return notes + ([f"Versions: {'; '.join(changed)}."] if changed else [])
