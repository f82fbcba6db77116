"""An analysis run again from its manifest, and which of its tables differ."""

from __future__ import annotations

import contextlib
import io
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial.distance import pdist, squareform

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.files import RDMS
from mlem_core.analysis.representations import LEFT_OUT
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec, with_files, with_models
from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.files import parsed, scratch
from mlem_core.base.text import many, short
from mlem_core.base.typing import Report
from mlem_core.data.columns import Kind
from mlem_core.data.datasets import SETS
from mlem_core.data.distance_features import read_kept
from mlem_core.data.stimuli import StimulusSet
from mlem_core.data.treebank import treebank_paths
from mlem_core.models import model_paths
from mlem_core.models.registry import base_name, check_hub_name, comes_along
from mlem_core.report.analysis_tables import TableOptions, analysis_tables
from mlem_core.report.formats import csv_bytes
from mlem_core.report.portable import in_sentences, in_table
from mlem_core.storage.digests import sha256_file
from mlem_core.storage.store import Store

# Versions of torch and processors differ in the last bits of float32; tables then differ by less.
TOLERANCE = 1e-4
MANIFEST = "manifest.json"
# The files of a zip that are read; others, such as figures, are left in it.
_READ = re.compile(r"manifest\.json|rdms\.npz|[\w-]+\.csv|representations/[\w-]+\.\w+")
# A zip may unpack to anything. It may hold no more bytes than this, nor than 30 times its own
# size; a table or manifest takes up to 30 times its bytes in memory, and has bounds of its own.
LARGEST = 1_000_000_000
SMALLEST, TIMES_PACKED = 50_000_000, 30
LARGEST_READ = {".json": 16_000_000, ".csv": 100_000_000}
MOST_FILES = 2_000


@dataclass(frozen=True)
class TableComparison:
    """A table beside the same table of the rerun.

    Attributes
    ----------
    name : its file name
    difference : in a sentence; empty where the tables are equal within the tolerance
    """

    name: str
    difference: str = ""


@dataclass(frozen=True)
class Rerun:
    """Outcome of running an analysis again.

    Attributes
    ----------
    tables : the comparison of each table
    notes : sentences about models that are missing or have other weights, and other versions
    tolerance : by which two numbers may differ, absolutely or relative to their size
    """

    tables: tuple[TableComparison, ...]
    notes: tuple[str, ...]
    tolerance: float

    @property
    def same(self) -> bool:
        """Whether all tables are equal."""
        return not any(table.difference for table in self.tables)

    def lines(self) -> list[str]:
        """A line for each table that differs, the notes, and the outcome."""
        differences = [table.difference for table in self.tables if table.difference]
        n, within = many(len(self.tables), "table"), f"within {self.tolerance:g}"
        outcome = f"{n} compared: all are equal {within}."
        if differences:
            verb = "differs" if len(differences) == 1 else "differ"
            outcome = f"{n} compared: {len(differences)} {verb} by more than {self.tolerance:g}."
        return [" ".join(line.split()) for line in (*differences, *self.notes, outcome)]


@dataclass(frozen=True)
class _Stimuli:
    """Entries of `stimuli` in a manifest."""

    name: str
    digest: str
    features: dict[str, Kind]
    as_written: bool = False


@dataclass(frozen=True)
class _Manifest:
    """Entries of a manifest that a rerun reads."""

    parameters: dict[str, Any]
    stimuli: _Stimuli
    models: dict[str, dict[str, Any]]
    versions: dict[str, str | None]
    tables: list[str]
    written: dict[str, list[str]]
    options: TableOptions = field(default_factory=TableOptions)

    @property
    def own_tables(self) -> list[str]:
        """Names of the tables that `analyze` wrote of this analysis."""
        return sorted({*self.tables} & {*self.written.get("analyze", ())})


