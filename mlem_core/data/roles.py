"""What each column of a user's table is for, and a table to begin with.

A table whose columns have other names than the stimulus CSV becomes a `StimulusSet` once each
column has a role: the text, the word in it that is the stimulus, an ordered or a nominal feature,
what keeps stimuli together, or nothing.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import pandas as pd

from mlem_core.base.errors import InputError, unknown
from mlem_core.data.csvfile import NUMBER, read_rows, short, some
from mlem_core.data.stimuli import ITEM, StimulusSet
from mlem_core.data.stimulus_csv import from_frame, write_csv

# In the order in which a list shows them, each with the sentence that explains it.
ROLES = {
    "text": "The sentence. One column has this role.",
    "word": "Which word of the sentence is the stimulus: its number from 0, or the word itself.",
    "ordered": "A feature whose values are numbers; two differ by their distance.",
    "nominal": "A feature whose values are names; two differ or do not.",
    "group": "Stimuli with the same value stay together in every split.",
    "item": "What recurs from sentence to sentence, where that is not the word; intervals speak of "
    "other items too.",
    "ignore": "Carried along, but no feature.",
}

_TEXTS = ("sentence", "text", "sentences", "texts", "stimulus", "stimuli", "phrase")
_INDICES = ("word_index", "word_idx", "word_number", "position_in_sentence")
_WORDS = ("word", "target", "target_word", "token")
_GROUPS = ("sentence_id", "group", "item_id", "sentence_number")

# A small stimulus CSV to begin with: words, both kinds of features, and empty cells.
TEMPLATE = b"""\
sentence,word_index,part_of_speech,number,tense,word_length
the cat sleeps,1,noun,singular,,3
the cat sleeps,2,verb,singular,present,6
the cats slept,1,noun,plural,,4
the cats slept,2,verb,,past,5
a child sings loudly,1,noun,singular,,5
a child sings loudly,2,verb,singular,present,5
a child sings loudly,3,adverb,,,6
two birds sang,1,noun,plural,,5
two birds sang,2,verb,,past,4
"""


def read_table(source: str | Path | bytes | BinaryIO, name: str | None = None) -> pd.DataFrame:
    """The cells of a CSV as text (missing is None), whatever its columns are called.

    Raises
    ------
    InputError
        As `mlem_core.data.stimulus_csv.read_csv`, for the file itself; a column without a name or
        two with the same.
    """
    name, header, rows = read_rows(source, name)
    for position, column in enumerate(header, start=1):
        if not column or column in header[: position - 1]:
            problem = f"the name {column!r} twice" if column else "no name"
            raise InputError(
                f"column {position} of {name} has {problem} in the header; every column needs a "
                "name of its own."
            )
    return pd.DataFrame(rows, columns=header, dtype=object)


def guess_roles(table: pd.DataFrame) -> dict[str, str]:
    """A role of `ROLES` for each column, from its name and its values.

    Parameters
    ----------
    table : of `read_table`, or of a `StimulusSet`
    """
    roles = {}
    names = [str(column) for column in table.columns]
    text = _first(names, _TEXTS)
    word = _first(names, _INDICES) or _first(names, _WORDS)
    group = _first(names, _GROUPS)
    if text is None:
        # The column with the most words is the sentence.
        words = {name: _mean_words(table[name]) for name in names}
        longest = max(names, key=lambda name: words[name], default=None)
        text = longest if longest is not None and words[longest] >= 2 else None
    for name in names:
        cells = [str(cell).strip() for cell in table[name] if not pd.isna(cell)]
        cells = [cell for cell in cells if cell]
        if name == text:
            roles[name] = "text"
        elif name == word:
            roles[name] = "word"
        elif name == group:
            roles[name] = "group"
        elif name == ITEM:
            roles[name] = "item"
        elif name.startswith("_") or name in _WORDS or len(set(cells)) < 2:
            roles[name] = "ignore"
        else:
            numbers = all(NUMBER.fullmatch(cell) for cell in cells)
            roles[name] = "ordered" if numbers else "nominal"
    return roles


def apply_roles(
    table: pd.DataFrame | StimulusSet, roles: Mapping[str, str], name: str = "the CSV"
) -> StimulusSet:
    """The stimuli that a table is with these roles of its columns.

    The text becomes the column `sentence`, the word `word_index`, the group `sentence_id`, the
    item `item`; what is ignored keeps its name with an underscore in front.

    Parameters
    ----------
    table : of `read_table`, or stimuli whose columns get other roles
    roles : column -> one of `ROLES`; a column that is not named keeps the role that is guessed
    name : how messages call the set

    Raises
    ------
    InputError
        An unknown column or role; no text or more than one; a word that is not in its sentence, or
        is there twice; and as `mlem_core.data.stimulus_csv.from_frame`.
    """
    if isinstance(table, StimulusSet):
        name = table.name if name == "the CSV" else name
        kinds: dict[str, str] = {feature.name: feature.kind for feature in table.features}
        table = table.table
        guessed = {**guess_roles(table), **kinds}
    else:
        guessed = guess_roles(table)
    names = [str(column) for column in table.columns]
    for column, role in roles.items():
        if column not in names:
            raise unknown("column", column, names)
        if role not in ROLES:
            raise unknown("role of a column", role, ROLES)
    chosen = {**guessed, **roles}
    by: dict[str, list[str]] = {role: [] for role in ROLES}
    for column in names:
        by[chosen[column]].append(column)
    once = {"text": "sentence", "word": "word", "group": "group", "item": "item"}
    for role, what in once.items():
        if len(by[role]) > 1:
            raise InputError(
                f"the columns {some(by[role])} of {name} are all said to be the {what}; choose one "
                "of them and ignore the others."
            )
    if not by["text"]:
        raise InputError(
            f"no column of {name} is said to be the text; choose one of {some(names)}."
        )
    sentences = table[by["text"][0]]
    columns: dict[str, object] = {"sentence": sentences}
    if by["word"]:
        columns["word_index"] = _word_index(table[by["word"][0]], sentences, by["word"][0])
    if by["group"]:
        columns["sentence_id"] = table[by["group"][0]]
    if by["item"]:
        columns[ITEM] = table[by["item"][0]]
    taken = {"sentence", "word_index", "word", "sentence_id", ITEM}
    for column in [*by["ordered"], *by["nominal"]]:
        if column in taken or column.startswith("_"):
            raise InputError(
                f"the column {column!r} of {name} cannot be a feature under this name (names of "
                "features begin with no underscore and are none of "
                f"{', '.join(sorted(taken))}); rename it."
            )
    for column in names:
        if chosen[column] in ("ordered", "nominal"):
            columns[column] = table[column]
        elif chosen[column] == "ignore":
            carried = column if column.startswith("_") else f"_{column}"
            while carried in names and carried != column:
                carried = f"_{carried}"
            columns[carried] = table[column]
    return from_frame(pd.DataFrame(columns), name, ordered=by["ordered"], nominal=by["nominal"])


def as_csv(stimuli: StimulusSet) -> bytes:
    """Stimuli as the content of a stimulus CSV."""
    file = io.BytesIO()
    write_csv(stimuli, file)
    return file.getvalue()


def _first(names: list[str], known: tuple[str, ...]) -> str | None:
    plain = {name.strip().casefold().replace(" ", "_"): name for name in reversed(names)}
    return next((plain[one] for one in known if one in plain), None)


def _mean_words(column: pd.Series[str]) -> float:
    cells = [len(str(cell).split()) for cell in column if not pd.isna(cell)]
    return sum(cells) / max(1, len(cells))


def _word_index(column: pd.Series[str], sentences: pd.Series[str], name: str) -> list[str]:
    cells = ["" if pd.isna(cell) else str(cell).strip() for cell in column]
    if all(NUMBER.fullmatch(cell) for cell in cells):
        return cells
    indices = []
    for row, (cell, sentence) in enumerate(zip(cells, sentences, strict=True), start=1):
        words = [_bare(word) for word in str(sentence).split()]
        at = [i for i, word in enumerate(words) if word == _bare(cell)]
        if len(at) != 1:
            times = "does not occur" if not at else f"occurs {len(at)} times"
            raise InputError(
                f"the word {short(cell)} in row {row} of the column {name!r} {times} in "
                f"{short(str(sentence))}; give the number of the word, from 0."
            )
        indices.append(str(at[0]))
    return indices


def _bare(word: str) -> str:
    return word.strip(".,;:!?\"'()[]«»“”‘’").casefold() or word
