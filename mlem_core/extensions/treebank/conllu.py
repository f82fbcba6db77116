"""CoNLL-U treebanks (Universal Dependencies): files to sentences with their trees.

Each line has its ten columns, words are numbered from 1, and each tree is one; each syntactic word
gets its place among the words of the sentence as it is written.
"""

from __future__ import annotations

import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from mlem_core.base.errors import InputError
from mlem_core.base.resources import check_memory
from mlem_core.base.text import listed, many, short
from mlem_core.stimuli.reading.content import ReadAs, Source, content, decode

# A stimulus carries its sentence: what a sentence takes grows with the square of its words.
MOST_WORDS = 5_000
MOST_FEATURES = 200  # that words of a treebank have, by their names
_LINE_BYTES = 2_500  # that a line of a file takes while it is read
_WHAT = "a treebank in CoNLL-U"
NO_VALUE = "_"
_COLUMNS = "ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_RANGE = re.compile(r"([1-9][0-9]{0,8})-([1-9][0-9]{0,8})")
_EMPTY = re.compile(r"(0|[1-9][0-9]{0,8})\.[1-9][0-9]*")
# What is said of the sentences where there is some, {n} of it (of {tokens} syntactic words).
_COUNTED = {
    "unspaced": "No space follows {n:,} of its {tokens:,} words in the treebank (SpaceAfter=No); "
    "here one follows each.",
    "parts": "No stimuli: the {n:,} parts of multiword tokens, which have no place of their own. "
    "They count in trees.",
    "spaced": "Of words written with a space ({n:,}) the last part is the stimulus.",
    "empty": "Left out: empty nodes ({n:,}).",
    "enhanced": "Left out: the enhanced dependencies of {n:,} words; trees are the basic ones.",
    "copies": "Left out: sentences with a text that had occurred ({n:,}).",
}
# Of characters that nobody sees: spaces of any width, and what steers the writing.
_UNSEEN = ("Zs", "Zl", "Zp", "Cc", "Cf")


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
    """A sentence: `tokens` in order, `text` its written words separated by single spaces.

    `document` is what the comment `newdoc` calls the document, its number where that has no name,
    and "" in a file without such comments.
    """

    text: str
    tokens: tuple[Token, ...]
    name: str
    document: str = ""

    @property
    def has_tree(self) -> bool:
        """Whether its words have heads."""
        return self.tokens[0].head is not None

    def depths(self) -> list[int]:
        """Number of arcs between each token and the root."""
        return _depths([token.head or 0 for token in self.tokens])


@dataclass
class Treebank:
    """Sentences, and what of the files is not in them, counted (`counts`) and said (`left_out`).

    Attributes
    ----------
    features : the names of those that its words have
    encodings : of each file that is not in UTF-8, what it was read as
    """

    name: str
    sentences: list[Sentence] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    left_out: list[str] = field(default_factory=list)
    features: set[str] = field(default_factory=set)
    encodings: dict[str, str] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """Sentences about how the treebank was read."""
        notes = [
            f"{self.name}: the words of a sentence are separated by single spaces, "
            "punctuation too; a multiword token (don't = do + n't) is one word as it is written."
        ]
        for file, encoding in self.encodings.items():
            notes.append(f"{file} was read as {encoding} text; CoNLL-U is in UTF-8.")
        for what, sentence in _COUNTED.items():
            if n := self.counts[what]:
                notes.append(sentence.format(n=n, tokens=self.counts["tokens"]))
        if self.left_out:
            left_out = many(len(self.left_out), "sentence")
            bad = listed(self.left_out, most=3)
            notes.append(f"Left out: {left_out} without a tree or a form ({bad}).")
        return notes


def read_sentences(sources: Sequence[Source], encoding: str | None = None) -> Treebank:
    """The sentences of treebank files, each text once.

    Parameters
    ----------
    sources : paths, contents, or binary files
    encoding : by default it is detected; CoNLL-U should be UTF-8

    Raises InputError: a file cannot be read or is no CoNLL-U (which sentence, and why); no sentence
    remains.
    """
    bank = Treebank("")
    names: list[str] = []
    seen: set[str] = set()
    for source in sources:
        data, file = content(source, _WHAT)
        names.append(file)
        text, used = decode(data, file, encoding)
        if encoding is None and used != "utf-8":
            bank.encodings[file] = ReadAs(encoding=used).encoding_name
        advice = "choose fewer files, or a part of them"
        check_memory((text.count("\n") + 1) * _LINE_BYTES, f"the treebank {file}", advice)
        of_file = f"{file.removesuffix('.conllu')}:" if len(sources) > 1 else ""
        n = 0
        try:
            for sent_id, document, lines in _blocks(text):
                name = of_file + (sent_id or str(n + 1))
                tokens, words, counts, unseen = _placed(lines)
                if problem := unseen or _problem(tokens):
                    bank.left_out.append(f"{short(name)} {problem}")
                elif words in seen:
                    bank.counts["copies"] += 1
                else:
                    seen.add(words)
                    bank.counts += counts
                    bank.features.update(*(token.feats for token in tokens))
                    in_document = document and of_file + document
                    bank.sentences.append(Sentence(words, tokens, name, in_document))
                n += 1
        except _NoConllu as error:
            raise InputError(
                f"sentence {n + 1} of {file} is no CoNLL-U ({error}); expected lines of ten "
                "columns separated by tabs, and an empty line after each sentence."
            ) from error
    bank.name = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    if not bank.sentences:
        why = f" ({listed(bank.left_out, most=3)})" if bank.left_out else ""
        raise InputError(f"{bank.name} has no sentence that can be used{why}; expected CoNLL-U.")
    if len(bank.features) > MOST_FEATURES:
        raise InputError(
            f"the words of {bank.name} have {len(bank.features):,} features; expected at most "
            f"{MOST_FEATURES:,} (its column FEATS has Name=Value, separated by |)."
        )
    return bank


