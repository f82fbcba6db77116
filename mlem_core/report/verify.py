"""Make a capsule again, from its stimuli and models, and say what in it differs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.files import RDMS
from mlem_core.analysis.run import run
from mlem_core.analysis.selection import Selection
from mlem_core.analysis.source import as_written
from mlem_core.analysis.spec import AnalysisSpec, with_files, with_models
from mlem_core.base.errors import InputError, unknown
from mlem_core.base.held import scratch
from mlem_core.base.text import listed, many, short
from mlem_core.base.typing import Layer, Report
from mlem_core.data.given import read_kept
from mlem_core.figures import can_write_images
from mlem_core.inference.layer_intervals import layer_intervals
from mlem_core.models import hub
from mlem_core.models.checkpoints import trajectories_of
from mlem_core.models.registry import base_name, check_hub_name, comes_along
from mlem_core.report import alike, beside, capsule
from mlem_core.report.compared import Compared, compare
from mlem_core.report.contents import About, as_csv_file, as_json
from mlem_core.report.figures import FIGURES
from mlem_core.report.opened import Capsule, no_capsule, opened
from mlem_core.report.portable import in_sentences, in_table, of_layer, portable
from mlem_core.report.shown import Shown
from mlem_core.storage.sealed import sha256_file
from mlem_core.storage.store import Store

_DRAWN = (".svg", ".pdf", ".html", ".js")


@dataclass(frozen=True)
class Verification:
    """What making a capsule again gave.

    Attributes
    ----------
    tables : each table of the capsule beside that of the new run
    changed : files of the capsule whose content is not what was written
    findings : sentences about what could not be run again, is another model than it was, or is in
        another way made anew
    versions : sentences about versions that differ; no difference by themselves
    derived : tables of the capsule that are not computed again
    alike : how many other files say the same
    not_compared : of the others those that cannot be made again here, as they show what takes long
        or were drawn by other versions
    """

    tables: list[Compared]
    changed: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    derived: list[str] = field(default_factory=list)
    alike: int = 0
    not_compared: list[str] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return all(table.same for table in self.tables) and not self.changed and not self.findings

    def lines(self) -> list[str]:
        """The report, a line each."""
        said = [str(table) for table in self.tables]
        if self.alike:
            said.append(f"{many(self.alike, 'other file')}, made anew: the same")
        said += [f"{name}: its content is not what was written" for name in self.changed]
        said += [*self.findings, *self.versions]
        if self.derived:
            said.append(f"not computed again, as they take long: {listed(self.derived)}")
        if self.not_compared:
            said.append(
                "not compared, as they cannot be made here as they were: "
                f"{listed(self.not_compared)}"
            )
        said.append("nothing differs" if self.same else "the capsule differs from the new run")
        return [" ".join(line.split()) for line in said]


def verify(
    path: Path | str,
    progress: Report | None = None,
    *,
    models: Mapping[str, str] | None = None,
    download: bool = False,
) -> Verification:
    """Run a capsule again in an empty store and compare every file with the one made anew.

    Nothing of the capsule but its stimuli, its representation files and its parameters goes into
    the new run; what this machine has in its store does not either. What only the capsule can say
    is taken from it for the texts: the names of its files, versions, and how its stimuli were read.

    Parameters
    ----------
    progress : called as the run goes on
    models : the folder or file of each model that was one, by its name in the capsule
    download : whether models of the hub that are not on this machine may be fetched

    Raises
    ------
    InputError
        It is no capsule, is damaged, or unpacks to too much; none of its models can be had here, or
        one would have to be fetched.
    """
    whole = opened(Path(path))
    about = whole.about
    with scratch("verify") as folder:
        spec, folders, findings = _unpacked(whole, models or {}, Path(folder))
        _check_fetching(whole, spec, folders, download)
        stimuli = read_kept(
            Path(spec.stimuli),
            about.kinds,
            str(whole.manifest.stimuli.get("name", "stimuli.csv")),
            Path(folder) / RDMS,
        )
        store = Store(Path(folder) / "store", overlays=())
        with contextlib.nullcontext() if download else hub.kept_only():
            analysis = run(spec, store, progress, stimuli)
        analysis = replace(analysis, notices=in_sentences(analysis.notices, folders))
        findings += [
            notice
            for notice in analysis.notices
            if " was left out: " in notice and notice not in whole.manifest.notices
        ]
        notices = set(analysis.notices)
        made, analysis = _made(whole, analysis, folders, store, progress)
    findings += [
        f"the model {name} is not the one of the capsule: its weights are "
        f"{analysis.manifest['models'][name]['weights'][:12]}, not {identity[:12]}."
        for name, identity in about.models.items()
        if name in analysis.manifest["models"]
        and analysis.manifest["models"][name].get("weights") != identity
    ]
    tables = _tables(whole, made)
    found, same, left = _others(whole, made, all(table.largest == 0 for table in tables))
    own = sum(notice not in notices for notice in whole.manifest.notices)
    left += [f"{many(own, 'notice')} that the new run does not have"] * bool(own)
    # Where not everything could be run, all that follows from it is other too.
    return Verification(
        tables=tables,
        changed=whole.changed,
        findings=findings or found,
        versions=_versions(whole, analysis),
        derived=list(about.derived),
        alike=0 if findings else same,
        not_compared=left,
    )


def _versions(whole: Capsule, analysis: Analysis) -> list[str]:
    now = analysis.manifest["versions"]
    return [
        f"version of {name}: {before} in the capsule, {now.get(name)} here"
        for name, before in whole.manifest.versions.items()
        if before != now.get(name)
    ]


def _unpacked(
    whole: Capsule, models: Mapping[str, str], folder: Path
) -> tuple[AnalysisSpec, dict[str, str], list[str]]:
    """The analysis on files under names of our own, the names that its models have in the capsule
    by those of here, and what cannot be run again."""
    spec, about, findings = whole.spec, whole.about, []
    for file in ("stimuli.csv", RDMS):
        if file in whole.files:
            (folder / file).write_bytes(whole.files[file])
    there = []
    for number, (name, path) in enumerate(spec.representations):
        source = about.representations.get(name)
        data = whole.files.get(path) if source is not None and source.file == path else None
        if data is None or source is None:
            digest = "" if source is None else source.sha256[:12]
            findings.append(
                f"{name} cannot be run again: its representations file (SHA-256 {digest}) is too "
                "large to be in the capsule."
            )
            continue
        target = folder / f"{number:02d}{Path(path).suffix}"
        target.write_bytes(data)
        if sha256_file(target) != source.sha256:
            findings.append(f"the representations file of {name} is not the one of the run.")
        there.append((name, str(target)))
    for name in models:
        if name not in about.folders:
            raise unknown("model that was a folder", name, about.folders)
    here, folders = [], {}
    for name in spec.models:
        if name not in about.folders:
            here.append(name)
        elif name in models:
            place = models[name] + name[len(base_name(name)) :]
            here.append(place)
            folders[place] = name
        else:
            findings.append(
                f"{name} cannot be run again: it was a folder of another machine (weights "
                f"{about.models.get(name, '')[:12]}), which --model {name}=FOLDER names."
            )
    called = {name: place for place, name in folders.items()}
    spec = with_files(as_written(spec, str(folder / "stimuli.csv")), there)
    spec = replace(
        with_models(spec, here, called),
        ordered=tuple(name for name, kind in about.kinds.items() if kind == "ordered"),
        nominal=tuple(name for name, kind in about.kinds.items() if kind == "nominal"),
    )
    if findings and not (spec.models or spec.representations):
        raise InputError(findings[0])
    return spec, folders, findings


def _check_fetching(
    whole: Capsule, spec: AnalysisSpec, folders: Mapping[str, str], download: bool
) -> None:
    """Raise for a model of the hub that is not here, and for a name that is a path."""
    for name in spec.models:
        model, _, revision = base_name(name).partition("@")
        if name in folders or comes_along(name):
            continue
        check_hub_name(base_name(name))
        if not hub.is_name(model):
            raise InputError(f"{short(name)} in the capsule {whole.path.name} is no model's name.")
        if not download and hub.cached(model, revision or None) is None:
            raise InputError(
                f"the capsule {whole.path.name} is of the model {name!r} of the Hugging Face hub, "
                "which is not on this machine: to fetch it, verify with --download."
            )


def _made(
    whole: Capsule,
    analysis: Analysis,
    folders: Mapping[str, str],
    store: Store,
    progress: Report | None,
) -> tuple[dict[str, bytes], Analysis]:
    """The files of the capsule as the new run gives them, and the run as it leaves the machine."""
    about = whole.about
    analysis = _with_names(whole, analysis)
    selection, pair = _still_there(about, analysis, folders)
    images = about.drawn.images and can_write_images()
    drawing = about.drawn.drawing(pair, store)
    drawing = replace(drawing, images=images, replicates=about.replicates or drawing.replicates)
    shown = Shown(analysis, selection, analysis.results_of(selection), drawing)
    sources = {
        name: replace(source, included=source.file in whole.files)
        for name, source in about.representations.items()
        if name in dict(analysis.spec.representations)
    }
    leaving = portable(analysis, folders, sources)
    tables = _intervals(shown, store, progress) if about.replicates else {}
    own = leaving.manifest["versions"]
    written = replace(leaving, manifest={**leaving.manifest, "versions": whole.manifest.versions})
    if folders:
        shown = _with_trajectories(whole, capsule.called(shown, folders))
    made = capsule.contents(shown, written, progress)
    made |= {
        f"tables/{name}": as_csv_file(in_table(table, folders)) for name, table in tables.items()
    }
    again = replace(
        capsule.described(shown, written, sources, about.drawn),
        folders=tuple(folders.values()),
        files=about.files,
        derived=about.derived,
        replicates=about.replicates,
        seal=about.seal,
    )
    made["capsule.json"] = as_json(again)
    return made, replace(leaving, manifest={**leaving.manifest, "versions": own})


def _intervals(shown: Shown, store: Store, progress: Report | None) -> dict[str, pd.DataFrame]:
    """The tables of confidence intervals, which are in the store then."""
    of, drawing = (shown.analysis, store, shown.selection), replace(shown.drawing, store=store)
    layer_intervals(*of, n_replicates=drawing.replicates, report=progress)
    return beside.in_intervals(replace(shown, drawing=drawing))


def _with_trajectories(whole: Capsule, shown: Shown) -> Shown:
    """What is shown with the capsule's trajectories: no folder's name has a training step."""
    analysis = shown.analysis
    models = [model for model, _ in analysis.layers]
    kept = trajectories_of(whole.spec.trajectories, models)
    spec = replace(analysis.spec, trajectories=kept)
    return replace(shown, analysis=replace(analysis, spec=spec))


def _with_names(whole: Capsule, analysis: Analysis) -> Analysis:
    """The new run with what the capsule alone can say: the names of its files, how its stimuli were
    read, and which kinds of its features were asked for."""
    facts = {name: dict(one) for name, one in analysis.manifest["models"].items()}
    for name, before in whole.manifest.models.items():
        if name in facts and "file" in facts[name] and "file" in before:
            facts[name]["file"] = str(before["file"])
    notices = [*dict.fromkeys((*whole.manifest.notices, *analysis.notices))]
    kinds: dict[str, Any] = {"ordered": whole.spec.ordered, "nominal": whole.spec.nominal}
    parameters = replace(AnalysisSpec.from_dict(analysis.manifest["parameters"]), **kinds)
    more = {"models": facts, "notices": notices, "parameters": parameters.to_dict()}
    return replace(
        analysis,
        spec=replace(analysis.spec, **kinds),
        notices=notices,
        manifest={**analysis.manifest, **more},
    )


def _still_there(
    about: About, analysis: Analysis, folders: Mapping[str, str]
) -> tuple[Selection, tuple[Layer, Layer] | None]:
    """What is shown, and the two layers that are compared, without what is not there now."""
    here = {name: place for place, name in folders.items()}
    shown, pair = about.shown, about.pair
    if shown.layers is not None:
        layers = tuple(of_layer(layer, here) for layer in shown.layers)
        shown = replace(shown, layers=tuple(one for one in layers if one in analysis.layers))
    if pair is not None:
        pair = of_layer(pair[0], here), of_layer(pair[1], here)
        pair = pair if set(pair) <= set(analysis.layers) else None
    return shown.selection(analysis), pair


def _tables(whole: Capsule, made: Mapping[str, bytes]) -> list[Compared]:
    """Every table that is made anew, and every other that is not said to take long, compared."""
    long = {f"tables/{name}" for name in whole.about.derived}
    names = [name for name in made if name.startswith("tables/")]
    names += [name for name in whole.files if name.startswith("tables/") and name not in made]
    compared = []
    for name in names:
        if name in long and name not in made:
            continue
        old, new = whole.files.get(name), made.get(name)
        if old and new and alike.far_larger(old, new):
            raise no_capsule(whole.path, f"its {short(name)} is far larger than a new run makes it")
        try:
            compared.append(compare(name.removeprefix("tables/"), old, new))
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            raise no_capsule(whole.path, f"its table {short(name[7:])} cannot be read") from error
    return compared


def _others(
    whole: Capsule, made: Mapping[str, bytes], exact: bool
) -> tuple[list[str], int, list[str]]:
    """What differs in the other files, how many are the same, which cannot be compared.

    Parameters
    ----------
    exact : whether every number of the tables is the same to its last digit
    """
    about, files = whole.about, whole.files
    # Intervals and marks that had been made, and maps that were kept, are in the figures.
    more = bool(about.derived) or any(_takes_long(name, Path(name).stem) for name in files)
    more = more or (about.replicates > 0 and not about.drawn.maps)
    drawn_alike = exact and not more and about.drawn.by == capsule.drawn_by()
    forms = about.drawn.images == ("figures/plotly.min.js" not in made)
    findings, same, left = [], 0, []
    sources = {source.file for source in about.representations.values()}
    # Whatever its form, it is compared by what it says.
    files = {**files, "capsule.json": as_json(replace(about, spec=whole.spec.to_dict()))}
    for name in sorted({*files, *made} - sources):
        if name.startswith("tables/"):
            continue
        if name not in files or name not in made:
            stem = Path(name).stem
            if (name.endswith(_DRAWN) and not forms) or _takes_long(name, stem):
                left += [name] * (name in files)
            elif name in files:
                findings.append(f"{name}: a new run does not make it.")
            else:
                findings.append(f"{name}: a new run makes it, and the capsule does not have it.")
        elif files[name] == made[name]:
            same += 1
        elif name.endswith(_DRAWN):
            if drawn_alike:
                findings.append(f"{name}: it is not what is drawn anew.")
            else:
                left.append(name)
        elif where := alike.difference(name, files[name], made[name]):
            if more and name.startswith(("figures/", "latex/")):
                left.append(name)
            else:
                findings.append(f"{name}: {where} is not what a new run gives.")
        else:
            same += 1
    return findings, same, left


def _takes_long(name: str, stem: str) -> bool:
    of_figure = name.startswith(("figures/", "latex/")) and stem in FIGURES
    return name == "pair_tables/maps.npz" or (of_figure and FIGURES[stem].takes_long)
