"""A small treebank by rule, in CoNLL-U: 320 sentences of the probing grammar's words, with trees.

It is there to show and test what is made of Universal Dependencies, so it has what treebanks have:
subordinate, relative and coordinated clauses, control, copulas, questions, negation as a multiword
token (didn't = did + n't), gapping with an empty node and enhanced dependencies, punctuation that
follows without a space. Each frame gives as many sentences. The annotation follows UD version 2;
xpos is left out.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from grammars.balance import pick
from grammars.probing import (
    CLAUSAL,
    DETERMINERS,
    FEMALE,
    INTRANSITIVE,
    NAMES,
    NOUNS,
    PAST,
    PLURAL,
    PRESENT,
    PRONOUNS,
    SINGULAR,
    TRANSITIVE,
    Verb,
)
from mlem_core.extensions.treebank.stimuli import read_treebank
from mlem_core.stimuli.stimulus_set import StimulusSet

SEED = 0
EACH = 32
Feats = dict[str, str]


@dataclass(eq=False)
class Node:
    """A syntactic word; `head` is None for the root. `joined`: written as one with the next."""

    form: str
    lemma: str
    upos: str
    feats: Feats = field(default_factory=dict)
    head: Node | None = None
    relation: str = "root"
    joined: str = ""
    empty: bool = False

    def under(self, head: Node, relation: str) -> Node:
        """The same node, with its head."""
        self.head, self.relation = head, relation
        return self


@dataclass
class Phrase:
    """Nodes in order, the one that all others hang on, and what a verb agrees with."""

    nodes: list[Node]
    top: Node
    number: str = SINGULAR
    person: str = "3"


_NUMBER = {SINGULAR: "Sing", PLURAL: "Plur"}
_TENSE = {PRESENT: "Pres", PAST: "Past"}
_BE = {
    (PRESENT, SINGULAR): "is",
    (PRESENT, PLURAL): "are",
    (PAST, SINGULAR): "was",
    (PAST, PLURAL): "were",
}


def noun_phrase(rng: random.Random, kind: str, case: str = "subject") -> Phrase:
    """A name, a pronoun of the third person, or a determiner and a noun."""
    if kind == "name":
        form = pick(rng, tuple(NAMES))
        node = Node(form, form, "PROPN", {"Gender": _gender(NAMES[form]), "Number": "Sing"})
        return Phrase([node], node)
    if kind == "pronoun":
        entry = PRONOUNS[pick(rng, ("I", "he", "she", "we", "they"))]
        feats = {"Case": "Nom" if case == "subject" else "Acc", "Number": _NUMBER[entry.number]}
        feats |= {"Person": entry.person, "PronType": "Prs"}
        if entry.gender:
            feats["Gender"] = _gender(entry.gender)
        form = entry.subject if case == "subject" else entry.object
        node = Node(form, entry.subject, "PRON", feats)
        return Phrase([node], node, entry.number, entry.person)
    lemma = pick(rng, tuple(NOUNS))
    number = pick(rng, (SINGULAR, PLURAL))
    plural, gender = NOUNS[lemma]
    feats = {"Gender": _gender(gender), "Number": _NUMBER[number]}
    node = Node(lemma if number == SINGULAR else plural, lemma, "NOUN", feats)
    shown = pick(rng, (None, number))
    word = pick(rng, DETERMINERS[number, shown])
    form = "an" if word == "a" and node.form[0] in "aeiou" else word
    determiner = Node(form, word, "DET", {} if shown is None else {"Number": _NUMBER[number]})
    return Phrase([determiner.under(node, "det"), node], node, number)


def _gender(gender: str) -> str:
    return "Fem" if gender == FEMALE else "Masc"


def finite(verb: Verb, subject: Phrase, tense: str, upos: str = "VERB") -> Node:
    """A finite form that agrees with a subject."""
    feats = {"Mood": "Ind", "Tense": _TENSE[tense], "VerbForm": "Fin"}
    if tense == PAST:
        return Node(verb.past, verb.base, upos, feats)
    if (subject.number, subject.person) == (SINGULAR, "3"):
        return Node(verb.third, verb.base, upos, feats | {"Number": "Sing", "Person": "3"})
    return Node(verb.base, verb.base, upos, feats)


def infinitive(verb: Verb) -> Node:
    """The bare form."""
    return Node(verb.base, verb.base, "VERB", {"VerbForm": "Inf"})


class Drawing:
    """Sentences of each frame, drawn at random."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def phrase(self, case: str = "subject") -> Phrase:
        """A noun phrase of any kind."""
        return noun_phrase(self.rng, pick(self.rng, ("noun", "name", "pronoun")), case)

    def verb(self, verbs: dict[str, Verb]) -> Verb:
        """A verb of a kind."""
        return verbs[pick(self.rng, tuple(verbs))]

    def tense(self) -> str:
        """Present or past."""
        return pick(self.rng, (PRESENT, PAST))

    def plain(self, subject: Phrase | None = None) -> Phrase:
        """Subject and verb, perhaps with an object."""
        subject = subject or self.phrase()
        transitive = pick(self.rng, (True, False))
        verb = finite(self.verb(TRANSITIVE if transitive else INTRANSITIVE), subject, self.tense())
        subject.top.under(verb, "nsubj")
        nodes = [*subject.nodes, verb]
        if transitive:
            thing = noun_phrase(self.rng, pick(self.rng, ("noun", "name")), "object")
            thing.top.under(verb, "obj")
            nodes += thing.nodes
        return Phrase(nodes, verb)

    def negated(self) -> Phrase:
        """Mary didn't fall."""
        subject = self.phrase()
        verb = infinitive(self.verb(INTRANSITIVE))
        do = finite(Verb("do", "does", "did"), subject, self.tense(), "AUX").under(verb, "aux")
        negation = Node("n't", "not", "PART", {"Polarity": "Neg"}).under(verb, "advmod")
        do.joined = f"{do.form}n't"
        subject.top.under(verb, "nsubj")
        return Phrase([*subject.nodes, do, negation, verb], verb)

    def question(self) -> Phrase:
        """Did the man fall?"""
        subject = self.phrase()
        verb = infinitive(self.verb(INTRANSITIVE))
        do = finite(Verb("do", "does", "did"), subject, self.tense(), "AUX").under(verb, "aux")
        subject.top.under(verb, "nsubj")
        return Phrase([do, *subject.nodes, verb, Node("?", "?", "PUNCT")], verb)

    def clausal(self) -> Phrase:
        """The woman says that the men sleep."""
        subject = self.phrase()
        verb = finite(self.verb(CLAUSAL), subject, self.tense())
        subject.top.under(verb, "nsubj")
        inner = self.plain()
        inner.top.under(verb, "ccomp")
        mark = Node("that", "that", "SCONJ").under(inner.top, "mark")
        return Phrase([*subject.nodes, verb, mark, *inner.nodes], verb)

    def relative(self) -> Phrase:
        """The man who sees Mary sleeps."""
        head = noun_phrase(self.rng, "noun")
        who = Node("who", "who", "PRON", {"PronType": "Rel"})
        inner = self.plain(Phrase([who], who, head.number))
        inner.top.under(head.top, "acl:relcl")
        verb = finite(self.verb(INTRANSITIVE), head, self.tense())
        head.top.under(verb, "nsubj")
        return Phrase([*head.nodes, *inner.nodes, verb], verb)

    def coordinated(self) -> Phrase:
        """Mary sings and the boys dance."""
        first, second = self.plain(), self.plain()
        second.top.under(first.top, "conj")
        both = Node("and", "and", "CCONJ").under(second.top, "cc")
        return Phrase([*first.nodes, both, *second.nodes], first.top)

    def adverbial(self) -> Phrase:
        """Mary slept when the king arrived."""
        main, inner = self.plain(), self.plain()
        inner.top.under(main.top, "advcl")
        when = Node("when", "when", "ADV", {"PronType": "Rel"}).under(inner.top, "advmod")
        return Phrase([*main.nodes, when, *inner.nodes], main.top)

    def controlled(self) -> Phrase:
        """Mary wanted to sing."""
        subject = self.phrase()
        verb = finite(Verb("want", "wants", "wanted"), subject, self.tense())
        inner = infinitive(self.verb(INTRANSITIVE)).under(verb, "xcomp")
        to = Node("to", "to", "PART").under(inner, "mark")
        subject.top.under(verb, "nsubj")
        return Phrase([*subject.nodes, verb, to, inner], verb)

    def copula(self) -> Phrase:
        """The queen was the aunt."""
        subject = noun_phrase(self.rng, "noun")
        predicate = noun_phrase(self.rng, "noun")
        while predicate.number != subject.number or predicate.top.lemma == subject.top.lemma:
            predicate = noun_phrase(self.rng, "noun")
        tense = self.tense()
        feats = {"Mood": "Ind", "Number": _NUMBER[subject.number], "Tense": _TENSE[tense]}
        form = _BE[tense, subject.number]
        be = Node(form, "be", "AUX", feats | {"VerbForm": "Fin"}).under(predicate.top, "cop")
        subject.top.under(predicate.top, "nsubj")
        return Phrase([*subject.nodes, be, *predicate.nodes], predicate.top)

    def gapped(self) -> Phrase:
        """Mary saw Tom and Sue Bob: the second verb is an empty node."""
        who = [noun_phrase(self.rng, "name").top for _ in range(4)]
        while len({node.form for node in who}) < 4:
            who = [noun_phrase(self.rng, "name").top for _ in range(4)]
        verb = finite(self.verb(TRANSITIVE), Phrase([], who[0]), self.tense())
        for node, head, relation in zip(
            who, (verb, verb, verb, who[2]), ("nsubj", "obj", "conj", "orphan"), strict=True
        ):
            node.under(head, relation)
        both = Node("and", "and", "CCONJ").under(who[2], "cc")
        again = Node(verb.form, verb.lemma, "VERB", dict(verb.feats), verb, "conj", empty=True)
        return Phrase([who[0], verb, who[1], both, who[2], again, who[3]], verb)


