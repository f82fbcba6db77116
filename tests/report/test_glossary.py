"""A gloss for each term that stands below a figure, and each is in the glossary."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlem_core.report import captions
from mlem_core.report.glossary import NAMES, glosses

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_gloss_has_its_entry_in_the_glossary() -> None:
    entries = re.findall(r"\*\*(.+?)\.?\*\*", (DOCS / "glossary.md").read_text("utf-8"))
    assert set(NAMES) <= {entry.rstrip(".") for entry in entries}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Nothing to explain here.", []),
        ("weighted Kendall τ and RSA", ["τ, weighted Kendall τ", "RSA"]),
        ("the feature ceiling", ["Feature ceiling"]),
        ("determined, MDSX", []),
        ("95 % intervals", ["95 % interval"]),
        ("S_feat by transfer", ["S_feat", "Transfer"]),
    ],
)
def test_terms_are_found_as_words(text: str, names: list[str]) -> None:
    assert re.findall(r"\*\*(.+?)\*\*", glosses(text)) == names


def test_the_captions_of_the_paper_figures_are_glossed() -> None:
    assert "Held-out ρ" in glosses(captions.profiles("", "whether they differ"))
    assert "RSA" in glosses(captions.similarity(""))
    assert "Term" in glosses(captions.why("", ""))


def test_the_pages_call_it_what_the_screens_call_it() -> None:
    """Analysis variants; the literature's name of all of them stands beside it, once."""
    for name in ("glossary", "audit"):
        said = re.sub(r"`[^`]*`|^ {4}.*", "", (DOCS / f"{name}.md").read_text("utf-8"), flags=re.M)
        assert said.count("multiverse") == 1 and "universe" not in said
    assert "Analysis variants" in glosses("Whether the claim holds in every analysis variant.")
