"""Contents of a capsule, writing and reading it, and names in it in place of paths."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd

from mlem_core.analysis.analysis import Analysis, Selection
from mlem_core.analysis.results import Results
from mlem_core.analysis.source import as_written
from mlem_core.analysis.spec import AnalysisSpec, with_files, with_models
from mlem_core.base.errors import InputError
from mlem_core.base.files import parsed
from mlem_core.base.labels import Names
from mlem_core.base.text import short
from mlem_core.base.typing import Layer, layer_name, parse_layer
from mlem_core.data.columns import Kind
from mlem_core.models.registry import base_name, comes_along, packaged
from mlem_core.storage.digests import Digested, changed

FORMAT = 3
# Confidence intervals of more are not computed again.
MOST_REPLICATES = 10_000
# A zip may unpack to anything: to no more bytes than this, nor than a capsule of its size would,
# is it unpacked. What is read before the run has bounds of its own, as reading takes 10 to 30 times
# its bytes of memory; all else is compared with what the run makes (`file_diff.far_larger`).
LARGEST = 1_000_000_000
SMALLEST, TIMES_PACKED = 50_000_000, 30
LARGEST_READ = {"capsule.json": 16_000_000, "manifest.json": 16_000_000, "stimuli.csv": 100_000_000}
MOST_FILES = 2_000
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say


@dataclass(frozen=True)
class SourceFile:
    """A file that stands for a model: where it is in the capsule, if it is."""

    file: str
    sha256: str
    included: bool


@dataclass(frozen=True)
class DrawnAs:
    """Options of the figures of a capsule, and its display names of features and models.

    Attributes
    ----------
    options : as of `mlem_core.figures.context.Drawing`
    features, models : display names by identifier
    """

    options: dict[str, str]
    features: dict[str, str]
    models: dict[str, str]


@dataclass(frozen=True)
class About:
    """Contents of `capsule.json`.

    Attributes
    ----------
    format : `FORMAT`
    spec : the specification, as `AnalysisSpec.to_dict` has it
    kinds : "ordered", "nominal", "vector" or "rdm", by feature
    shown : what is shown of the analysis
    representations : the files that stand for models, by name
    models : digests of the weights, by model
    folders : the models that were folders of the machine, which a capsule only names
    files : SHA-256 of every other file
    pair : the two layers that are compared, if there are two
    derived : tables that `verify` does not compute again
    drawn : what was chosen of the figures, and names to show
    replicates : of the confidence intervals that `verify` computes again; 0 where there are none
    seal : SHA-256 of all that stands above
    """

    format: int
    spec: dict[str, Any]
    kinds: dict[str, Kind]
    shown: Selection
    representations: dict[str, SourceFile]
    models: dict[str, str]
    folders: tuple[str, ...]
    files: dict[str, str]
    pair: tuple[Layer, Layer] | None
    derived: tuple[str, ...]
    drawn: DrawnAs
    replicates: int = 0
    seal: str = ""

    def sealed(self) -> About:
        """Contents with their seal, by which a change of any entry is known."""
        values = json.dumps(asdict(replace(self, seal="")), sort_keys=True)
        return replace(self, seal=hashlib.sha256(values.encode()).hexdigest())


def as_json(value: About | dict[str, Any]) -> bytes:
    """An object as JSON, an entry a line."""
    found = asdict(value) if isinstance(value, About) else value
    return (json.dumps(found, indent=1, ensure_ascii=False) + "\n").encode()


def write_zip(files: Mapping[str, bytes], target: Path | BinaryIO) -> None:
    """Write files into a zip, in which the same files give the same bytes."""
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[path])


def in_zip(files: Mapping[str, bytes]) -> bytes:
    """Content of a zip of files, see `write_zip`."""
    target = BytesIO()
    write_zip(files, target)
    return target.getvalue()


@dataclass(frozen=True)
class Manifest:
    """Entries of `manifest.json` that are used before it is compared."""

    stimuli: dict[str, Any]
    models: dict[str, dict[str, Any]]
    notices: list[str]
    versions: dict[str, str | None]
    chosen: dict[str, Any] | None = None


@dataclass(frozen=True)
class Capsule:
    """A capsule that has been read: the content and the digest of its files."""

    path: Path
    files: dict[str, bytes]
    digests: dict[str, str]
    about: About
    manifest: Manifest
    spec: AnalysisSpec

    @property
    def changed(self) -> list[str]:
        """Files of the capsule whose content is not what was written."""
        changed = {
            name for name, digest in self.about.files.items() if self.digests[name] != digest
        }
        if self.about.sealed() != self.about:
            changed.add("capsule.json")
        return sorted(changed)


def opened(path: Path) -> Capsule:
    """A capsule whose entries have the form that they should have, and which lists all its files.

    Raises
    ------
    InputError
        It is no capsule, is damaged, of another format, or unpacks to too much.
    """
    files, digests = _read(path)
    name = path.name
    about = parsed(About, files["capsule.json"], f"the capsule.json of {name}")
    if about.format != FORMAT:
        raise InputError(
            f"the capsule {name} has the format {about.format!r}; this version reads format "
            f"{FORMAT}."
        )
    manifest = parsed(Manifest, files["manifest.json"], f"the manifest.json of {name}")
    spec = AnalysisSpec.from_dict(about.spec)
    for file in files:
        if file not in about.files and file != "capsule.json":
            raise no_capsule(path, f"it holds the file {short(file)}, which it does not list")
    if not 0 <= about.replicates <= MOST_REPLICATES:
        raise no_capsule(path, f"its intervals are of {short(str(about.replicates))} replicates")
    for file in (*about.files, *(f"tables/{one}" for one in about.derived)):
        if file not in files:
            raise no_capsule(path, f"it has no {short(file)}, which it lists")
    return Capsule(path, files, digests, about, manifest, spec)


def no_capsule(path: Path | str, why: str) -> InputError:
    """The error for a file that is no capsule, `why` being in what."""
    return InputError(
        f"{Path(path).name} is no capsule that can be verified: {why}; expected a zip as the "
        "program writes it."
    )


def _read(path: Path) -> tuple[dict[str, bytes], dict[str, str]]:
    """The files of a capsule, and the digest of each."""
    if not path.is_file():
        raise InputError(f"there is no capsule {str(path)!r}.")
    files: dict[str, bytes] = {}
    digests: dict[str, str] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            names = [entry.filename for entry in entries]
            if len(entries) > MOST_FILES or len(set(names)) < len(names):
                raise no_capsule(path, f"it has {len(entries):,} files, or two of one name")
            left = most = min(LARGEST, SMALLEST + TIMES_PACKED * path.stat().st_size)
            for entry in entries:
                name = entry.filename
                if name.startswith("/") or "\\" in name or ".." in name.split("/"):
                    raise no_capsule(path, f"it holds the path {name[:60]!r}, outside of itself")
                digest, parts, size = hashlib.sha256(), [], 0
                with archive.open(entry) as file:
                    # What an entry says of its size may not be true: counted as it comes.
                    while part := file.read(2**20):
                        left -= len(part)
                        size += len(part)
                        if left < 0:
                            raise no_capsule(path, f"it unpacks to over {most / 1e6:,.0f} MB")
                        if size > LARGEST_READ.get(name, size):
                            raise no_capsule(path, f"its {name} is over {size / 1e6:,.0f} MB")
                        digest.update(part)
                        parts.append(part)
                digests[name] = digest.hexdigest()
                files[name] = b"".join(parts)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        UnicodeDecodeError,
    ) as error:
        raise no_capsule(path, "it is damaged or no zip") from error
    for name in ("capsule.json", "manifest.json", "stimuli.csv"):
        if name not in files:
            raise no_capsule(path, f"it has no {name}")
    return files, digests


# Larger representation files are named by their digest instead.
LARGEST_FILE = 8_000_000
# As manifests of models of the hub and of packages have their revision.
_VERSIONED = re.compile(r"[0-9a-f]{40}|\S+ \S+")


def own_names(analysis: Analysis) -> dict[str, str]:
    """Names in a capsule of models that were folders or files of this machine.

    Returns
    -------
    the name of the folder, by the model's name in the analysis; two of one name are numbered
    """
    models: Mapping[str, Mapping[str, Any]] = analysis.manifest["models"]
    taken = {*models, *packaged()}
    found: dict[str, str] = {}
    for name in analysis.spec.models:
        whole = base_name(name)
        if comes_along(name) or not _of_this_machine(whole, models.get(name)):
            continue
        own = Path(whole).expanduser().name or "model"
        # Behind the @ stands the training step.
        (stem, *revision), number = re.split("(?=@)", own + name[len(whole) :]), 2
        called = "".join((stem, *revision))
        while called in taken - {name}:
            called, number = "".join((f"{stem}-{number}", *revision)), number + 1
        found[name] = called
        taken.add(called)
    return found


def _of_this_machine(name: str, facts: Mapping[str, Any] | None) -> bool:
    if facts is not None:
        return not _VERSIONED.fullmatch(str(facts["revision"]))
    # It was left out.
    return name.startswith(("/", ".", "~", "\\")) or Path(name).expanduser().exists()


def portable(
    analysis: Analysis, names: Mapping[str, str], sources: Mapping[str, SourceFile]
) -> Analysis:
    """The analysis with paths inside the capsule, its models called as `names` say."""
    files = [(name, source.file) for name, source in sources.items()]
    named = renamed(analysis, names)
    # The paths of files that were left out stand in the notices.
    said = {path: Path(path).name for _, path in analysis.spec.representations}
    notices = [_replaced(notice, said) for notice in named.notices]
    parameters = AnalysisSpec.from_dict(named.manifest["parameters"])
    parameters = with_files(as_written(parameters, "stimuli.csv"), files)
    manifest = {**named.manifest, "parameters": parameters.to_dict(), "notices": notices}
    spec = with_files(as_written(named.spec, "stimuli.csv"), files)
    return replace(named, spec=spec, manifest=manifest, notices=notices)


def renamed(analysis: Analysis, names: Mapping[str, str]) -> Analysis:
    """The analysis with its models called as `names` say."""
    manifest = analysis.manifest
    models = {names.get(name, name): facts for name, facts in manifest["models"].items()}
    parameters = AnalysisSpec.from_dict(manifest["parameters"])
    notices = in_sentences(analysis.notices, names)
    manifest = {
        **manifest,
        "parameters": _with_models(parameters, names).to_dict(),
        "models": models,
        "notices": notices,
    }
    return replace(
        analysis,
        spec=_with_models(analysis.spec, names),
        layers=[of_layer(layer, names) for layer in analysis.layers],
        manifest=manifest,
        notices=notices,
        maps={of_layer(layer, names): points for layer, points in analysis.maps.items()},
        pair_errors=in_table(analysis.pair_errors, names),
    )


def in_results(results: Results, names: Mapping[str, str]) -> Results:
    """The tables of an analysis with its models called so."""
    tables = {
        each.name: in_table(getattr(results, each.name), names)
        for each in fields(results)
        if isinstance(getattr(results, each.name), pd.DataFrame)
    }
    return replace(results, layers=[of_layer(layer, names) for layer in results.layers], **tables)


def _with_models(spec: AnalysisSpec, names: Mapping[str, str]) -> AnalysisSpec:
    return with_models(spec, [names.get(name, name) for name in spec.models], names)


def of_layer(layer: Layer, names: Mapping[str, str]) -> Layer:
    """A layer, its model called as `names` say."""
    return names.get(layer[0], layer[0]), layer[1]


def in_table(table: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """A table whose cells and headings that are a model, or "model:layer", are called so."""
    if not names:
        return table

    def named(cell: Any) -> Any:
        if not isinstance(cell, str):
            return cell
        if cell in names:
            return names[cell]
        model, colon, _ = cell.rpartition(":")
        if colon and model in names:
            return layer_name(of_layer(parse_layer(cell), names))
        # Sentences name layers too.
        return _replaced(cell, _in_words(names))

    columns = {
        name: table[name].map(named)
        for name in table.columns
        if not pd.api.types.is_numeric_dtype(table[name])
    }
    renamed = table.assign(**columns).rename(columns=named)
    return renamed if isinstance(table.index, pd.RangeIndex) else renamed.rename(index=named)


def in_names(called: Names, names: Mapping[str, str]) -> Names:
    """Display names of features and models, by the names that models have in the capsule."""
    models = {names.get(name, name): text for name, text in called.models.items()}
    layers = {
        layer_name(of_layer(parse_layer(name), names)): text for name, text in called.layers.items()
    }
    return Names(called.features, models, layers)


def in_sentences(sentences: Iterable[str], names: Mapping[str, str]) -> list[str]:
    """Sentences with the models of this machine called as `names` say."""
    said = _in_words(names)
    return [_replaced(sentence, said) for sentence in sentences]


def _in_words(names: Mapping[str, str]) -> dict[str, str]:
    # A name without a separator may be a word of any sentence.
    return {name: own for name, own in names.items() if "/" in name or "\\" in name}


def _replaced(text: str, by: Mapping[str, str]) -> str:
    for long in sorted(by, key=len, reverse=True):
        text = text.replace(long, by[long])
    return text


def content_of(source: SourceFile, path: str) -> bytes:
    """The bytes of a file that stands for a model; InputError where it has changed meanwhile."""
    data = Path(path).read_bytes()
    if hashlib.sha256(data).hexdigest() != source.sha256:
        raise changed(Path(path).name)
    return data


def sources_of(analysis: Analysis) -> dict[str, SourceFile]:
    """The files that stand for models, where they are in the capsule, and whether they are.

    Raises
    ------
    InputError
        A file that has gone or changed.
    """
    sources = {}
    files = list(dict.fromkeys(path for _, path in analysis.spec.representations))
    for name, path in analysis.spec.representations:
        facts = analysis.manifest["models"].get(name)
        if facts is None:
            continue  # it was left out
        file = Path(path)
        if not file.is_file() or Digested.of(file).digest != facts["sha256"]:
            raise InputError(
                f"the representations file {file.name!r} of {name} has gone or changed since the "
                "analysis; run the analysis again."
            )
        sources[name] = SourceFile(
            f"representations/{files.index(path):02d}{file.suffix.lower()}",
            facts["sha256"],
            file.stat().st_size <= LARGEST_FILE,
        )
    return sources
