"""Treebanks that are written oddly, mean something else than they seem to, or are damaged."""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, cycle
from typing import Any

import numpy as np

from helpers.damaging import damaged_bytes
from helpers.feeding import Fate, Hostile, later
from mlem_core.stimuli.datasets import SETS

SHIPPED = SETS["treebank"].file
ID, FORM, LEMMA, UPOS, XPOS, FEATS, HEAD, DEPREL, DEPS, MISC = range(10)
Block = tuple[list[str], list[list[str]]]  # comments, and tokens of ten cells


def blocks_of(text, most):
    """The first plain sentences of a treebank: with a verb, a noun and no range."""
    blocks = []
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        tokens = [x.split("\t") for x in lines if x[0] != "#"]
        tags = {t[UPOS] for t in tokens}
        if all(t[ID].isdecimal() for t in tokens) and {"VERB", "NOUN"} < tags and len(tokens) > 3:
            blocks.append(([x for x in lines if x[0] == "#"], tokens))
    return blocks[:most]


def meaning(blocks):
    """By column what the words of plain sentences (no ranges, no empty nodes) mean."""
    rows = []
    for _, tokens in blocks:
        text = " ".join(t[FORM] for t in tokens)
        for n, t in enumerate(tokens, 1):
            if t[UPOS] == "PUNCT":
                continue
            feats = dict(x.split("=") for x in t[FEATS].split("|")) if t[FEATS] != "_" else {}
            head = int(t[HEAD])
            rows.append({
                "sentence": text, "word": t[FORM].split()[-1], "upos": t[UPOS],
                "relation": t[DEPREL].split(":")[0], "number": feats.get("Number"),
                "tense": feats.get("Tense"), "head_distance": abs(head - n) if head else None,
                "head_direction": (("before", "after")[head > n]) if head else None,
            })  # fmt: skip
    return {name: [row[name] for row in rows] for name in rows[0]}


@dataclass
class Bank:
    """What a change works on: what is written, what is meant, what has to be said."""

    written: list[Block]
    meant: list[Block]
    rng: Any
    says: tuple[str, ...] = ()
    fate: Fate = "or said"
    as_bytes: Callable[[str], bytes] = str.encode


@later
def _tokens(bank, how, says="", fate="or said", gone=False, meant=False):
    """One sentence with other tokens: it means just those, nothing (gone), or what it did."""
    at = int(bank.rng.integers(3, len(bank.written) - 3))
    comments, tokens = bank.written[at]
    bank.written[at] = comments, how([[*t] for t in tokens])
    if gone:
        del bank.meant[at]
    elif meant:
        bank.meant[at] = bank.written[at]
    name = comments[0].split("= ")[1][:50]
    bank.says, bank.fate = (says.format(name=name),) if says else (), fate


def _cell(column, to, *said, upos="VERB", **of):
    """One word's cell as something else."""

    def how(tokens):
        word = next(t for t in tokens if t[UPOS] == upos)
        word[column] = to(word[column]) if callable(to) else to
        return tokens

    return _tokens(how, *said, **of)


@later
def _every(bank, column, to, says=(), fate="or said"):
    for token in chain.from_iterable(tokens for _, tokens in bank.written):
        token[column] = to(token[column])
    bank.says, bank.fate = says, fate


@later
def _text(bank, how, fate="read", encoding="utf-8"):
    bank.as_bytes, bank.fate = lambda text: how(text).encode(encoding), fate


def _cp850(bank):
    _cell(FORM, "élan", "Windows-1252", meant=True)(bank)
    bank.as_bytes = lambda text: text.encode("cp850")


def _with(token, column, cell):
    return [*token[:column], cell, *token[column + 1 :]]


def _two_values(bank):
    """Fem,Masc and Masc,Fem are one value."""
    for blocks, both in (
        (bank.written, ("Plur,Sing", "Sing,Plur")), (bank.meant, ("Plur,Sing", "Plur,Sing")),
    ):  # fmt: skip
        tokens = (t for _, tokens in blocks for t in tokens)
        nouns = (t for t in tokens if "Number=Sing" in t[FEATS] and t[UPOS] == "NOUN")
        for token, value in zip(nouns, cycle(both), strict=False):
            token[FEATS] = token[FEATS].replace("Number=Sing", f"Number={value}")
    bank.fate = "read"


