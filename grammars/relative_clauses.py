"""The relative-clause set: 7,680 sentences (Jalouzot et al. 2024, section 2.5.2 and appendix A).

A stimulus is a sentence with a relative clause, in a 2x2 design: the clause is on the subject
(center-embedded) or on the object (peripheral) of the main clause, and its gap is its own subject
(subject relative) or its own object (object relative):

    center-embedded, subject   The woman who sees the princess admires the actress.
    center-embedded, object    The woman who the princess sees admires the actress.
    peripheral, subject        The woman sees the princess who admires the actress.
    peripheral, object         The woman admires the actress who the princess sees.

The twelve features of the paper's table S1: type and site of the clause; number, gender and
frequency of the three nouns (subject and object of the main clause, and the noun inside the
relative clause, "embedded"); and the lemma of the main verb, while the relative clause has the
other one of the two verbs. Verbs are in the present and agree with their subject.

Frequency is the Zipf frequency of the noun as it stands in the sentence (singular or plural),
rounded to the nearest of 4.0, 4.5, 5.0 and 5.5; it is ordered, everything else is nominal. The
nouns below are grouped by it as the package `wordfreq` 3.1.1 gives it; that package is needed for
a test only. ("man" is more frequent than the highest bin.)

Each of the eight combinations of type, site and verb has 960 sentences, in which each of the 16
kinds of noun (number, gender, frequency) comes 60 times as subject, as object and as embedded
noun, in an order that is drawn at random for each place. No noun comes twice in a sentence and no
sentence twice in the set. The largest correlation of two feature distances over all pairs is 0.005
in size.
"""

from __future__ import annotations

import random
from itertools import product
from typing import NamedTuple

import pandas as pd

from grammars.balance import pick
from mlem_core.stimuli.stimulus_csv import from_frame
from mlem_core.stimuli.stimulus_set import StimulusSet

SEED = 0
REPEATS = 60

SINGULAR, PLURAL = "singular", "plural"
FEMININE, MASCULINE = "feminine", "masculine"
SUBJECT, OBJECT = "subject", "object"
CENTER, PERIPHERAL = "center-embedded", "peripheral"
VERBS = {"admire": ("admires", "admire"), "see": ("sees", "see")}

FEATURES = (
    "relative_clause_type",
    "attachment_site",
    "subject_number",
    "subject_gender",
    "subject_frequency",
    "object_number",
    "object_gender",
    "object_frequency",
    "embedded_number",
    "embedded_gender",
    "embedded_frequency",
    "verb_lemma",
)

Kind = tuple[str, str, float]
# (Number, gender, Zipf frequency) -> nouns.
NOUNS: dict[Kind, tuple[str, ...]] = {
    (SINGULAR, FEMININE, 4.0): ("aunt", "grandmother", "witch", "widow", "bride", "duchess"),
    (SINGULAR, FEMININE, 4.5): ("princess", "actress", "girlfriend"),
    (SINGULAR, FEMININE, 5.0): ("mother", "wife", "daughter", "sister", "lady", "queen"),
    (SINGULAR, FEMININE, 5.5): ("woman", "girl"),
    (PLURAL, FEMININE, 4.0): ("wives", "queens", "moms"),
    (PLURAL, FEMININE, 4.5): ("ladies", "sisters", "mothers", "daughters"),
    (PLURAL, FEMININE, 5.0): ("girls",),
    (PLURAL, FEMININE, 5.5): ("women",),
    (SINGULAR, MASCULINE, 4.0): ("grandfather", "gentleman", "nephew", "wizard", "monk", "butler"),
    (SINGULAR, MASCULINE, 4.5): ("prince", "actor", "boyfriend", "uncle", "duke"),
    (SINGULAR, MASCULINE, 5.0): ("king", "boy", "brother", "husband", "dad"),
    (SINGULAR, MASCULINE, 5.5): ("guy", "father", "son"),
    (PLURAL, MASCULINE, 4.0): ("gentlemen", "lords", "fathers", "knights", "husbands"),
    (PLURAL, MASCULINE, 4.5): ("brothers", "actors", "kings", "sons"),
    (PLURAL, MASCULINE, 5.0): ("boys",),
    (PLURAL, MASCULINE, 5.5): ("men", "guys"),
}
KIND = {noun: kind for kind, nouns in NOUNS.items() for noun in nouns}


