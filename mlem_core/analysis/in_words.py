"""The end of captions: on how much results rest, and how they were computed."""

from __future__ import annotations

from mlem_core.base.text import pairs_of

FOLDS = "one standard deviation over folds"
RESOLVED = "by value"  # begins the words for a coding by value


def computed_on(
    n_stimuli: int, n_pairs: int = 0, n_folds: int = 0, coding: str = "", fit: str = ""
) -> str:
    """The n of a figure, the coding of its features and the fit, as a sentence.

    Parameters
    ----------
    n_pairs, n_folds : 0 where they are not named
    coding : as in `mlem_core.pairs.columns.coding`; empty where features play no part
    fit : how the metric models were fitted; empty where none was
    """
    counts = [f"{n_stimuli:,} stimuli"]
    counts += [pairs_of(n_pairs, n_stimuli)] if n_pairs else []
    counts += [f"{n_folds} folds"] if n_folds else []
    how = [f"features coded {coding}"] * bool(coding) + [fit] * bool(fit)
    return f"n = {'; '.join([', '.join(counts), *how])}."
