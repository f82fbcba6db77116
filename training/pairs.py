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
from dataclasses import dataclass
from typing import NamedTuple

from grammars import probing
from grammars.probing import PLURAL, SINGULAR

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


@dataclass(frozen=True)
class Known:
    """The words of the grammar that a text has in all their forms: nouns by their singular, verbs
    without an object and verbs with one."""

    nouns: tuple[str, ...]
    verbs: tuple[probing.Verb, ...]
    acts: tuple[probing.Verb, ...]

    def predicate(self, rng: random.Random) -> tuple[probing.Verb, str]:
        """A verb, and what stands after it: an object where it takes one, and the full stop."""
        verb = rng.choice([*self.verbs, *self.acts])
        return verb, f" {rng.choice(OBJECTS)}." if verb in self.acts else "."


def known_words(documents: Iterable[str], known: int = KNOWN) -> Known:
    """The words of which every form comes at least `known` times in the documents."""
    counts = Counter(
        word for document in documents for word in re.findall(r"[a-z]+", document.lower())
    )

    def seen(forms: Iterable[str]) -> bool:
        return all(counts[form.lower()] >= known for form in forms)

    return Known(
        tuple(lemma for lemma, (plural, _) in probing.NOUNS.items() if seen((lemma, plural))),
        tuple(verb for verb in probing.INTRANSITIVE.values() if seen(verb)),
        tuple(verb for verb in probing.TRANSITIVE.values() if seen(verb)),
    )


def pairs(documents: Iterable[str], n: int = 300, known: int = KNOWN) -> list[Pair]:
    """At most `n` different pairs of each phenomenon whose words the documents have."""
    words = known_words(documents, known)
    if not words.nouns or not (words.verbs or words.acts):
        return []
    rng = random.Random(SEED)
    makers = (_subject_verb, _determiner_noun, _pronoun_verb)
    result: list[Pair] = []
    for phenomenon, make in zip(PHENOMENA, makers, strict=True):
        found: dict[str, dict[Pair, None]] = {}
        for _ in range(20 * n):
            pair = Pair(phenomenon, *make(rng, words))
            found.setdefault(pair.case, {}).setdefault(pair)
        most = min([n // 2, *(len(cases) for cases in found.values())])
        result += [pair for case in sorted(found) for pair in list(found[case])[:most]]
    return result


# Each of these gives the case, the right sentence and the wrong one.


def _subject_verb(rng: random.Random, known: Known) -> tuple[str, str, str]:
    number = rng.choice((SINGULAR, PLURAL))
    # Determiners that go with both numbers, so that the noun alone decides.
    determiner = rng.choice(probing.DETERMINERS[SINGULAR, None])
    words = probing.common(determiner, rng.choice(known.nouns), number).words
    subject = " ".join(word.form for word in words)
    return number, *_agree(rng, known, subject, number == SINGULAR)


def _pronoun_verb(rng: random.Random, known: Known) -> tuple[str, str, str]:
    case = rng.choice(("third person singular", "another person"))
    third = case == "third person singular"
    choices = ("he", "she", "it") if third else ("I", "you", "we", "they")
    return case, *_agree(rng, known, rng.choice(choices), third)


def _agree(rng: random.Random, known: Known, subject: str, third: bool) -> tuple[str, str]:
    verb, after = known.predicate(rng)
    forms = (verb.third, verb.base) if third else (verb.base, verb.third)
    return f"{subject} {forms[0]}{after}", f"{subject} {forms[1]}{after}"


def _determiner_noun(rng: random.Random, known: Known) -> tuple[str, str, str]:
    number = rng.choice((SINGULAR, PLURAL))
    determiner = rng.choice(probing.DETERMINERS[number, number])
    lemma = rng.choice(known.nouns)
    if determiner == "a" and lemma[0] in "aeiou":
        determiner = "an"
    verb, after = known.predicate(rng)  # in the past, whose form shows no number
    forms = (lemma, probing.NOUNS[lemma][0])
    right, wrong = forms if number == SINGULAR else forms[::-1]
    ending = f"{verb.past}{after}"
    return number, f"{determiner} {right} {ending}", f"{determiner} {wrong} {ending}"
