"""The formats of export of a figure: one table, which screens, the report and the archive read."""

from __future__ import annotations

import re
import unicodedata
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd

from mlem_core.base.parameters import Registry
from mlem_core.base.text import fraction
from mlem_core.extending import entry_modules
from mlem_core.figures.context import RenderedFigure
from mlem_core.figures.export import as_file
from mlem_core.figures.print_layout import Paper
from mlem_core.stimuli.stimulus_csv import write_table

# A table of more rows is broken over pages.
LONG = 40
# A table of longer rows (letters) is made smaller, to fit on the page.
WIDE = 90
# Wider than this a figure or a table spans both columns of a journal.
ONE_COLUMN_MM = 100

_SPECIAL = {sign: f"\\{sign}" for sign in "{}&%$#_"}
_SPECIAL |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_SPECIAL |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "…": r"\ldots{}"}
_SPECIAL |= {"×": r"$\times$", "±": r"$\pm$", "−": "$-$", "·": r"$\cdot$", "²": "$^2$"}
_SPECIAL |= {"≤": r"$\leq$", "≥": r"$\geq$", "≠": r"$\neq$", "∞": r"$\infty$", "→": r"$\to$"}
_SPECIAL |= {"ϕ": r"$\phi$", "ϵ": r"$\epsilon$", "ς": r"$\varsigma$", "ο": "o"}
_SPECIAL |= {"–": "--", "—": "---", "\u00a0": "~"}
# Letters of all of Europe where the fonts are there; others (Arabic, Chinese ...) do not stop it.
_DOCUMENT = r"""\documentclass[a4paper]{article}
\usepackage[margin=12mm]{geometry}
\usepackage{booktabs, longtable, graphicx}
\IfFileExists{lmodern.sty}{\usepackage[T1]{fontenc}\usepackage{lmodern}}{}
% pdfLaTeX prints ? for a letter that its fonts lack; LuaLaTeX and XeLaTeX print it with a font
% that has it, such as \setmainfont{Noto Sans Arabic} of the package fontspec.
\makeatletter\ifdefined\UTFviii@undefined@err\def\UTFviii@undefined@err#1{?}\fi\makeatother
\usepackage{natbib}
\begin{document}
PARTS
\bibliographystyle{plainnat}
\bibliography{references}
\end{document}
"""
# The others look like Latin letters, and LaTeX has no commands for them.
_CAPITALS = "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega".split()  # noqa: SIM905
# Headings of columns that the program names; a user's own stand as they are.
_HEADINGS = {
    "rho": r"$\rho$",
    "rho_a": r"$\rho_a$",
    "rho_before": r"$\rho$ before",
    "alpha": r"$\alpha$",
    "tau": r"$\tau$",
    "weighted_tau": r"$\tau$",
    "rsa": "RSA",
    "p": "$p$",
    "rsa_p": "$p$",
    "p_corrected": "$p$ (corrected)",
    "rsa_p_corrected": "$p$ (corrected)",
    "layer_a": "layer",
    "layer_b": "other layer",
    "model_a": "model",
    "model_b": "other model",
    "value_a": "value",
    "value_b": "other value",
    "n_pairs": "pairs",
    "n_units": "units",
    "n_outliers": "outlier units",
    "outlier_share": "share of outliers",
    "position0_ranks": "share of position 0",
    "mean_cosine": "mean cosine",
    "top": "most important feature",
}
_P = ("p", "rsa_p", "p_corrected", "rsa_p_corrected")


def escape(text: object) -> str:
    """Text that LaTeX prints as it is, on one line; Greek letters and signs are set as math."""
    line = re.sub(r"[ \t\r\n\f\v]+", " ", str(text)).strip()
    return "".join(map(_letter, line))


def _letter(letter: str) -> str:
    if letter in _SPECIAL:
        return _SPECIAL[letter]
    name = unicodedata.name(letter, "").replace("LAMDA", "LAMBDA")
    if greek := re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (\w+)", name):
        command = greek[2].lower() if greek[1] == "SMALL" else greek[2].title()
        if greek[1] == "SMALL" or command in _CAPITALS:
            return rf"$\{command}$"
    return "" if unicodedata.category(letter) in ("Cc", "Cf") else letter


