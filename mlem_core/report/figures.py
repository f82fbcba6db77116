"""The figures of an analysis, drawn by their names from what is shown."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from mlem_core import figures
from mlem_core.analysis.similarities import RSA
from mlem_core.base.typing import Progress, Report, layer_name
from mlem_core.pairs.similarities import SIMILARITIES

# Each registers its figures.
from mlem_core.report import all_layers, by_method, of_groups, of_values, similar_in, two_layers
from mlem_core.report.shown import (
    FIGURES,
    Draw,
    Drawing,
    Drawn,
    FigureRecord,
    Shown,
    basis,
    held_out,
)

__all__ = [
    "FIGURES", "Drawing", "Drawn", "Shown", "all_figures", "all_layers", "basis", "by_method",
    "draw", "held_out", "of_groups", "of_values", "similar_in", "two_layers",
]  # fmt: skip


def _by(similarity: str, draw: Draw) -> Draw:
    """The same with another similarity in the place of RSA; None where it was not computed."""

    def drawn(shown: Shown) -> Drawn | None:
        options = {**shown.drawing.options, "similarity": similarity}
        chosen = replace(shown, drawing=replace(shown.drawing, options=options))
        return None if chosen.compared is None else draw(chosen)

    return drawn


# Those that have another similarity in the place of RSA.
for _similarity, _entry in SIMILARITIES.items():
    for _name in ("similarity", "why", "why_layers") if _entry.divides else ("similarity",):
        if _similarity != RSA:
            _of_rsa, _new = FIGURES[_name], f"{_name}_{_similarity}"
            _draw = _by(_similarity, _of_rsa.draw)
            FIGURES.register(FigureRecord(_new, _of_rsa.title, _of_rsa.line, _draw))


# By name, so that no import elsewhere decides their order in a capsule.
_by_name = sorted(FIGURES.items())
FIGURES.clear()
FIGURES.update(_by_name)


def draw(name: str, shown: Shown) -> Drawn | None:
    """A figure of the registry, with the names that `shown` has; None where there is none.

    The table for print has these names too; `data` keeps the identifiers.

    Raises
    ------
    InputError
        An unknown figure.
    """
    record = FIGURES.named(name)
    with figures.naming(shown.names):
        made = record.draw(shown)
    if made is None:
        return None
    return replace(made, table=_named(made.printed, shown))


def _named(table: pd.DataFrame, shown: Shown) -> pd.DataFrame:
    """A table whose features, models and layers are called as in the figure."""
    heads = {one: shown.names.layer(one) for one in map(layer_name, shown.selection.layers)}
    return shown.names.table(table, shown.terms).rename(columns=heads)


def all_figures(shown: Shown, progress: Report | None = None) -> dict[str, Drawn]:
    """Every figure of the registry that there is of what is shown.

    Parameters
    ----------
    progress : called before each
    """
    drawn = {}
    for done, name in enumerate(FIGURES):
        if progress is not None:
            progress(Progress("drawing", None, done, len(FIGURES), "figures"))
        made = draw(name, shown)
        if made is not None:
            drawn[name] = made
    return drawn
