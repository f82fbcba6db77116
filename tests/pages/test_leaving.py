"""What leaves the app: figures, tables, a report, and everything in one zip."""

import io
import json
import tomllib
import zipfile
from collections.abc import Callable

import pandas as pd
import pytest
from pypdf import PdfReader
from screens import APP, Screen
from streamlit.elements.widgets.button import ButtonMixin
from streamlit.testing.v1 import AppTest

from mlem_core import figures
from mlem_core.base.labels import Names
from mlem_core.cli.commands import main
from mlem_core.data.reading import content
from mlem_core.tasks import notes
from pages.form import read, representations
from pages.parts import exporting, naming


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


def profiles(own):
    return Screen("explore", analysis=own.jobs[0].id, tab="profiles")


def test_the_numbers_behind_a_figure(own, offered):
    screen = profiles(own).tick_off("kind").unfold("export profiles")
    starts = {
        "CSV": ("profiles.csv", b"model,layer,fold,feature,importance"),
        "LaTeX": ("profiles.tex", rb"\begin{table}"),
        "HTML": ("profiles.html", b"<"),
    }
    for form, (name, start) in starts.items():
        screen.choose("export format", form, "button_group")
        content = offered[name]()
        assert content.lstrip().startswith(start)
        assert b"position" in content and b"kind" not in content.partition(b"<script")[0]


def test_without_chrome_on_the_server_the_browser_saves_pictures(own, monkeypatch):
    monkeypatch.setattr(figures, "can_write_images", lambda: False)
    screen = profiles(own).unfold("export profiles")
    screen.choose("export width", "one column", "button_group")
    assert any("BROWSER_PATH" in one.value for one in screen.app.info)
    for form in ("SVG", "PNG"):
        screen.choose("export format", form, "button_group")
        (preview,) = [one for one in screen.app.get("plotly_chart") if one.key[:7] == "preview"]
        asked = json.loads(preview.proto.config)["toImageButtonOptions"]
        assert (asked["filename"], asked["format"]) == ("profiles", form.lower())
        dpi = 300 if form == "PNG" else 96
        assert asked["width"] * asked["scale"] == pytest.approx(89 / 25.4 * dpi)


def test_a_report_is_chosen_worded_and_put_in_order(mine, offered):
    screen = Screen("explore", analysis=mine.jobs[0].id, features=["noun", "position"])
    screen.unfold("export why").press("add why").go("report").press("report add similarity")

    def titles(screen):
        return [one for one in screen.app.text_input if one.label == "Title"]

    why, similarity = (one.value for one in titles(screen))
    assert "one:2" in why and "one:2" not in similarity
    screen.press("report Down 01-why")
    assert [one.value for one in titles(screen)] == [similarity, why]
    titles(screen)[1].set_value("Why both are alike")
    screen.run()
    tex = offered["words-report.tex"]().decode()
    assert tex.index("01-similarity") < tex.index("02-why")
    assert r"\caption[{Why both are alike}]" in tex
    screen.unfold("report texts")
    assert any(r"\citep{salle2024" in one.value for one in screen.app.code)
    # As it was when it was added, in another window too.
    csv = offered["02-why.csv"]()
    assert b"noun" in csv and b"kind" not in csv
    assert titles(Screen("report", analysis=mine.jobs[0].id))[1].value == "Why both are alike"
    assert len(titles(screen.press("report Remove 01-similarity"))) == 1


def test_names_of_one_s_own_stand_in_figures_and_files(mine, offered):
    job = mine.jobs[0].id
    Screen("report", analysis=job).press("report add compare")
    # What the table of names writes; its cells are painted, so no test can find them.
    notes.change_notes(job, mine.store, lambda own: own.showing("position", "place"))
    screen = Screen("report", analysis=job)
    (drawn,) = [figure for name, figure in screen.figures.items() if "compare" in name]
    assert "place" in {one.get("name") for one in drawn["data"]}
    assert b"place & " in offered["01-compare.tex"]()
    csv = offered["01-compare.csv"]()
    assert b"position" in csv and b"place" not in csv
    assert "place" in profiles(mine).traces("profiles")


@pytest.mark.slow
def test_figure_4_of_the_paper_takes_four_clicks(mine, offered, chromium_path):
    """Report, Add a figure, its name, PDF: a page of 183 mm with the scatter and both maps."""
    Screen(analysis=mine.jobs[0].id).go("report").press("report add two_layers")
    (page,) = PdfReader(io.BytesIO(offered["01-two-layers.pdf"]())).pages
    assert float(page.mediabox.width) / 72 * 25.4 == pytest.approx(183, abs=0.5)
    text = page.extract_text()
    assert "two layer 2" in text and "weighted Kendall" in text and "position" in text
    profiles(mine).unfold("export profiles").choose("export width", "one column", "button_group")
    (page,) = PdfReader(io.BytesIO(offered["profiles.pdf"]())).pages
    assert float(page.mediabox.width) / 72 * 25.4 == pytest.approx(89, abs=0.5)
    with zipfile.ZipFile(io.BytesIO(offered["words-report.zip"]())) as archive:
        assert {"figures/01-two-layers.pdf", "report.tex"} <= {*archive.namelist()}


@pytest.mark.slow
def test_everything_in_one_zip_and_verified(mine, offered, tmp_path, capsys):
    screen = profiles(mine).tick_off("kind").unfold("capsule")
    assert "2 features" in screen.said and "6 layers" in screen.said
    screen.press("Make the capsule").run()
    capsule = tmp_path / "capsule.zip"
    capsule.write_bytes(offered["words-capsule.zip"]())
    with zipfile.ZipFile(capsule) as archive:
        assert {"methods.md", "references.bib"} <= {*archive.namelist()}
        importance = pd.read_csv(archive.open("tables/importance.csv"))
    assert set(importance["feature"]) == {"noun", "position"}

    assert main(["verify", str(capsule)]) == 0, capsys.readouterr()
    assert "nothing differs" in capsys.readouterr().out


def script():
    import pandas as pd

    from pages.parts import exporting

    exporting.draw_table(pd.DataFrame({"a": range(12_345)}), "t", "Numbers.")


def test_no_more_rows_than_a_page_are_sent(monkeypatch):
    monkeypatch.setattr(naming, "now", Names)
    app = AppTest.from_function(script).run()
    assert not app.exception
    assert len(app.dataframe[0].value) == exporting.MOST_ROWS
    app.number_input[0].set_value(3).run()
    assert app.dataframe[0].value["a"].tolist() == list(range(10_000, 12_345))
    assert "10,001 to 12,345 of 12,345" in app.caption[0].value


def test_the_server_takes_what_the_uploaders_offer():
    """It refuses larger bodies whatever a widget says."""
    with (APP.parent / ".streamlit" / "config.toml").open("rb") as file:
        most = tomllib.load(file)["server"]["maxUploadSize"]
    assert most >= max(read.MOST_MB, representations.MOST_MB)
    assert read.MOST_MB * 1_000_000 == content.MAX_BYTES
