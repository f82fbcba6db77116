"""Gains of candidates beyond the features."""

from __future__ import annotations

from mlem_core.extensions.candidates.stage import pair_search
from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.style import interval_bars
from mlem_core.pairs.resampling_units import Units

# Candidates that are drawn.
MOST = 12


def _line(context: FigureContext) -> str:
    search = pair_search(context)
    line = "Gains in RSA beyond the features, with 95 % CI; faint where this includes 0."
    return line if search is None else " ".join((line, *search.notes))


@figure("what_else", "What else explains the similarity", _line)
def draw_what_else(context: FigureContext) -> RenderedFigure | None:
    """Bar chart of the gains of the candidates; None where they are not known."""
    search = pair_search(context)
    if search is None or search.table.empty:
        return None
    # Distances in other layers would dwarf what can be a feature; the table has them.
    table = search.table[search.table["kind"] != "rdm"].head(MOST)
    names = [label.removeprefix("the ") for label in table["label"]]
    drawn = interval_bars(names, *(table[end] for end in ("gain", "lower", "upper")))
    drawn.update_xaxes(title_text="gain in RSA", rangemode="tozero")
    a, b = context.called
    units = Units.from_stimuli(context.analysis.stimuli).over
    caption = (
        f"Gain of each candidate in what is explained of the RSA of {a} and {b}, beyond the "
        f"features and its labels permuted, cross-fitted; bars: 95 % CI over {units}. "
        f"{context.basis_sentence}"
    )
    return RenderedFigure(drawn, caption, search.table)
