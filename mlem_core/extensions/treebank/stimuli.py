"""A treebank as stimuli: its words, or its sentences, with the features of its annotation.

Words. A stimulus is a written word (`word_index` counts these; see `conllu` for how a
sentence is written). Punctuation is none, nor are the parts of a multiword token. The features:

- `upos`, and each morphological feature with two values that are frequent enough, under its name
  (`Tense` is `tense`, `VerbForm` is `verb_form`), missing where a word has none;
- `relation` to the head, without subtype; `head_distance`, how many syntactic words away the head
  is; `head_direction`, before or after; both missing for the root. Distance and direction are two
  features, as one signed number would call a head three words before and one three words after
  more different than heads one and three words before;
- `depth`, the arcs up to the root; `word_position`, `word_length`, `sentence_length`.

`item`, what recurs from sentence to sentence, is the lemma: intervals and folds over items then
speak of lemmas that were not seen, in none of their forms. The document (the comment `newdoc`) is
carried along: it recurs too.

Sentences. `sentence_length`, `depth` (of the deepest word), `n_clauses` (the root; each word whose
relation is csubj, ccomp, xcomp, advcl, acl or parataxis; each conjunct with a subject of its own)
and `root_tense` (of the finite verb of the main clause: the root, else its auxiliary or copula).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlem_core.base.errors import InputError, check_choice, unknown
from mlem_core.base.resources import check_memory
from mlem_core.base.text import listed, many, short, some
from mlem_core.extensions.treebank.conllu import NO_VALUE, Sentence, Treebank, read_sentences
from mlem_core.extensions.treebank.options import LEVELS
from mlem_core.stimuli import table_warnings as doubts
from mlem_core.stimuli.columns import NUMBER, texts
from mlem_core.stimuli.datasets import SETS, BuiltInSet
from mlem_core.stimuli.formats import FORMATS, StimulusFormat
from mlem_core.stimuli.reading.content import Source
from mlem_core.stimuli.stimulus_csv import CARRIED, from_frame
from mlem_core.stimuli.stimulus_set import UNIT, StimulusSet, bare, count_words

SUFFIX = ".conllu"
# Of a larger treebank a sample is taken where none is asked for: about as many as `probing` has.
SAMPLE = 2_000
# A value is frequent enough if so many stimuli, and this share of them, have it.
FREQUENT = 2
FREQUENT_SHARE = 0.01
_COPIES = 4  # of the text of each row, while it is checked
# So many sentences, drawn at random, are compared at each step where features are balanced.
CANDIDATES = 100

_CLAUSAL = frozenset({"csubj", "ccomp", "xcomp", "advcl", "acl", "parataxis"})
_SUBJECTS = frozenset({"nsubj", "csubj", "expl"})
_OWN = ("upos", "relation", "head_distance", "head_direction", "depth")
_COUNTED = ("word_position", "word_length", "sentence_length")
_NOMINAL = ("upos", "relation", "head_direction", "root_tense")


def read_treebank(
    sources: Source | Sequence[Source],
    level: str = "word",
    n: int | None = None,
    balance: Sequence[str] = (),
    seed: int = 0,
    encoding: str | None = None,
) -> StimulusSet:
    """The words, or the sentences, of CoNLL-U files as stimuli.

    Parameters
    ----------
    sources : a path, a content or a binary file, or several
    level : "word" or "sentence"
    n : stimuli of a sample, in whole sentences; by default all, or `SAMPLE` of more
    balance, seed : of the sample, see `sample_rows`
    encoding : by default it is detected

    Raises InputError: a file cannot be read or is no CoNLL-U; an unknown level or feature to
    balance; no stimulus.

    Examples
    --------
    >>> row = "{}\\t{}\\t_\\t{}\\t_\\t_\\t{}\\tdep\\t_\\t_\\n"
    >>> text = row.format(1, "birds", "NOUN", 2) + row.format(2, "sing", "VERB", 0) + "\\n"
    >>> len(read_treebank([text.encode()]))
    2
    """
    check_choice("level of stimuli", level, LEVELS)
    several = isinstance(sources, Sequence) and not isinstance(sources, str | bytes)
    files = cast("Sequence[Source]", sources if several else [sources])
    if not files:
        raise InputError(f"there is no {SUFFIX} file; expected at least one.")
    bank = read_sentences(files, encoding)
    _check_features(bank)
    rows = _word_rows(bank) if level == "word" else _sentence_rows(bank)
    if len(rows) < 2:
        raise InputError(f"{bank.name} has {many(len(rows), level)}; at least 2 are needed.")
    frame = pd.DataFrame(rows, dtype=object)
    # How messages and lists order them: as they first occur.
    groups = np.asarray(pd.factorize(frame["sentence"])[0], dtype=np.int64)
    notes = bank.notes()
    n = min(SAMPLE, len(frame)) if n is None else n
    kept = sample_rows(frame, groups, n, balance, seed)
    if len(kept) < len(frame):
        even = f", balanced by {listed(balance)}" if balance else ""
        notes.append(
            f"A sample of {len(kept):,} of its {len(frame):,} {level}s, in whole sentences "
            f"(seed {seed}{even})."
        )
    frame = frame.iloc[kept].reset_index(drop=True)
    what = f"the text of {many(len(frame), level)} of {bank.name}, each with its sentence,"
    check_memory(_COPIES * sum(map(len, frame["sentence"])), what, "choose a smaller sample")
    morphological = {_feature_name(name) for name in bank.features if level == "word"}
    frame, dropped = _features(frame, morphological)
    if dropped:
        notes.append(f"No features: {listed(dropped)}, as no two values are frequent enough.")
    nominal = [name for name in frame if name in _NOMINAL or name in morphological]
    notes += doubts.sentence_findings(frame["sentence"].tolist())
    for name in ("sentence", *nominal):
        notes += doubts.spelling_finding(f"the column {short(str(name))}", texts(frame[name]))
    return replace(from_frame(frame, bank.name, nominal=nominal), notes=tuple(notes))


def _word_rows(bank: Treebank) -> list[dict[str, Any]]:
    rows = []
    for sentence in bank.sentences:
        words = sentence.text.split()
        length = count_words(sentence.text)
        depths = sentence.depths() if sentence.has_tree else None
        for number, token in enumerate(sentence.tokens, start=1):
            if token.place is None or token.upos == "PUNCT":
                continue
            word, head = words[token.place], token.head
            direction = ("before" if head < number else "after") if head else None
            rows.append(
                {
                    "sentence": sentence.text,
                    "word_index": token.place,
                    "word": word,
                    "item": bare(token.lemma or token.form),
                    "upos": None if token.upos == NO_VALUE else token.upos,
                    **{_feature_name(name): _value(name, v) for name, v in token.feats.items()},
                    "relation": token.relation,
                    "head_distance": abs(head - number) if head else None,
                    "head_direction": direction,
                    "depth": None if depths is None else depths[number - 1],
                    "word_position": token.place,
                    "word_length": len(bare(word)),
                    "sentence_length": length,
                    "_sent_id": sentence.name,
                    **_document(sentence),
                }
            )
    return rows


def _sentence_rows(bank: Treebank) -> list[dict[str, Any]]:
    rows = []
    for sentence in bank.sentences:
        row: dict[str, Any] = {
            "sentence": sentence.text,
            "sentence_length": count_words(sentence.text),
        }
        if sentence.has_tree:
            deep = zip(sentence.depths(), sentence.tokens, strict=True)
            row["depth"] = max((d for d, token in deep if token.upos != "PUNCT"), default=0)
            row["n_clauses"] = count_clauses(sentence)
            row["root_tense"] = root_tense(sentence)
        rows.append({**row, "_sent_id": sentence.name, **_document(sentence)})
    return rows


def _document(sentence: Sentence) -> dict[str, str]:
    """The column that says which document a sentence is of, where the file does."""
    return {f"{UNIT}document": sentence.document} if sentence.document else {}


def count_clauses(sentence: Sentence) -> int:
    """The clauses of a sentence with a tree, see the module's head."""
    with_subject = {t.head for t in sentence.tokens if t.relation in _SUBJECTS}
    return sum(
        token.head == 0
        or token.relation in _CLAUSAL
        or (token.relation == "conj" and number in with_subject)
        for number, token in enumerate(sentence.tokens, start=1)
    )


