"""The list of one's analyses, and what leaves the app: figures, tables, a report, one zip."""

import io
import re
import zipfile
from collections.abc import Callable

import pandas as pd
import pytest
from helpers.screens import Screen, plain
from pypdf import PdfReader
from streamlit.elements.widgets.button import ButtonMixin

from mlem_core.cli.commands import main
from mlem_core.figures import export
from mlem_core.tasks import notes


@pytest.fixture
def offered(monkeypatch):
    """What download buttons give, by file name, as they were drawn last."""
    given: dict[str, Callable[[], bytes]] = {}
    draw = ButtonMixin._download_button

    def drawn(self, label, data, file_name="", **more):
        given[file_name] = data if callable(data) else lambda: data
        return draw(self, label, data, file_name, **more)

    monkeypatch.setattr(ButtonMixin, "_download_button", drawn)
    return given


def shown(own, **query):
    return Screen(analysis=own.jobs[0].id, **query)


def test_the_numbers_behind_a_figure(own, offered):
    screen = shown(own).tick_off("kind")
    starts = {
        "CSV": ("profiles.csv", b"model,layer,fold,feature,importance"),
        "LaTeX": ("profiles.tex", rb"\begin{table}"),
        "HTML": ("profiles.html", b"<"),
    }
    for form, (name, start) in starts.items():
        screen.save("profiles", format=form)
        content = offered[name]()
        assert content.lstrip().startswith(start)
        assert b"position" in content and b"kind" not in content.partition(b"<script")[0]


def test_without_chrome_on_the_server_what_needs_none_is_offered(own, monkeypatch):
    monkeypatch.setattr(export, "can_write_images", lambda: False)
    screen = shown(own).save("profiles")
    assert "BROWSER_PATH" in screen.said
    offered = screen.widget("button_group", "export format").options
    assert list(offered) == ["HTML", "CSV", "LaTeX"]


def test_a_report_is_chosen_worded_and_put_in_order(mine, offered, monkeypatch):
    screen = shown(mine, features=["noun", "position"], detail="how")
    screen.press("export why").press("add why").go("report").press("report add similarity")

    def titles(screen):
        return [one for one in screen.app.text_input if one.label == "Title"]

    why, similarity = (one.value for one in titles(screen))
    assert "one layer 2" in why and "one layer 2" not in similarity
    screen.press("report Down 01-why")
    assert [one.value for one in titles(screen)] == [similarity, why]
    titles(screen)[1].set_value("Why both are alike")
    screen.run()
    screen.unfold("folded report texts")
    assert any(r"\citep{salle2024" in one.value for one in screen.app.code)
    # As it was when it was added, in another window too.
    monkeypatch.setattr(export, "can_write_images", lambda: False)
    screen.run()
    with zipfile.ZipFile(io.BytesIO(offered["words-report.zip"]())) as archive:
        names = ("report.tex", "report.md", "tables/02-why.csv")
        tex, markdown, csv = (archive.read(name) for name in names)
        files = {name.rpartition(".")[0] for name in archive.namelist() if "/" in name}
    figures = ("01-similarity", "02-why")
    assert files == {f"{kind}/{figure}" for kind in ("tables", "figures") for figure in figures}
    order = [b"fig:01-similarity", b"fig:02-why", b"bibliography{"]
    assert sorted(order, key=tex.index) == order and b"**02-why. Why both are alike.**" in markdown
    assert rb"\caption[{Why both are alike}]" in tex
    assert b"noun" in csv and b"kind" not in csv
    assert titles(Screen("report", analysis=mine.jobs[0].id))[1].value == "Why both are alike"
    assert len(titles(screen.press("report Remove 01-similarity"))) == 1


@pytest.mark.slow
def test_figure_4_of_the_paper_takes_four_clicks(mine, offered, chromium_path):
    """Report, Add a figure, its name, Download: a page of 183 mm with the scatter and both maps."""
    Screen(analysis=mine.jobs[0].id).go("report").press("report add two_layers")
    with zipfile.ZipFile(io.BytesIO(offered["words-report.zip"]())) as archive:
        tex, pdf = archive.read("report.tex"), archive.read("figures/01-two-layers.pdf")
    assert rb"\includegraphics[width=183mm]{figures/01-two-layers.pdf}" in tex
    (page,) = PdfReader(io.BytesIO(pdf)).pages
    assert float(page.mediabox.width) / 72 * 25.4 == pytest.approx(183, abs=0.5)
    text = page.extract_text()
    assert "two layer 2" in text and "weighted Kendall" in text and "position" in text
    shown(mine).save("profiles", width="one column")
    (page,) = PdfReader(io.BytesIO(offered["profiles.pdf"]())).pages
    assert float(page.mediabox.width) / 72 * 25.4 == pytest.approx(89, abs=0.5)


