"""Minimal pairs among the sentences of a set: a word, and the form that would be wrong there.

Two sentences differ in two words, and the later is one word in two forms: "he does smile" and "we
do smile". Each gives the context in which the form of the other is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlem_core.base.typing import IntArray
from mlem_core.data.stimuli import StimulusSet

FEWEST = 10


class Forms(NamedTuple):
    """Contexts with a right and a wrong form.

    sentences : the context with the right form, then each with the wrong one: (2 · n,) words, the
        last one of those that differ
    rows : (n,) the stimulus with the right form, or whose sentence has it
    """

    sentences: StimulusSet
    rows: IntArray


def minimal_pairs(stimuli: StimulusSet, feature: str) -> Forms | None:
    """The contexts in which a feature decides the form of a word; None with fewer than `FEWEST`.

    Of words, the two that differ have the same value of the feature in a sentence; of sentences,
    all other features are the same.
    """
    groups: dict[tuple[int, int, tuple[str, ...]], list[tuple[str, ...]]] = defaultdict(list)
    rows = _rows(stimuli)
    for words in dict.fromkeys(tuple(sentence.split()) for sentence in stimuli.sentences):
        for p, q in combinations(range(len(words)), 2):
            same = (*words[:p], "", *words[p + 1 : q], "", *words[q + 1 :])
            groups[p, q, same].append(words)
    values, found = _values(stimuli, feature), dict[tuple[str, int, str], int]()
    for (p, q, _), group in groups.items():
        for a, b in combinations(group, 2):
            one_word = a[q].startswith(b[q]) or b[q].startswith(a[q])
            if not one_word or a[p] == b[p] or a[q] == b[q]:
                continue
            for right, other in ((a, b), (b, a)):
                row, of_other = (rows.get((" ".join(each), q)) for each in (right, other))
                if row is None or of_other is None or not _decides(values, row, of_other):
                    continue
                if stimuli.word_index is not None:
                    before = rows.get((" ".join(right), p))
                    if before is None or values[0][before] != values[0][row]:
                        continue
                found[" ".join(right), q, other[q]] = row
    if len(found) < FEWEST:
        return None
    right, index, forms = zip(*found, strict=True)
    wrong = [
        " ".join((*sentence.split()[:at], form, *sentence.split()[at + 1 :]))
        for sentence, at, form in zip(right, index, forms, strict=True)
    ]
    table = pd.DataFrame({"sentence": [*right, *wrong], "word_index": [*index, *index]})
    both = StimulusSet(
        stimuli.name, table, (), table["word_index"].to_numpy(np.int64), np.arange(len(table))
    )
    return Forms(both, np.array(list(found.values())))


def _rows(stimuli: StimulusSet) -> dict[tuple[str, int], int]:
    """The stimulus at each word of a sentence; of whole sentences at every word theirs."""
    own = [" ".join(sentence.split()) for sentence in stimuli.sentences]
    if stimuli.word_index is not None:
        return {
            at: row for row, at in enumerate(zip(own, stimuli.word_index.tolist(), strict=True))
        }
    return {(text, q): row for row, text in enumerate(own) for q in range(len(text.split()))}


def _values(stimuli: StimulusSet, feature: str) -> tuple[list[object], list[tuple[object, ...]]]:
    """The feature of each stimulus; of whole sentences also the others, else nothing."""
    others = [
        stimuli.values(one.name).tolist()
        for one in stimuli.features
        if one.name != feature and stimuli.word_index is None
    ]
    own = stimuli.values(feature).tolist()
    return own, list(zip(*others, strict=True)) or [()] * len(own)


def _decides(values: tuple[list[object], list[tuple[object, ...]]], a: int, b: int) -> bool:
    own, others = values
    there = all(own[row] is not None and own[row] == own[row] for row in (a, b))
    return there and own[a] != own[b] and others[a] == others[b]
