from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
from inputs import refused

from grammars import probing
from grammars.balance import PairSums
from mlem_core.data import datasets
from mlem_core.data.stimuli import StimulusSet
from mlem_core.data.stimulus_csv import read_csv, write_csv


def distances(stimuli: StimulusSet) -> dict[str, np.ndarray]:
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


def correlations(stimuli: StimulusSet) -> dict[tuple[str, str], float]:
    d = distances(stimuli)
    return {(f, g): float(np.corrcoef(d[f], d[g])[0, 1]) for f, g in combinations(d, 2)}


# What each set's digest is as it is shipped and as its grammar makes it, and that torch stays out.
IN_A_PROCESS = """
import json, sys
from grammars.__main__ import MAKERS
from mlem_core.data import datasets
shipped = {name: datasets.load(name).digest for name in datasets.SETS}
heavy = [name for name in ("torch", "transformers") if name in sys.modules]
made = {name: MAKERS[name]().digest for name in datasets.SETS}
print(json.dumps([shipped, made, heavy]))
"""


def test_an_unknown_set_names_the_nearest():
    with refused("'probin'", "probing"):
        datasets.load("probin")


@pytest.mark.parametrize("seed", ["1", "2"])
def test_what_ships_is_what_its_grammar_makes_in_every_process_and_needs_no_torch(seed):
    run = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS],
        env={**os.environ, "PYTHONHASHSEED": seed},
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
    "Mary fell": """
        Mary     4 female singular Noun      -       3 0 False
        fell     4 -      -        Verb      past    - 1 False""",
    "I vanished": """
        I        1 -      singular Pronoun   -       1 0 False
        vanished 8 -      -        Verb      past    - 1 False""",
    "do you sing": """
        do       2 -      singular Auxiliary present - 0 True
        you      3 -      -        Pronoun   -       2 1 True
        sing     4 -      -        Verb      present - 2 True""",
    "which men sneezed": """
        which    5 -      -        Wh-word   -       - 0 True
        men      3 male   plural   Noun      -       3 1 True
        sneezed  7 -      -        Verb      past    - 2 True""",
}


@pytest.fixture(scope="module")
def words() -> StimulusSet:
    return datasets.load("probing")


@pytest.mark.parametrize("sentence", TABLE_S1)
def test_table_s1_as_printed(words, sentence):
    rows = np.flatnonzero(np.array(words.sentences) == sentence)
    found = []
    for row in rows:
        cells = [words.words[row]]
        for feature in words.features:
            value = words.values(feature.name)[row]
            cells.append("-" if value is None else str(value).removesuffix(".0"))
        found.append(cells)
    assert found == [line.split() for line in TABLE_S1[sentence].strip().splitlines()]


def test_features_and_kinds(words):
    assert words.level == "word"
    kinds = {feature.name: feature.kind for feature in words.features}
    assert tuple(kinds) == probing.FEATURES
    assert {name for name, kind in kinds.items() if kind == "ordered"} == {
        "word_length",
        "word_position",
    }
    formula = words.with_kinds(nominal=probing.FEATURES)
    assert {feature.kind for feature in formula.features} == {"nominal"}
    assert formula.values("word_length")[0] == "3"


def test_size_and_uniqueness(words):
    sentences = list(dict.fromkeys(words.sentences))
    assert 1900 <= len(words) <= 2100 and len(sentences) == 600
    assert [f"{s} {i}" for s in sentences for i in range(len(s.split()))] == [
        f"{s} {i}" for s, i in zip(words.sentences, words.word_index, strict=True)
    ]
    assert words.values("word_position").tolist() == words.word_index.tolist()
    assert words.values("word_length").tolist() == [len(word) for word in words.words]
    assert words.groups.max() == 599


def test_everything_the_grammar_has_occurs(words):
    def levels(name):
        return {value for value in words.values(name) if value is not None}

    parts = {"Det", "Noun", "Verb", "Pronoun", "Auxiliary", "Wh-word"}
    assert levels("part_of_speech") == parts
    assert levels("gender") == {"female", "male"} and levels("number") == {"singular", "plural"}
    assert levels("tense") == {"present", "past"} and levels("person") == {"1", "2", "3"}
    assert levels("question") == {"True", "False"}
    found = set(words.words)
    assert {"I", "you", "he", "she", "it", "we", "they"} <= found
    assert {"me", "him", "her", "us", "them"} <= found
    assert {"do", "does", "did", "who", "which", "what", "whose"} <= found
    assert {"when", "where", "why", "how"} <= found and found & set(probing.NAMES)
    starts = {sentence.split()[0] for sentence in words.sentences}
    assert {"do", "does", "did", "who", "which", "why"} <= starts


