"""The command line: `mlem COMMAND ...`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import pandas as pd

from mlem_core.analysis.analysis import Analysis
from mlem_core.analysis.diagnostics import lint
from mlem_core.analysis.results import write_tables
from mlem_core.analysis.run import TooFewStimuli, run
from mlem_core.analysis.similarities import LayerSimilarity, compared
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.files import check_target, is_full
from mlem_core.base.parameters import check_fields, in_names
from mlem_core.base.text import listed, many, short
from mlem_core.base.typing import parse_layer
from mlem_core.base.work import Bars
from mlem_core.base.workers import computing_on, from_environment
from mlem_core.cli.found import (
    analysis_of_two,
    found,
    result_of,
    two,
)
from mlem_core.cli.options import BAD_INPUT, parser, spec_from_options
from mlem_core.cli.streams import (
    INTRODUCTION,
    any_encoding,
    check_arguments,
    complain,
    one_line,
    serve_app,
    tell,
)
from mlem_core.data.columns import guess_kind, text_of
from mlem_core.data.stimulus_csv import write_csv, write_table
from mlem_core.figures.context import Drawing, FigureContext
from mlem_core.inference import explanation
from mlem_core.inference.explained import Explanation
from mlem_core.inference.explanation import kept_intervals
from mlem_core.inference.intervals import check_permutations
from mlem_core.inference.resample import generalises
from mlem_core.inference.what_else import explain_rest
from mlem_core.models.availability import systems_table
from mlem_core.models.registry import SYSTEMS
from mlem_core.pairs.resampling_units import Units
from mlem_core.pairs.similarities import SIMILARITIES
from mlem_core.report.analysis_tables import TableOptions, analysis_tables
from mlem_core.robustness.audit import audit
from mlem_core.robustness.erasure import erase
from mlem_core.robustness.flags import audit_tables, summary
from mlem_core.robustness.two_analyses import differences_in_words, paired, replication
from mlem_core.storage.store import Store

DESCRIPTION = "Compare layers of language models by the features of words and sentences."
DIFFERS = 1


def _spec(options: argparse.Namespace) -> AnalysisSpec:
    """The analysis of these options; says at once how its stimuli were read."""
    spec = spec_from_options(options)
    check_fields(spec)
    if "models" in vars(options):
        spec.check()
    complain(*spec.load_stimuli().notes)
    return spec


def _left_beside(folder: str, tables: list[str]) -> list[str]:
    """A warning of tables that stay in a folder though they are of another analysis."""
    named = f"{listed(tables)} in {short(folder)}"
    return [f"Of another analysis, as another command wrote them: {named}."] * bool(tables)


def _notices(analysis: Analysis) -> list[str]:
    """Notices of an analysis that were not given before the run."""
    return [notice for notice in analysis.notices if notice not in analysis.whole.notes]


def _analyze(options: argparse.Namespace) -> None:
    table_options = TableOptions(
        bootstrap=options.bootstrap,
        chance=options.chance,
        similarity=options.similarity,
        similarities=tuple(options.similarities),
        baselines=tuple(options.baselines),
    )
    table_options.check()
    spec = _spec(options)
    store = Store()
    with Bars() as bars:
        try:
            analysis = run(spec, store, bars.show)
        except TooFewStimuli as few:
            Path(options.out).mkdir(parents=True, exist_ok=True)
            table = few.rsa.reset_index(names="layer")
            write_table(table, Path(options.out) / "similarity_rsa.csv")
            raise
        results = analysis.results()
        computed = analysis_tables(analysis, results, table_options, store, bars.show)
    complain(*_notices(analysis), *computed.notices)
    manifest = {**analysis.manifest, "options": table_options.to_dict()}
    complain(*_left_beside(options.out, write_tables(options.out, computed.tables, manifest)))
    sure = None
    if options.bootstrap:
        sure = partial(kept_intervals, analysis=analysis, store=store)
    lines = found(
        analysis,
        results,
        computed.intervals,
        computed.similarity,
        sure,
        computed.importance_chance,
    )
    tell(*lines, *computed.group_sentences)


def _audit(options: argparse.Namespace) -> None:
    SIMILARITIES.named(options.similarity)
    store = Store()
    with Bars() as bars:
        analysis = run(_spec(options), store, bars.show)
        result = audit(analysis, store, bars.show, options.similarity)
    complain(*_notices(analysis), *result.notices)
    left = write_tables(options.out, audit_tables(result), analysis.manifest, "audit")
    complain(*_left_beside(options.out, left))
    tell(*summary(result))


def _why(options: argparse.Namespace) -> None:
    SIMILARITIES.named(options.similarity)
    if options.chance:
        check_permutations(options.chance)
    store = Store()
    with Bars() as bars:
        analysis = analysis_of_two(options, _spec, store, bars.show)
        complain(*_notices(analysis))
        count = bars.counter("similarity", "layers")
        of_layers = compared(analysis, options.similarity, store, count)
        why = _explained(options, analysis, of_layers, store, bars)
    if options.out is not None:
        write_table(why.terms if why.similarity.divides else why.whole, Path(options.out))
    tell(why.text)
    units, seeds = Units.of(analysis.stimuli), analysis.spec.has_seeds
    claimed = [generalises(units, seeds=seeds)] if options.bootstrap else []
    complain(*why.notes, *claimed)


def _what_else(options: argparse.Namespace) -> None:
    check_permutations(options.chance)
    store = Store()
    with Bars() as bars:
        # Layer 0 is a candidate.
        analysis = analysis_of_two(options, _spec, store, bars.show, beside=(0,))
        layers = [layer for layer in (options.first, options.second) if layer is not None]
        complain(*_notices(analysis))
        found = explain_rest(
            analysis, layers, store, n_permutations=options.chance, report=bars.show
        )
    if options.out is not None:
        out = Path(options.out)
        for name, table in found.written(out.stem).items():
            write_table(table, out.with_name(name).with_suffix(out.suffix))
    tell("\n".join(found.sentences))
    complain(*found.notes)


def _explained(
    options: argparse.Namespace,
    analysis: Analysis,
    of_layers: LayerSimilarity,
    store: Store,
    bars: Bars,
) -> Explanation:
    """Explanation of two layers' similarity, of one with terms or without."""
    both = (options.first, options.second)
    why = explanation.explain(analysis, *both, seed=options.seed, compared=of_layers)
    if options.chance:
        why = replace(why, permutations=options.chance)
    if options.bootstrap:
        count = bars.counter("intervals", "blocks")
        return explanation.with_intervals(why, analysis, store, count)
    return explanation.with_chance(why, analysis, store, bars.counter("chance", "features"))


