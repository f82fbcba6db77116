"""The command `audit`."""

from __future__ import annotations

import argparse

from mlem_core.analysis.context import SelectionContext
from mlem_core.analysis.results import write_tables
from mlem_core.analysis.run import run
from mlem_core.base.progress import Bars
from mlem_core.cli.inputs import checked_spec, leftover_tables, new_notices
from mlem_core.cli.options import FOLDER, add_inputs, add_similarity
from mlem_core.cli.streams import complain, tell
from mlem_core.extensions.audit.flags import audit_tables, summary
from mlem_core.extensions.audit.stage import AUDIT
from mlem_core.pairs.similarities import SIMILARITIES
from mlem_core.storage.store import Store


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_inputs(command)
    add_similarity(command, "the similarity that is audited")
    command.add_argument("--out", required=True, metavar="DIR", help=FOLDER)


def audit_layers(options: argparse.Namespace) -> None:
    """Check every layer for artefacts, and write the tables as CSV."""
    SIMILARITIES.named(options.similarity)
    store = Store()
    with Bars() as bars:
        analysis = run(checked_spec(options), store, bars.show)
        context = SelectionContext.from_analysis(analysis, store, bars.show)
        result = AUDIT.get(context.reselect(similarity=options.similarity))
    complain(*new_notices(analysis), *result.notices)
    left = write_tables(options.out, audit_tables(result), analysis.manifest, "audit")
    complain(*leftover_tables(options.out, left))
    tell(*summary(result))