class _NoConllu(Exception):
    """The line of a file that breaks the format, and how."""


@dataclass(frozen=True)
class _Line:
    """A line of ten columns, without spaces around them, and its number in the file."""

    number: int
    cells: list[str]

    def wrong(self, what: str) -> _NoConllu:
        return _NoConllu(f"line {self.number:,} has {what}")


def _blocks(text: str) -> Iterator[tuple[str, str, list[_Line]]]:
    """The comment `sent_id` of each sentence, "" for none, its document, and its lines."""
    name, document, n_documents, lines = "", "", 0, list[_Line]()
    for number, line in enumerate(chain(io.StringIO(text, newline=None), [""]), start=1):
        if line.startswith("#"):
            key, _, value = (text.strip() for text in line[1:].partition("="))
            if key == "global.columns" and value.split() != _COLUMNS.split():
                raise _NoConllu(f"line {number:,} names other columns than {_COLUMNS}")
            name = value if key == "sent_id" else name
            if key in ("newdoc", "newdoc id"):
                n_documents += 1
                document = value or f"document {n_documents}"
        elif line.strip():
            cells = [cell.strip() for cell in line.removesuffix("\n").split("\t")]
            lines.append(_Line(number, cells))
            if len(cells) != len(_COLUMNS.split()):
                raise lines[-1].wrong(many(len(cells), "column"))
        else:
            if lines:
                yield name, document, lines
            name, lines = "", []


def _placed(lines: list[_Line]) -> tuple[tuple[Token, ...], str, Counter[str], str]:
    """The syntactic words of a sentence, its text, counts of what is special about it, and what
    is wrong where a written word has nothing to see."""
    counts: Counter[str] = Counter()
    tokens: list[Token] = []
    words: list[str] = []
    covered, unseen = 0, ""  # the last syntactic word of a multiword token; what is wrong
    for line in lines:
        id, *_, misc = line.cells
        parts, next_id = line.cells[1].split(), len(tokens) + 1
        span = _RANGE.fullmatch(id)
        node = _EMPTY.fullmatch(id)
        if node and int(node[1]) == len(tokens):
            counts["empty"] += 1
            continue
        written = next_id > covered
        if span and written and int(span[1]) == next_id <= int(span[2]):
            covered = int(span[2])
            counts["parts"] += covered - next_id + 1
        elif id == str(next_id):
            tokens.append(_token(line, len(words) + len(parts) - 1 if written else None))
            counts["tokens"] += 1
            counts["spaced"] += written and len(parts) > 1
            counts["enhanced"] += line.cells[8] not in ("", NO_VALUE)
        else:
            raise line.wrong(f"the ID {short(id)}, not {next_id}")
        if written:
            if all(unicodedata.category(char) in _UNSEEN for part in parts for char in part):
                unseen = unseen or f"has a word without a form (line {line.number:,})"
            words += parts
            counts["unspaced"] += "SpaceAfter=No" in misc.split("|")
        if len(tokens) > MOST_WORDS:
            raise line.wrong(f"word {len(tokens):,} of a sentence, at most {MOST_WORDS:,} are read")
    if covered > len(tokens):
        raise lines[-1].wrong(
            f"word {len(tokens)}, the last one; a multiword token ends at {covered}"
        )
    return tuple(tokens), " ".join(words), counts, unseen


def _token(line: _Line, place: int | None) -> Token:
    _, form, lemma, upos, _, feats, head, relation, *_ = line.cells
    if head not in ("", NO_VALUE) and not _NUMBER.fullmatch(head):
        raise line.wrong(f"the HEAD {short(head)}, which is no number")
    return Token(
        form=" ".join(form.split()),
        lemma=None if lemma in ("", NO_VALUE) else lemma,
        upos=upos or NO_VALUE,
        feats=_feats(line, feats),
        relation=None if relation in ("", NO_VALUE) else relation.split(":")[0],
        head=None if head in ("", NO_VALUE) else int(head),
        place=place,
    )


def _feats(line: _Line, cell: str) -> dict[str, str]:
    feats: dict[str, str] = {}
    for part in cell.split("|") if cell not in ("", NO_VALUE) else ():
        name, _, value = (text.strip() for text in part.partition("="))
        if not name or not value or name in feats:
            raise line.wrong(f"{short(part)} in FEATS, where Name=Value is due, each name once")
        feats[name] = ",".join(sorted(value.split(",")))  # in whatever order they stand
    return {name: value for name, value in feats.items() if value != NO_VALUE}


def _problem(tokens: Sequence[Token]) -> str:
    """Reason why words are no sentence with or without a tree; "" where they are one."""
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
    return "" if _depths([head or 0 for head in heads]) else "has a circle of heads"


def _depths(heads: Sequence[int]) -> list[int]:
    """Number of arcs between each word and the root; empty where heads go in a circle."""
    depths = {0: -1}
    for number in range(1, len(heads) + 1):
        way: dict[int, None] = {}
        while number not in depths and number not in way:
            way[number] = None
            number = heads[number - 1]
        if number in way:
            return []
        for below in reversed(way):
            depths[below] = depths[heads[below - 1]] + 1
    return [depths[number] for number in range(1, len(heads) + 1)]