def table(frame: pd.DataFrame, caption: str = "", label: str = "", title: str = "") -> str:
    """A table with booktabs' rules; of more than `LONG` rows a longtable, which breaks over pages.

    Numbers stand on the right with three decimals (whole ones without), text on the left; a
    missing cell is a dash. What LaTeX would read as a command is escaped.

    Parameters
    ----------
    frame : a row a row of the table; its index is left out
    caption, label : of the float; `label` may hold letters, digits, `:` and `-`
    title : the caption in short, which begins it and stands in a list of tables
    """
    sides = "".join("r" if pd.api.types.is_numeric_dtype(kind) else "l" for kind in frame.dtypes)
    headings = [_HEADINGS.get(name) or escape(name) for name in map(str, frame.columns)]
    head = " & ".join(headings) + r" \\"
    columns = [[_cell(value, str(name)) for value in frame[name]] for name in frame]
    # What begins with a bracket or a star would be read as an option of the row before.
    rows = [
        ("{}" if cells[0][:1] in ("[", "*") else "") + " & ".join(cells) + r" \\"
        for cells in zip(*columns, strict=True)
    ]
    captioned, labelled = _caption(caption, title), _label(label)
    if len(rows) > LONG:
        return _lines(
            rf"\begin{{longtable}}{{{sides}}}",
            # In a longtable they are a row of their own.
            rf"{captioned}{labelled} \\" if captioned or labelled else "",
            *(r"\toprule", head, r"\midrule", r"\endfirsthead"),
            *(r"\toprule", head, r"\midrule", r"\endhead"),
            *(r"\midrule", rf"\multicolumn{{{len(sides)}}}{{r}}{{continued}} \\", r"\endfoot"),
            *(r"\bottomrule", r"\endlastfoot"),
            *rows,
            r"\end{longtable}",
        )
    # Letters in the longest cells of all columns, with what is between them.
    cells = zip(map(str, frame.columns), columns, strict=True)
    wide = sum(max(map(len, (name, *column))) + 2 for name, column in cells) > WIDE
    return _lines(
        r"\begin{table}",
        r"\centering",
        captioned,
        labelled,
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%" if wide else "",
        rf"\begin{{tabular}}{{{sides}}}",
        *(r"\toprule", head, r"\midrule", *rows, r"\bottomrule"),
        r"\end{tabular}" + "}" * wide,
        r"\end{table}",
    )


def figure(path: str, width_mm: float, caption: str = "", label: str = "", title: str = "") -> str:
    """A figure that includes a picture at its own width.

    Parameters
    ----------
    path : of the picture, from where the document lies
    width_mm : width of the picture; over `ONE_COLUMN_MM` it spans two columns
    caption, label, title : as for `table`
    """
    kind = "figure*" if width_mm > ONE_COLUMN_MM else "figure"
    return _lines(
        rf"\begin{{{kind}}}",
        r"\centering",
        rf"\includegraphics[width={width_mm:g}mm]{{{path}}}",
        _caption(caption, title),
        _label(label),
        rf"\end{{{kind}}}",
    )


def document(parts: list[str]) -> str:
    """A document of these parts that can be typeset as it is, with references.bib beside it."""
    return _DOCUMENT.replace("PARTS", "\n".join(filter(None, parts)))


def _lines(*lines: str) -> str:
    return "\n".join(filter(None, lines)) + "\n"


def _caption(caption: str, title: str) -> str:
    if not caption and not title:
        return ""
    short = f"[{{{escape(title)}}}]" if title else ""
    begin = f"{escape(title)}. " if title else ""
    return rf"\caption{short}{{{(begin + escape(caption)).strip()}}}"


def _label(label: str) -> str:
    return rf"\label{{{re.sub(r'[^a-zA-Z0-9:-]', '-', label)}}}" if label else ""


