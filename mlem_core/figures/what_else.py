"""What columns that are no features would explain of the similarity of two layers."""

from __future__ import annotations

from mlem_core.figures.context import FigureContext, RenderedFigure, figure
from mlem_core.figures.groups import interval_bars
from mlem_core.pairs.resampling_units import Units

MOST = 12


@figure(
    "what_else",
    "What else explains the similarity",
    "Gains in RSA beyond the features, with 95 % CI; faint where this includes 0.",
)
def draw_what_else(context: FigureContext) -> RenderedFigure | None:
    """Bar chart of the gains of the candidates; None where they are not known."""
    rest = context.rest
    if rest is None or rest.table.empty:
        return None
    # Distances in other layers would dwarf what can be a feature; the table has them.
    table = rest.table[rest.table["kind"] != "rdm"].head(MOST)
    names = [label.removeprefix("the ") for label in table["label"]]
    drawn = interval_bars(names, *(table[end] for end in ("gain", "lower", "upper")))
    drawn.update_xaxes(title_text="gain in RSA", rangemode="tozero")
    a, b = context.called
    units = Units.of(context.analysis.stimuli).over
    caption = (
        f"Gain of each candidate in what is explained of the RSA of {a} and {b}, beyond the "
        f"features and its labels permuted, cross-fitted; bars: 95 % CI over {units}. "
        f"{context.computed_on}"
    )
    return RenderedFigure(drawn, "What else explains the similarity", caption, rest.table)
