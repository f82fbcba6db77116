"""The command line: `python -m mlem_core COMMAND ...`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from mlem_core.base.errors import InputError, unknown
from mlem_core.cli.options import BAD_INPUT, parser, spec_of

if TYPE_CHECKING:
    from mlem_core.base.typing import Progress

DESCRIPTION = "The command line: `python -m mlem_core COMMAND ...`."
DIFFERS = 1
INTERRUPTED = 130


class _Bars:
    """A progress bar a stage on stderr, if it is a terminal."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._title = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, progress: Progress) -> None:
        from tqdm import tqdm

        title = f"{progress.stage} {progress.model or ''}".strip()
        if title != self._title:
            self.__exit__()
            unit = f" {progress.unit}"
            # disable=None: no bar where stderr is no terminal.
            self._bar = tqdm(total=progress.total, desc=title, unit=unit, disable=None)
            self._title = title
        self._bar.update(progress.done - self._bar.n)


def _analyze(options: argparse.Namespace) -> None:
    from mlem_core.analysis.baselines import BASELINES, of_analysis
    from mlem_core.analysis.run import run
    from mlem_core.base.typing import Progress
    from mlem_core.inference.all_layers import layer_intervals
    from mlem_core.inference.caveats import generalises
    from mlem_core.inference.tables import score_table, similarity_table
    from mlem_core.storage.store import Store

    spec = spec_of(options)
    for name in options.baselines:
        if name not in BASELINES:
            raise unknown("baseline", name, BASELINES)
    store = Store()
    extra, notices = {}, []
    with _Bars() as bars:
        analysis = run(spec, store, bars.show)
        notices += analysis.notices
        for name in options.baselines:

            def layers(done: int, total: int, name: str = name) -> None:
                bars.show(Progress(name, None, done, total, "layers"))

            baseline = of_analysis(analysis, name, store, progress=layers)
            extra[f"{name.replace('-', '_')}.csv"] = baseline.table
            notices += baseline.notices
        if options.bootstrap:
            bounds = layer_intervals(
                analysis, store, n_replicates=options.bootstrap, report=bars.show
            )
            for name, (table, family) in (
                ("intervals.csv", score_table(bounds)),
                ("similarity_intervals.csv", similarity_table(bounds)),
            ):
                extra[name] = table
                notices.append(f"The tests in {name} are a family: {family}.")
            notices.append(generalises(bounds.units))
    for notice in notices:
        print(notice, file=sys.stderr)
    results = analysis.results()
    results.write(options.out, analysis.manifest, extra)
    if options.capsule:
        from mlem_core.report import capsule
        from mlem_core.report.figures import Drawing

        with _Bars() as bars:
            capsule.write(
                analysis,
                options.capsule,
                results=results,
                drawing=Drawing(store=store),
                progress=bars.show,
            )


def _audit(options: argparse.Namespace) -> None:
    from mlem_core.analysis.results import write_tables
    from mlem_core.analysis.run import run
    from mlem_core.robustness.audit import audit
    from mlem_core.robustness.flags import flags, summary
    from mlem_core.storage.store import Store

    store = Store()
    with _Bars() as bars:
        analysis = run(spec_of(options), store, bars.show)
        result = audit(analysis, store, bars.show)
    for notice in [*analysis.notices, *result.notices]:
        print(notice, file=sys.stderr)
    tables = {
        "audit.csv": result.layers,
        "audit_changes.csv": result.changes,
        "audit_pairs.csv": result.pairs,
        "audit_marks.csv": flags(result),
    }
    write_tables(options.out, tables, analysis.manifest)
    print("\n".join(summary(result)))


def _why(options: argparse.Namespace) -> None:
    from mlem_core.analysis.run import run
    from mlem_core.base.typing import Progress
    from mlem_core.data.csvfile import write_table
    from mlem_core.inference.caveats import generalises
    from mlem_core.inference.explanation import explain, with_intervals
    from mlem_core.pairs.units import Units
    from mlem_core.storage.store import Store

    both = (options.first, options.second)
    files = {name for name, _ in options.representations}
    options.models += [
        name for name in dict(both) if name not in files and name not in options.models
    ]
    if options.layers is None:
        # Other layers have no part in it.
        options.layers = tuple(sorted({number for _, number in both}))
    store = Store()
    with _Bars() as bars:
        analysis = run(spec_of(options), store, bars.show)
        for notice in analysis.notices:
            print(notice, file=sys.stderr)
        why = explain(analysis, *both, seed=options.seed)
        if options.bootstrap:

            def resampled(done: int, total: int) -> None:
                bars.show(Progress("intervals", None, done, total, "replicates"))

            why = with_intervals(why, analysis, store, options.bootstrap, options.seed, resampled)
    if options.out:
        write_table(why.terms, options.out)
    print(why.text)
    claimed = (generalises(Units.of(analysis.stimuli)),) if options.bootstrap else ()
    for note in (*why.notes, *claimed):
        print(note, file=sys.stderr)


def _multiverse(options: argparse.Namespace) -> None:
    from mlem_core.analysis.results import write_tables
    from mlem_core.analysis.run import run
    from mlem_core.robustness.claims import Claim, orders, verdict
    from mlem_core.robustness.multiverse import multiverse, narrowed
    from mlem_core.storage.store import Store

    claims = [Claim.parse(text) for text in options.claims]
    layers = [*options.layers_in_question, *(layer for claim in claims for layer in claim.layers)]
    store = Store()
    with _Bars() as bars:
        asked = list(dict.fromkeys(layers))
        varied = dict(options.vary) or None
        spec = spec_of(options)
        analysis = run(narrowed(spec, asked) if asked else spec, store, bars.show)
        result = multiverse(analysis, asked, store, varied, bars.show)
    for notice in [*analysis.notices, *result.notices]:
        print(notice, file=sys.stderr)
    universes = result.universes
    for number, claim in enumerate(claims, 1):
        margins = claim.margins(result).reindex(universes["universe"]).to_numpy()
        universes = universes.assign(**{f"margin_{number}": margins})
    tables = {
        "universes.csv": universes,
        "universe_layers.csv": result.layers,
        "universe_importance.csv": result.importance,
        "universe_similarity.csv": result.similarity,
    }
    write_tables(options.out, tables, analysis.manifest)
    verdicts = [verdict(claim, result) for claim in claims]
    print("\n".join(verdicts or orders(result)))


def _stimuli(options: argparse.Namespace) -> None:
    from mlem_core.data import datasets
    from mlem_core.data.stimulus_csv import write_csv

    write_csv(datasets.load(options.name), options.out)


def _verify(options: argparse.Namespace) -> int:
    from mlem_core.report.verify import verify

    with _Bars() as bars:
        result = verify(options.capsule, bars.show)
    print("\n".join(result.lines()))
    return 0 if result.same else DIFFERS


_COMMANDS: dict[str, Callable[[argparse.Namespace], int | None]] = {
    "analyze": _analyze,
    "audit": _audit,
    "multiverse": _multiverse,
    "stimuli": _stimuli,
    "verify": _verify,
    "why": _why,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns 0, 1 where a capsule differs from its new run, 2 for bad input (one line on stderr), or
    130 on Ctrl-C.
    """
    options = parser(DESCRIPTION).parse_args(arguments)
    try:
        return _COMMANDS[options.command](options) or 0
    except InputError as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        print(f"{error.filename or 'a file'}: {error.strerror or error}.", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return INTERRUPTED
