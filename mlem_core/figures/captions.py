"""What captions share, and what the terms in them mean.

A caption says what one sees, how it was computed and on how much; on the screen it is folded under
the figure's line. It stands beside what draws the figure. Nothing in it is a hint on how to use a
screen. `basis` is its last part, see `mlem_core.analysis.in_words`.
"""

from __future__ import annotations

import re

import pandas as pd

from mlem_core.analysis.in_words import RESOLVED
from mlem_core.base.labels import Names
from mlem_core.base.text import minus
from mlem_core.estimators.normal_equations import NOT_APART
from mlem_core.measures import similarity
from mlem_core.measures.importance import CORRELATED

STRESS = (
    "Stress (Kruskal 1964): by how much the distances in the map are off, as a share of them; 0.05 "
    "is good, 0.1 fair, 0.2 poor, and then only what lies far apart can be read."
)


def joined(*parts: str) -> str:
    """The parts of a caption that are there, one after the other."""
    return " ".join(filter(None, parts))


def correlated_features(correlations: pd.DataFrame, called: Names | None = None) -> str:
    """Which features correlate over the pairs; empty where none do.

    Parameters
    ----------
    correlations : square, as `Results.feature_correlations`
    called : how the words call features
    """
    names, call = list(correlations.columns), (called or Names()).feature
    pairs = [
        minus(f"{call(one)} and {call(other)} (r = {correlations.loc[one, other]:.2f})")
        for at, one in enumerate(names)
        for other in names[at + 1 :]
        if abs(correlations.loc[one, other]) >= CORRELATED
    ]
    if not pairs:
        return ""
    return f"The distances of {', '.join(pairs)} correlate: permuting one alone may mislead."


def ceiling(coding: str) -> str:
    """What a ceiling is a bound on; `coding` as in `mlem_core.pairs.columns.coding`."""
    text = (
        "an estimate (from means that other stimuli give) of the ρ that a function of the features "
        f"can reach, coded by {coding}"
    )
    unseen = "; it knows nothing of which values differ"
    return text if coding.startswith(RESOLVED) else text + unseen


def ceiling_of(which: str, coding: str) -> str:
    """What the ceiling of one of two layers says; `which` is "first" or "second"."""
    return (
        f"How far the {which} layer's distances can correlate with a function of the features: "
        f"{ceiling(coding)}. Another coding of the same features may reach more."
    )


def tau_by_chance(n_features: int) -> str:
    """What τ is worth with so few features; empty where it is not defined."""
    if n_features < 2:
        return ""
    return (
        f"With {n_features} features, profiles in random order have a |τ| of at most "
        f"{similarity.tau_by_chance(n_features):.2f} in 95 of 100 cases."
    )


def scores(coding: str) -> str:
    """Caption of the table of held-out scores; `coding` as in `mlem_core.pairs.columns.coding`."""
    chosen = "the ridge penalty α"
    if coding.startswith(RESOLVED):
        chosen = (
            "the strength β (column alpha) that draws the distances of values towards one distance "
            f"a feature ({NOT_APART:g}: values are not told apart)"
        )
    return (
        f"ρ, ρ with ties at random (rho_a), the ceiling, and {chosen}, as the inner "
        "cross-validation chose it."
    )


# The words that stand for a term in a text -> its name in docs/glossary.md, what it means.
_TERMS: dict[str, tuple[str, str]] = {
    r"held-out ρ|prediction accuracy": (
        "Held-out ρ",
        "prediction accuracy: Spearman's ρ of predicted and neural distances over pairs of stimuli "
        "that the model was not fitted to",
    ),
    r"[Cc]eilings?": (
        "Feature ceiling",
        "the best possible with these features: the highest held-out ρ that any function of them, "
        "in their coding, could reach",
    ),
    r"\(FI\)|importances?": (
        "FI, importance",
        "the drop of the held-out ρ when a feature is permuted",
    ),
    r"τ": (
        "τ, weighted Kendall τ",
        "how alike two profiles order the features; high ranks count more",
    ),
    r"RSA": (
        "RSA",
        "Spearman's ρ of the neural distances of two layers over all pairs of stimuli; it knows "
        "nothing of features",
    ),
    r"CKA": (
        "CKA",
        "the correlation of the squared distances of two layers, each stimulus's mean taken away; "
        "0 on average for unrelated layers",
    ),
    r"overlap": (
        "Overlap of neighbours",
        "how many of the 10 nearest neighbours of a stimulus in one layer are so in the other, "
        "from 0 (as many as by chance) to 1",
    ),
    r"S_feat": (
        "S_feat",
        "the correlation of what the features explain in two layers: 1 where both use them in "
        "proportion, however much they explain",
    ),
    r"S_rest|partial RSA": (
        "S_rest",
        "the RSA of two layers apart from what the features explain, in their coding",
    ),
    r"[Tt]ransfer": (
        "Transfer",
        "the held-out ρ that the metric fitted to one layer has with the distances in another",
    ),
    r"Shapley|[Tt]erms?": (
        "Term",
        "what a feature adds to the similarity of two layers; terms and *unexplained* add up to it",
    ),
    r"[Uu]niversality": (
        "Universality",
        "what models of different groups share of a term, over what members of one group share",
    ),
    r"[Cc]oded|coding": (
        "Coding",
        "what of the features the metric sees: whether two stimuli differ, or also which values do",
    ),
    r"95 %": (
        "95 % interval",
        "where the number would be, in 95 of 100 cases, with other sentences (and other words, "
        "where they recur)",
    ),
    r"Benjamini-Hochberg|BH": (
        "p, corrected p, BH",
        "of what is called significant in the family, at most 5 % is expected to be chance",
    ),
    r"audit": (
        "Audit",
        "the same analysis without first words, without outlier units, with other distances, with "
        "random weights",
    ),
    r"[Aa]nalysis variants?": (
        "Analysis variants",
        "all combinations of reasonable choices: how one could have done the analysis too",
    ),
    r"MDS": (
        "MDS",
        "points in a plane whose distances come as close as they can to the true ones; its axes "
        "have no meaning, and its stress says how far the distances are off",
    ),
}
TERMS = tuple(name for name, _ in _TERMS.values())


def glosses(text: str) -> str:
    """The terms that occur in a text, as a list in Markdown; empty where none does."""
    found = [
        f"- **{name}**: {means}."
        for words, (name, means) in _TERMS.items()
        if re.search(rf"(?<!\w)(?:{words})(?!\w)", text)
    ]
    return "\n".join(found)
