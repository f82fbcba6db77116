"""Run a capsule again, from its stimuli and models, and say which of its numbers differ.

Tables, pair tables and parameters are compared. Figures and texts are not: they follow from these.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mlem_core.analysis.analysis import Analysis, Selection
from mlem_core.analysis.files import RDMS
from mlem_core.analysis.grouped import trajectories_of
from mlem_core.analysis.planning import CHOSEN
from mlem_core.analysis.representations import LEFT_OUT
from mlem_core.analysis.run import run
from mlem_core.analysis.source import as_written
from mlem_core.analysis.spec import AnalysisSpec, with_files, with_models
from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.files import scratch
from mlem_core.base.labels import Names
from mlem_core.base.text import listed, many, short
from mlem_core.base.typing import Layer, Report
from mlem_core.data.distance_features import read_kept
from mlem_core.figures.context import Drawing, FigureContext
from mlem_core.figures.plots import FIGURES
from mlem_core.inference.layer_intervals import chance_of_layers, layer_intervals
from mlem_core.models import model_paths
from mlem_core.models.registry import base_name, check_hub_name, comes_along
from mlem_core.report import capsule
from mlem_core.report.contents import (
    About,
    Capsule,
    as_json,
    in_sentences,
    in_table,
    no_capsule,
    of_layer,
    opened,
    portable,
)
from mlem_core.report.file_diff import TableDiff, compare, difference, far_larger
from mlem_core.report.formats import FORMATS, csv_bytes
from mlem_core.storage.digests import sha256_file
from mlem_core.storage.store import Store

# Texts, and what figures have beside them.
_FOLLOWING = (
    *("README.txt", "methods.md", "methods.tex", "references.bib", "versions.txt"),
    *("figures/captions.md", "figures/plotly.min.js", "pair_tables/maps.npz"),
)


@dataclass(frozen=True)
class Verification:
    """Result of making a capsule again.

    Attributes
    ----------
    tables : each table of the capsule beside that of the new run
    changed : files of the capsule whose content is not what was written
    findings : sentences about what could not be run again, is another model than it was, or is in
        another way made anew
    versions : sentences about versions that differ; no difference by themselves
    derived : tables of the capsule that are not computed again
    n_same : how many other files say the same
    n_following : how many files are figures or texts, and were not compared
    """

    tables: list[TableDiff]
    changed: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    derived: list[str] = field(default_factory=list)
    n_same: int = 0
    n_following: int = 0

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return all(table.same for table in self.tables) and not self.changed and not self.findings

    def lines(self) -> list[str]:
        """The report, a line each."""
        said = [str(table) for table in self.tables]
        if self.n_same:
            said.append(f"{many(self.n_same, 'other file')}, made anew: the same")
        said += [f"{name}: its content is not what was written" for name in self.changed]
        said += [*self.findings, *self.versions]
        if self.derived:
            said.append(f"not computed again, as they take long: {listed(self.derived)}")
        if self.n_following:
            files = many(self.n_following, "file")
            said.append(f"not compared, as they follow from these: {files} of figures and texts")
        said.append("nothing differs" if self.same else "the capsule differs from the new run")
        return [" ".join(line.split()) for line in said]


def verify(
    path: Path | str,
    progress: Report | None = None,
    *,
    models: Mapping[str, str] | None = None,
    download: bool = False,
) -> Verification:
    """Run a capsule again in an empty store and compare its tables and parameters.

    Nothing of the capsule but its stimuli, its representation files and its parameters goes into
    the new run; what this machine has in its store does not either.

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
        with contextlib.nullcontext() if download else model_paths.kept_only():
            analysis = run(spec, store, progress, stimuli)
        findings += [
            notice
            for notice in in_sentences(analysis.notices, folders)
            if LEFT_OUT.search(notice) and notice not in whole.manifest.notices
        ]
        made, analysis = _made(whole, analysis, folders, store, progress)
    findings += [
        f"the model {name} is not the one of the capsule: its weights are "
        f"{analysis.manifest['models'][name]['weights'][:12]}, not {identity[:12]}."
        for name, identity in about.models.items()
        if name in analysis.manifest["models"]
        and analysis.manifest["models"][name].get("weights") != identity
    ]
    tables = _tables(whole, made)
    found, same = _others(whole, made)
    # Where not everything could be run, all that follows from it is other too.
    now = analysis.manifest["versions"]
    return Verification(
        tables=tables,
        changed=whole.changed,
        findings=findings or found,
        versions=[
            f"version of {name}: {before} in the capsule, {now.get(name)} here"
            for name, before in whole.manifest.versions.items()
            if before != now.get(name)
        ],
        derived=list(about.derived),
        n_same=0 if findings else same,
        n_following=sum(map(_follows, whole.files)),
    )


