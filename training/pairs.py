"""Minimal pairs from the vocabulary of the probing grammar: one form is right, the other wrong.

Three phenomena, each as often with the singular as with the plural, or with a third person as
without, so that always preferring the more frequent ending gives one half.

- subject-verb agreement: "the girls smile." / "the girls smiles."
- determiner-noun number: "these girls smiled." / "these girl smiled."
- pronoun-verb person: "she smiles." / "she smile."

Only words of which every form comes at least `KNOWN` times in the training text are used: a pair
asks for the grammar, not for the word.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from mlem_core.datasets import probing
from mlem_core.datasets.probing import PLURAL, SINGULAR

KNOWN = 5
SEED = 0
OBJECTS = ("him", "her", "them", "Mary", "Emma", "John")
PHENOMENA = ("subject-verb agreement", "determiner-noun number", "pronoun-verb person")


class Pair(NamedTuple):
    """A phenomenon, its case ("singular", ...), and the two sentences."""

    phenomenon: str
    case: str
    right: str
    wrong: str


def pairs(documents: Iterable[str], n: int = 300, known: int = KNOWN) -> list[Pair]:
    """At most `n` different pairs of each phenomenon whose words the documents have."""
    counts = Counter(
        word for document in documents for word in re.findall(r"[a-z]+", document.lower())
    )

    def seen(forms: Iterable[str]) -> bool:
        return all(counts[form.lower()] >= known for form in forms)

    nouns = [lemma for lemma, (plural, _) in probing.NOUNS.items() if seen((lemma, plural))]
    verbs = [verb for verb in probing.INTRANSITIVE.values() if seen(verb)]
    acts = [verb for verb in probing.TRANSITIVE.values() if seen(verb)]
    if not nouns or not (verbs or acts):
        return []
    rng = random.Random(SEED)
    makers = (_subject_verb, _determiner_noun, _pronoun_verb)
    result: list[Pair] = []
    for phenomenon, make in zip(PHENOMENA, makers, strict=True):
        found: dict[str, dict[Pair, None]] = {}
        for _ in range(20 * n):
            pair = make(rng, phenomenon, nouns, verbs, acts)
            found.setdefault(pair.case, {}).setdefault(pair)
        most = min([n // 2, *(len(cases) for cases in found.values())])
        result += [pair for case in sorted(found) for pair in list(found[case])[:most]]
    return result


def _subject_verb(
    rng: random.Random,
    phenomenon: str,
    nouns: list[str],
    verbs: list[probing.Verb],
    acts: list[probing.Verb],
) -> Pair:
    number = rng.choice((SINGULAR, PLURAL))
    # Determiners that go with both numbers, so that the noun alone decides.
    determiner = rng.choice(probing.DETERMINERS[SINGULAR, None])
    words = probing.common(determiner, rng.choice(nouns), number).words
    subject = " ".join(word.form for word in words)
    return _agree(rng, phenomenon, number, subject, number == SINGULAR, verbs, acts)


def _pronoun_verb(
    rng: random.Random,
    phenomenon: str,
    nouns: list[str],
    verbs: list[probing.Verb],
    acts: list[probing.Verb],
) -> Pair:
    case = rng.choice(("third person singular", "another person"))
    third = case == "third person singular"
    choices = ("he", "she", "it") if third else ("I", "you", "we", "they")
    return _agree(rng, phenomenon, case, rng.choice(choices), third, verbs, acts)


def _agree(
    rng: random.Random,
    phenomenon: str,
    case: str,
    subject: str,
    third: bool,
    verbs: list[probing.Verb],
    acts: list[probing.Verb],
) -> Pair:
    verb = rng.choice([*verbs, *acts])
    after = f" {rng.choice(OBJECTS)}." if verb in acts else "."
    forms = (verb.third, verb.base) if third else (verb.base, verb.third)
    return Pair(phenomenon, case, *(f"{subject} {form}{after}" for form in forms))


def _determiner_noun(
    rng: random.Random,
    phenomenon: str,
    nouns: list[str],
    verbs: list[probing.Verb],
    acts: list[probing.Verb],
) -> Pair:
    number = rng.choice((SINGULAR, PLURAL))
    determiner = rng.choice(probing.DETERMINERS[number, number])
    lemma = rng.choice(nouns)
    if determiner == "a" and lemma[0] in "aeiou":
        determiner = "an"
    verb = rng.choice([*verbs, *acts])  # its past form shows no number
    after = f" {rng.choice(OBJECTS)}." if verb in acts else "."
    forms = (lemma, probing.NOUNS[lemma][0])
    right, wrong = forms if number == SINGULAR else forms[::-1]
    sentences = (f"{determiner} {noun} {verb.past}{after}" for noun in (right, wrong))
    return Pair(phenomenon, number, *sentences)
