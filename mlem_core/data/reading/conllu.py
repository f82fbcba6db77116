"""CoNLL-U treebanks (Universal Dependencies): files to sentences with their trees.

The file is read by the package `conllu`; here it is checked that each tree is one, and each
syntactic word gets its place among the words of the sentence as it is written.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mlem_core.base.errors import InputError
from mlem_core.base.text import listed, many, short
from mlem_core.data.reading.content import Source, content, decode

MAX_BYTES = 500_000_000
_WHAT = "a treebank in CoNLL-U"
NO_VALUE = "_"


@dataclass(frozen=True)
class Token:
    """A syntactic word.

    Attributes
    ----------
    form, lemma, upos : as in the treebank; `lemma` is None where there is none
    feats : morphological features
    relation : to the head, without subtype; None where the treebank has no trees
    head : number of the head from 1, 0 for the root; None where the treebank has no trees
    place : which whitespace-separated word of the sentence it is, from 0; the last one of a form
        with spaces. None for a part of a multiword token.
    """

    form: str
    lemma: str | None
    upos: str
    feats: dict[str, str]
    relation: str | None
    head: int | None
    place: int | None


@dataclass(frozen=True)
class Sentence:
    """A sentence: `tokens` in order, `text` its written words separated by single spaces."""

    text: str
    tokens: tuple[Token, ...]
    name: str

    @property
    def has_tree(self) -> bool:
        """Whether its words have heads."""
        return self.tokens[0].head is not None

    def depths(self) -> list[int]:
        """How many arcs lie between each token and the root."""
        depths: dict[int, int] = {0: -1}

        def depth(number: int) -> int:
            path = []
            while number not in depths:
                path.append(number)
                number = self.tokens[number - 1].head or 0
            for one in reversed(path):
                depths[one] = depths[number] + 1
                number = one
            return depths[number]

        return [depth(number) for number in range(1, len(self.tokens) + 1)]


@dataclass
class Treebank:
    """Sentences, and what of the files is not in them, counted (`counts`) and said (`left_out`)."""

    name: str
    sentences: list[Sentence] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    left_out: list[str] = field(default_factory=list)

    def notes(self) -> list[str]:
        """Sentences about how the treebank was read."""
        counts = self.counts
        notes = [
            f"{self.name}: the words of a sentence are separated by single spaces, "
            "punctuation too; a multiword token (don't = do + n't) is one word as it is written."
        ]
        if counts["unspaced"]:
            notes.append(
                f"No space follows {counts['unspaced']:,} of its {counts['tokens']:,} words in the "
                "treebank (SpaceAfter=No); here one follows each."
            )
        if counts["parts"]:
            notes.append(
                f"No stimuli: {many(counts['parts'], 'syntactic word')} in "
                f"{many(counts['multiword'], 'multiword token')}; as parts of a written word they "
                "have no place of their own. They count in trees."
            )
        if counts["spaced"]:
            notes.append(
                f"Of {many(counts['spaced'], 'word')} written with a space the last part is the "
                "stimulus."
            )
        if counts["empty"] or counts["enhanced"]:
            notes.append(
                f"Left out: {many(counts['empty'], 'empty node')} and the enhanced dependencies; "
                "trees are the basic ones."
            )
        if counts["copies"]:
            notes.append(
                f"Left out: {many(counts['copies'], 'sentence')} with a text that had occurred."
            )
        if self.left_out:
            bad = listed(self.left_out, most=3)
            notes.append(
                f"Left out: {many(len(self.left_out), 'sentence')} without a tree ({bad})."
            )
        return notes


def read_sentences(sources: Sequence[Source], encoding: str | None = None) -> Treebank:
    """The sentences of treebank files, each text once.

    Parameters
    ----------
    sources : paths, contents, or binary files
    encoding : by default it is detected; CoNLL-U should be UTF-8

    Raises
    ------
    InputError
        A file cannot be read or is no CoNLL-U (which sentence, and why); no sentence remains.
    """
    from conllu import parse_incr
    from conllu.exceptions import ParseException

    # Enhanced dependencies are counted, not read.
    raw = {"deps": lambda line, i: None if line[i] == NO_VALUE else line[i]}
    bank = Treebank("")
    names: list[str] = []
    seen: set[str] = set()
    for source in sources:
        data, file = content(source, _WHAT, MAX_BYTES)
        names.append(file)
        text, _ = decode(data, file, encoding)
        n = 0
        try:
            for tokens in parse_incr(io.StringIO(text), field_parsers=raw):
                own = str(tokens.metadata.get("sent_id") or n + 1)
                of_file = f"{file.removesuffix('.conllu')}:" if len(sources) > 1 else ""
                _take(bank, tokens, of_file + own, seen)
                n += 1
        except (ParseException, ValueError, LookupError, TypeError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"sentence {n + 1} of {file} is no CoNLL-U ({error}); expected lines of ten "
                "columns separated by tabs, and an empty line after each sentence."
            ) from error
    bank.name = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    if not bank.sentences:
        why = f" ({listed(bank.left_out, most=3)})" if bank.left_out else ""
        raise InputError(f"{bank.name} has no sentence that can be used{why}; expected CoNLL-U.")
    return bank


def _take(bank: Treebank, rows: Any, name: str, seen: set[str]) -> None:
    """Add a sentence to the treebank."""
    tokens, text, counts = _placed(rows)
    problem = _problem(tokens)
    if problem:
        bank.left_out.append(f"{short(name)} {problem}")
        return
    if text in seen:
        bank.counts["copies"] += 1
        return
    seen.add(text)
    bank.counts += counts
    bank.sentences.append(Sentence(text, tokens, name))


def _placed(rows: Any) -> tuple[tuple[Token, ...], str, Counter[str]]:
    """The syntactic words of a sentence, its text, and counts of what is special about it."""
    counts: Counter[str] = Counter()
    tokens: list[Token] = []
    words: list[str] = []
    covered = 0  # the last syntactic word of a multiword token
    for row in rows:
        id, form = row["id"], " ".join(str(row["form"]).split())
        unspaced = (row.get("misc") or {}).get("SpaceAfter") == "No"
        if isinstance(id, tuple):
            if id[1] == ".":
                counts["empty"] += 1
                continue
            covered = id[2]
            counts["multiword"] += 1
            counts["parts"] += id[2] - id[0] + 1
        elif isinstance(id, int):
            place = None
            if id > covered:
                place = len(words) + len(form.split()) - 1
                counts["spaced"] += " " in form
            tokens.append(_token(row, form, place))
            counts["tokens"] += 1
            counts["enhanced"] += row.get("deps") is not None
        else:
            raise ValueError(f"the word {short(form)} has no number")
        if isinstance(id, tuple) or id > covered:
            words += form.split()
            counts["unspaced"] += unspaced
    return tuple(tokens), " ".join(words), counts


def _token(row: Any, form: str, place: int | None) -> Token:
    lemma, relation = row.get("lemma"), row.get("deprel")
    return Token(
        form=form,
        lemma=None if lemma in (None, NO_VALUE, "") else str(lemma),
        upos=str(row.get("upos") or NO_VALUE),
        feats={str(k): str(v) for k, v in (row.get("feats") or {}).items() if v},
        relation=None if relation in (None, NO_VALUE) else str(relation).split(":")[0],
        head=row.get("head"),
        place=place,
    )


def _problem(tokens: Sequence[Token]) -> str:
    """What keeps words from being a sentence with a tree or without any; "" for nothing."""
    if not tokens:
        return "has no word"
    if all(token.form == NO_VALUE for token in tokens):
        return "has no forms, only _ (the text has to be merged in first)"
    heads = [token.head for token in tokens]
    if all(head is None for head in heads):
        return ""
    if any(head is None or not 0 <= head <= len(tokens) for head in heads):
        return "has a word whose head is no word of it"
    if heads.count(0) != 1:
        return f"has {many(heads.count(0), 'root')}"
    reached = {0}
    left = set(range(1, len(tokens) + 1))
    while grown := {number for number in left if heads[number - 1] in reached}:
        reached |= grown
        left -= grown
    return f"has a circle of heads through word {min(left)}" if left else ""
