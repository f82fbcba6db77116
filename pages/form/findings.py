"""Findings of one kind in one sentence, with the choice of the form that changes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from mlem_core.analysis.diagnostics import GROUPS_A_FOLD, RARE
from mlem_core.analysis.spec import parameters
from mlem_core.base.text import listed
from mlem_core.stimuli.folds import FEWEST_FOLDS
from mlem_core.stimuli.stimulus_set import StimulusSet
from mlem_core.stimuli.table_warnings import Severity, StimulusFinding

# Of several findings of a kind: what their features do, and what that means.
_PATTERNS = {
    "missing": "features have empty cells|Only these pairs say anything about them: check that "
    "the cells are meant to be empty.",
    "rare": "features have rare values|Some folds hold hardly any of these stimuli.",
    "determined": "features follow from others|One may be credited with what another explains: "
    "read their importances together.",
    "correlated": "pairs of features have distances that correlate|One may be credited with what "
    "the other explains: read the two importances together.",
    "copies": "pairs of features divide the stimuli in the same way|Their separate weights mean "
    "nothing: leave one of each pair out.",
    "identifier": "features have nearly as many values as there are stimuli|Ignore those that name "
    "the stimuli, and make numbers numeric.",
    "range": "features have a few extreme values|Their weights rest on few stimuli: look at these "
    "values, or use logarithms.",
    "constant": "features have the same distance in all pairs of a fold|Their weights are 0 there.",
}
MOST_FEATURES, MOST_ROWS = 8, 8  # that are named


def grouped(findings: Sequence[StimulusFinding]) -> list[list[StimulusFinding]]:
    """Findings by kind, the gravest first; what changes no result is a note."""
    groups: dict[tuple[int, str, str], list[StimulusFinding]] = {}
    for finding in findings:
        severity: Severity = "note" if finding.kind == "missing" else finding.severity
        # What is about the stimuli as a whole stands alone.
        alone = "" if finding.features and finding.kind in _PATTERNS else finding.sentence
        key = get_args(Severity).index(severity), finding.kind, alone
        groups.setdefault(key, []).append(replace(finding, severity=severity))
    return [groups[key] for key in sorted(groups, key=lambda key: key[0])]


def sentence(findings: Sequence[StimulusFinding]) -> str:
    """A group of findings in one sentence, with the rows of a single one."""
    first, named, n = findings[0], [], 0
    if len(findings) == 1:
        more = " …" if len(first.rows) > MOST_ROWS else ""
        rows = ", ".join(f"{row:,}" for row in first.rows[:MOST_ROWS])
        where = f" (row{'s' * (len(first.rows) > 1)} {rows}{more})" * bool(rows)
        text = first.sentence.removesuffix(".")
        text = text.replace("_", " ") if first.kind == "levels" else text
        for name in first.features:
            text = text.replace(repr(name), repr(name.replace("_", " ")))
        return f"{text}{where}."
    for finding in findings:
        names = [name.replace("_", " ") for name in finding.features]
        detail = finding.detail
        if first.kind == "determined":
            names, detail = names[:1], f"from {listed(names[1:])}"
        names = [" with ".join(names)] if first.kind in ("correlated", "copies") else names
        named.append(listed(names, most=5) + f" ({detail})" * bool(detail))
        n += len(names) if first.kind == "missing" else 1
    what, meaning = _PATTERNS[first.kind].split("|")
    return f"{n} {what}: {listed(named, most=MOST_FEATURES)}. {meaning}"


def change(
    findings: Sequence[StimulusFinding], stimuli: StimulusSet, folds: int
) -> tuple[str, str, tuple[str, ...]]:
    """The choice that changes a group of findings: its label, name and values; empty for none."""
    first, n_groups = findings[0], int(stimuli.groups.max()) + 1
    if first.kind in ("determined", "copies", "identifier", "constant"):
        columns = dict.fromkeys(each.features[-(first.kind == "copies")] for each in findings)
        of = first.features[0] if len(columns) == 1 else f"these {len(columns)} columns"
        return f"Ignore {of}", "role", tuple(f"{column}=ignore" for column in columns)
    if first.kind == "rare" and "merge_rare" in parameters():
        least = max(folds, math.ceil(min(RARE, len(stimuli) / 100)))
        values = tuple(f"{finding.features[0]}={least}" for finding in findings)
        return "Merge rare values", "merge_rare", values
    if first.kind == "missing" and first.detail:
        return "Count empty cells as a value", "missing", ("level",)
    if first.kind == "few" and "by value" in first.sentence:
        return "Code all features as same or different", "values", ("none",)
    fewer = n_groups // GROUPS_A_FOLD
    if first.kind == "folds" and not first.rows and FEWEST_FOLDS <= fewer < folds:
        return f"Use {fewer} folds", "folds", (str(fewer),)
    return "", "", ()