@dataclass(frozen=True)
class _Inputs:
    """Places of the inputs: the folder of the manifest, and files that the user names.

    Attributes
    ----------
    path : what was given, for messages
    folder : of the manifest
    unpacked : whether the folder was a zip; no path may then lead out of it
    stimuli, representations, models : files and folders that the user names
    """

    path: Path
    folder: Path
    unpacked: bool
    stimuli: str | None
    representations: Mapping[str, str]
    models: Mapping[str, str]

    def find(self, name: str, option: str) -> str:
        """Path of an input file, from its name in the manifest.

        Raises InputError: it is not there.
        """
        candidates = [self.folder / name]
        if not self.unpacked:
            candidates += [Path(name), self.folder / Path(name).name]
        for candidate in candidates:
            inside = candidate.resolve().is_relative_to(self.folder.resolve())
            if inside or not self.unpacked:
                if any(path.exists() for path in treebank_paths(str(candidate))):
                    return str(candidate)
        raise InputError(
            f"there is no {short(name)} with {self.path.name}; name the file by {option}."
        )


def rerun(
    path: Path | str,
    *,
    stimuli: str | None = None,
    representations: Mapping[str, str] | None = None,
    models: Mapping[str, str] | None = None,
    tolerance: float = TOLERANCE,
    download: bool = False,
    progress: Report | None = None,
) -> Rerun:
    """Run an analysis again in an empty store, and compare its tables.

    Parameters
    ----------
    path : `manifest.json` beside the tables of `analyze`, the folder of both, or a zip of
        `mlem_core.report.archive`
    stimuli : file of the stimuli, where it is not beside the manifest
    representations : file of each model that is given by one, where it is not beside the manifest
    models : folder of each model that was one, by its name in the manifest
    tolerance : by which two numbers may differ, absolutely or relative to their size
    download : whether models of the Hugging Face hub that are not on this machine are fetched
    progress : called as the run goes on

    Raises
    ------
    InputError
        It is no such manifest or zip; its inputs are not there, or are others; none of its models
        can be had.
    """
    if not tolerance >= 0:
        raise InputError(f"found the tolerance {tolerance:g}; expected 0 or a larger number.")
    given, report = Path(path), progress or (lambda _: None)
    with scratch("rerun") as folder:
        source = given if given.is_dir() else given.parent
        unpacked = given.is_file() and given.name != MANIFEST and given.suffix != ".json"
        if unpacked:
            source = folder / "unpacked"
            _unpack(given, source)
        file = given if given.suffix == ".json" else source / MANIFEST
        if not file.is_file():
            raise InputError(f"there is no {MANIFEST} in {str(given)!r}.")
        manifest = parsed(_Manifest, file.read_bytes(), f"the manifest {given.name}")
        if not manifest.own_tables:
            raise InputError(f"{given.name} lists no table of analyze, so nothing can be compared.")
        manifest.options.check()
        inputs = _Inputs(given, source, unpacked, stimuli, representations or {}, models or {})
        spec, names = _spec(manifest, inputs)
        stimulus_set = _stimuli(manifest, spec, inputs)
        _check_models(spec, names, inputs, download)
        store = Store(folder / "store", overlays=())
        with contextlib.nullcontext() if download else model_paths.kept_only():
            analysis = run(spec, store, report, stimulus_set)
        computed = analysis_tables(analysis, analysis.results(), manifest.options, store, report)
        made = {name: in_table(table, names) for name, table in computed.tables.items()}
        comparisons = [
            _compared(name, source / name, made.get(name), tolerance)
            for name in manifest.own_tables
        ]
        comparisons += [
            TableComparison(name, f"{name} is made by the rerun only.")
            for name in made
            if name not in manifest.own_tables
        ]
    notes = _notes(manifest, analysis, names)
    return Rerun(tuple(comparisons), tuple(notes), tolerance)


