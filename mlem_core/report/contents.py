"""What a capsule says of itself, and how it is written and read: checked before it is used."""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from mlem_core.analysis.selection import Selection
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.schema import parsed
from mlem_core.base.text import short
from mlem_core.base.typing import Layer
from mlem_core.data.columns import Kind

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
    """What was chosen of the figures of a capsule, and how features and models are called in it.

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
    """What `capsule.json` holds.

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
        """The same with its seal, by which a change of any entry is known."""
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


@dataclass(frozen=True)
class Manifest:
    """What is used of `manifest.json` before it is compared."""

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
        """Its files whose content is not what was written."""
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
