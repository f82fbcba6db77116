"""How results were computed and on how much, in sentences below figures."""

from __future__ import annotations

from mlem_core.base.text import pairs_of

FOLDS = "one standard deviation over folds (not an interval: folds share training stimuli)"
RESOLVED = "by value"  # begins the words for a coding by value


def coding_sentence(coding: str) -> str:
    """How the features are coded; `coding` as in `mlem_core.pairs.columns.coding`."""
    return f"Features are coded {coding}."


def fitting_sentence(how: str, interactions: bool, missing: str | None, coding: str) -> str:
    """How the metric models were fitted.

    Parameters
    ----------
    how : the estimator in words
    missing : policy for missing values; None where no value is missing
    coding : as in `mlem_core.pairs.columns.coding`
    """
    if interactions:
        how += " with interactions; those that matter most are drawn"
    if missing is not None:
        what = {"ignore": "at no distance to any value", "level": "a value of their own"}[missing]
        how += f"; missing values are {what}"
        if missing == "ignore" and coding.startswith(RESOLVED):
            how += " (a value of their own where a feature is coded by value)"
    return f"Fitted with {how}. {coding_sentence(coding)}"


def computed_on(n_stimuli: int, n_pairs: int = 0, n_folds: int = 0, held_out: str = "") -> str:
    """On how much a figure rests; what is 0 is not named.

    Parameters
    ----------
    held_out : what is tested, see `mlem_core.pairs.resampling_units.Units.held_out`; empty where
        nothing is
    """
    counts = [f"{n_stimuli:,} stimuli"]
    counts += [pairs_of(n_pairs, n_stimuli)] if n_pairs else []
    counts += [f"{n_folds} folds"] if n_folds else []
    tested = f"; tested on {held_out}" if held_out else ""
    return f"Computed on {(', ' if n_folds else ' and ').join(counts)}{tested}."