def _unpacked(
    whole: Capsule, models: Mapping[str, str], folder: Path
) -> tuple[AnalysisSpec, dict[str, str], list[str]]:
    """The analysis on files under names of our own, the names that its models have in the capsule
    by those of here, and what cannot be run again."""
    spec, about, findings = whole.spec, whole.about, []
    for file in capsule.GIVEN:
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
        check_choice("model that was a folder", name, about.folders)
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
        if not model_paths.is_name(model):
            raise InputError(f"{short(name)} in the capsule {whole.path.name} is no model's name.")
        if not download and model_paths.cached(model, revision or None) is None:
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
    # The kinds of features of the specification; the new run was given those of all.
    kinds: dict[str, Any] = {"ordered": whole.spec.ordered, "nominal": whole.spec.nominal}
    asked = replace(AnalysisSpec.from_dict(analysis.manifest["parameters"]), **kinds)
    manifest = {**analysis.manifest, "parameters": asked.to_dict()}
    # What was chosen is not chosen again: its spec names it.
    manifest |= {CHOSEN: whole.manifest.chosen} if whole.manifest.chosen else {}
    analysis = replace(analysis, spec=replace(analysis.spec, **kinds), manifest=manifest)
    selection, pair = _still_there(about, analysis, folders)
    drawing = Drawing(
        pair,
        store,
        names=Names(about.drawn.features, about.drawn.models),
        options=about.drawn.options,
        replicates=about.replicates,
    )
    shown = FigureContext(analysis, selection, analysis.results_of(selection), drawing)
    sources = {
        name: replace(source, included=source.file in whole.files)
        for name, source in about.representations.items()
        if name in dict(analysis.spec.representations)
    }
    leaving = portable(analysis, folders, sources)
    if about.replicates:
        of = analysis, store, selection
        layer_intervals(*of, n_replicates=about.replicates, report=progress)
    if b",chance," in whole.files.get("tables/why_layers.csv", b"").partition(b"\n")[0]:
        chance_of_layers(analysis, store, selection, report=progress)
    tables = capsule.in_intervals(shown) if about.replicates else {}
    if folders:
        shown = _with_trajectories(whole, capsule.called(shown, folders))
    made = capsule.contents(shown, leaving)
    made |= {
        f"tables/{name}": csv_bytes(in_table(table, folders)) for name, table in tables.items()
    }
    again = replace(
        capsule.described(shown, leaving, sources),
        folders=tuple(folders.values()),
        files=about.files,
        derived=about.derived,
        replicates=about.replicates,
        seal=about.seal,
    )
    made["capsule.json"] = as_json(again)
    return made, leaving


def _with_trajectories(whole: Capsule, shown: FigureContext) -> FigureContext:
    """Context with the capsule's trajectories: no folder's name has a training step."""
    analysis = shown.analysis
    models = [model for model, _ in analysis.layers]
    kept = trajectories_of(whole.spec.trajectories, models)
    spec = replace(analysis.spec, trajectories=kept)
    return replace(shown, analysis=replace(analysis, spec=spec))


def _still_there(
    about: About, analysis: Analysis, folders: Mapping[str, str]
) -> tuple[Selection, tuple[Layer, Layer] | None]:
    """Selection and the two compared layers, without what is not there now."""
    here = {name: place for place, name in folders.items()}
    shown, pair = about.shown, about.pair
    layers = tuple(of_layer(layer, here) for layer in shown.layers)
    shown = replace(shown, layers=tuple(one for one in layers if one in analysis.layers))
    if pair is not None:
        pair = of_layer(pair[0], here), of_layer(pair[1], here)
        pair = pair if set(pair) <= set(analysis.layers) else None
    return shown.checked(analysis.tables.features, analysis.layers), pair


def _tables(whole: Capsule, made: Mapping[str, bytes]) -> list[TableDiff]:
    """Every table that is made anew, and every other that is not said to take long, compared."""
    long = {f"tables/{name}" for name in whole.about.derived}
    names = [name for name in made if name.startswith("tables/")]
    names += [name for name in whole.files if name.startswith("tables/") and name not in made]
    compared = []
    for name in names:
        if name in long and name not in made:
            continue
        old, new = whole.files.get(name), made.get(name)
        if old and new and far_larger(old, new):
            raise no_capsule(whole.path, f"its {short(name)} is far larger than a new run makes it")
        try:
            compared.append(compare(name.removeprefix("tables/"), old, new))
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            raise no_capsule(whole.path, f"its table {short(name[7:])} cannot be read") from error
    return compared


def _others(whole: Capsule, made: Mapping[str, bytes]) -> tuple[list[str], int]:
    """Differences in parameters and pair tables, and the number of their files without any."""
    # Whatever its form, it is compared by what it says.
    about = as_json(replace(whole.about, spec=whole.spec.to_dict()))
    files, findings, same = {**whole.files, "capsule.json": about}, [], 0
    given = {source.file for source in whole.about.representations.values()}
    for name in sorted({*files, *made} - {*given, *capsule.GIVEN}):
        if name.startswith("tables/") or _follows(name):
            continue
        if name not in made:
            findings.append(f"{name}: a new run does not make it.")
        elif name not in files:
            findings.append(f"{name}: a new run makes it, and the capsule does not have it.")
        elif where := difference(name, files[name], made[name]):
            findings.append(f"{name}: {where} is not what a new run gives.")
        else:
            same += 1
    return findings, same


def _follows(name: str) -> bool:
    """Whether a file of a capsule is a text or a figure, in any format, or stands beside one."""
    folder, _, file = name.partition("/")
    stem, _, form = file.rpartition(".")
    forms = {"figures": tuple(FORMATS), "latex": ("tex",)}.get(folder, ())
    return name in _FOLLOWING or (stem in FIGURES and form in forms)