def root_tense(sentence: Sentence) -> str | None:
    """The tense of the finite verb of the main clause; None where it has none."""
    number, root = next((n, t) for n, t in enumerate(sentence.tokens, start=1) if t.head == 0)
    helpers = [t for t in sentence.tokens if t.head == number and t.relation in ("aux", "cop")]
    finite = [t for t in (root, *helpers) if t.feats.get("VerbForm") == "Fin"]
    tenses = [t.feats["Tense"] for t in (*finite, root) if "Tense" in t.feats]
    return tenses[0] if tenses else None


@cache
def _feature_name(name: str) -> str:
    """`VerbForm` as `verb_form`, `Number[psor]` as `number_psor`."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])|\W+", "_", name).strip("_").lower()
    taken = (*CARRIED, *_OWN, *_COUNTED)
    return f"{plain}_feature" if plain in taken or not plain else plain


def _check_features(bank: Treebank) -> None:
    """Raise where two morphological features would be one column."""
    for name, own in groupby(sorted(bank.features, key=_feature_name), _feature_name):
        if len(same := [*own]) > 1:
            raise InputError(
                f"the features {some(same)} of {bank.name} would both be called {name!r}; rename "
                "one of them."
            )


def _value(name: str, value: str) -> str:
    """A value that a reader of the CSV takes for a name, too: "person 1"."""
    return f"{_feature_name(name)} {value}" if NUMBER.fullmatch(value) else value


def _features(frame: pd.DataFrame, morphological: set[str]) -> tuple[pd.DataFrame, list[str]]:
    """The frame in the order of the module's head, with the features that can be used."""
    least = max(FREQUENT, FREQUENT_SHARE * len(frame))
    dropped = []
    for name in [str(column) for column in frame]:
        if name in CARRIED or name.startswith("_"):
            continue
        counts = frame[name].value_counts()
        enough = (counts >= least).sum() if name in morphological else len(counts)
        if enough < 2:
            dropped.append(name)
    frame = frame.drop(columns=dropped)
    names = [str(name) for name in frame]
    first = [name for name in names if name in CARRIED or name == "upos"]
    kept = sorted(morphological.intersection(names))
    rest = [name for name in names if name not in (*first, *kept)]
    return frame[[*first, *kept, *rest]], sorted(dropped)


