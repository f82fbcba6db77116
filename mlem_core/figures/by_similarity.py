"""Figures with another similarity in the place of RSA, where it was computed."""

from __future__ import annotations

from dataclasses import replace

from mlem_core.figures.context import FIGURES, Draw, FigureContext, FigureRecord, RenderedFigure
from mlem_core.figures.similarity import draw_similarity
from mlem_core.figures.terms import draw_why_layers
from mlem_core.figures.why import draw_why
from mlem_core.pairs.similarities import RSA, SIMILARITIES

# By the name of the figure of RSA; those of contributions need a similarity that has some.
_OF_EVERY_SIMILARITY = {"similarity": draw_similarity}
_OF_CONTRIBUTIONS = {"why": draw_why, "why_layers": draw_why_layers}


def _with_similarity(similarity: str, draw: Draw) -> Draw:
    """Function that draws a figure by another similarity than RSA; None where it is unknown."""

    def draw_with_similarity(context: FigureContext) -> RenderedFigure | None:
        options = {**context.drawing.options, "similarity": similarity}
        changed = replace(context, drawing=replace(context.drawing, options=options))
        return None if changed.compared is None else draw(changed)

    return draw_with_similarity


for _similarity, _entry in SIMILARITIES.items():
    if _similarity == RSA:
        continue
    _figures = _OF_EVERY_SIMILARITY | (_OF_CONTRIBUTIONS if _entry.divides else {})
    for _name, _draw in _figures.items():
        _record = FIGURES[_name]
        FIGURES.register(
            FigureRecord(
                f"{_name}_{_similarity}",
                _record.title,
                _record.line,
                _with_similarity(_similarity, _draw),
            )
        )
