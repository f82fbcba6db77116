"""Treebanks that are written oddly, mean something else than they seem to, or are damaged."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from damaging import damaged_bytes
from feeding import Fate, Hostile

from mlem_core.data import datasets

SHIPPED = Path(datasets.__file__).parent / "sets" / "treebank.conllu"
ID, FORM, LEMMA, UPOS, XPOS, FEATS, HEAD, DEPREL, DEPS, MISC = range(10)
Block = tuple[list[str], list[list[str]]]  # comments, and tokens of ten cells


def blocks_of(text: str, most: int) -> list[Block]:
    """The first plain sentences of a treebank: with a verb, a noun and no range."""
    blocks = []
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        tokens = [x.split("\t") for x in lines if x[0] != "#"]
        tags = {t[UPOS] for t in tokens}
        if all(t[ID].isdecimal() for t in tokens) and {"VERB", "NOUN"} < tags and len(tokens) > 3:
            blocks.append(([x for x in lines if x[0] == "#"], tokens))
    return blocks[:most]


def meaning(blocks: list[Block]) -> dict[str, list[Any]]:
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

    def some(self) -> int:
        """A sentence with the usual words."""
        return int(self.rng.integers(3, len(self.written) - 3))


def _line(
    column: int, to: str | Callable[[str], str], says: str = "", fate: Fate = "or said", **of: Any
):
    """One word's cell as something else; `meant` is what that means, else the line as it was."""

    def change(bank: Bank) -> None:
        at = bank.some()
        tokens = bank.written[at][1]
        word = next(i for i, t in enumerate(tokens) if t[UPOS] == of.get("upos", "VERB"))
        cell = to(tokens[word][column]) if callable(to) else to
        tokens[word][column] = cell
        if of.get("meant"):
            bank.meant[at][1][word][column] = of["meant"] if of["meant"] is not True else cell
        if of.get("gone"):
            del bank.meant[at]
        name = bank.written[at][0][0].split("= ")[1]
        bank.says, bank.fate = (says.format(name=name[:50]),) if says else (), fate

    return change


def _every(column: int, to: Callable[[str], str], says: str = "", **of: Any):
    def change(bank: Bank) -> None:
        for i, (_, tokens) in enumerate(bank.written):
            for j, token in enumerate(tokens):
                token[column] = to(token[column])
                if of.get("meant"):
                    bank.meant[i][1][j][column] = token[column]
        bank.says, bank.fate = (says,) if says else (), of.get("fate", "or said")

    return change


def _text(how: Callable[[str], str], fate: Fate = "read", says: str = ""):
    def change(bank: Bank) -> None:
        bank.as_bytes = lambda text: how(text).encode()
        bank.fate, bank.says = fate, (says,) if says else ()

    return change


def _encoded(encoding: str, says: str = "", extra: str = ""):
    def change(bank: Bank) -> None:
        if extra:
            _line(FORM, extra, meant=extra)(bank)
        bank.as_bytes = lambda text: text.encode(encoding)
        bank.says = (says,) if says else ()

    return change


def _comment(how: Callable[[Block], list[str]], says: str = ""):
    def change(bank: Bank) -> None:
        at = bank.some()
        comments, tokens = bank.written[at]
        name = comments[0].split("= ")[1]
        bank.written[at] = (how((comments, tokens)), tokens)
        bank.says = (says.format(name=name[:50]),) if says else ()

    return change


def _tokens(
    how: Callable[[list[list[str]]], list[list[str]]],
    says: str = "",
    fate: Fate = "or said",
    gone: bool = False,
):
    """The lines of a sentence otherwise."""

    def change(bank: Bank) -> None:
        at = bank.some()
        comments, tokens = bank.written[at]
        bank.written[at] = (comments, how([[*t] for t in tokens]))
        if gone:
            del bank.meant[at]
        name = comments[0].split("= ")[1]
        bank.says, bank.fate = (says.format(name=name[:50]),) if says else (), fate

    return change


def _again(how: Callable[[Block], Block], says: str):
    """A sentence comes a second time."""

    def change(bank: Bank) -> None:
        comments, tokens = bank.written[bank.some()]
        bank.written.append(how(([*comments], [[*t] for t in tokens])))
        bank.says = (says,)

    return change


def _with(token: list[str], **cells: str) -> list[str]:
    own = [*token]
    for name, cell in cells.items():
        own[globals()[name]] = cell
    return own