def sample_rows(
    frame: pd.DataFrame,
    groups: NDArray[np.int64],
    n: int,
    balance: Sequence[str] = (),
    seed: int = 0,
) -> NDArray[np.int64]:
    """Rows of a sample: (n_sampled,), ascending; all of a group or none.

    Groups are drawn at random until at least `n` rows are there. To balance features, of
    `CANDIDATES` groups drawn at each step the one is taken that brings the values of each feature
    (missing ones left out) closest to being equally frequent, by the sum of squared differences of
    their shares.

    Parameters
    ----------
    frame : a row a stimulus
    groups : (n_stimuli,) codes 0.. of what stays together
    n : how many rows at least; all where there are no more
    balance : columns of `frame`

    Raises InputError: a sample of fewer than 2 stimuli; an unknown column to balance.
    """
    if n < 2:
        raise InputError(f"found a sample of {n} stimuli; at least 2 are needed to compare.")
    for name in balance:
        if name not in frame:
            raise unknown("feature to balance", name, [str(column) for column in frame])
    if n >= len(frame):
        return np.arange(len(frame))
    rng = np.random.default_rng(seed)
    order = rng.permutation(int(groups.max()) + 1)
    if not balance:
        last = int(np.searchsorted(np.cumsum(np.bincount(groups)[order]), n)) + 1
        chosen = order[:last]
    else:
        chosen = _balanced(frame[[*balance]], groups, n, rng)
    return np.flatnonzero(np.isin(groups, chosen))


def _balanced(
    features: pd.DataFrame, groups: NDArray[np.int64], n: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    # How often a group has each value of a feature: (n_groups, n_values).
    counts = []
    for _, values in features.items():
        codes = pd.Series(pd.factorize(values)[0])
        table = pd.get_dummies(codes.where(codes >= 0)).groupby(groups).sum()
        counts.append(table.to_numpy(np.float64))
    sizes = np.bincount(groups)
    left = np.arange(len(sizes))
    sums = [np.zeros(table.shape[1]) for table in counts]
    chosen: list[int] = []
    total = 0
    while total < n:
        places = rng.permutation(len(left))[:CANDIDATES]
        candidates = left[places]
        cost = np.zeros(len(candidates))
        for table, so_far in zip(counts, sums, strict=True):
            with_it = so_far + table[candidates]
            shares = with_it / np.maximum(with_it.sum(axis=1, keepdims=True), 1)
            cost += ((shares - 1 / max(1, shares.shape[1])) ** 2).sum(axis=1)
        best = int(np.argmin(cost))
        group = int(candidates[best])
        for table, so_far in zip(counts, sums, strict=True):
            so_far += table[group]
        chosen.append(group)
        total += int(sizes[group])
        left = np.delete(left, places[best])
    return np.array(chosen)


def _read_files(paths: Sequence[Path], source: Any) -> StimulusSet:
    sample = source.sample, source.balance, source.sample_seed
    return read_treebank(paths, source.level, *sample, source.encoding)


def _read_set(entry: BuiltInSet) -> StimulusSet:
    return replace(read_treebank(entry.file), name=entry.name, notes=())


FORMATS.register(
    StimulusFormat(
        "treebank",
        (SUFFIX,),
        _read_files,
        ("encoding", "level", "sample", "balance", "sample_seed"),
        reads_folders=True,
    )
)
SETS.register(BuiltInSet("treebank", Path(__file__).parent / "treebank.conllu", read=_read_set))