def _unpack(path: Path, folder: Path) -> None:
    """Unpack the files of a zip that a rerun reads.

    Raises InputError: it is no zip, is damaged, unpacks to too much, or names a path outside.
    """

    def refused(why: str) -> InputError:
        return InputError(f"{path.name} cannot be rerun: {why}; expected a zip of Download all.")

    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            names = [entry.filename for entry in entries]
            if len(entries) > MOST_FILES or len({*names}) < len(names):
                raise refused(f"it has {len(entries):,} files, or two of one name")
            left = most = min(LARGEST, SMALLEST + TIMES_PACKED * path.stat().st_size)
            for entry in entries:
                name = entry.filename
                if name.startswith("/") or "\\" in name or ".." in name.split("/"):
                    raise refused(f"it holds the path {short(name)}, outside of itself")
                if not _READ.fullmatch(name):
                    continue
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                allowed = LARGEST_READ.get(target.suffix, most)
                with archive.open(entry) as packed, target.open("wb") as file:
                    # An entry's own size may be a lie, so bytes are counted as they come.
                    while part := packed.read(2**20):
                        left, allowed = left - len(part), allowed - len(part)
                        if left < 0 or allowed < 0:
                            raise refused(f"its {name} unpacks to too much")
                        file.write(part)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise refused("it is damaged or no zip") from error
    except (RuntimeError, UnicodeDecodeError) as error:
        raise refused("it is encrypted or damaged") from error


def _spec(manifest: _Manifest, inputs: _Inputs) -> tuple[AnalysisSpec, dict[str, str]]:
    """The analysis with the files of this machine, and the manifest's names of its models.

    Raises InputError: an entry of another form; a file that is missing or another one.
    """
    spec = AnalysisSpec.from_dict(manifest.parameters)
    for name in inputs.models:
        check_choice("model", name, spec.models)
    for name in inputs.representations:
        check_choice("representations", name, dict(spec.representations))
    files = []
    for name, path in spec.representations:
        facts = manifest.models.get(name)
        if facts is None:
            continue  # it was left out
        option = f"--representations {name}=FILE"
        file = inputs.representations.get(name) or inputs.find(path, option)
        if not Path(file).is_file() or sha256_file(Path(file)) != facts.get("sha256"):
            raise InputError(
                f"the representations file {short(Path(file).name)} of {name} is not the file of "
                f"the analysis; name that one by {option}."
            )
        files.append((name, file))
    places = {
        name: inputs.models[name] + name[len(base_name(name)) :]
        for name in spec.models
        if name in inputs.models
    }
    spec = with_models(
        with_files(spec, files), [places.get(name, name) for name in spec.models], places
    )
    spec.check()
    return spec, {place: name for name, place in places.items()}


def _check_models(
    spec: AnalysisSpec, names: Mapping[str, str], inputs: _Inputs, download: bool
) -> None:
    """Raise for a model of the hub that is not here, and in a zip for a path of a model."""
    for name in spec.models:
        if name in names or comes_along(name):
            continue
        model, _, revision = base_name(name).partition("@")
        if not model_paths.is_name(model) or Path(model).expanduser().exists():
            if inputs.unpacked:
                check_hub_name(base_name(name))
                raise InputError(
                    f"{short(name)} in {inputs.path.name} was a folder of another machine; name "
                    f"its folder by --model {name}=FOLDER."
                )
            continue
        if not download and model_paths.cached(model, revision or None) is None:
            raise InputError(
                f"the model {short(name)} is not on this machine; to fetch it from the Hugging "
                f"Face hub add --download, and name a folder by --model {name}=FOLDER."
            )


def _stimuli(manifest: _Manifest, spec: AnalysisSpec, inputs: _Inputs) -> StimulusSet:
    """The stimuli of the analysis.

    Raises InputError: they are not there, or others.
    """
    about = manifest.stimuli
    if spec.stimuli in SETS and inputs.stimuli is None:
        stimuli = spec.load_stimuli()
    else:
        file = Path(inputs.stimuli or inputs.find(spec.stimuli, "--stimuli FILE"))
        if about.as_written:
            stimuli = read_kept(file, about.features, about.name, file.with_name(RDMS))
        else:
            rdms = tuple((name, inputs.find(path, "--stimuli FILE")) for name, path in spec.rdms)
            stimuli = replace(spec, stimuli=str(file), rdms=rdms).load_stimuli()
    if stimuli.select(spec.features).digest != about.digest:
        raise InputError(
            f"the stimuli {short(stimuli.name)} are not those of the analysis; name the file of "
            "these by --stimuli FILE."
        )
    return stimuli