_NFD = "e\u0301lan"
CHANGES: dict[str, Callable[[Bank], None]] = {
    "nothing": lambda bank: setattr(bank, "fate", "read"),
    "CRLF": _text(lambda s: s.replace("\n", "\r\n")), "CR": _text(lambda s: s.replace("\n", "\r")),
    "BOM": _text("\ufeff{}".format), "no last line": _text(str.rstrip), "blank lines above":
    _text("\n\n{}".format), "two blank lines": _text(lambda s: s.replace("\n\n", "\n\n\n")),
    "blank lines with spaces": _text(lambda s: s.replace("\n\n", "\n \t\n")), "mixed ends":
    _text(lambda s: s.replace("\n", "\r\n", 40)), "spaces for tabs": _text(
    lambda s: s.replace("\t", "  "), "refused"), "one space for tabs": _text(
    lambda s: s.replace("\t", " "), "refused"), "no blank lines": _text(
    lambda s: s.replace("\n\n", "\n"), "refused"), "a blank line lost": _text(
    lambda s: s[:3000] + s[3000:].replace("\n\n", "\n", 1), "refused"), "nine columns":
    _text(lambda s: s.replace("\t_\n", "\n"), "refused"), "eleven": _text(
    lambda s: s.replace("\t_\n", "\t_\t_\n"), "refused"), "a tab at the end": _text(
    lambda s: s.replace("\t_\n", "\t_\t\n", 1), "refused"), "a space at the end": _text(
    lambda s: s.replace("\t_\n", "\t_ \n")), "cut amid a line": _text(
    lambda s: s[: s.rindex("\t") - 20], "refused"), "comment at the end": _text("{}# end\n".format),
    "no comments": _text(lambda s: "\n".join(x for x in s.split("\n") if x[:1] != "#") + "\n"),
    "comment amid words": _text(lambda s: s.replace("\n2\t", "\n# note\n2\t")),
    "columns named": _text(lambda s: "# global.columns = ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL "
    "DEPS MISC\n" + s), "other columns named": _text(lambda s: "# global.columns = ID FORM LEMMA "
    "XPOS UPOS FEATS HEAD DEPREL DEPS MISC\n" + s, "refused"), "a mark amid": _text(
    lambda s: s[:3000] + s[3000:].replace("\n\n# ", "\n\n\ufeff# ", 1), "or said"), "NUL": _text(
    lambda s: s.replace("\tVERB", "\tVE\0RB", 1), "refused"),
    **{f"encoding {e}": _encoded(e) for e in ("utf-16", "utf-8-sig", "utf-16-le", "utf-32")},
    "latin-1": _encoded("latin-1", "Windows-1252", "élan"), "cp1252": _encoded(
    "cp1252", "Windows-1252", "naïve"), "cp850": _encoded("cp850", "Windows-1252", "élan"),
    **{f"form {n}": _line(FORM, form, says, meant=True) for n, form, says in (
        ("two words", "New York", "with a space"), ("decomposed", _NFD, ""),
        ("emoji", "👍", ""),
        ("quote", '"', ""), ("hash", "#1", ""), ("zero inside", "a\u200bb", "U+200B"), ("soft",
        "a\u00adb", "U+00AD"), ("entity", "&amp;", "HTML"), ("number", "1,234", ""), ("dash", "-",
        ""),
        ("mojibake", "cafÃ©", "another encoding"), ("lost", "caf\ufffd", "U+FFFD"),
    )},
    "form hard space": _line(FORM, "10\u00a0000", "with a space"),
    "form _": _line(FORM, "_", meant=True), "lemma _": _every(LEMMA, lambda c: "_"),
    **{f"form without a sign {n}": _line(FORM, form, "{name}", gone=True) for n, form in (
        ("hard space", "\u00a0"), ("wide space", "\u3000"), ("zero", "\u200b"), ("empty", ""))},
    "forms hidden": lambda bank: (_every(FORM, lambda c: "_")(bank), setattr(bank, "fate",
    "refused"))[0],
    **{f"upos {n}": _line(UPOS, to, "upos") for n, to in (
        ("lower", "verb"), ("unknown", "VVFIN"), ("capital", "Verb"), ("space", "VERB X"))},
    "upos _": _line(UPOS, "_", "upos"), "upos empty": _line(UPOS, "", "upos"),
    "punct lower": _every(UPOS, lambda c: "punct" if c == "PUNCT" else c, "punct"),
    "upos all lower": _every(UPOS, str.lower, "noun"),
    "xpos": _every(XPOS, lambda c: "X|Y"), "deps": _every(DEPS, lambda c: "1:x|2:y", "enhanced"),
    "misc": _every(MISC, lambda c: c + "|Gloss=a|SpaceAfter=No" if c != "_" else "Gloss=x"),
    "misc odd": _every(MISC, lambda c: "free words|=|x="),
    "subtypes": _every(DEPREL, lambda c: c + ":sub"), "relation capital": _line(
    DEPREL, str.upper, "relation"), "relation _": _line(DEPREL, "_", "relation"),
    "relation space": _line(DEPREL, " {} ".format),
    **{f"feats {n}": _line(FEATS, to, fate="refused") for n, to in {
        "repeated": lambda c: "Number=Sing|" + c + "|Number=Plur", "no value":
        lambda c: c + "|Xyz"}.items()},
    **{f"feats {n}": _line(FEATS, to, fate="read") for n, to in {
        "unsorted": lambda c: "|".join(reversed(c.split("|"))),
        "spaces": lambda c: c.replace("|", " | ")}.items()},
    **{f"feats {n}": _line(FEATS, to) for n, to in {
        "lower name": lambda c: c.replace("Mood=", "mood="), "two equals": lambda c: c + "|A=B=C",
        "semicolons": lambda c: c.replace("|", ";"), "empty": lambda c: ""}.items()},
    "feats lower value": _line(FEATS, lambda c: c.replace("Tense=P", "Tense=p"), "tense"),
    "feats of two values": lambda bank: _two_values(bank),
    **{f"head {to}": _line(HEAD, to, fate="refused", upos="NOUN") for to in (
        "x", "+2", "02", "-1", "1.1", "٢")},
    **{f"head {n}": _line(HEAD, to, "{name}", upos=upos, gone=True) for n, to, upos in (
        ("beyond", "99", "VERB"), ("none", "_", "NOUN"), ("second root", "0", "NOUN"),
        ("empty", "", "NOUN"))},
    "circle": _tokens(lambda ts: [_with(t, HEAD="2" if i == 0 else "1" if i == 1 else t[HEAD])
                                  for i, t in enumerate(ts)], "{name}", gone=True),
    "no root": _tokens(lambda ts: [_with(t, HEAD="1" if t[HEAD] == "0" else t[HEAD]) for t in ts],
                       "{name}", gone=True),
    "ids from 0": _tokens(lambda ts: [_with(t, ID=str(i)) for i, t in enumerate(ts)], "",
    "refused"),
    "a gap in ids": _tokens(lambda ts: [_with(t, ID=str(i + (i > 2))) for i, t in enumerate(ts, 1)],
                            "", "refused"),
    "a word lost": _tokens(lambda ts: ts[:1] + ts[2:], "", "refused"),
    "the last word lost": _tokens(lambda ts: ts[:-1], "{name}"),
    "words swapped": _tokens(lambda ts: [ts[1], ts[0], *ts[2:]], "", "refused"),
    "ids with zeros": _tokens(lambda ts: [_with(t, ID=f"0{i}") for i, t in enumerate(ts, 1)], "",
    "refused"),
    "a word twice": _tokens(lambda ts: [ts[0], *ts], "", "refused"),
    "empty node": _tokens(lambda ts: [ts[0], _with(ts[0], ID="1.1", HEAD="_", DEPS="2:x"), *ts[1:]],
                          "empty node"),
    "empty node first": _tokens(lambda ts: [_with(ts[0], ID="0.1", HEAD="_", DEPS="2:x"), *ts],
    "empty node"),
    "empty node out of place": _tokens(lambda ts: [ts[0], _with(ts[0], ID="3.1"), *ts[1:]], "",
    "refused"),
    "range": _tokens(lambda ts: [["1-2", ts[0][FORM] + ts[1][FORM], *"________"], *ts],
    "multiword"),
    "ranges that overlap": _tokens(lambda ts: [["1-2", "x", *"________"], ts[0], ["2-3", "y",
    *"________"],
                                               *ts[1:]], "", "refused"),
    "range beyond": _tokens(lambda ts: [["1-99", "x", *"________"], *ts], "", "refused"),
    "range backwards": _tokens(lambda ts: [["2-1", "x", *"________"], *ts], "", "refused"),
    "range after its words": _tokens(lambda ts: [*ts, ["1-2", "x", *"________"]], "", "refused"),
    "text disagrees": _comment(lambda b: [b[0][0], "# text = quite another one"], "{name}"),
    "text lacks a word": _comment(lambda b: [b[0][0], b[0][1].rsplit(" ", 1)[0]], "{name}"),
    "text of other spaces": _comment(lambda b: [b[0][0], b[0][1].replace(" ", "  ")]),
    "no text": _comment(lambda b: b[0][:1]), "sent_id of another": _comment(
    lambda b: ["# sent_id = plain-01", b[0][1]]), "two texts": _comment(lambda b: [*b[0],
    "# text_en = x y"]),
    "sentence again": _again(lambda b: b, "1 sentence with a text"),
    "again, annotated otherwise": _again(lambda b: (b[0], [_with(t, UPOS="X") for t in b[1]]),
    "1 sentence"),
    "again in capitals": _again(lambda b: (b[0][:1], [_with(t,
    FORM=t[FORM].upper()) for t in b[1]]), "differ"),
}  # fmt: skip


