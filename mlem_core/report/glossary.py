"""What the terms on a screen mean, in a sentence each; docs/glossary.md says more of each."""

from __future__ import annotations

import re

# The words that stand for a term in a text -> its name in docs/glossary.md, what it means.
_GLOSSES: dict[str, tuple[str, str]] = {
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
NAMES = tuple(name for name, _ in _GLOSSES.values())


def glosses(text: str) -> str:
    """The terms that occur in a text, as a list in Markdown; empty where none does."""
    found = [
        f"- **{name}**: {means}."
        for words, (name, means) in _GLOSSES.items()
        if re.search(rf"(?<!\w)(?:{words})(?!\w)", text)
    ]
    return "\n".join(found)
