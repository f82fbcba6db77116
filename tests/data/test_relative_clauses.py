from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from grammars import relative_clauses as rc
from mlem_core.data import datasets
from mlem_core.data.stimuli import StimulusSet

# Table 1 of Jalouzot et al. 2024: attachment site, type, template, example.
CENTER, OUTER = "center-embedded", "peripheral"
TABLE_1 = [
    (CENTER, "subject", "Subj who verb obj verb obj", "who sees the princess admires the actress"),
    (CENTER, "object", "Subj who subj verb verb obj", "who the princess sees admires the actress"),
    (OUTER, "subject", "Subj verb obj who verb obj", "sees the princess who admires the actress"),
    (OUTER, "object", "Subj verb obj who subj verb", "admires the actress who the princess sees"),
]


@pytest.fixture(scope="module")
def clauses() -> StimulusSet:
    return datasets.load("relative-clauses")


@pytest.mark.parametrize(("site", "kind", "template", "example"), TABLE_1)
def test_table_1_as_printed(clauses, site, kind, template, example):
    example = f"The woman {example}."
    row = clauses.table[clauses.table["sentence"] == example].squeeze()
    assert (row["attachment_site"], row["relative_clause_type"]) == (site, kind)
    roles = {"woman": "Subj", "princess": "Subj", "actress": "Subj", "who": "who"}
    roles |= {"sees": "verb", "admires": "verb"}
    found = [roles[word] for word in example.rstrip(".").split() if word in roles]
    expected = [{"obj": "Subj", "subj": "Subj"}.get(word, word) for word in template.split()]
    assert found == expected
    for place in ("subject", "object", "embedded"):
        assert row[f"{place}_number"] == "singular" and row[f"{place}_gender"] == "feminine"
    assert row["subject_frequency"] == 5.5
    assert row["object_frequency"] == row["embedded_frequency"] == 4.5
    assert example.split()[2 if site == "peripheral" else -3].startswith(row["verb_lemma"])


def test_size_levels_and_kinds(clauses):
    assert clauses.level == "sentence"
    assert len(clauses) == 7680 == len(set(clauses.sentences))
    assert clauses.groups.tolist() == list(range(7680))
    levels = {f.name: sorted(set(clauses.values(f.name))) for f in clauses.features}
    assert tuple(levels) == rc.FEATURES and len(levels) == 12
    places = ("subject", "object", "embedded")
    assert levels == {
        "relative_clause_type": ["object", "subject"],
        "attachment_site": ["center-embedded", "peripheral"],
        **{f"{place}_number": ["plural", "singular"] for place in places},
        **{f"{place}_gender": ["feminine", "masculine"] for place in places},
        **{f"{place}_frequency": [4.0, 4.5, 5.0, 5.5] for place in places},
        "verb_lemma": ["admire", "see"],
    }
    ordered = {feature.name for feature in clauses.features if feature.kind == "ordered"}
    assert ordered == {f"{place}_frequency" for place in places}
    assert not clauses.table[list(rc.FEATURES)].isna().any().any()


def test_every_level_is_equally_frequent(clauses):
    for feature in rc.FEATURES:
        assert len(set(clauses.table[feature].value_counts())) == 1, feature
    cells = clauses.table.value_counts(["relative_clause_type", "attachment_site", "verb_lemma"])
    assert cells.tolist() == [960] * 8


def test_sentences_are_what_their_features_say(clauses):
    """Parse each sentence anew, without the grammar."""
    verbs = {"see": ("see", "plural"), "sees": ("see", "singular")}
    verbs |= {"admire": ("admire", "plural"), "admires": ("admire", "singular")}
    for row in clauses.table.to_dict("records"):
        assert row["sentence"].startswith("The ") and row["sentence"].endswith(".")
        words = row["sentence"].rstrip(".").split()
        nouns = [noun for the, noun in pairwise(words) if the in ("The", "the")]
        assert len(set(nouns)) == 3
        who = words.index("who")
        center = who == 2
        gap_is_subject = words[who + 1] in verbs
        assert row["attachment_site"] == ("center-embedded" if center else "peripheral")
        assert row["relative_clause_type"] == ("subject" if gap_is_subject else "object")
        subject, embedded, target = nouns if center else (nouns[0], nouns[2], nouns[1])
        assert (row["_subject"], row["_embedded"], row["_object"]) == (subject, embedded, target)
        for place, noun in (("subject", subject), ("object", target), ("embedded", embedded)):
            found = tuple(row[f"{place}_{f}"] for f in ("number", "gender", "frequency"))
            assert found == rc.KIND[noun]
        at = [i for i, word in enumerate(words) if word in verbs]
        inner = who + 1 if gap_is_subject else who + 3
        (main,) = set(at) - {inner}
        head = subject if center else target
        agrees = head if gap_is_subject else embedded
        assert verbs[words[main]] == (row["verb_lemma"], rc.KIND[subject][0])
        assert verbs[words[inner]][1] == rc.KIND[agrees][0]
        assert verbs[words[inner]][0] != row["verb_lemma"]


def test_every_noun_occurs_in_every_place(clauses):
    for place in ("_subject", "_object", "_embedded"):
        assert set(clauses.table[place]) == set(rc.KIND)


def test_nouns_of_one_kind_are_about_equally_frequent(clauses):
    counts = Counter(clauses.table["_subject"])
    for nouns in rc.NOUNS.values():
        found = [counts[noun] for noun in nouns]
        assert min(found) > 0.7 * np.mean(found)


def test_zipf_bins_are_those_of_wordfreq():
    import wordfreq

    assert len(rc.KIND) == sum(len(nouns) for nouns in rc.NOUNS.values())
    for noun, (_, _, frequency) in rc.KIND.items():
        zipf = wordfreq.zipf_frequency(noun, "en")
        nearest = min((4.0, 4.5, 5.0, 5.5), key=lambda b, zipf=zipf: abs(b - zipf))
        assert nearest == frequency and abs(zipf - frequency) < 0.25, noun


def test_feature_distances_hardly_correlate(clauses):
    """Over all 29.5 million pairs, straight from the definition."""
    columns = [np.unique(clauses.table[f], return_inverse=True)[1] for f in rc.FEATURES]
    columns = [column.astype(np.float32) for column in columns]  # whole numbers: sums are exact
    n, k = len(clauses), len(columns)
    sums = np.zeros((k + 1, k + 1))
    for start in range(0, n, 128):
        block = slice(start, start + 128)
        rows = [np.abs(column[block, None] - column).ravel() for column in columns]
        distances = np.stack([*rows, np.ones_like(rows[0])])
        sums += distances @ distances.T
    pairs = n * (n - 1)
    means = sums[k, :k] / pairs
    covariance = sums[:k, :k] / pairs - np.outer(means, means)
    spread = np.sqrt(np.diag(covariance))
    r = covariance / np.outer(spread, spread) - np.eye(k)
    assert np.abs(r).max() < 0.006  # well under the 0.05 that the paper calls negligible