def _two_values(bank: Bank) -> None:
    """Fem,Masc and Masc,Fem are one value."""
    for blocks, both in (
        (bank.written, ("Plur,Sing", "Sing,Plur")),
        (bank.meant, ("Plur,Sing",) * 2),
    ):
        n = 0
        for _, tokens in blocks:
            for t in tokens:
                if "Number=Sing" in t[FEATS] and t[UPOS] == "NOUN":
                    t[FEATS] = t[FEATS].replace("Number=Sing", f"Number={both[n % 2]}")
                    n += 1
    bank.fate = "read"


def plain(most: int) -> list[Block]:
    return blocks_of(unicodedata.normalize("NFC", SHIPPED.read_text()), most)


def text_of(blocks: list[Block]) -> str:
    return "".join("\n".join([*c, *map("\t".join, t)]) + "\n\n" for c, t in blocks)


def changed(seed: int, times: int = 2) -> Iterator[Hostile]:
    rng = np.random.default_rng(seed)
    for name, change in CHANGES.items():
        for number in range(times):
            bank = Bank(plain(60), plain(60), rng)
            change(bank)
            data = bank.as_bytes(text_of(bank.written))
            truth = meaning(bank.meant)
            yield Hostile(f"{name} ({number})", ".conllu", data, truth, bank.fate, bank.says)


