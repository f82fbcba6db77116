"""Shared sentences of captions: what their terms mean, on how much they rest, and how computed.

A caption says what one sees, how it was computed and on how much; on the screen it is folded under
the figure's line. It stands beside what draws the figure. Nothing in it is a hint on how to use a
screen. `basis` is its last part.
"""

from __future__ import annotations

import math

from mlem_core.base.text import fraction, pair_count, sentence_case, stress_in_words
from mlem_core.estimators.normal_equations import NOT_APART
from mlem_core.inference.permutation_null import UNCORRECTED, ContributionNull, chance_note
from mlem_core.measures import similarity


def stress_sentence(*stresses: float) -> str:
    """How far maps are off, as the sentence of a caption; empty where that is not known."""
    known = [stress for stress in stresses if not math.isnan(stress)]
    if not known:
        return ""
    if fraction(min(known)) == fraction(max(known)):
        return f"{sentence_case(stress_in_words(known[0]))}."
    ends = f"{fraction(min(known))} to {fraction(max(known))}"
    return f"Stress {ends} (.05 good, .1 fair, .2 poor)."


def joined(*parts: str) -> str:
    """The parts of a caption that are there, one after the other."""
    return " ".join(filter(None, parts))


def tau_by_chance(n_features: int) -> str:
    """Size of τ by chance with so few features, in a sentence; empty where it is not defined."""
    if n_features < 2:
        return ""
    return f"By chance |τ| ≤ {fraction(similarity.tau_by_chance(n_features))} (95 %)."


def scores(coding: str) -> str:
    """Caption of the table of held-out scores; `coding` as in `mlem_core.pairs.columns.coding`."""
    penalty = "the ridge penalty α"
    if coding.startswith(RESOLVED):
        penalty = (
            "the strength β (column alpha) that draws the distances of values towards one distance "
            f"a feature ({NOT_APART:g}: coded as same or different)"
        )
    return (
        "ρ, ρ with ties at random (rho_a), the feature ceiling (where many pairs have equal "
        f"columns), and {penalty}, as the inner cross-validation chose it."
    )


def chance_sentence(chance: ContributionNull | None) -> str:
    """Whether contributions to all layers are beyond chance, in a sentence."""
    if chance is None:
        return UNCORRECTED
    return " ".join((f"{sentence_case(chance_note(chance.n_permutations))}.", *chance.notes))


FLAGGED = "flagged (audit, position, unit)"
FOLDS = "one standard deviation over folds"
RESOLVED = "by value"  # begins the words for a coding by value


def basis_sentence(
    n_stimuli: int, n_pairs: int = 0, n_folds: int = 0, coding: str = "", fit: str = ""
) -> str:
    """The n of a figure, the coding of its features and the fit, as a sentence.

    Parameters
    ----------
    n_pairs, n_folds : 0 where they are not named
    coding : as in `mlem_core.pairs.columns.coding`, which is same or different where none is named;
        empty where features play no part
    fit : how the metric models were fitted; empty where none was
    """
    counts = [f"{n_stimuli:,} stimuli"]
    counts += [pair_count(n_pairs, n_stimuli)] if n_pairs else []
    counts += [f"{n_folds} folds"] if n_folds else []
    coding = coding.removesuffix(", others as same or different")
    how = [f"features coded {coding}"] * bool(coding) + [fit] * bool(fit)
    return f"n = {'; '.join([', '.join(counts), *how])}."
