"""The command `analyze`: run an analysis and write its tables."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.results import write_tables
from mlem_core.analysis.run import TooFewStimuli, run
from mlem_core.base.parameters import parse_names
from mlem_core.base.progress import Bars
from mlem_core.cli.inputs import checked_spec, leftover_tables, new_notices
from mlem_core.cli.options import FOLDER, add_bootstrap, add_chance, add_inputs, add_similarity
from mlem_core.cli.streams import complain, tell
from mlem_core.cli.summary import summarize
from mlem_core.extending import contributions, table_sources
from mlem_core.inference.explanation import add_intervals
from mlem_core.pairs.similarities import RSA, SIMILARITIES
from mlem_core.report.analysis_tables import TableOptions, analysis_tables
from mlem_core.stimuli.stimulus_csv import write_table
from mlem_core.storage.store import Store


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_inputs(command)
    for source in table_sources().values():
        command.add_argument(
            f"--{source.option}",
            type=parse_names,
            default=(),
            metavar=",".join(source.names),
            help=source.help,
        )
    add_bootstrap(
        command, "also write intervals.csv and similarity_intervals.csv: 95 %% confidence intervals"
    )
    add_chance(command, "also write importance_chance.csv: with the labels of each feature")
    command.add_argument("--out", required=True, metavar="DIR", help=FOLDER)
    others = [name for name in SIMILARITIES if name != RSA]
    command.add_argument(
        "--similarities",
        type=parse_names,
        default=(),
        metavar=",".join(others),
        help="also write these similarities (see --similarity), with their contributions by "
        "feature where there are any",
    )
    add_similarity(command, "the similarity of the findings and of the tables of groups")
    for table in contributions("model_tables"):
        command.add_argument(f"--{table.option}", metavar=table.metavar, help=table.help)


def analyze(options: argparse.Namespace) -> None:
    """Run an analysis and write its tables as CSV."""
    table_options = TableOptions(
        bootstrap=options.bootstrap,
        chance=options.chance,
        similarity=options.similarity,
        similarities=tuple(options.similarities),
        extra={
            option: tuple(names)
            for option in table_sources()
            if (names := getattr(options, option))
        },
    )
    table_options.check()
    spec = checked_spec(options)
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
        bars.clear()
        complain(*new_notices(analysis), *computed.notices)
        manifest = {**analysis.manifest, "options": table_options.to_dict()}
        complain(
            *leftover_tables(options.out, write_tables(options.out, computed.tables, manifest))
        )
        sure = None
        if options.bootstrap:
            context = SelectionContext.from_analysis(analysis, store, bars.show)
            sure = partial(add_intervals, context=context)
        lines = summarize(
            analysis,
            results,
            computed.intervals,
            computed.similarity,
            sure,
            computed.importance_chance,
        )
    tell(*lines, *computed.findings)