def _stimuli(options: argparse.Namespace) -> None:
    stimuli = _spec(options).load_stimuli()
    write_csv(stimuli, options.out)
    names = [
        feature.name
        for feature in stimuli.features
        if feature.kind == "nominal"
        and guess_kind([text_of(value) for value in stimuli.values(feature.name)]) == "ordered"
    ]
    if names:
        complain(f"Read it with --nominal {in_names(names)}: the values are numbers, and names.")


def _systems(options: argparse.Namespace) -> None:
    notes: list[str] = []
    if options.preset:
        table = pd.read_csv(SYSTEMS[options.preset], dtype=str, keep_default_na=False)
    else:
        table, notes = systems_table(options.models)
    write_table(table, Path(options.out))
    complain(*notes)


def _lint(options: argparse.Namespace) -> None:
    spec = _spec(options)
    stimuli = spec.load_stimuli().select(spec.features)
    found = lint(stimuli, spec)
    for finding in found.findings:
        rows = f" (rows {', '.join(map(str, finding.rows))})" if finding.rows else ""
        tell(f"{finding.severity}: {finding.sentence}{rows}")
    tell(
        f"{many(len(stimuli), stimuli.level)}, {many(len(stimuli.features), 'feature')}: "
        + ", ".join(f"{feature.name} ({feature.kind})" for feature in stimuli.features)
    )


def _replicate(options: argparse.Namespace) -> None:
    store = Store()
    with Bars() as bars:
        both = two(options, store, bars.show)
        bounds = paired(*both, store, bars.show)
    said, tables = replication(both, (both[0].results(), both[1].results()), bounds)
    if options.out is not None:
        path = Path(options.out)
        for name, table in tables.items():
            end = "" if name == "correlations" else f"_{name}"
            write_table(table, path.with_name(f"{path.stem}{end}{path.suffix}"))
    tell(*said)
    complain(differences_in_words(*both))


