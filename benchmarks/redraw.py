"""Section `redraw`: the profiles of all layers anew after a feature is dropped, in both codings."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.data import FOLDS, Case, probing
from benchmarks.timing import Table, in_turn
from mlem_core.measures.importance import fitted
from mlem_core.pairs.build import pair_tables
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.tables import PairTables

RESOLVED = ("part_of_speech",)


def _tables(case: Case, resolved: Sequence[str] = ()) -> PairTables:
    index = PairIndex.build(feature_columns(case.stimuli, resolved=resolved), case.folds)
    return pair_tables(index, [lambda rows=rows: rows for rows in case.rows])


def measure(table: Table, runs: int) -> str:
    """Fill the table; on what it was measured."""
    case = probing()
    plain, resolved = _tables(case), _tables(case, RESOLVED)
    took: dict[str, list[float]] = {}
    for dropped in plain.features:
        kept = [name for name in plain.features if name != dropped]

        def redraw(tables: PairTables, kept: list[str] = kept) -> None:
            fitted(tables.of_features(kept))

        redraw(plain), redraw(resolved)
        took[dropped] = in_turn(lambda: redraw(resolved), lambda: redraw(plain), runs)
    slowest = max(took, key=lambda name: took[name][1])
    with_values, without = (
        statistics.median(column) for column in zip(*took.values(), strict=True)
    )
    for what, seconds, most in (
        ("redraw of all profiles after one feature is dropped, median over features", without, 60),
        (f"the same, slowest feature ({slowest})", took[slowest][1], 100),
    ):
        table.add(what, f"{1000 * seconds:.0f} ms", target=f"at most {most} ms")
    table.add(
        f"redraw with values of {RESOLVED[0]} told apart, over features that differ or do not",
        f"{1000 * with_values:.0f} ms",
        f"{1000 * without:.0f} ms",
        f"{with_values / without:.2f}",
        "at most 2",
    )
    n = len(case.stimuli)
    return (
        f"the probing set ({n:,} words, {len(plain.codes):,} patterns, {len(resolved.codes):,} "
        f"with values told apart) in {len(case.layers)} layers, {FOLDS} folds; medians of {runs} "
        "runs in turn"
    )