class Design(NamedTuple):
    """Type and site of the relative clause and the lemma of the main verb."""

    type: str
    site: str
    verb: str


class Nouns(NamedTuple):
    """The three nouns of a sentence."""

    subject: str
    object: str
    embedded: str


# The examples of the paper's table 1.
PRINTED = {
    Design(SUBJECT, CENTER, "admire"): Nouns("woman", "actress", "princess"),
    Design(OBJECT, CENTER, "admire"): Nouns("woman", "actress", "princess"),
    Design(SUBJECT, PERIPHERAL, "see"): Nouns("woman", "princess", "actress"),
    Design(OBJECT, PERIPHERAL, "admire"): Nouns("woman", "actress", "princess"),
}


def sentence(design: Design, nouns: Nouns) -> str:
    """The sentence that a design and three nouns make."""
    (inner,) = set(VERBS) - {design.verb}
    head = nouns.subject if design.site == CENTER else nouns.object
    if design.type == SUBJECT:
        clause = f"who {_verb(inner, head)} the {nouns.embedded}"
    else:
        clause = f"who the {nouns.embedded} {_verb(inner, nouns.embedded)}"
    main = _verb(design.verb, nouns.subject)
    if design.site == CENTER:
        return f"The {nouns.subject} {clause} {main} the {nouns.object}."
    return f"The {nouns.subject} {main} the {nouns.object} {clause}."


def _verb(lemma: str, subject: str) -> str:
    return VERBS[lemma][KIND[subject][0] == PLURAL]


def _place(rng: random.Random, first: str | None) -> list[str]:
    """A noun for each sentence of a design: every kind equally often, in random order."""
    kinds = sorted(list(NOUNS) * REPEATS, key=lambda _: rng.random())
    nouns = [pick(rng, NOUNS[kind]) for kind in kinds]
    if first is not None:
        same = kinds.index(KIND[first])
        nouns[same] = nouns[0]
        nouns[0] = first
    return nouns


def _sentences(rng: random.Random, design: Design) -> dict[str, Nouns]:
    """All sentences of a design, a printed one first."""
    printed = PRINTED.get(design)
    subjects, objects, embedded = (
        _place(rng, printed[place] if printed else None) for place in range(3)
    )
    found: dict[str, Nouns] = {}
    for i in range(len(subjects)):
        # A noun that would come twice changes places with a later one, so that kinds stay balanced;
        # at the end there is none left, and the whole order is drawn again.
        for j in range(i, len(subjects)):
            for place in (objects, embedded):
                nouns = Nouns(subjects[i], objects[i], embedded[i])
                text = sentence(design, nouns)
                if len(set(nouns)) == 3 and text not in found:
                    break
                place[i], place[j] = place[j], place[i]
            else:
                continue
            found[text] = nouns
            break
        else:
            return _sentences(rng, design)
    return found


def make() -> StimulusSet:
    """The relative-clause set, sentence-level, the same on every machine."""
    rng = random.Random(SEED)
    rows = []
    for design in (Design(*d) for d in product((SUBJECT, OBJECT), (CENTER, PERIPHERAL), VERBS)):
        for text, nouns in _sentences(rng, design).items():
            kinds = [value for noun in nouns for value in KIND[noun]]
            rows.append((text, design.type, design.site, *kinds, design.verb, *nouns))
    columns = ["sentence", *FEATURES, "_subject", "_object", "_embedded"]
    return from_frame(pd.DataFrame(rows, columns=columns), "relative-clauses")