def _compared(
    name: str, file: Path, table: pd.DataFrame | None, tolerance: float
) -> TableComparison:
    """Comparison of a table's file with the table of the rerun."""
    if not file.is_file():
        return TableComparison(name, f"{name} is listed in the manifest, and is not there.")
    if table is None:
        return TableComparison(name, f"{name} is not made by the rerun.")
    new = csv_bytes(table)
    if file.stat().st_size > 20 * len(new) + 1_000_000:
        return TableComparison(name, f"{name} differs: it is far larger than the rerun's.")
    try:
        before = _read_table(file.read_bytes(), name)
    except (ValueError, LookupError, OverflowError):
        return TableComparison(name, f"{name} differs: it cannot be read as a table.")
    difference = table_difference(before, _read_table(new, name), tolerance)
    return TableComparison(name, difference and f"{name} differs: {difference}.")


def _read_table(data: bytes, name: str) -> pd.DataFrame:
    """A table; a map of layers with the distances of its points, which no rotation changes."""
    table = pd.read_csv(io.BytesIO(data), keep_default_na=False, na_values=[""])
    if name != "layer_map.csv":
        return table
    points = [group[["x", "y"]].to_numpy(np.float64) for _, group in table.groupby("measure")]
    apart = pd.concat([pd.DataFrame(squareform(pdist(one))) for one in points], ignore_index=True)
    return table.drop(columns=["x", "y"]).join(apart.add_prefix("distance to point "))


def table_difference(before: pd.DataFrame, now: pd.DataFrame, tolerance: float) -> str:
    """The largest difference of two tables in words; empty where they are equal."""
    if list(before.columns) != list(now.columns):
        named = [", ".join(map(short, map(str, table.columns))) for table in (before, now)]
        return f"its columns are {named[0]}; in the rerun {named[1]}"
    if len(before) != len(now):
        return f"it has {len(before):,} rows; in the rerun {len(now):,}"
    try:
        pd.testing.assert_frame_equal(
            before, now, check_dtype=False, rtol=tolerance, atol=tolerance
        )
    except (AssertionError, TypeError, ValueError) as error:
        first_line = str(error).partition("\n")[0]
    else:
        return ""
    distance = np.zeros(now.shape)
    for place, column in enumerate(now):
        texts = [table[column].astype(object).where(table[column].notna(), "") for table in
                 (before, now)]  # fmt: skip
        a, b = (pd.to_numeric(text, errors="coerce").to_numpy(np.float64) for text in texts)
        with np.errstate(invalid="ignore"):
            apart = np.abs(a - b)
            within = apart <= tolerance * np.maximum(1.0, np.maximum(np.abs(a), np.abs(b)))
        within |= (texts[0].astype(str) == texts[1].astype(str)).to_numpy()
        distance[:, place] = np.where(within, 0.0, np.where(np.isnan(apart), np.inf, apart))
    if not distance.any():
        return first_line
    row, place = divmod(int(distance.argmax()), distance.shape[1])
    cells = (table.iloc[row, place] for table in (before, now))
    cell = [short(value) if isinstance(value, str) else f"{value:.7g}" for value in cells]
    labels = now.select_dtypes(exclude="floating").columns.drop(now.columns[place], errors="ignore")
    where = ", ".join(f"{label} {now[label].iloc[row]}" for label in labels) or f"row {row + 1}"
    n = f"{np.count_nonzero(distance):,} of {distance.size:,} cells"
    return f"{n}, most {now.columns[place]} of {where}: {cell[0]} before, {cell[1]} in the rerun"


def _notes(manifest: _Manifest, analysis: Analysis, names: Mapping[str, str]) -> list[str]:
    """Sentences on models that are missing or others, and on other versions."""
    notes = [one for one in in_sentences(analysis.notices, names) if LEFT_OUT.search(one)]
    for model, facts in analysis.manifest["models"].items():
        name = names.get(model, model)
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