CHANGES = {
    **{name: _text(how) for name, how in {
        "nothing": str, "CR": lambda s: s.replace("\n", "\r"),
        "mixed ends": lambda s: s.replace("\n", "\r\n", 40), "BOM": "\ufeff{}".format,
        "no last line": str.rstrip, "a space at the end": lambda s: s.replace("\t_\n", "\t_ \n"),
        "comment amid words": lambda s: s.replace("\n2\t", "\n# note\n2\t"),
    }.items()},
    **{name: _text(how, "refused") for name, how in {
        "spaces for tabs": lambda s: s.replace("\t", "  "),
        "nine columns": lambda s: s.replace("\t_\n", "\n"),
        "cut amid a line": lambda s: s[: s.rindex("\t") - 20],
    }.items()},
    "utf-16": _text(str, "or said", "utf-16-le"), "cp850": _cp850,
    **{f"form {form!a}": _cell(FORM, form, says, meant=True) for form, says in (
        ("New York", "with a space"), ("e\u0301lan", ""), ("a\u200bb", "U+200B"), ("_", ""),
        ("&amp;", "HTML"), ("cafÃ©", "another encoding"))},
    **{f"form without a sign {form!a}": _cell(FORM, form, "{name}", gone=True)
       for form in ("\u3000", "")},
    "forms hidden": _every(FORM, lambda c: "_", fate="refused"),
    **{f"upos {to!a}": _cell(UPOS, to, "upos") for to in ("verb", "_")},
    "deps": _every(DEPS, lambda c: "1:x|2:y", ("enhanced",)),
    "subtypes": _every(DEPREL, lambda c: c + ":sub"),
    "relation capital": _cell(DEPREL, str.upper, "relation"),
    **{f"feats {name}": _cell(FEATS, to, "", fate) for name, to, fate in (
        ("repeated", lambda c: "Number=Sing|" + c + "|Number=Plur", "refused"),
        ("unsorted", lambda c: "|".join(reversed(c.split("|"))), "read"),
        ("semicolons", lambda c: c.replace("|", ";"), "or said"))},
    "feats of two values": _two_values,
    **{f"head {to}": _cell(HEAD, to, "", "refused", upos="NOUN") for to in ("x", "02", "٢")},
    **{f"head {to!r}": _cell(HEAD, to, "{name}", upos=upos, gone=True)
       for to, upos in (("99", "VERB"), ("_", "NOUN"), ("0", "NOUN"))},
    **{name: _tokens(how, "{name}", gone=True) for name, how in {
        "circle": lambda ts: [_with(ts[0], HEAD, "2"), _with(ts[1], HEAD, "1"), *ts[2:]],
        "no root": lambda ts: [_with(t, HEAD, "1" if t[HEAD] == "0" else t[HEAD]) for t in ts],
    }.items()},
    **{name: _tokens(how, "", "refused") for name, how in {
        "ids from 0": lambda ts: [_with(t, ID, str(i)) for i, t in enumerate(ts)],
        "a word lost": lambda ts: ts[:1] + ts[2:], "a word twice": lambda ts: [ts[0], *ts],
        "words swapped": lambda ts: [ts[1], ts[0], *ts[2:]],
        "empty node out of place": lambda ts: [ts[0], _with(ts[0], ID, "3.1"), *ts[1:]],
        "ranges that overlap": lambda ts: [["1-2", *"x________"], ts[0], ["2-3", *"y________"],
                                           *ts[1:]],
    }.items()},
    "empty node": _tokens(lambda ts: [ts[0], ["1.1", *ts[0][1:HEAD], "_", "_", "2:x", "_"],
                                      *ts[1:]], "empty node"),
    "range": _tokens(lambda ts: [["1-2", ts[0][FORM] + ts[1][FORM], *"________"], *ts],
                     "multiword"),
}  # fmt: skip


def plain(most):
    return blocks_of(unicodedata.normalize("NFC", SHIPPED.read_text()), most)


def text_of(blocks):
    return "".join("\n".join([*c, *map("\t".join, t)]) + "\n\n" for c, t in blocks)


def changed(seed, times=2):
    rng = np.random.default_rng(seed)
    for name, change in CHANGES.items():
        for number in range(times):
            bank = Bank(plain(60), plain(60), rng)
            change(bank)
            data = bank.as_bytes(text_of(bank.written))
            truth = meaning(bank.meant)
            yield Hostile(f"{name} ({number})", ".conllu", data, truth, bank.fate, bank.says)


def damages(seed, n):
    good, pieces = {".conllu": [text_of(plain(8)).encode()]}, ("\0", "\t", "1-2", "\u2028")
    for name, suffix, data in damaged_bytes(good, seed, n, [*map(str.encode, pieces)]):
        yield Hostile(name, suffix, data, fate="any")
