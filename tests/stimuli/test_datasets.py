"""The sets that are shipped, against their papers, their grammars and explicit pairs."""

import hashlib
import io
import json
import os
import subprocess
import sys
from itertools import combinations, pairwise

import numpy as np
import pytest
from helpers.inputs import refused

from grammars import relative_clauses as rc
from grammars.balance import PairSums
from mlem_core import read_csv, write_csv
from mlem_core.stimuli import datasets


def distances(stimuli):
    """The feature distance of every pair, (n_pairs,), straight from the definition."""
    i, j = np.triu_indices(len(stimuli), 1)
    result = {}
    for feature in stimuli.features:
        values = stimuli.values(feature.name)
        if feature.kind == "ordered":
            scaled = (values - np.nanmin(values)) / (np.nanmax(values) - np.nanmin(values))
            result[feature.name] = np.nan_to_num(np.abs(scaled[i] - scaled[j]))
        else:
            there = np.array([value is not None for value in values])
            result[feature.name] = ((values[i] != values[j]) & there[i] & there[j]).astype(float)
    return result


def correlations(stimuli):
    d = distances(stimuli)
    return {(f, g): float(np.corrcoef(d[f], d[g])[0, 1]) for f, g in combinations(d, 2)}


# What each set's digest is as it is shipped and as its grammar makes it, and that torch stays out.
IN_A_PROCESS = """
import json, sys
from grammars.__main__ import MAKERS
from mlem_core.stimuli import datasets
shipped = {name: datasets.load(name).digest for name in datasets.SETS}
heavy = [name for name in ("torch", "transformers") if name in sys.modules]
made = {name: MAKERS[name]().digest for name in datasets.SETS}
print(json.dumps([shipped, made, heavy]))
"""


def test_an_unknown_set_names_the_nearest():
    with refused("'probin'", "probing"):
        datasets.load("probin")


@pytest.mark.slow
def test_what_ships_is_what_its_grammar_makes_in_every_process_and_needs_no_torch():
    run = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = {name: datasets.load(name).digest for name in datasets.SETS}
    assert json.loads(run.stdout) == [here, here, []]


# Results are compared between versions of the program: a change here must be on purpose.
PUBLISHED = {
    "probing": "366793949b6e6a4cc3077197b226021d45a364496c92c4a8f7cc45c71f906769",
    "relative-clauses": "62f9a040b2cc6e4d8c53bcd0702df0445d66e1e52ad9726e33ebd55c656eca44",
}


@pytest.mark.parametrize("name", datasets.SETS)
def test_a_set_is_the_one_that_was_published_and_survives_being_written(name):
    stimuli = datasets.load(name)
    assert datasets.load(name) is stimuli
    file = io.BytesIO()
    write_csv(stimuli, file)
    if name in PUBLISHED:
        assert hashlib.sha256(file.getvalue()).hexdigest() == PUBLISHED[name]
    nominal = ["person"] if name == "probing" else []
    assert read_csv(file.getvalue(), nominal=nominal).digest == stimuli.digest


# --- the probing set -------------------------------------------------------------------------

# Table S1 of Salle et al. 2024 as printed: word, length, gender, number, part of speech, tense,
# person, position, question; "-" is the table's NaN.
TABLE_S1 = {
    "the woman plays": """
        the      3 -      -        Det       -       - 0 False
        woman    5 female singular Noun      -       3 1 False
        plays    5 -      singular Verb      present 3 2 False""",
    "no prince sings": """
        no       2 -      -        Det       -       - 0 False
        prince   6 male   singular Noun      -       3 1 False
        sings    5 -      singular Verb      present 3 2 False""",
    "I vanished": """
        I        1 -      singular Pronoun   -       1 0 False
        vanished 8 -      -        Verb      past    - 1 False""",
    "do you sing": """
        do       2 -      singular Auxiliary present - 0 True
        you      3 -      -        Pronoun   -       2 1 True
        sing     4 -      -        Verb      present - 2 True""",
}


@pytest.fixture(scope="module")
def words():
    return datasets.load("probing")


@pytest.mark.parametrize("sentence", TABLE_S1)
def test_table_s1_as_printed(words, sentence):
    columns = [words.words, *(words.values(feature.name) for feature in words.features)]
    found = [
        ["-" if own[row] is None else str(own[row]).removesuffix(".0") for own in columns]
        for row in np.flatnonzero(np.array(words.sentences) == sentence)
    ]
    assert found == [line.split() for line in TABLE_S1[sentence].strip().splitlines()]


def test_pair_sums_are_the_correlations_over_explicit_pairs(words):
    """The balancing works on sums over types; here they meet the pairs themselves."""
    rows = [
        tuple(int(v) if isinstance(v, float) else v for v in row)
        for row in zip(*(words.values(f.name) for f in words.features), strict=True)
    ]
    types = list(dict.fromkeys(rows))
    sums = PairSums(types, {})
    sums.add([types.index(row) for row in rows])
    r = sums.correlations(sums.sums, sums.n)[sums.left != sums.right]
    np.testing.assert_allclose(r, list(correlations(words).values()), atol=1e-12)


# --- relative clauses -------------------------------------------------------------------------


# Table 1 of Jalouzot et al. 2024: attachment site, type, template, example.
CENTER, OUTER = "center-embedded", "peripheral"
TABLE_1 = [
    (CENTER, "subject", "Subj who verb obj verb obj", "who sees the princess admires the actress"),
    (CENTER, "object", "Subj who subj verb verb obj", "who the princess sees admires the actress"),
    (OUTER, "subject", "Subj verb obj who verb obj", "sees the princess who admires the actress"),
    (OUTER, "object", "Subj verb obj who subj verb", "admires the actress who the princess sees"),
]


@pytest.fixture(scope="module")
def clauses():
    return datasets.load("relative-clauses")


@pytest.mark.parametrize(("site", "kind", "template", "example"), TABLE_1)
def test_table_1_as_printed(clauses, site, kind, template, example):
    example = f"The woman {example}."
    row = clauses.table[clauses.table["sentence"] == example].squeeze()
    assert (row["attachment_site"], row["relative_clause_type"]) == (site, kind)
    roles = {"woman": "Subj", "princess": "Subj", "actress": "Subj", "who": "who"}
    roles |= {"sees": "verb", "admires": "verb"}
    found = [roles[word] for word in example.rstrip(".").split() if word in roles]
    assert found == [{"obj": "Subj", "subj": "Subj"}.get(word, word) for word in template.split()]
    for place in ("subject", "object", "embedded"):
        assert row[f"{place}_number"] == "singular" and row[f"{place}_gender"] == "feminine"
    assert row["subject_frequency"] == 5.5
    assert row["object_frequency"] == row["embedded_frequency"] == 4.5
    assert example.split()[2 if site == "peripheral" else -3].startswith(row["verb_lemma"])


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
