"""The command line: `python -m mlem_core analyze ...` and `python -m mlem_core stimuli ...`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self

from mlem_core.errors import InputError, unknown

if TYPE_CHECKING:
    from mlem_core.analysis import Progress

BAD_INPUT = 2
INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """Reports a usage error in one line, as every other error."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (--help lists what there is)", file=sys.stderr)
        raise SystemExit(BAD_INPUT)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(part) for part in _names(text)}))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of layer numbers such as 0,3,6"
        ) from None


def _named_file(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=FILE")
    return name, path


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m mlem_core", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)

    analyze = commands.add_parser(
        "analyze", help="run an analysis and write its tables as CSV into a folder"
    )
    analyze.add_argument(
        "--stimuli", required=True, metavar="FILE.csv|NAME", help="a stimulus CSV or a built-in set"
    )
    analyze.add_argument(
        "--model",
        dest="models",
        action="append",
        default=[],
        metavar="NAME",
        help="minilm, smollm2, a hub id or a local folder; may be given several times",
    )
    analyze.add_argument(
        "--representations",
        action="append",
        default=[],
        type=_named_file,
        metavar="NAME=FILE",
        help=".npz or .safetensors with layer_00, layer_01, ..., or a .csv of one layer; may be "
        "given several times",
    )
    analyze.add_argument("--layers", type=_numbers, metavar="0,3,6", help="default: all")
    analyze.add_argument("--features", type=_names, metavar="a,b", help="default: all")
    analyze.add_argument("--ordered", type=_names, default=(), metavar="a,b")
    analyze.add_argument("--nominal", type=_names, default=(), metavar="a,b")
    analyze.add_argument("--missing", default="ignore", metavar="ignore|level")
    analyze.add_argument("--estimator", default="ridge", metavar="ridge|ridge-rank|spearman|frrsa")
    analyze.add_argument(
        "--interactions", action="store_true", help="weigh products of two features too"
    )
    analyze.add_argument(
        "--distance",
        default="euclidean",
        metavar="euclidean|cosine|manhattan|correlation|precomputed",
        help="precomputed: the arrays of the representations files are distances",
    )
    analyze.add_argument("--folds", type=int, default=5)
    analyze.add_argument("--seed", type=int, default=0)
    analyze.add_argument("--device", default="auto", metavar="auto|cpu|cuda")
    analyze.add_argument("--dtype", default="float32", metavar="float32|bfloat16")
    analyze.add_argument(
        "--special-tokens",
        default="model",
        metavar="model|none|start",
        help="start and end tokens of a sentence: as the model's tokenizer adds them, none, or a "
        "start token in any case",
    )
    analyze.add_argument(
        "--baselines",
        type=_names,
        default=(),
        metavar="decoding,random-forest,univariate",
        help="baselines to compute and write too, a CSV each; they take seconds to minutes a layer",
    )
    analyze.add_argument("--out", required=True, metavar="DIR")

    stimuli = commands.add_parser("stimuli", help="write a built-in stimulus set as CSV")
    stimuli.add_argument("name", metavar="NAME", help="probing, ...")
    stimuli.add_argument("--out", required=True, metavar="FILE.csv")
    return parser


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
    from mlem_core.analysis import Progress, run
    from mlem_core.baselines import BASELINES, of_analysis
    from mlem_core.spec import AnalysisSpec
    from mlem_core.store import Store

    spec = AnalysisSpec(
        stimuli=options.stimuli,
        models=tuple(options.models),
        representations=tuple(options.representations),
        layers=options.layers,
        features=options.features,
        ordered=options.ordered,
        nominal=options.nominal,
        missing=options.missing,
        estimator=options.estimator,
        interactions=options.interactions,
        distance=options.distance,
        folds=options.folds,
        seed=options.seed,
        device=options.device,
        dtype=options.dtype,
        special_tokens=options.special_tokens,
    )
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

            found = of_analysis(analysis, name, store, progress=layers)
            extra[f"{name.replace('-', '_')}.csv"] = found.table
            notices += found.notices
    for notice in notices:
        print(notice, file=sys.stderr)
    analysis.results().write(options.out, analysis.manifest, extra)


def _stimuli(options: argparse.Namespace) -> None:
    from mlem_core import datasets
    from mlem_core.stimuli import write_csv

    write_csv(datasets.load(options.name), options.out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns 0, 2 for bad input (one line on stderr), or 130 on Ctrl-C."""
    options = _parser().parse_args(arguments)
    try:
        {"analyze": _analyze, "stimuli": _stimuli}[options.command](options)
    except InputError as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        print(f"{error.filename or 'a file'}: {error.strerror or error}.", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
