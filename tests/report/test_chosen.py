"""A figure of a report is drawn again from what is kept of it, with the user's words and names."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from inputs import refused
from pypdf import PdfReader

from mlem_core import Analysis, Store
from mlem_core.base.labels import Names
from mlem_core.figures import Paper
from mlem_core.report.chosen import Chosen, as_latex, as_zip, file_names
from mlem_core.report.figures import FIGURES, Drawing
from mlem_core.report.lines import LINES, line, title
from mlem_core.tasks import examples

PAIR = (("mini-gpt2", 6), ("mini-mamba", 11))


def kept(example: Analysis, figure: str, **more: object) -> Chosen:
    """A figure as it comes back from a file."""
    chosen = Chosen(figure, examples.ID, example.select(), PAIR, **more)  # type: ignore[arg-type]
    return Chosen.from_dict(json.loads(json.dumps(chosen.to_dict())))


def test_it_is_drawn_again_as_it_was(example: Analysis, tmp_path: Path) -> None:
    drawing = Drawing(store=Store(tmp_path))
    for figure in ("why", "audit"):
        chosen = Chosen(figure, examples.ID, example.select(), PAIR)
        first = chosen.drawn(example, example.results(), drawing)
        again = kept(example, figure).drawn(example, example.results(), drawing)
        assert again.figure == first.figure and again.caption == first.caption
        pd.testing.assert_frame_equal(again.data, first.data)


def test_what_was_selected_stays_selected(example: Analysis, tmp_path: Path) -> None:
    selection = example.select(["tense", "number"], [("minilm", 3), ("smollm2", 6)])
    chosen = Chosen("why", examples.ID, selection, (("smollm2", 6), ("minilm", 3)))
    assert Chosen.from_dict(chosen.to_dict()) == chosen
    made = chosen.drawn(example, example.results_of(selection), Drawing(store=Store(tmp_path)))
    assert set(made.data["term"]) == {"tense", "number", "unexplained"}
    assert made.title == "What makes smollm2:6 and minilm:3 alike"
    colored = kept(example, "two_layers", options={"color": "tense"})
    drawing = Drawing(store=Store(tmp_path))
    made = colored.drawn(example, example.results(), drawing)
    assert "coloured by tense" in made.caption
    assert {"past", "present"} <= {trace.name for trace in made.figure.data}


def test_words_and_names_are_the_users(example: Analysis, tmp_path: Path) -> None:
    names = Names({"part_of_speech": "word class"}, {"mini-gpt2": "GPT-2"})
    drawing = Drawing(store=Store(tmp_path), names=names)
    chosen = kept(example, "compare")
    made = chosen.drawn(example, example.results(), drawing)
    assert made.title == "Importances in GPT-2:6 and mini-mamba:11"
    assert "word class" in {trace.name for trace in made.figure.data}
    assert list(made.printed.columns) == ["feature", "GPT-2:6", "mini-mamba:11"]
    assert made.printed["feature"][0] == "word class"
    assert "part_of_speech" in set(made.data["feature"])
    own = chosen.titled(" My\n title ").captioned("My caption.")
    made = own.drawn(example, example.results(), drawing)
    assert (made.title, made.caption) == ("My title", "My caption.")
    assert own.titled("").captioned("") == chosen


def test_what_cannot_be_drawn_says_why(example: Analysis, tmp_path: Path) -> None:
    chosen = kept(example, "two_layers")
    with refused("two layers"):
        chosen.drawn(example, example.results(), Drawing())
    gone = replace(chosen, selection=replace(chosen.selection, features=("mood",)))
    with refused("'mood'"):
        gone.drawn(example, example.results(), Drawing(store=Store(tmp_path)))
    for broken in ({}, {**chosen.to_dict(), "selection": 3}, {**chosen.to_dict(), "pair": [1]}):
        with refused("report"):
            Chosen.from_dict(broken)
    with refused("'pie'"):
        Chosen.from_dict({**chosen.to_dict(), "figure": "pie"})


@pytest.mark.slow
def test_the_zip_has_all_of_it_in_order(
    example: Analysis, tmp_path: Path, chromium_path: str
) -> None:
    chosen = [kept(example, "why").titled("Why & how"), kept(example, "feature_counts")]
    names = file_names(chosen)
    assert names == ["01-why", "02-feature-counts"]
    drawing = Drawing(store=Store(tmp_path))
    drawn = [one.drawn(example, example.results(), drawing) for one in chosen]
    texts = {"methods.md": "We did.", "methods.tex": "We did.", "references.bib": "@article{a,}"}
    whole = as_zip(names, drawn, Paper(width_mm=120), "pdf", texts)
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert set(files) == {
        "report.tex", "report.md", "references.bib", "tables/01-why.csv",
        "tables/02-feature-counts.csv", "figures/01-why.pdf", "figures/02-feature-counts.pdf",
    }  # fmt: skip
    pdf = PdfReader(io.BytesIO(files["figures/01-why.pdf"]))
    assert float(pdf.pages[0].mediabox.width) / 72 * 25.4 == pytest.approx(120, abs=0.5)
    assert pdf.metadata is not None and pdf.metadata.title == "Why & how"
    tex = files["report.tex"].decode()
    assert r"\includegraphics[width=120mm]{figures/01-why.pdf}" in tex
    assert r"\caption[{Why \& how}]" in tex and r"\label{tab:02-feature-counts}" in tex
    assert tex.index("fig:01-why") < tex.index("fig:02-feature-counts") < tex.index("bibliography{")
    assert "**01-why. Why & how.**" in files["report.md"].decode()
    assert "\n".join(as_latex(names, drawn, 120, "pdf")).strip() in tex


def test_every_figure_has_a_line_for_the_screen() -> None:
    for figure in FIGURES:
        assert line(figure) and title(figure), figure
    assert line("why_score_b") == LINES["why_score"] and line("why") == LINES["why"]
    assert line("baseline-random-forest") == LINES["baseline"] and line("pie") == ""
    assert max(map(len, LINES.values())) < 140
