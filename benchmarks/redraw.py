"""Section `redraw`: the profiles of all layers anew after a feature is dropped.

In both codings, and with twelve more features that follow from the others with some noise, as
annotations do.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
import pandas as pd

from benchmarks.data import FOLDS, Case, probing
from benchmarks.timing import Table, in_turn, seconds
from mlem_core.measures.importance import fitted
from mlem_core.pairs.columns import FeatureColumn, feature_columns
from mlem_core.pairs.statistics import ComparedPairs, PairStatistics, pair_statistics

RESOLVED = ("part_of_speech",)
MORE, NOISE = 12, 0.01


def _statistics(case: Case, columns: Sequence[FeatureColumn]) -> PairStatistics:
    pairs = ComparedPairs.from_features(columns, case.folds)
    return pair_statistics(pairs, [lambda rows=rows: rows for rows in case.rows])


def _more(case: Case) -> PairStatistics:
    """Those with `MORE` features of three values, a few of which are wrong."""
    names = [feature.name for feature in case.stimuli.features]
    frame = pd.DataFrame({name: case.stimuli.values(name) for name in names})
    rng = np.random.default_rng(0)
    for k in range(MORE):
        values = (pd.factorize(frame[names[k % len(names)]])[0] + k) % 3
        values[rng.random(len(values)) < NOISE] = 0
        frame[f"derived_{k}"] = [f"value {value}" for value in values]
    return _statistics(case, feature_columns(frame))


def _redraw(pairs: PairStatistics, dropped: str) -> None:
    fitted(pairs.select_features([name for name in pairs.features if name != dropped]))


def measure(table: Table, runs: int) -> str:
    """Fill the table; on what it was measured."""
    case = probing()
    plain = _statistics(case, feature_columns(case.stimuli))
    resolved = _statistics(case, feature_columns(case.stimuli, resolved=RESOLVED))
    took: dict[str, list[float]] = {}
    for dropped in plain.features:

        def of(pairs: PairStatistics, dropped: str = dropped) -> None:
            _redraw(pairs, dropped)

        of(plain), of(resolved)
        took[dropped] = in_turn(lambda: of(resolved), lambda: of(plain), runs)
    slowest = max(took, key=lambda name: took[name][1])
    with_values, without = (
        statistics.median(column) for column in zip(*took.values(), strict=True)
    )
    many = _more(case)
    _redraw(many, many.features[0])
    of_many = [seconds(lambda name=name: _redraw(many, name)) for name in many.features]  # type: ignore[misc]
    for what, took_seconds, most in (
        ("redraw of all profiles after one feature is dropped, median over features", without, 60),
        (f"the same, slowest feature ({slowest})", took[slowest][1], 100),
        (
            f"the same with {len(many.features)} features, median",
            statistics.median(of_many),
            300,
        ),
    ):
        table.add(what, f"{1000 * took_seconds:.0f} ms", target=f"at most {most} ms")
    table.add(
        f"redraw with {RESOLVED[0]} coded by value, over features coded as same or different",
        f"{1000 * with_values:.0f} ms",
        f"{1000 * without:.0f} ms",
        f"{with_values / without:.2f}",
        "at most 1.5",
    )
    n = len(case.stimuli)
    return (
        f"the probing set ({n:,} words) in {len(case.layers)} layers, {FOLDS} folds; medians of "
        f"{runs} runs in turn, with many features of one run each"
    )
