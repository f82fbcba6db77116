"""Findings of a check of stimuli, and the notices of a run that follow from them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal, get_args

import pandas as pd

from mlem_core.base.text import listed, many

Severity = Literal["problem", "caution", "note"]

MOST_ROWS = 20


@dataclass(frozen=True)
class StimulusFinding:
    """Finding about the stimuli that their owner should know.

    Attributes
    ----------
    severity : "problem" (a result would mean nothing), "caution" (read it with care), "note"
    kind : what it is about, one word: "constant", "copies", "weights", "rare", "identifier",
        "range", "correlated", "determined", "missing", "duplicates", "few", "folds", "bins",
        "levels", "patterns"
    sentence : what was found, what it means for the result, and what to do
    features : the features it is about
    rows : the rows it is about, 1 for the first stimulus below the header, at most `MOST_ROWS`
    """

    severity: Severity
    kind: str
    sentence: str
    features: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Lint:
    """Findings of `lint`, the gravest first.

    `correlations` are those of the feature distances over all pairs of n_stimuli stimuli, see
    `mlem_core.measures.similarity.feature_correlations`; these have n_cells different patterns in
    blocks of folds.
    """

    findings: list[StimulusFinding]
    correlations: pd.DataFrame
    n_stimuli: int
    n_cells: int = 0

    @property
    def counts(self) -> str:
        """Number of problems and cautions, "1 problem and 2 cautions"; empty without any."""
        found = Counter(finding.severity for finding in self.findings)
        grave = get_args(Severity)[:2]
        return listed([many(found[severity], severity) for severity in grave if found[severity]])

    @property
    def said(self) -> list[str]:
        """Notices of every run: each problem, weights that are 0 in a fold, kinds of cautions."""
        grave = [f for f in self.findings if f.severity == "problem" or f.kind == "constant"]
        kinds = [f.kind for f in self.findings if f.severity == "caution"]
        said = [finding.sentence for finding in grave]
        if kinds:
            said.append(
                f"The stimuli have {many(len(kinds), 'caution')} ({listed([*dict.fromkeys(kinds)])}"
                "); the command lint and the form of a new analysis show them in full."
            )
        return said