def _export(options: argparse.Namespace) -> None:
    """Write a result as one page, or as a zip of everything."""
    from mlem_core.figures.glyphs import missing_glyphs
    from mlem_core.report.archive import write_archive
    from mlem_core.report.page import write_page

    if (options.html is None) == (options.zip is None):
        raise InputError("expected one file to write: --html FILE.html or --zip FILE.zip.")
    if options.zip is not None and options.without_stimuli:
        raise InputError("--without-stimuli goes with --html; the zip has the stimuli.")
    store = Store()
    with Bars() as bars:
        analysis, table_options = result_of(options.result, AnalysisSpec(), store, bars.show)
        if options.zip is not None:
            path = write_archive(analysis, options.zip, store, table_options, progress=bars.show)
        else:
            title = options.title or Path(analysis.stimuli.name).stem
            drawing = Drawing(store=store)
            context = FigureContext(analysis, analysis.select(), analysis.results(), drawing)
            path = write_page(
                context,
                options.html,
                title,
                options.pairs,
                stimuli=not options.without_stimuli,
                progress=bars.show,
            )
    if options.zip is not None:
        labels = [feature.name for feature in analysis.stimuli.features]
        values = (set(analysis.stimuli.table[name]) for name in labels)
        complain(*filter(None, [missing_glyphs([*labels, *map(str, chain(*values))])]))
    tell(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")


def _erase(options: argparse.Namespace) -> None:
    if len(options.models) != 1 or ":" not in options.models[0]:
        named = ", ".join(options.models) or "none"
        raise InputError(
            f"found the models {named}; expected the one layer to erase from, as --model "
            "mini-gpt2:3 (name others by --other)."
        )
    layer, others = parse_layer(options.models[0]), [parse_layer(one) for one in options.others]
    files, later = dict(options.representations), options.layers
    options.models = [name for name in dict.fromkeys(dict([layer, *others])) if name not in files]
    options.layers = tuple(sorted({number for _, number in (layer, *others)}))
    store = Store()
    with Bars() as bars:
        analysis = run(_spec(options), store, bars.show)
        complain(*_notices(analysis))
        found = erase(
            analysis,
            options.feature,
            layer,
            store,
            others=others,
            later=later,
            positions=options.erased,
            report=bars.show,
        )
    if options.out is not None:
        write_table(found.table.drop(columns="beyond"), Path(options.out))
    tell(*found.sentences())
    complain(*found.notes)


def _rerun(options: argparse.Namespace) -> int:
    from mlem_core.report.rerun import rerun

    with Bars() as bars:
        outcome = rerun(
            options.manifest,
            stimuli=options.stimuli,
            representations=dict(options.representations),
            progress=bars.show,
        )
    tell(*outcome.lines())
    return 0 if outcome.same else DIFFERS


def _cluster(options: argparse.Namespace) -> str:
    """Address of the cluster for a command that runs an analysis; empty for other commands."""
    if "cluster" not in vars(options):
        return ""
    return from_environment() if options.cluster is None else str(options.cluster)


_COMMANDS: dict[str, Callable[[argparse.Namespace], int | None]] = {
    "analyze": _analyze,
    "app": serve_app,
    "audit": _audit,
    "erase": _erase,
    "export": _export,
    "lint": _lint,
    "systems": _systems,
    "replicate": _replicate,
    "rerun": _rerun,
    "stimuli": _stimuli,
    "what-else": _what_else,
    "why": _why,
}
_FOLDERS = ("analyze", "audit")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns 0, 1 where a table differs from its rerun, or 2 for bad input (one line on stderr).
    Ctrl-C passes through to `mlem_core.__main__`, which exits with 130.
    """
    any_encoding()
    try:
        given = list(sys.argv[1:] if arguments is None else arguments)
        check_arguments(given)
        if not given:
            tell(INTRODUCTION)
            return 0
        options = parser(DESCRIPTION).parse_args(given)
        # What is written at the end must be possible before the work begins.
        if (path := getattr(options, "out", None)) is not None:
            check_target(path, "folder" if options.command in _FOLDERS else "file")
        for option in ("html", "zip"):
            if getattr(options, option, None) is not None:
                check_target(getattr(options, option), "file")
        with computing_on(_cluster(options)):
            return _COMMANDS[options.command](options) or 0
    except InputError as error:
        complain(one_line(error))
    except MemoryError as error:
        about = f" ({error})" if str(error) else ""
        complain(
            f"the memory of this machine is full{about}: choose fewer stimuli, layers or pairs "
            "(--pairs), or free some."
        )
    except BrokenPipeError:
        raise
    except OSError as error:
        about = error.strerror or str(error)
        advice = "; free some space, or write to another place" if is_full(error) else ""
        complain(one_line(f"{error.filename or 'a file'}: {about}{advice}."))
    return BAD_INPUT
