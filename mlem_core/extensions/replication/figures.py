"""Importances of one analysis less those of another."""

from __future__ import annotations

from collections.abc import Sequence

from mlem_core.figures.captions import joined
from mlem_core.figures.context import RenderedFigure
from mlem_core.figures.profiles import profiles
from mlem_core.inference.intervals import FamilyOfTests


def draw_importance_differences(
    family: FamilyOfTests,
    names: tuple[str, str],
    features: Sequence[str],
    over: str,
    caveat: str = "",
) -> RenderedFigure:
    """The importance of each feature in one analysis less that in another, by layer.

    Parameters
    ----------
    family : as `importance_differences` gives it
    names : what the two analyses are called
    features : of both analyses, which decide the colours
    over : resampling units of the intervals; empty where there are none
    caveat : on the intervals
    """
    table = family.table.assign(fold=0, importance=family.table["difference"])
    intervals = None
    if over:
        intervals = table.assign(quantity="importance", value=table["difference"])
    drawn = profiles(
        table,
        table[["model", "layer", "fold"]],
        features,
        across=2,
        value="difference of importance (ΔFI)",
        intervals=intervals,
    )
    for trace in drawn.data:
        if isinstance(trace.hovertext, tuple):
            # The p of a difference is two-sided, and it has no spread over folds.
            trace.hovertext = [text.replace("above 0: p", "not 0: p").replace(" ± .000 (sd)", "")
                               for text in trace.hovertext]  # fmt: skip
    tested = (
        f"95 % intervals over {over}. A filled marker: not 0 (p ≤ .05, corrected over a family of "
        f"{family.family}). {caveat}"
    )
    return RenderedFigure(
        drawn,
        joined(
            f"Importance of each feature in “{names[0]}” less that in “{names[1]}”.",
            tested if over else "",
        ),
        family.table,
        title="Difference of importance",
    )
