"""Figures that a user has chosen for a report, to be drawn again, and the zip of them.

report.tex, report.md    all figures and tables, to be typeset or read; the methods paragraph
figures/01-profiles.pdf  a figure at the size that was chosen, and so on in their order
tables/01-profiles.csv   the numbers that it is drawn from, with the identifiers
references.bib           what the methods paragraph cites
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mlem_core.analysis.analysis import Selection
from mlem_core.base.errors import InputError
from mlem_core.base.files import checked
from mlem_core.base.text import as_markdown
from mlem_core.base.typing import Layer
from mlem_core.figures.plots import FIGURES, FigureContext, RenderedFigure, draw
from mlem_core.figures.print_layout import Paper
from mlem_core.report import formats
from mlem_core.report.formats import FORMATS, as_latex, csv_bytes, zip_files

LONGEST = {"title": 300, "caption": 4000}  # letters


@dataclass(frozen=True)
class Chosen:
    """A figure of a report: what is needed to draw it again, and the user's own words.

    Attributes
    ----------
    figure : its name in `mlem_core.figures.plots.FIGURES`
    analysis : id of the analysis that it is of
    selection : what of it is shown
    pair : the two layers that are compared; None: those that are looked at first
    options : what else is chosen, see `FigureOptions`
    title, caption : in place of those that follow from the analysis; empty for these
    """

    figure: str
    analysis: str
    selection: Selection
    pair: tuple[Layer, Layer] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    caption: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Dictionary for JSON."""
        return {**asdict(self), "selection": self.selection.to_dict()}

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> Chosen:
        """Figure of a report from the dictionary of `to_dict`.

        Raises InputError: it is of another form, or of a figure that there is not.
        """
        chosen = checked(cls, kept, "a figure of the report (remove it and add it again)")
        if chosen.figure not in FIGURES:
            raise InputError(
                f"the report has a figure {chosen.figure!r} that this version does not draw; "
                "remove it."
            )
        return chosen

    def worded(self, part: str, text: str) -> Chosen:
        """Figure with a title or caption of one's own, on one line; empty: the one that follows."""
        words: dict[str, Any] = {part: " ".join(text.split())[: LONGEST[part]]}
        return replace(self, **words)

    def drawn(self, context: FigureContext) -> RenderedFigure:
        """The figure, drawn again, with the user's title and caption.

        Parameters
        ----------
        context : how all figures of the report are drawn; selection, pair and options are the
            figure's own

        Raises InputError: the analysis has no longer what is shown, or what it was drawn
        from is gone.
        """
        analysis = context.analysis
        selection = self.selection.checked(analysis.pairs.features, analysis.layers)
        drawing = replace(context.drawing, pair=self.pair, options=self.options)
        made = draw(self.figure, replace(context, selection=selection, drawing=drawing))
        if made is None:
            raise InputError(
                f"the figure {self.figure.replace('_', ' ')} cannot be drawn: what it shows is no "
                "longer on this machine, or needs two layers; compute it again, or remove it."
            )
        return replace(made, title=self.title or made.title, caption=self.caption or made.caption)


def as_zip(
    names: Sequence[str],
    drawn: Sequence[RenderedFigure],
    paper: Paper,
    form: str,
    texts: Mapping[str, str],
) -> bytes:
    """The whole report as a zip, see this module.

    Parameters
    ----------
    names : of the files of each figure, without ending: "01-profiles"
    form : of the pictures, one of `mlem_core.report.formats.pictures`
    texts : methods.md, methods.tex and references.bib

    Raises as `as_file`.
    """
    files: dict[str, bytes] = {}
    parts = [texts["methods.tex"]]
    for name, one in zip(names, drawn, strict=True):
        files[f"figures/{name}.{form}"] = FORMATS.named(form).write(one, name, paper)
        files[f"tables/{name}.csv"] = csv_bytes(one.data)
        parts.append(as_latex(one, name, paper, form))
    files["report.tex"] = formats.document(parts).encode()
    captions = [
        f"**{name}. {as_markdown(one.title)}.** {as_markdown(one.caption)}\n"
        for name, one in zip(names, drawn, strict=True)
    ]
    files["report.md"] = "\n".join((*captions, texts["methods.md"])).encode()
    files["references.bib"] = texts["references.bib"].encode()
    return zip_files(files)
