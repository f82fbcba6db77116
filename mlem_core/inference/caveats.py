"""Sentences beside confidence intervals: their computation, and their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlem_core.base.text import fraction, listed, percent
from mlem_core.estimators.registry import estimator_named
from mlem_core.inference.layer_pairs import PERMUTED
from mlem_core.inference.resample import REPLICATES
from mlem_core.pairs.designs import BUDGET, RESAMPLED
from mlem_core.pairs.designs import n_pairs as all_pairs
from mlem_core.pairs.resampling_units import BLOCKS, SINGLE, Units

if TYPE_CHECKING:
    from mlem_core.analysis.results import Results

# Below this RSA correlation two layers are called hardly similar; below this ρ no feature matters.
HARDLY = 0.1
# A held-out ρ below this part of its ceiling says more of the metric model than of the features.
FAR_BELOW = 0.6
# With fewer sentences an interval is a rough guide; see docs/validation.
FEW_SENTENCES = 80

FITTED = (
    "This estimator is not refitted in each replicate: its intervals hold for these fitted models "
    "on new stimuli and are narrower than those of refitted models."
)
ZERO = (
    "Where the population value is exactly 0 (a layer does not encode the feature), intervals are "
    "conservative: they hold 0 in more than 95 % of samples."
)


def generalises(units: Units, *, seeds: bool = False) -> str:
    """A sentence on what intervals and tests over these units generalise to.

    Parameters
    ----------
    seeds : whether there are groups with two models or more
    """
    if seeds:
        return (
            f"Confidence intervals and tests of layers are over {units.others}. Only intervals over"
            " the models of a group generalise to other models of that group; none generalises to "
            "other groups or other kinds of stimuli."
        )
    return (
        f"Confidence intervals and tests are over {units.others}. With one checkpoint per model "
        "they do not generalise to other models, training runs or kinds of stimuli."
    )


def of_size(units: Units) -> tuple[str, ...]:
    """Caveats for so many units, if any."""
    few = f"With fewer than {FEW_SENTENCES} {units.groups}, intervals and ceilings are only a "
    return (f"{few}rough guide.",) if units.n_sentences < FEW_SENTENCES else ()


def drawn_of(n_stimuli: int, n_pairs: int) -> str:
    """Sentence on what intervals resample where not all pairs are compared; else empty."""
    if _all_compared(n_stimuli, n_pairs):
        return ""
    part = f"about {min(n_pairs, RESAMPLED) / 1e6:.0f} million" if n_pairs > RESAMPLED else "all"
    return (
        f"Intervals resample the stimuli on {part} of the {n_pairs:,} compared pairs, around the "
        "values from all of these; they include the error from choosing pairs."
    )


def permuted_of(n_stimuli: int, n_pairs: int) -> str:
    """Sentence on whose labels are permuted where not all pairs are compared; else empty."""
    if _all_compared(n_stimuli, n_pairs):
        return ""
    some = min(n_stimuli, PERMUTED)
    return (
        f"Labels are permuted among about {some:,} of the {n_stimuli:,} stimuli (all that "
        "stay together, and all their pairs); a test of all stimuli would have more power."
    )


def _all_compared(n_stimuli: int, n_pairs: int) -> bool:
    return all_pairs(n_stimuli) <= min(n_pairs, BUDGET)


def below_ceiling(results: Results, estimator: str) -> str:
    """The models whose mean held-out ρ is far below its ceiling, and what to try; else empty."""
    by_fold = results.scores.groupby(["model", "fold"], sort=False)[["rho", "ceiling"]].mean()
    of_models = by_fold.groupby("model", sort=False)
    # Of noise the mean of ceilings, none of which is below 0, is above 0; some of them are 0.
    means = of_models.mean()[of_models["ceiling"].min() >= HARDLY]
    means = means[means["rho"] < FAR_BELOW * means["ceiling"]]
    each = [f"{m} ({fraction(rho)} of {fraction(most)})" for m, rho, most in means.itertuples()]
    ways = ["the estimator ridge-rank"] * (estimator != "ridge-rank")
    ways += ["coding by value (--values all)"] * (not results.resolved)
    return (
        f"The held-out ρ is below {percent(FAR_BELOW)} of its ceiling in {listed(each, most=4)}: "
        f"try {listed([*ways, 'more features'], last='or')}."
    ) * bool(each)


def how_computed(estimator: str, units: Units) -> str:
    """Computation of the intervals of all layers, with its caveats, for a caption."""
    how = (
        f"Confidence intervals are over {units.over}. Up to {SINGLE} of {units.each} are left out "
        f"one by one, more in {BLOCKS} blocks. {REPLICATES} bootstrap replicates of the "
        f"{units.groups} give intervals of scores and importances their shape."
    )
    fitted = () if estimator_named(estimator).refitted else (FITTED,)
    return " ".join((how, *fitted, *of_size(units)))
