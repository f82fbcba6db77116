"""Letters without a font are named; checked against the fonts that fontconfig lists."""

import subprocess

import plotly.graph_objects as go
import pytest

from mlem_core.figures import export
from mlem_core.figures.export import drawn_texts, missing_glyphs

RARE = "\U00012031"  # cuneiform


def fonts(letter):
    asked = ["fc-list", f":charset={ord(letter):x}", "family"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split("\n")


@pytest.fixture(autouse=True)
def none_known():
    export._has_font.cache_clear()


def test_letters_without_a_font_are_named():
    names = ["part of speech", "ασπεκτ", "вид", "词性", "साधारण", RARE]
    said = missing_glyphs(names)
    for letter in "词性सरण" + RARE:
        assert (letter in said) != any(fonts(letter))
    assert not any(letter in said for letter in "αв")
    assert missing_glyphs(names[:3]) == ""


def test_what_a_picture_does_not_show_needs_no_font():
    figure = go.Figure(go.Bar(x=["a"], y=[1], customdata=[RARE], name="b"))
    figure.update_layout(title="c", xaxis_title="d")
    assert {"a", "b", "c", "d"} <= {*drawn_texts(figure)} and RARE not in {*drawn_texts(figure)}


def test_nothing_is_said_where_nothing_is_known(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert missing_glyphs([RARE]) == ""