@pytest.mark.slow
def test_everything_in_one_zip_and_rerun(mine, offered, tmp_path, capsys):
    screen = shown(mine).tick_off("kind").unfold("downloads")
    screen.press("Make the zip").run()
    path = tmp_path / "all.zip"
    path.write_bytes(offered["words-all.zip"]())
    with zipfile.ZipFile(path) as archive:
        assert {"manifest.json", "methods.md", "references.bib"} <= {*archive.namelist()}
        importance = pd.read_csv(archive.open("importance.csv"))
    assert {"noun", "position", "kind"} <= set(importance["feature"])
    files = mine.jobs[0].spec.representations
    given = [f"--representations={name}={file}" for name, file in files]
    assert main(["rerun", str(path), *given]) == 0, capsys.readouterr()
    assert "all are equal" in capsys.readouterr().out
    shell, python = (one.value for one in screen.app.get("code"))
    assert "mlem analyze --out=results" in shell and "--features=noun,position" in shell
    assert "features=('noun', 'position')" in python
    screen.press("Make the page").run()
    assert b'<div class="holder"' in offered["words-explorer.html"]()


def line(screen, job):
    """What the table says of an analysis."""
    (row,) = [one for one in screen.app.container if one.key == f"line of {job}"]
    return plain("\n".join(one.value for kind in ("markdown", "caption") for one in row.get(kind)))


def test_each_analysis_is_told_from_the_others(mine):
    screen = Screen()
    first, folds, seed = (line(screen, job.id) for job in mine.jobs)
    assert "folds 4" in folds and "3 models" in seed
    assert "folds 4" not in first and "3 models" not in first
    results = mine.jobs[0].analysis()
    a, b = (results.layers.index(layer) for layer in results.most_alike())
    assert "one and two" in first and f".{100 * results.rsa[a, b]:.0f}" in first
    assert f"{len(results.stimuli)}" in first.splitlines()
    assert "/not/there" in seed and "/not/there" not in first


@pytest.mark.slow
def test_a_name_and_a_note_stand_wherever_the_analysis_does(mine):
    job, other = mine.jobs[1].id, mine.jobs[0].id
    screen = Screen().unfold(f"more {job}")
    screen.choose(f"name {job}", "My words <b>*bold*</b>", "text_input")
    screen.choose(f"note {job}", "look at kind: عربي 中文", "text_area")
    # A name that one window gives, and a note of another: neither is lost.
    Screen().unfold(f"more {other}").choose(f"note {other}", "noted", "text_area")
    notes.change_notes(other, mine.store, lambda old: old.named("Named"))
    there = Screen()
    assert "My words <b>*bold*</b>" in line(there, job) and "عربي 中文" in line(there, job)
    assert {"Named", "noted"} <= set(re.findall(r"\w+", line(there, other)))
    explore = Screen(analysis=job)
    assert "My words <b>*bold*</b>" in explore.widget("selectbox", "Analysis").options
    # Emptied, it is called by what was chosen again.
    screen.choose(f"name {job}", "", "text_input")
    assert "2 models" in line(Screen(), job)


def test_two_are_compared_in_a_dialog(own):
    first, second = own.jobs[1].id, own.jobs[0].id
    screen = Screen().choose("compared analyses", [first, second], "multiselect")
    screen.press("compare analyses")
    assert screen.errors == [] and "folds (4; 3)" in screen.said
    assert "importance-differences" in screen.figures and "The result" in screen.said


def test_reset_takes_back_what_was_chosen(own):
    screen = shown(own)
    assert "reset" not in screen.buttons
    screen.tick_off("kind").tick_off("noun")
    assert screen.address["features"] == ["position"]
    assert "features" not in screen.press("reset").address
    assert screen.widget("button_group", "choice features").value == ["noun", "position", "kind"]
