"""What of a long table goes to the browser."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from mlem_core.base.labels import Names
from mlem_core.data.reading import conllu, content
from pages.form import read, representations
from pages.parts import exporting, naming

ROOT = Path(__file__).parents[2]


def script() -> None:
    import pandas as pd

    from pages.parts import exporting

    for n in (5_000, 12_345):
        exporting.draw_table(pd.DataFrame({"a": range(n)}), f"t{n}", f"{n} numbers.")


def test_no_more_rows_than_a_page_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "now", Names)
    app = AppTest.from_function(script).run()
    assert not app.exception
    assert [len(table.value) for table in app.dataframe] == [exporting.MOST_ROWS] * 2
    assert app.caption[0].value == "5000 numbers."
    whole = "12345 numbers. Rows {} of 12,345; the CSV has all."
    assert app.caption[1].value == whole.format("1 to 5,000")
    app.number_input[0].set_value(3).run()
    assert app.dataframe[1].value["a"].tolist() == list(range(10_000, 12_345))
    assert app.caption[1].value == whole.format("10,001 to 12,345")


def test_the_server_takes_what_the_uploaders_offer() -> None:
    """It refuses larger bodies whatever a widget says."""
    with (ROOT / ".streamlit" / "config.toml").open("rb") as file:
        most = tomllib.load(file)["server"]["maxUploadSize"]
    assert most >= max(read.MOST_MB, representations.MOST_MB)
    assert {read.MOST_MB * 1_000_000} == {content.MAX_BYTES, conllu.MAX_BYTES}