def test_rules_of_marking(words):
    table = words.table
    value = {f: words.values(f) for f in probing.FEATURES}
    part, number, person, tense = (
        value[f] for f in ("part_of_speech", "number", "person", "tense")
    )
    past_forms = {v.past for group in (probing.INTRANSITIVE, probing.TRANSITIVE, probing.CLAUSAL,
                                       probing.ASKING, {"do": probing.DO})
                  for v in group.values()}  # fmt: skip
    verbal = np.isin(part, ["Verb", "Auxiliary"])
    for row in np.flatnonzero(verbal):
        word = words.words[row]
        if word in past_forms:
            assert (number[row], person[row], tense[row]) == (None, None, "past")
        if word == "does":
            assert (number[row], person[row], tense[row]) == ("singular", "3", "present")
        if word == "do":
            assert person[row] is None and tense[row] == "present" and number[row]
    assert all(person[part == "Noun"] == "3") and all(number[part == "Noun"])
    assert not any(tense[~verbal])
    assert not any(value["gender"][verbal]) and not any(number[part == "Wh-word"])
    # An infinitive after do agrees with nothing and has the tense of its clause.
    for sentence, group in table.groupby("sentence", sort=False):
        tenses = group["tense"].tolist()
        if group["part_of_speech"].iloc[0] == "Auxiliary":
            first_verb = next(i for i, p in enumerate(group["part_of_speech"]) if p == "Verb")
            assert tenses[first_verb] == tenses[0], sentence
            assert group["number"].isna().iloc[first_verb]
            assert group["word"].iloc[first_verb] not in past_forms


def test_number_is_agreement(words):
    """The finite present verb after a subject has the subject's number; "you" goes as one."""
    number, part = words.values("number"), words.values("part_of_speech")
    checked = 0
    for row in range(1, len(words)):
        after = words.word_index[row] == words.word_index[row - 1] + 1
        finite = part[row] in ("Verb", "Auxiliary") and number[row] is not None
        if after and finite and part[row - 1] in ("Noun", "Pronoun"):
            expected = number[row - 1] or "singular"
            assert number[row] == expected, words.sentences[row]
            checked += 1
    assert checked > 100


def test_values_are_balanced_within_parts_of_speech(words):
    table = words.table
    for feature, part, low in (
        ("gender", "Noun", 0.4),
        ("gender", "Pronoun", 0.4),
        ("number", "Noun", 0.4),
        ("number", "Verb", 0.4),
        ("tense", "Verb", 0.4),
        ("tense", "Auxiliary", 0.4),
    ):
        shares = table[feature][table["part_of_speech"] == part].value_counts(normalize=True)
        assert len(shares) == 2 and shares.min() > low, (feature, part)
    assert 0.45 < (table["question"] == "True").mean() < 0.55
    assert table["part_of_speech"].value_counts(normalize=True).min() > 0.05


def test_features_correlate_as_little_as_the_module_says(words):
    found = correlations(words)
    high = {pair: round(r, 2) for pair, r in found.items() if abs(r) > 0.1}
    assert high == {
        ("part_of_speech", "tense"): -0.31,
        ("number", "tense"): -0.15,
        ("gender", "part_of_speech"): -0.13,
        ("gender", "number"): 0.13,
        ("part_of_speech", "person"): -0.12,
        ("tense", "person"): -0.11,
        ("number", "person"): 0.11,
    }


def test_pair_sums_are_the_correlations_over_explicit_pairs(words):
    """The balancing works on sums over types; here they meet the pairs themselves."""
    columns = [words.values(f.name) for f in words.features]
    rows = [
        tuple(int(v) if isinstance(v, float) else v for v in row)
        for row in zip(*columns, strict=True)
    ]
    types = list(dict.fromkeys(rows))
    sums = PairSums(types, {})
    sums.add([types.index(row) for row in rows])
    r = sums.correlations(sums.sums, sums.n)[sums.left != sums.right]
    np.testing.assert_allclose(r, list(correlations(words).values()), atol=1e-12)
