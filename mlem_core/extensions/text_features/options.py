"""Options for features that follow from the text of the stimuli."""

from __future__ import annotations

from dataclasses import dataclass

from mlem_core.base.parameters import option, parse_names
from mlem_core.stimuli.candidates import CANDIDATES


def _add_help() -> str:
    features = [entry for entry in CANDIDATES.values() if entry.help]
    named = [f"{f.name}{':MODEL' * f.needs_model}: {f.help}" for f in features]
    return f"Features to add. {'; '.join(named)}."


def _whole_number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


@dataclass(frozen=True, kw_only=True)
class TextFeatureOptions:
    """Features that are added, and whose rare values are merged."""

    add: tuple[str, ...] = option((), "Added features", _add_help, metavar="a,b", parse=parse_names)
    language: str = option(
        "en", "Language", "The language of frequencies, by its code.", metavar="CODE"
    )
    merge_rare: tuple[tuple[str, int], ...] = option(
        (),
        "Rare values",
        "A categorical feature, and how many stimuli a value has at least; rarer values become one "
        "value, other.",
        metavar="COLUMN=NUMBER",
        pair=_whole_number,
        last=True,
    )
