"""Texts for readers keep clear of phrases that nobody would say."""

import texts


def test_a_planted_phrase_is_found_where_it_stands(tmp_path):
    """In a page, a docstring and a message, over a line's end too; not in names or longer words."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "pages").mkdir()
    page = "A page.\nWhat a layer makes\nof it. Unasked, `what.asked`, at willows.\n"
    (tmp_path / "docs" / "why.md").write_text(page, "utf-8")
    cells = [{"source": ["# Title"]}, {"source": ["as it\n", "is made"]}]
    (tmp_path / "docs" / "tutorial.ipynb").write_text(f'{{"cells": {cells}}}'.replace("'", '"'))
    module = '"""First.\n\nMore is Said."""\nasked = 1\nprint(f"{asked} of " "which")\n'
    (tmp_path / "pages" / "home.py").write_text(module, "utf-8")
    assert texts.problems(tmp_path) == [
        "docs/tutorial.ipynb:2: 'as it is made'",
        "docs/why.md:2: 'makes of'",
        "pages/home.py:3: 'is Said'",
        "pages/home.py:5: 'of which'",
    ]