FRAMES = (
    "plain", "negated", "question", "clausal", "relative",
    "coordinated", "adverbial", "controlled", "copula", "gapped",
)  # fmt: skip


def conllu(phrase: Phrase, name: str) -> str:
    """The lines of a sentence; a full stop is added where it has no final mark."""
    nodes = list(phrase.nodes)
    if nodes[-1].upos != "PUNCT":
        nodes.append(Node(".", ".", "PUNCT"))
    nodes[-1].under(phrase.top, "punct")
    phrase.top.head, phrase.top.relation = None, "root"
    words = [node for node in nodes if not node.empty]
    number = {id(node): str(i) for i, node in enumerate(words, start=1)}
    enhanced = len(words) < len(nodes)
    lines, written = [], ""
    for at, node in enumerate(nodes):
        no_space = "SpaceAfter=No" if node is words[-2] else "_"
        own = number.get(id(node)) or f"{number[id(nodes[at - 1])]}.1"
        if node.joined:
            lines.append(f"{own}-{int(own) + 1}\t{node.joined}" + "\t_" * 8)
            written += f" {node.joined}"
        elif not node.empty and not (at and nodes[at - 1].joined):
            written += node.form if node.upos == "PUNCT" else f" {node.form}"
        head = number[id(node.head)] if node.head else "0"
        feats = "|".join(f"{k}={v}" for k, v in sorted(node.feats.items())) or "_"
        basic = ("_", "_") if node.empty else (head, node.relation)
        deps = f"{head}:{node.relation}" if enhanced else "_"
        columns = [own, node.form, node.lemma, node.upos, "_", feats, *basic, deps, no_space]
        lines.append("\t".join(columns))
    return "\n".join([f"# sent_id = {name}", f"# text = {written.strip()}", *lines]) + "\n\n"


def make() -> StimulusSet:
    """The words of the treebank as stimuli, the same on every machine."""
    return read_treebank([text().encode()])


def text() -> str:
    """The treebank in CoNLL-U."""
    rng = random.Random(SEED)
    drawing = Drawing(rng)
    seen: set[tuple[str, ...]] = set()
    sentences = []
    for frame in FRAMES:
        n = 0
        while n < EACH:
            phrase: Phrase = getattr(drawing, frame)()
            forms = tuple(node.form for node in phrase.nodes)
            lemmas = [node.lemma for node in phrase.nodes if node.upos in ("NOUN", "PROPN", "PRON")]
            if forms in seen or len(set(lemmas)) < len(lemmas):
                continue
            seen.add(forms)
            n += 1
            sentences.append(conllu(phrase, f"{frame}-{n:02d}"))
    return "".join(sentences)
