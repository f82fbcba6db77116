"""The docs that the app shows are there, and their links lead to pages of the app."""

from __future__ import annotations

import re

import pytest

from pages.parts import manual


@pytest.mark.parametrize("name", [name for name in manual.pages() if name != manual.CITE])
def test_every_link_of_a_page_leads_somewhere(name: str) -> None:
    path = next(path for path in manual._PAGES if manual._name(path) == name)
    text = manual._turned((manual.ROOT / path).read_text("utf-8"), path)
    outside_code = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)
    for target in re.findall(r"(?<!!)\[[^][]+\]\(([^)]*)\)", outside_code):
        if target.startswith("?page="):
            assert target.removeprefix("?page=") in manual.pages(), target
        else:
            assert target.startswith(("http", "#")), target


def test_all_listed_pages_are_in_the_repository() -> None:
    assert all((manual.ROOT / path).is_file() for path in manual._PAGES)