def _cell(value: Any, column: str) -> str:
    if pd.isna(value):
        return "--"
    if isinstance(value, bool | np.bool_):
        return str(value)
    if isinstance(value, float | np.floating) and np.isfinite(value):
        if column in _P and 0 <= value < 0.001:
            return "$<.001$"
        text = fraction(float(value), 3)
        return f"${text.replace('−', '-')}$" if text.startswith("−") else text
    if isinstance(value, int | np.integer):
        return f"${value}$" if value < 0 else str(value)
    return escape(value)


# Gives the file of a figure, which has a name, at the size and in the font of a paper.
Write = Callable[[RenderedFigure, str, Paper | None], bytes]


@dataclass(frozen=True)
class ExportFormat:
    """A format in which a figure, or its numbers, can be exported.

    Attributes
    ----------
    name : ending of its files
    label : what buttons call it
    sentence : what it is for
    write : gives the file of a figure
    printed : whether it is a picture with the size and font of a `Paper`, which takes a
        Chrome or Chromium on the server
    resolution : whether that is of pixels
    """

    name: str
    label: str
    sentence: str
    write: Write
    printed: bool = False
    resolution: bool = False


FORMATS = Registry[ExportFormat]("format of export", entry_modules)


def pictures(images: bool) -> list[ExportFormat]:
    """Formats of the pictures in a zip: vector graphics, or pages where no browser can write them.

    Parameters
    ----------
    images : whether there is a browser, see `mlem_core.figures.export.can_write_images`
    """
    if not images:
        return [FORMATS["html"]]
    return [one for one in FORMATS.values() if one.printed and not one.resolution]


def as_latex(drawn: RenderedFigure, name: str, paper: Paper, form: str = "pdf") -> str:
    """A figure and its table as LaTeX.

    Parameters
    ----------
    name : of its files
    paper : of the picture, which lies in the folder `figures`
    form : ending of the picture; LaTeX reads PDF
    """
    path, title = f"figures/{name}.{form}", drawn.title
    picture = figure(path, paper.width_mm, drawn.caption, f"fig:{name}", title)
    return "\n".join((picture, table(drawn.printed, "", f"tab:{name}", title=title)))


_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say


def zip_files(files: Mapping[str, bytes]) -> bytes:
    """Content of a zip of files, the same for the same files."""
    target = BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[path])
    return target.getvalue()


def csv_bytes(table: pd.DataFrame) -> bytes:
    """A table as CSV; cells that a spreadsheet would run are escaped."""
    file = BytesIO()
    write_table(table, file)
    return file.getvalue()


def _picture(drawn: RenderedFigure, name: str, paper: Paper | None, form: str) -> bytes:
    return as_file(drawn.figure, form, paper, title=drawn.title or name, caption=drawn.caption)


def _table(drawn: RenderedFigure, name: str, paper: Paper | None) -> bytes:
    return table(drawn.printed, drawn.caption, f"tab:{name}", title=drawn.title).encode()


for _form, _sentence in {
    "pdf": "For papers: lines and text stay sharp at any size, and the fonts are in the file.",
    "svg": "For papers and for drawing programs: lines and text stay sharp and can be edited.",
    "png": "For slides and web pages: pixels.",
    "html": "An interactive page that needs no network (5 MB).",
}.items():
    _write, _printed = partial(_picture, form=_form), _form != "html"
    FORMATS.register(
        ExportFormat(_form, _form.upper(), _sentence, _write, _printed, resolution=_form == "png")
    )
FORMATS.register(
    ExportFormat(
        "csv",
        "CSV",
        "The table that the figure is drawn from. Cells that a spreadsheet would run as formulas "
        "are escaped.",
        lambda drawn, name, paper: csv_bytes(drawn.data),
    )
)
FORMATS.register(
    ExportFormat(
        "tex",
        "LaTeX",
        "The numbers of the figure as a table for a paper; it needs the packages booktabs and "
        "longtable.",
        _table,
    )
)
