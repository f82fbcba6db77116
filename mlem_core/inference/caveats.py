"""What to say beside confidence intervals: how they were computed, and what they do not claim."""

from __future__ import annotations

from mlem_core.estimators.registry import estimator_named
from mlem_core.inference.bootstrap import REPLICATES
from mlem_core.inference.jackknife import REFITS

# With fewer sentences an interval is a rough guide; see docs/validation.
FEW_SENTENCES = 80

GENERALISES = (
    "What is resampled is the sentence: an interval or a test says how this would vary with other "
    "stimuli of the same kind. With one checkpoint a model it says nothing about other models, "
    "other training runs or other kinds of stimuli."
)
FITTED = (
    "This estimator is not fitted anew in each replicate: its intervals are those of these fitted "
    "models' scores on new stimuli, which is narrower than models fitted to new stimuli would be."
)
ZERO = (
    "Where the truth is exactly 0 (a feature that a layer does not have), intervals are wider than "
    "they need be: they hold 0 more often than 95 times in 100."
)
FEW = f"With fewer than {FEW_SENTENCES} sentences intervals and ceilings are a rough guide."
HOW = (
    f"Confidence intervals are over sentences: {REFITS} blocks of them are left out in turn, and "
    f"{REPLICATES} bootstrap replicates give those of scores and importances their shape."
)


def of_size(n_sentences: int) -> tuple[str, ...]:
    """What to mind with so many sentences, if anything."""
    return (FEW,) if n_sentences < FEW_SENTENCES else ()


def how_computed(estimator: str, n_sentences: int) -> str:
    """How the intervals of all layers were computed, and what to mind, for a caption."""
    fitted = () if estimator_named(estimator).refitted else (FITTED,)
    return " ".join((HOW, *fitted, *of_size(n_sentences)))
