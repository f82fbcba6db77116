"""Terms of a text, as the glossary explains them."""

from __future__ import annotations

import functools
import re

from pages.parts.screens import ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"
# Of each of these entries of the glossary, the words that stand for it in a text.
TERMS = {
    "Held-out ρ": r"held-out ρ",
    "Feature ceiling": r"[Cc]eilings?",
    "FI, importance": r"\(FI\)|importances?",
    "τ, weighted Kendall τ": r"τ",
    "RSA": r"RSA",
    "CKA": r"CKA",
    "Overlap of neighbours": r"overlap",
    "Contribution": r"Shapley|[Tt]erms?|[Cc]ontributions?",
    "Universality": r"[Uu]niversality",
    "Coding": r"[Cc]oded|coding",
    "95 % confidence interval": r"95 %",
    "p, corrected p, BH": r"Benjamini-Hochberg|BH",
    "Audit": r"audit",
    "MDS": r"MDS",
}


def glosses(text: str) -> str:
    """The terms that occur in a text, as a list in Markdown; empty where none does."""
    first = _first_sentences()
    return "\n".join(
        f"- **{name}**: {first[name]}."
        for name, words in TERMS.items()
        if name in first and re.search(rf"(?<!\w)(?:{words})(?!\w)", text)
    )


@functools.cache
def _first_sentences() -> dict[str, str]:
    """The first sentence of each entry of the glossary; none where it is not installed."""
    text = GLOSSARY.read_text(encoding="utf-8") if GLOSSARY.is_file() else ""
    entries = re.findall(r"^### (.+)\n\n((?:.+\n)+)", text, re.MULTILINE)
    return {name: " ".join(entry.split()).partition(". ")[0].rstrip(".") for name, entry in entries}