def odd() -> Iterator[Hostile]:
    """Treebanks with any value in any column, and odd lines, of which nobody knows the meaning."""
    bank = text_of(plain(8))
    line = bank.splitlines()[2].split("\t")
    for column in range(10):
        for value in (
            "", "_", "0", "-1", "99", "1", "2", "x", "1-2", "1.1", "2-1", "9" * 30, "9" * 5_000,
            "=|=", "A=B|A=C", "a b", "\x00", "1:x|2:y", "\u2028", "\u00a0", "\u200b\u3000", "\x1b",
            "é" * 999, "|", "=",
        ):  # fmt: skip
            cells = [*line[:column], value, *line[column + 1 :]]
            data = bank.replace("\t".join(line), "\t".join(cells), 1).encode()
            yield Hostile(f"odd {value[:9]!r} in {column}", ".conllu", data, fate="any")
    rows = [f"w\tw\tX\t_\t_\t{i}\tdep\t_\t_" for i in range(60_000)]
    for name, text in {
        "empty": "", "csv": "sentence,x\na b,1\n", "nine": bank.replace("\t_\n", "\n"),
        "spaces": bank.replace("\t", "    "), "no lines": "\n" * 999,
        "no tree": bank.replace("\troot", "\tx").replace("\t0\t", "\t_\t"),
        "circle": bank.replace("\t0\t", "\t2\t"), "one": bank.split("\n\n")[0],
        "comment": "# a\n" * 99, "eleven": bank.replace("\t_\n", "\t_\t_\n"),
        "long": "\n".join(f"{i + 1}\tw{i}{row[1:]}" for i, row in enumerate(rows[:5_000])),
        "longer": "\n".join(f"{i}\t{row}" for i, row in enumerate(rows, 1)),
        "features": bank.replace("Num", "|".join(f"F{i}=a" for i in range(99_999)) + "|Num", 1),
    }.items():  # fmt: skip
        yield Hostile(f"odd {name}", ".conllu", text.encode(), fate="any")


def damages(seed: int, n: int) -> Iterator[Hostile]:
    good, pieces = (
        {".conllu": [text_of(plain(8)).encode()]},
        [b"\x00", b"\t", b"1-2", "\u2028".encode()],
    )
    for name, suffix, data in damaged_bytes(good, seed, n, pieces):
        yield Hostile(name, suffix, data, fate="any")
