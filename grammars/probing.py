"""The probing set: 2,040 words in 600 sentences (Salle et al. 2024, appendix A, table S1).

A stimulus is a word in its sentence; every word of every sentence is one. The features are those
of the paper: word length (letters) and word position (from 0) are ordered; gender, number, part
of speech, tense, person and question are nominal. `StimulusSet.with_kinds(nominal=FEATURES)` gives
the paper's formula, in which every feature is nominal. (Person has the values 1,
2 and 3. The built-in set knows that they are names; a CSV written from it does not, and needs
`--nominal person` when it is read.)

What a word is marked for
-------------------------
A word carries the values that its form shows in its sentence; where English shows none, the value
is missing. These rules give every row of the paper's table S1:

- *Question* holds for all words of a sentence: whether it asks. (An embedded question, "I know
  who fell", leaves its sentence a statement.)
- *Gender*: nouns and names for people, he/him and she/her. Not I, we, you, they, it.
- *Number*: nouns, names and pronouns, except "you", which has one form for both. Determiners that
  go with one number only (every, these), not those that go with both (the, no). A finite present
  verb or auxiliary agrees, and carries the number of its subject; "you" addresses one person
  throughout this grammar, so "do" in "do you sing" is singular though "you" does not show it.
  Past forms and infinitives do not agree and carry no number.
- *Person*: nouns and names (3), pronouns, and the one verb form that shows it, the third person
  singular of the present (plays, does). "do" and "sing" serve several persons: missing.
- *Tense* belongs to the clause: its verb and its auxiliary carry it, the infinitive after do,
  does or did included ("sing" is present in "do you sing", past in "did you sing").
- Determiners (except as above) and wh-words carry none of these.

Sentences
---------
Statements, plain or with emphatic do ("Mary did fall"), with an object, with an embedded clause
or an embedded question; yes/no questions with do-support, also with an object or an embedded
clause; wh-questions about the subject ("which men sneezed") and about place, time, manner or
reason ("why did Mary fall"). Subjects and objects are noun phrases, names and all personal
pronouns. Emphatic do and embedded questions are there because they put auxiliaries and wh-words
into statements, and embedded clauses because they put every part of speech into late positions.

Balance
-------
From some thousand sentences that the grammar generates, `balance.choose` takes 600 so that the
distances of the features correlate little over pairs of words, within the kinds and lengths of
sentences of `PLAN` and close to the shares of `TARGETS`: both genders, numbers, tenses and
sentence types are equally frequent within the parts of speech, so that no correlation is low only
because a value is rare. Measured over all pairs (a missing value is at distance 0), the
correlations above 0.1 in size are

    part of speech, tense   -0.31       part of speech, person  -0.12
    number, tense           -0.15       person, tense           -0.11
    part of speech, gender  -0.13       number, person          +0.11
    gender, number          +0.13

and they follow from the grammar. A tense (a gender) differs only between two words that have one,
and these are mostly of one part of speech, so that the distance of part of speech is 0; nouns have
gender and number together; pronouns are the words that differ most in person, and also in number;
of two verb forms that differ in tense one is past and shows neither number nor person. Next comes
part of speech with word position (+0.10): no English sentence of this grammar begins with a verb.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import pandas as pd

from grammars.balance import Row, Share, choose, pick
from mlem_core.stimuli.stimulus_csv import from_frame
from mlem_core.stimuli.stimulus_set import StimulusSet

FEATURES = (
    "word_length",
    "gender",
    "number",
    "part_of_speech",
    "tense",
    "person",
    "word_position",
    "question",
)
SEED = 0
# Kind of sentence and its number of words -> how many of these.
PLAN = {
    **{("statement", n): count for n, count in {2: 105, 3: 110, 4: 50, 5: 40, 6: 15}.items()},
    **{("yes/no", n): count for n, count in {3: 85, 4: 45, 5: 20, 6: 15}.items()},
    **{("wh-subject", n): count for n, count in {2: 25, 3: 40, 4: 10}.items()},
    **{("wh-adverb", n): count for n, count in {4: 25, 5: 15}.items()},
}
DRAWS = 60

FEMALE, MALE = "female", "male"
SINGULAR, PLURAL = "singular", "plural"
PRESENT, PAST = "present", "past"
# Shares of a value among the words (of a kind) that have the feature; of None, among all of them.
TARGETS: tuple[tuple[str, str | None, dict[str, str], float], ...] = (
    ("gender", FEMALE, {"part_of_speech": "Noun"}, 0.5),
    ("gender", FEMALE, {"part_of_speech": "Pronoun"}, 0.5),
    ("gender", None, {"part_of_speech": "Pronoun", "person": "3", "number": SINGULAR}, 0.2),
    ("number", PLURAL, {"part_of_speech": "Noun"}, 0.5),
    ("number", PLURAL, {"part_of_speech": "Pronoun", "person": "1"}, 0.5),
    ("number", PLURAL, {"part_of_speech": "Pronoun", "person": "3"}, 0.3),
    ("number", PLURAL, {"part_of_speech": "Det"}, 0.5),
    ("number", None, {"part_of_speech": "Det"}, 0.5),
    ("number", PLURAL, {"part_of_speech": "Verb"}, 0.5),
    ("number", None, {"part_of_speech": "Verb"}, 0.7),
    ("number", PLURAL, {"part_of_speech": "Auxiliary"}, 0.5),
    ("tense", PAST, {"part_of_speech": "Verb"}, 0.5),
    ("tense", PAST, {"part_of_speech": "Auxiliary"}, 0.5),
    ("person", "1", {"part_of_speech": "Pronoun"}, 0.3),
    ("person", "2", {"part_of_speech": "Pronoun"}, 0.2),
    ("question", "True", {"part_of_speech": "Det"}, 0.5),
    ("question", "True", {"part_of_speech": "Noun"}, 0.5),
    ("question", "True", {"part_of_speech": "Pronoun"}, 0.5),
    ("question", "True", {"part_of_speech": "Auxiliary"}, 0.7),
    ("part_of_speech", "Det", {}, 0.13),
    ("part_of_speech", "Noun", {}, 0.24),
    ("part_of_speech", "Pronoun", {}, 0.17),
    ("part_of_speech", "Auxiliary", {}, 0.12),
)


class Word(NamedTuple):
    """A word form and what it shows; None where it shows nothing."""

    form: str
    part_of_speech: str
    gender: str | None = None
    number: str | None = None
    tense: str | None = None
    person: str | None = None


class Phrase(NamedTuple):
    """A noun phrase, with the number and person that a verb agrees with."""

    words: tuple[Word, ...]
    number: str
    person: str


class Verb(NamedTuple):
    """The forms of a verb."""

    base: str
    third: str
    past: str


class Sentence(NamedTuple):
    """Words, and the kind of sentence: statement, yes/no, wh-subject or wh-adverb."""

    words: tuple[Word, ...]
    kind: str

    @property
    def text(self) -> str:
        """The sentence as it is written, lower-case and without a final mark."""
        return " ".join(word.form for word in self.words)

    @property
    def rows(self) -> list[Row]:
        """The feature values of each word, in the order of `FEATURES`."""
        question = str(self.kind != "statement")
        return [
            (len(w.form), w.gender, w.number, w.part_of_speech, w.tense, w.person, i, question)
            for i, w in enumerate(self.words)
        ]


def _verbs(text: str) -> dict[str, Verb]:
    return {forms.split("/")[0]: Verb(*forms.split("/")) for forms in text.split()}


INTRANSITIVE = _verbs(
    "sit/sits/sat cry/cries/cried nod/nods/nodded fall/falls/fell sing/sings/sang swim/swims/swam "
    "play/plays/played wait/waits/waited sleep/sleeps/slept dance/dances/danced "
    "laugh/laughs/laughed smile/smiles/smiled arrive/arrives/arrived sneeze/sneezes/sneezed "
    "vanish/vanishes/vanished stumble/stumbles/stumbled whisper/whispers/whispered "
    "hesitate/hesitates/hesitated disappear/disappears/disappeared"
)
TRANSITIVE = _verbs(
    "see/sees/saw hug/hugs/hugged call/calls/called help/helps/helped find/finds/found "
    "greet/greets/greeted visit/visits/visited admire/admires/admired follow/follows/followed "
    "remember/remembers/remembered recognize/recognizes/recognized"
)
CLAUSAL = _verbs(
    "say/says/said know/knows/knew hope/hopes/hoped think/thinks/thought claim/claims/claimed "
    "believe/believes/believed pretend/pretends/pretended"
)
ASKING = _verbs(
    "ask/asks/asked know/knows/knew forget/forgets/forgot wonder/wonders/wondered "
    "remember/remembers/remembered"
)
DO = Verb("do", "does", "did")

NOUNS = {
    singular: (plural, gender)
    for gender, text in (
        (
            FEMALE,
            "aunt/aunts girl/girls lady/ladies nun/nuns queen/queens woman/women mother/mothers "
            "niece/nieces sister/sisters actress/actresses duchess/duchesses princess/princesses "
            "waitress/waitresses daughter/daughters grandmother/grandmothers",
        ),
        (
            MALE,
            "boy/boys son/sons man/men king/kings monk/monks duke/dukes uncle/uncles actor/actors "
            "prince/princes father/fathers nephew/nephews waiter/waiters brother/brothers "
            "policeman/policemen grandfather/grandfathers",
        ),
    )
    for singular, plural in (pair.split("/") for pair in text.split())
}
NAMES = {
    name: gender
    for gender, text in (
        (FEMALE, "Sue Ann Mary Jane Emma Alice Helen Sophia Rachel Barbara Margaret Elizabeth"),
        (MALE, "Al Ed Tom Bob John Paul Peter David Robert Thomas William Benjamin Christopher"),
    )
    for name in text.split()
}
# (Number of the phrase, number that the determiner shows) -> determiners.
DETERMINERS = {
    (SINGULAR, None): ("the", "no", "my", "your", "our", "their"),
    (PLURAL, None): ("the", "no", "my", "your", "our", "their", "some"),
    (SINGULAR, SINGULAR): ("a", "every", "each", "this", "that", "another"),
    (PLURAL, PLURAL): ("all", "both", "these", "those", "many", "several"),
}


class Pronoun(NamedTuple):
    """A personal pronoun: its forms, what they show, and the number of the verb it goes with."""

    subject: str
    object: str
    person: str
    gender: str | None
    shown: str | None
    number: str


PRONOUNS = {
    pronoun.subject: pronoun
    for pronoun in (
        Pronoun("I", "me", "1", None, SINGULAR, SINGULAR),
        Pronoun("you", "you", "2", None, None, SINGULAR),
        Pronoun("he", "him", "3", MALE, SINGULAR, SINGULAR),
        Pronoun("she", "her", "3", FEMALE, SINGULAR, SINGULAR),
        Pronoun("it", "it", "3", None, SINGULAR, SINGULAR),
        Pronoun("we", "us", "1", None, PLURAL, PLURAL),
        Pronoun("they", "them", "3", None, PLURAL, PLURAL),
    )
}


def noun(lemma: str, number: str) -> Word:
    """A noun in the singular or plural."""
    plural, gender = NOUNS[lemma]
    form = lemma if number == SINGULAR else plural
    return Word(form, "Noun", gender, number, person="3")


def common(determiner: str, lemma: str, number: str) -> Phrase:
    """A determiner and a noun."""
    word = noun(lemma, number)
    shown = number if determiner in DETERMINERS[number, number] else None
    form = "an" if determiner == "a" and word.form[0] in "aeiou" else determiner
    return Phrase((Word(form, "Det", number=shown), word), number, "3")


def name(form: str) -> Phrase:
    """A name."""
    return Phrase((Word(form, "Noun", NAMES[form], SINGULAR, person="3"),), SINGULAR, "3")


def pronoun(subject: str, case: str = "subject") -> Phrase:
    """A pronoun, given by its subject form, as a subject or as an object."""
    p = PRONOUNS[subject]
    form = p.subject if case == "subject" else p.object
    word = Word(form, "Pronoun", p.gender, p.shown, person=p.person)
    return Phrase((word,), p.number, p.person)


def which(wh: str, lemma: str, number: str) -> Phrase:
    """A wh-word and a noun."""
    return Phrase((Word(wh, "Wh-word"), noun(lemma, number)), number, "3")


def who() -> Phrase:
    """The wh-word that is a subject of its own."""
    return Phrase((Word("who", "Wh-word"),), SINGULAR, "3")


def finite(verb: Verb, subject: Phrase, tense: str, part_of_speech: str = "Verb") -> Word:
    """The form of a verb that goes with a subject in a tense."""
    if tense == PAST:
        return Word(verb.past, part_of_speech, tense=PAST)
    if (subject.number, subject.person) == (SINGULAR, "3"):
        return Word(verb.third, part_of_speech, number=SINGULAR, tense=PRESENT, person="3")
    return Word(verb.base, part_of_speech, number=subject.number, tense=PRESENT)


def clause(subject: Phrase, verb: Verb, tense: str, *, emphatic: bool = False) -> tuple[Word, ...]:
    """Subject and verb, or subject, do and infinitive."""
    if not emphatic:
        return (*subject.words, finite(verb, subject, tense))
    auxiliary = finite(DO, subject, tense, "Auxiliary")
    return (*subject.words, auxiliary, Word(verb.base, "Verb", tense=tense))


def inverted(subject: Phrase, verb: Verb, tense: str, wh: str | None = None) -> tuple[Word, ...]:
    """A question with do before the subject, perhaps after a wh-word."""
    auxiliary = finite(DO, subject, tense, "Auxiliary")
    asked = () if wh is None else (Word(wh, "Wh-word"),)
    return (*asked, auxiliary, *subject.words, Word(verb.base, "Verb", tense=tense))


# The sentences of the paper's table S1.
PRINTED = (
    Sentence(clause(common("the", "woman", SINGULAR), INTRANSITIVE["play"], PRESENT), "statement"),
    Sentence(clause(common("no", "prince", SINGULAR), INTRANSITIVE["sing"], PRESENT), "statement"),
    Sentence(clause(name("Mary"), INTRANSITIVE["fall"], PAST), "statement"),
    Sentence(clause(pronoun("I"), INTRANSITIVE["vanish"], PAST), "statement"),
    Sentence(inverted(pronoun("you"), INTRANSITIVE["sing"], PRESENT), "yes/no"),
    Sentence(clause(which("which", "man", PLURAL), INTRANSITIVE["sneeze"], PAST), "wh-subject"),
)

KINDS = ("noun", "name", "pronoun")
# Main clause, its subject, what follows, and the kind of that.
FRAMES = (
    *((main, kind, "", "") for main in ("plain", "emphatic", "asked", "wh") for kind in KINDS * 4),
    *((main, kind, "", "") for main in ("plain", "emphatic") for kind in ("who", "which") * 4),
    *((m, k, "object", o) for m in ("plain", "asked") for k in KINDS for o in KINDS),
    *((m, k, "clause", s) for m in ("plain", "asked") for k in KINDS for s in KINDS),
    *(("plain", k, "emphatic", s) for k in KINDS for s in KINDS),
    *((m, k, "asking", s) for m in ("plain", "asked") for k in KINDS for s in ("who", "which")),
)
FOLLOWED_BY = {
    "": INTRANSITIVE,
    "object": TRANSITIVE,
    "clause": CLAUSAL,
    "emphatic": CLAUSAL,
    "asking": ASKING,
}


def _phrase(rng: random.Random, kind: str, case: str = "subject") -> Phrase:
    """A noun phrase of a kind, drawn at random."""
    if kind == "who":
        return who()
    if kind == "pronoun":
        return pronoun(pick(rng, tuple(PRONOUNS)), case)
    gender = pick(rng, (FEMALE, MALE))
    if kind == "name":
        return name(pick(rng, [form for form, g in NAMES.items() if g == gender]))
    lemma = pick(rng, [form for form, (_, g) in NOUNS.items() if g == gender])
    number = pick(rng, (SINGULAR, PLURAL))
    if kind == "which":
        return which(pick(rng, ("which", "what", "whose")), lemma, number)
    shown = pick(rng, (None, number))
    return common(pick(rng, DETERMINERS[number, shown]), lemma, number)


def _draw(rng: random.Random, frame: tuple[str, str, str, str]) -> Sentence:
    """A sentence of a frame, drawn at random."""
    main, kind, after, other = frame
    subject = _phrase(rng, kind)
    verb = pick(rng, tuple(FOLLOWED_BY[after].values()))
    tense = pick(rng, (PRESENT, PAST))
    if main in ("plain", "emphatic"):
        words = clause(subject, verb, tense, emphatic=main == "emphatic")
    else:
        wh = pick(rng, ("when", "where", "why", "how")) if main == "wh" else None
        words = inverted(subject, verb, tense, wh)
    if after == "object":
        words = (*words, *_phrase(rng, other, "object").words)
    elif after:
        inner = pick(rng, tuple(INTRANSITIVE.values()))
        tense = pick(rng, (PRESENT, PAST))
        emphatic = after == "emphatic"
        words = (*words, *clause(_phrase(rng, other), inner, tense, emphatic=emphatic))
    asks = {"asked": "yes/no", "wh": "wh-adverb"}.get(main, "statement")
    return Sentence(words, "wh-subject" if kind in ("who", "which") else asks)


def _odd(sentence: Sentence) -> bool:
    """Sentences that English avoids: a word twice, "I see us", "it believes ..."."""
    forms = [word.form for word in sentence.words]
    persons = [word.person for word in sentence.words if word.part_of_speech == "Pronoun"]
    speech = {form for verb in (*CLAUSAL.values(), *ASKING.values()) for form in verb}
    minded = "it" in forms and any(form in speech for form in forms)
    ends = sentence.words[-1].part_of_speech == "Pronoun"
    same = ends and len(persons) == 2 and persons[0] == persons[1] != "3"
    return len(set(forms)) < len(forms) or same or minded


def candidates(rng: random.Random) -> dict[str, Sentence]:
    """Different sentences of all frames, those of table S1 first."""
    found = {sentence.text: sentence for sentence in PRINTED}
    for frame in FRAMES:
        for _ in range(DRAWS):
            sentence = _draw(rng, frame)
            if not _odd(sentence):
                found.setdefault(sentence.text, sentence)
    return found


def make() -> StimulusSet:
    """The probing set, word-level, the same on every machine."""
    rng = random.Random(SEED)
    pool = list(candidates(rng).values())
    column = {feature: number for number, feature in enumerate(FEATURES)}
    targets: dict[Share, float] = {
        ((column[f], value), tuple((column[g], v) for g, v in given.items())): share
        for f, value, given, share in TARGETS
    }
    rows, kinds = [s.rows for s in pool], [s.kind for s in pool]
    chosen = choose(rows, kinds, range(len(PRINTED)), PLAN, targets, rng)
    table = pd.DataFrame(
        [
            (sentence.text, i, sentence.words[i].form, *row)
            for sentence in (pool[number] for number in chosen)
            for i, row in enumerate(sentence.rows)
        ],
        columns=["sentence", "word_index", "word", *FEATURES],
        dtype=object,
    )
    return from_frame(table, "probing", nominal=["person"])
