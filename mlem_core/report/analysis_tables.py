"""All tables of an analysis, as `analyze` writes them and `rerun` computes them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

from mlem_core.analysis.analysis import Analysis, Selection
from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.planning import choices_table
from mlem_core.analysis.results import Results
from mlem_core.analysis.similarities import SIMILARITY, LayerSimilarity, terms_file
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.files import checked, parsed
from mlem_core.base.text import listed
from mlem_core.base.typing import Report
from mlem_core.extending import TableSource, default_table_sources, resolve, table_sources
from mlem_core.figures.captions import tau_by_chance
from mlem_core.inference.explanation_text import tested_similarities
from mlem_core.inference.importance_null import IMPORTANCE_CHANCE
from mlem_core.inference.intervals import (
    PERMUTATIONS,
    LayerIntervals,
    check_permutations,
    score_table,
)
from mlem_core.inference.layer_intervals import LAYER_CHANCE, LAYER_INTERVALS
from mlem_core.inference.permutation_null import UNCORRECTED, ContributionNull
from mlem_core.inference.resample import generalises
from mlem_core.pairs.similarities import RSA, SIMILARITIES
from mlem_core.stimuli.columns import Kind
from mlem_core.storage.store import Store

# Of resampling and of permuting labels.
MOST_REPLICATES = 10_000_000
MANIFEST = "manifest.json"
# Bytes; it takes 30 times as many in memory.
LARGEST_MANIFEST = 16_000_000


@dataclass(frozen=True)
class TableOptions:
    """Tables beside those of every analysis; `manifest.json` has them as its entry `options`.

    Attributes
    ----------
    bootstrap : 0 is no confidence intervals; they are the same for every other number
    chance : number of permutations of the labels of each feature; 0 is none
    similarity : the similarity of layers that is explained
    similarities : other similarities beside it
    extra : names of tables that extensions add, by the option of each `TableSource`
    """

    bootstrap: int = 0
    chance: int = 0
    similarity: str = RSA
    similarities: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def check(self) -> None:
        """Raise InputError for a choice that does not exist."""
        sources = table_sources()
        for option, names in self.extra.items():
            check_choice("option", option, sources)
            for name in names:
                check_choice(option, name, sources[option].names)
        for name in (self.similarity, *self.similarities):
            SIMILARITIES.named(name)
        for number in (self.bootstrap, self.chance):
            if not 0 <= number <= MOST_REPLICATES:
                raise InputError(f"found {number}; expected at most {MOST_REPLICATES:,}.")
        if self.chance:
            check_permutations(self.chance)

    def to_dict(self) -> dict[str, Any]:
        """The options that are not the default, for JSON."""
        values = {**asdict(self), **self.extra}
        del values["extra"]
        default = {each.name: each.default for each in fields(self)}
        return {name: value for name, value in values.items() if value != default.get(name, ())}

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> TableOptions:
        """The options that `to_dict` gave; raises InputError where they have another form."""
        names = {each.name for each in fields(cls)}
        extra = {name: value for name, value in options.items() if name not in names}
        kernel = {name: value for name, value in options.items() if name in names}
        made = checked(cls, {**kernel, "extra": extra}, "the entry options of the manifest")
        made.check()
        return made


@dataclass(frozen=True)
class ManifestStimuli:
    """Entries of `stimuli` in a manifest."""

    name: str
    digest: str
    features: dict[str, Kind]
    as_written: bool = False


@dataclass(frozen=True)
class Manifest:
    """Entries of the `manifest.json` of `analyze` that are read again."""

    parameters: dict[str, Any]
    stimuli: ManifestStimuli
    models: dict[str, dict[str, Any]]
    versions: dict[str, str | None]
    written: dict[str, list[str]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    chosen: dict[str, Any] = field(default_factory=dict)

    @property
    def table_options(self) -> TableOptions:
        """Options of the tables beside those of every analysis."""
        return TableOptions.from_dict(self.options)

    @property
    def requested(self) -> AnalysisSpec:
        """The analysis as it was requested, with the choices that it made open again."""
        return AnalysisSpec.from_dict({**self.parameters, **self.chosen.get("requested", {})})


def read_manifest(path: Path) -> Manifest:
    """The manifest in a file; InputError where there is none, or it has another form."""
    if not path.is_file() or path.stat().st_size > LARGEST_MANIFEST:
        raise InputError(f"there is no {path.name}, or none of analyze.")
    manifest = parsed(Manifest, path.read_bytes(), f"the manifest {path.name}")
    TableOptions.from_dict(manifest.options)
    return manifest


@dataclass(frozen=True)
class TableInput:
    """What tables of extensions are computed from.

    Attributes
    ----------
    results : of the selection
    similarity : of all layers, the one that is explained
    chance : of contributions to it, where it is known
    intervals : of that similarity and of all scores, where they were requested
    permutations : of the labels of each feature, by which importances are compared with chance; 0
        where that was not requested
    store : None: only what follows from the statistics of pairs is computed
    """

    analysis: Analysis
    selection: Selection
    results: Results
    similarity: LayerSimilarity
    chance: ContributionNull | None = None
    intervals: LayerIntervals | None = None
    permutations: int = 0
    store: Store | None = None
    progress: Report = lambda _: None


@dataclass(frozen=True)
class ComputedTables:
    """Tables of an extension by file name.

    Attributes
    ----------
    notices : what a reader of the tables has to know
    findings : sentences on what they show
    """

    tables: dict[str, pd.DataFrame]
    notices: Sequence[str] = ()
    findings: Sequence[str] = ()


@dataclass(frozen=True)
class AnalysisTables:
    """All tables of an analysis.

    Attributes
    ----------
    tables : by file name
    similarity : of all layers, the one that is explained
    intervals : of that similarity and of all scores, where they were requested
    importance_chance : importances under permuted labels, where they were requested
    findings : sentences on what the tables of extensions show
    notices : what a reader of the tables has to know
    """

    tables: dict[str, pd.DataFrame]
    similarity: LayerSimilarity
    intervals: LayerIntervals | None
    importance_chance: pd.DataFrame | None
    findings: list[str]
    notices: list[str]


def analysis_tables(
    analysis: Analysis, results: Results, options: TableOptions, store: Store, progress: Report
) -> AnalysisTables:
    """All tables of an analysis; what is in the store is not computed again.

    Parameters
    ----------
    results : of the whole analysis
    progress : called as the work goes on

    Raises InputError as `TableOptions.check`, and as what they name.
    """
    options.check()
    context = SelectionContext.from_analysis(analysis, store, progress)
    choices = choices_table(analysis.manifest)
    extra = {} if choices.empty else {"choices.csv": choices}
    notices: list[str] = []
    names = dict.fromkeys((*options.similarities, *({options.similarity} - {RSA})))
    for name in names:
        extra |= SIMILARITY.get(context, name=name).written()
    notices += filter(None, (SIMILARITIES.named(name).no_terms for name in names))
    similarity = SIMILARITY.get(context, name=options.similarity)
    inputs = TableInput(
        analysis, analysis.select(), results, similarity, store=store, progress=progress
    )
    requested = list[tuple[TableSource, str]]()
    for option, source_names in options.extra.items():
        requested += [(table_sources()[option], name) for name in source_names]
    optional = _extension_tables(inputs, requested)
    extra |= optional.tables
    notices += optional.notices
    importance_chance = intervals = None
    if options.chance:
        importance_chance = IMPORTANCE_CHANCE.get(context, permutations=options.chance)
        extra["importance_chance.csv"] = importance_chance
    if options.bootstrap:
        intervals, tables, sentences = _interval_tables(context, similarity)
        extra |= tables
        notices += sentences
    beyond_chance = {similarity.similarity.name} - {RSA} if options.bootstrap else set[str]()
    uncorrected = [
        terms_file(name)
        for name in names
        if SIMILARITIES.named(name).divides and name not in beyond_chance
    ]
    notices += [f"{listed(uncorrected)}: {UNCORRECTED}"] if uncorrected else []
    chance = LAYER_CHANCE.find(context.reselect(similarity=similarity.similarity.name))
    known = replace(inputs, chance=chance, intervals=intervals, permutations=options.chance)
    default = default_tables(known)
    return AnalysisTables(
        tables={**results.tables(), **extra, **default.tables},
        similarity=similarity,
        intervals=intervals,
        importance_chance=importance_chance,
        findings=[*optional.findings, *default.findings],
        notices=[*notices, *default.notices],
    )


def default_tables(inputs: TableInput) -> ComputedTables:
    """Tables that extensions add without an option."""
    return _extension_tables(inputs, [(source, "") for source in default_table_sources()])


def _extension_tables(
    inputs: TableInput, requested: Sequence[tuple[TableSource, str]]
) -> ComputedTables:
    tables: dict[str, pd.DataFrame] = {}
    notices: list[str] = []
    findings: list[str] = []
    for source, name in requested:
        computed = resolve(source.compute)(inputs, name)
        tables |= computed.tables
        notices += computed.notices
        findings += computed.findings
    return ComputedTables(tables, notices, findings)


def _interval_tables(
    context: SelectionContext, similarity: LayerSimilarity
) -> tuple[LayerIntervals, dict[str, pd.DataFrame], list[str]]:
    """Intervals of all layers, their tables and those under permuted labels, and notices.

    Intervals are computed for RSA and, if another similarity is explained, for that one too.
    """
    tables: dict[str, pd.DataFrame] = {}
    notices: list[str] = []
    analysis = context.analysis
    for name in dict.fromkeys((RSA, similarity.similarity.name)):
        by_name = context.reselect(similarity=name)
        intervals = LAYER_INTERVALS.get(by_name)
        if SIMILARITIES[name].divides:
            chance = LAYER_CHANCE.get(by_name)
            if name != RSA:
                tables |= similarity.written(chance.subtract_from_all(similarity.decomposed()))
        tests = {"intervals.csv": score_table(intervals)} if name == RSA else {}
        end = "" if name == RSA else f"_{name}"
        tests[f"similarity_intervals{end}.csv"] = tested_similarities(
            analysis, intervals, analysis.layers
        )
        for file, (table, family) in tests.items():
            tables[file] = table
            notices.append(f"The tests in {file} are a family: {family}.")
    notices.append(generalises(intervals.units, seeds=analysis.spec.has_seeds))
    if by_chance := tau_by_chance(len(intervals.columns)):
        notices.append(f"similarity_intervals.csv: {by_chance}")
    return intervals, tables, notices


def computed_options(analysis: Analysis, store: Store) -> TableOptions:
    """Options for the tables that need nothing but what is in the store already.

    Intervals are among them where their parts are: those over permuted labels, and those that
    tables of extensions need.
    """
    context = SelectionContext.from_analysis(analysis, store)
    similarities = [
        name
        for name in SIMILARITIES
        if name != RSA and SIMILARITY.find(context, name=name) is not None
    ]
    has_intervals = (
        LAYER_INTERVALS.find(context) is not None
        and LAYER_CHANCE.find(context) is not None
        and all(
            resolve(source.has_intervals)(analysis, store)
            for source in default_table_sources()
            if source.has_intervals
        )
    )
    return TableOptions(
        bootstrap=int(has_intervals),
        chance=0 if IMPORTANCE_CHANCE.find(context) is None else PERMUTATIONS,
        similarities=tuple(similarities),
    )
