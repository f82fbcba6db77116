"""The roles of the columns of a user's table, the stimuli that follow, and a table to begin with.

A table whose columns have other names than the stimulus CSV becomes a `StimulusSet` once each
column has a role: the sentence, the word in it that is the stimulus, an ordered or a nominal
feature, what keeps stimuli together, or nothing. A column that is called as the contract has it
has that role.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.parameters import split_names
from mlem_core.base.text import listed, short, some
from mlem_core.stimuli import table_warnings as doubts
from mlem_core.stimuli import word_numbers
from mlem_core.stimuli.columns import NUMBER, Cells, Kind, guess_kind, missing_marks, texts
from mlem_core.stimuli.presentation import presented_cells, with_blocks
from mlem_core.stimuli.reading.content import ReadAs, Source
from mlem_core.stimuli.reading.table import (
    DETECTED,
    SPAN,
    Table,
    carried_name,
    has_events,
    having,
    read_table,
    with_words,
)
from mlem_core.stimuli.stimulus_csv import CARRIED, from_cells
from mlem_core.stimuli.stimulus_set import (
    BLOCK,
    ITEM,
    ORDER,
    RUN,
    SESSION,
    SPLIT,
    UNIT,
    StimulusSet,
    occurrences,
)
from mlem_core.stimuli.table_warnings import Doubt
from mlem_core.stimuli.word_numbers import AUTO, COUNTS_FROM

# In the order in which a list shows them, each with the sentence that explains it.
ROLES = {
    "sentence": "The sentence. One column has this role.",
    "stimulus": "The name of a stimulus that is no text, in the place of the sentence.",
    "word_index": "Which word of the sentence is the stimulus: its number, or the word.",
    "ordered": "A feature whose values are numbers; two differ by their distance.",
    "nominal": "A feature whose values are names; two differ or do not.",
    "sentence_id": "Stimuli with the same value stay together in every split.",
    "run": "The run, scan or list in which the stimulus came; a fold has whole runs.",
    "session": "The session, day or visit; the numbers of its runs are its own.",
    "block": "Neighbours of one run that stay together in every split and are drawn together.",
    "order": "When the stimulus came, a number or a time stamp: neighbours stay together.",
    "split": "The fold that tests a stimulus, or train and test; it is taken as given.",
    "item": "What recurs from sentence to sentence, where that is not the word; intervals speak of "
    "other items too.",
    "unit": "What recurs too, such as the document, the speaker or the scene: no feature, but what "
    "labels without meaning would explain may follow it.",
    "word": "The word that word_index counts to, to check it. Where no column is the sentence, "
    "sentences are put together from the words of each sentence_id.",
    "start_idx": "The character with which the word begins in its sentence, from 0.",
    "end_idx": "The character after the word; with start_idx it does in the place of word_index.",
    "ignore": "Carried along, but no feature.",
}
FEATURES = ("ordered", "nominal")
_SENTENCES = ("sentence", "text", "sentences", "texts", "stimulus", "stimuli", "phrase")
_INDICES = ("word_index", "word_idx", "word_number", "position_in_sentence")
_PLACES = ("position", "word_position", "index")  # or a feature
_WORDS = ("word", "target", "target_word", "token")
_NAMES = ("stimulus", "stimuli")  # or sentences
_NAME = re.compile(r"\S+|.*\.\w{2,4}")
# A column of fewer different values is not guessed to be the sentence.
_FEW = 5
_GROUPS = ("sentence_id", "group", "item_id", "sentence_number")
# Columns of these names say when a stimulus came, or in which fold it is.
_PRESENTED = {
    "run": ("run", "run_id", "run_number"),
    "session": ("session", "session_id", "session_number"),
    "block": ("block", "block_id", "block_number"),
    "order": ("onset", "trial", "trial_number", "trial_index", "presentation_order"),
    "split": ("split",),
}
# Columns of BIDS' events.tsv that say nothing of a stimulus but when it came, or its code.
_OF_EVENTS = ("duration", "sample", "response_time", "value", "stim_file", "HED")
# The columns in which they stand in the stimulus CSV.
_COLUMNS = {"run": RUN, "session": SESSION, "block": BLOCK, "order": ORDER, "split": SPLIT}

# A small stimulus CSV to begin with: words, both kinds of features, and empty cells.
TEMPLATE = (Path(__file__).parent / "sets" / "template.csv").read_bytes()


def guess_roles(table: Table) -> dict[str, str]:
    """A role of `ROLES` for each column, from its name and its values.

    Parameters
    ----------
    table : of `read_table`
    """
    frame, names = table.frame, [str(column) for column in table.frame.columns]
    sentence = _first(names, _SENTENCES)
    special: dict[str | None, str] = {_first(names, _GROUPS): "sentence_id", ITEM: "item"}
    special |= _presented_roles(table)
    if has_events(table):
        special |= {**dict.fromkeys(_OF_EVENTS, "ignore"), "onset": "order"}
        if sentence is None and "word" not in names:
            return _with_features(table, special)
    if sentence is None:
        # The column with the most words is the sentence, unless it is carried along.
        words = {name: _mean_words(frame[name]) for name in names if not name.startswith("_")}
        longest = max(words, key=lambda name: words[name], default=None)
        sentence = longest if longest is not None and words[longest] >= 2 else None
    if sentence and _first([sentence], _NAMES):
        # Names, where most cells are single words, or paths of files.
        cells = [cell.strip() for cell in frame[sentence] if cell]
        if sum(bool(_NAME.fullmatch(cell)) for cell in cells) > len(frame) / 2:
            return _with_features(table, special | {sentence: "stimulus"})
    index, word = _first(names, _INDICES), _first(names, _WORDS)
    inside = word and sentence and _share_inside(frame[word], frame[sentence]) >= 0.5
    if index is None and inside:
        index = _find_word_numbers(table, str(word), str(sentence))
    span = SPAN if set(SPAN) <= set(names) else ()
    if word and _first(names, _GROUPS) and _first(names, _SENTENCES) is None and not inside:
        # A word a row, and no sentence.
        return _with_features(
            table, dict.fromkeys([index, *span], "ignore") | special | {word: "word"}
        )
    # Characters say which word it is, where nothing else does.
    special |= {name: name if index is None and sentence else "ignore" for name in span}
    if index is None and sentence is not None and not span:
        # A column of words does, if they are words of the sentence; beside a number it checks it.
        place = None if word else _first(names, _PLACES)
        numbered = place and word_numbers.numbers_words(texts(frame[place]), texts(frame[sentence]))
        index = word if inside else place if numbered else None
    special = {sentence: "sentence", index: "word_index"} | special
    if inside and index != word:
        special[word] = "word"
    return _with_features(table, special)


def _presented_roles(table: Table) -> dict[str | None, str]:
    """Roles of the columns whose names say when a stimulus came, where their cells can be that."""
    names, roles = [str(column) for column in table.frame.columns], dict[str | None, str]()
    for role, known in _PRESENTED.items():
        column = _first(names, (*known, _COLUMNS[role]))
        if column is None:
            continue
        cells = [(cell or "").strip() for cell in texts(table.frame[column])]
        if role == "order":
            fits = all(map(NUMBER.fullmatch, cells)) and _ascends(cells)
        else:
            fits = all(cells) and 1 < len(set(cells)) < len(cells)
        if fits:
            roles[column] = role
    return roles


def _ascends(cells: Sequence[str]) -> bool:
    """Whether numbers grow from row to row, but for where another run begins."""
    return bool(np.mean(np.diff(np.array(cells, dtype=np.float64)) > 0) > 0.9)


def _with_features(table: Table, special: Mapping[str | None, str]) -> dict[str, str]:
    """A role for each column, of those without a special one by their values."""
    names, roles = [str(column) for column in table.frame.columns], {}
    for name in names:
        if name in special and name not in table.nameless:
            roles[name] = special[name]
        elif name.startswith(UNIT):
            roles[name] = "unit"
        elif name == "word":
            roles[name] = "word"
        elif name in table.nameless or name.startswith("_") or name in _WORDS:
            roles[name] = "ignore"
        else:
            cells, known = table.values(name), table.kinds.get(name)
            roles[name] = "ignore" if _no_feature(cells, known) else known or guess_kind(cells)
    return roles


def _no_feature(cells: Cells, known: Kind | None) -> str:
    """Why cells can be no feature, in a clause; "" if they can. `known` is their kind in a file."""
    present = [cell for cell in cells if cell is not None]
    values, ordered = set(present), guess_kind(cells) == "ordered"
    if ordered and all(map(NUMBER.fullmatch, values)):
        values = {str(float(value)) for value in values}
    if len(values) < 2:
        return "has one value only"
    # Numbers of an odd form are said to be, unless the file declares them to be text.
    text = known == "nominal" or not (ordered or any(map(NUMBER.fullmatch, values)))
    if text and len(values) == len(present) >= _FEW:
        if all(map(NUMBER.fullmatch, values)):
            return "has numbers that the file declares as text (ordered takes them as numbers)"
        return "has another value in each row"
    if text and len(values) > max(20, len(present) / 2) and all(len(v.split()) > 1 for v in values):
        return "has texts that seldom recur"
    return ""


def apply_roles(
    table: Table,
    roles: Mapping[str, str] | None = None,
    ordered: Iterable[str] = (),
    nominal: Iterable[str] = (),
    counts_from: str = AUTO,
) -> StimulusSet:
    """The stimuli that a table is with these roles of its columns.

    The sentence becomes the column `sentence`, the word `word_index`, the group `sentence_id`, the
    item `item`; what is ignored keeps its name with an underscore in front, a unit with `_unit_`.
    In features the missing-value marks become missing values.

    Parameters
    ----------
    table : of `read_table`
    roles : column -> one of `ROLES`; a column that is not named keeps the role that is guessed
    ordered, nominal : columns of these kinds, if they are features; of others it says nothing
    counts_from : one of `COUNTS_FROM`, the number of the first word of a sentence

    Raises InputError: an unknown column or role; no sentence or more than one; a word that is not
    in its sentence, or is there twice; and as `from_frame`.
    """
    requested = dict(roles or {})
    for column, role in requested.items():
        check_choice("column", column, [str(name) for name in table.frame])
        check_choice("role of a column", role, ROLES)
    column_roles = guess_roles(table) | requested
    # Their cells stay as the file has them: 01 and 1 are two names.
    kinds = {**dict.fromkeys(nominal, "nominal"), **dict.fromkeys(ordered, "ordered")}
    requested |= {name: kind for name, kind in kinds.items() if column_roles.get(name) in FEATURES}
    check_choice("number of the first word", counts_from, COUNTS_FROM)
    if not having(column_roles, "word_index"):
        counts_from = "0"  # as words are counted here
    about_words: list[Doubt] = []
    table, column_roles, notes = with_words(table, column_roles | requested)
    _check_roles(column_roles, table.name)
    columns: dict[str, list[str | None]] = {}
    missing: dict[str, None] = {}  # in the order in which they occur
    for column, role in ((str(name), column_roles[str(name)]) for name in table.frame):
        cells = texts(table.frame[column])
        if role == "word_index":
            sentences = texts(table.frame[having(column_roles, "sentence")[0]])
            words = [
                cell for name in having(column_roles, "word") for cell in texts(table.frame[name])
            ]
            numbers, about_words = word_numbers.word_indices(
                cells, sentences, words, column, counts_from
            )
            cells = [*numbers]
        elif role in FEATURES:
            marks = missing_marks(cells, table.read_as.missing)
            stripped = ((cell or "").strip() for cell in dict.fromkeys(cells))
            missing |= dict.fromkeys(cell for cell in stripped if cell in marks)
            cells = table.values(column)
        elif role == "unit":
            column = column if column.startswith(UNIT) else UNIT + column.lstrip("_")
        elif role in _COLUMNS:
            cells = presented_cells(cells, column, role)
            column = _COLUMNS[role]
        elif role in ("ignore", *SPAN):
            column = carried_name(column, list(column_roles))
        if role == "sentence":
            cells = [None if cell == "#N/A" else cell for cell in cells]  # of a spreadsheet
        columns[role if role in (*CARRIED, "stimulus") else column] = cells
    ordered, nominal = (having(column_roles, kind) for kind in FEATURES)
    stimuli = from_cells(list(columns), list(columns.values()), table.name, ordered, nominal)
    if BLOCK not in columns and {RUN, SESSION, ORDER} & set(columns):
        stimuli = with_blocks(stimuli)
    read_as = replace(table.read_as, found=tuple(missing))
    all_doubts = [*about_words, *_doubts(column_roles, requested, replace(table, read_as=read_as))]
    doubtful = (doubt.sentence for doubt in all_doubts)
    notes = (*notes, *_notes(table, read_as, column_roles, requested), *doubtful)
    return replace(stimuli, notes=notes, doubts=tuple(d for d in all_doubts if d.option))


def read_csv(
    source: Source,
    *,
    name: str | None = None,
    read_as: ReadAs = DETECTED,
    roles: Mapping[str, str] | None = None,
    ordered: Iterable[str] = (),
    nominal: Iterable[str] = (),
    counts_from: str = AUTO,
) -> StimulusSet:
    """Read and check a table of stimuli: CSV in any dialect, .xlsx, Parquet or JSON Lines.

    Separator, encoding, decimal sign, missing-value marks and the roles of columns are detected
    where they are not given; `StimulusSet.notes` says what was found where that is not UTF-8,
    commas, and columns called as the contract has it. A feature whose values are all plain numbers
    is ordered, any other one nominal (True and False too), unless `ordered` or `nominal` names it.
    Space around the value of a feature does not count. An apostrophe before a character that begins
    a formula (`'=`) is taken away, as `write_csv` put it there.

    Parameters
    ----------
    source : path, content, or binary file
    name : how the set is called; by default the file's name
    read_as : how the file is to be read
    roles : column -> one of `ROLES`; the others are guessed
    ordered, nominal : features whose kind is not what their values suggest, for short
    counts_from : the number of the first word in a column of numbers: "0", "1", or "auto", which is
        "0" unless a column with the words shows that it is "1"

    Raises InputError: the file is missing, over `MAX_BYTES`, no table, or its content breaks the
    contract; one sentence says where and what was expected.

    Examples
    --------
    >>> read_csv("s.csv", nominal=["size"])
    120 sentences of s.csv: colour (nominal) and size (nominal)
    """
    table = read_table(source, name, read_as)
    ordered, nominal = split_names(ordered), split_names(nominal)
    stimuli = apply_roles(table, roles, ordered, nominal, counts_from)
    if ordered or nominal:  # once more by the feature's name, so that a mistake names the features
        stimuli.with_kinds(ordered, nominal)
    return stimuli


def parse_role(text: str) -> tuple[str, str]:
    """("freq", "ordered") of "freq=ordered"; raises InputError for a text of another form."""
    column, equals, role = text.rpartition("=")
    if not (equals and column):
        raise InputError(
            f"found the role {short(text)}; expected COLUMN=ROLE, such as freq=ordered."
        )
    check_choice("role of a column", role, ROLES)
    return column, role


def _check_roles(column_roles: Mapping[str, str], name: str) -> None:
    """Raise where a role has too many columns or none, or a feature a name that is taken."""
    for role in ROLES:
        columns = having(column_roles, role)
        if len(columns) > 1 and role not in (*FEATURES, "unit", "ignore"):
            raise InputError(
                f"the columns {some(columns)} of {name} all have the role {role}; choose one of "
                "them and ignore the others."
            )
    text, no_text = having(column_roles, "sentence"), having(column_roles, "stimulus")
    if no_text and (text or having(column_roles, "word_index")):
        raise InputError(
            f"the column {no_text[0]!r} of {name} has the role of stimuli that are no text, and "
            f"{some([*text, *having(column_roles, 'word_index')])} that of sentence or word; "
            "choose one."
        )
    if not text and not no_text:
        raise InputError(
            f"no column of {name} has the role of the sentence, as one called sentence or text or "
            f"with several words in its cells would; choose one of {some(list(column_roles))}, "
            "or those with the roles word and sentence_id where a row is a word."
        )
    for column, role in column_roles.items():
        if role in FEATURES and (column in CARRIED or column.startswith("_")):
            raise InputError(
                f"the column {column!r} of {name} cannot be a feature under this name (names of "
                "features begin with no underscore and are none of "
                f"{', '.join(sorted(CARRIED))}); rename it."
            )


def _notes(
    table: Table, read_as: ReadAs, column_roles: Mapping[str, str], requested: Mapping[str, str]
) -> tuple[str, ...]:
    """Sentences about what was detected and guessed, which a reader of the file would not see."""
    notes = [*([] if read_as.plain else [f"{table.name} was {read_as.sentence}"]), *table.notes]
    parts = []
    for role, what in {
        "sentence": "is the sentence",
        "stimulus": "is the stimulus, which is no text",
        "word_index": "says which word is the stimulus",
        "sentence_id": "keeps stimuli together",
        "run": "is the run",
        "session": "is the session",
        "block": "is the block",
        "order": "is the order of presentation",
        "split": "gives the folds",
    }.items():
        parts += [
            f"{short(c)} {what}" for c in having(column_roles, role) if c not in (role, *requested)
        ]
    for column in having(column_roles, "ignore"):
        if column in requested or column.startswith("_"):
            continue
        known = table.kinds.get(column)
        why = "" if column in table.nameless else _no_feature(table.values(column), known)
        parts.append(f"{short(column)} {why and f'{why} and '}is no feature")
    if parts:
        notes.append(f"In {table.name} {listed(parts, most=8)}.")
    return tuple(notes)


def _doubts(
    column_roles: Mapping[str, str], requested: Mapping[str, str], table: Table
) -> Iterator[Doubt]:
    """What the table's owner may have meant otherwise."""
    sentence = [*having(column_roles, "sentence"), *having(column_roles, "stimulus")][0]
    of_text = column_roles[sentence] == "sentence"
    sentences = texts(table.frame[sentence])
    numbers = [str(name) for name in table.frame if NUMBER.fullmatch(str(name))]
    if numbers and _first([sentence], _SENTENCES) is None:
        yield Doubt(
            f"The first row of {table.name} counts as its header, though {some(numbers, 3)} "
            f"{'is a number' if len(numbers) == 1 else 'are numbers'}: put a row with the names of "
            "the columns above it if it is a stimulus."
        )
    if of_text:
        yield from map(Doubt, doubts.sentence_findings(sentences))
        ignored = [column for column in having(column_roles, "ignore") if column not in requested]
        yield from map(Doubt, _second_sentences(sentence, ignored, table))
    groups = having(column_roles, "sentence_id")
    for column in groups if of_text else ():
        yield from map(Doubt, doubts.group_doubts(column, table.stripped(column), sentences))
    if not groups:
        yield from map(Doubt, doubts.spelling_finding(f"the column {short(sentence)}", sentences))
    for column in having(column_roles, "item"):
        cells = table.stripped(column)
        yield from map(Doubt, doubts.spelling_finding(f"the column {short(column)}", cells))
    for column in having(column_roles, "nominal"):
        cells, is_guessed = table.values(column), column not in requested
        detected = table.read_as.missing is None
        yield from map(Doubt, doubts.nominal_findings(column, cells, is_guessed, detected))
        yield from doubts.date_findings(column, cells)
    guessed = {k: table.values(k) for k in having(column_roles, "ordered") if k not in requested}
    for column, cells in guessed.items():
        yield from doubts.number_findings(column, cells, table.read_as.found)
    yield from doubts.ordered_findings(guessed, sentences)
    if not of_text:
        return
    if not groups:
        named = [name for name in having(column_roles, "nominal") if name not in requested]
        features = guessed | {name: table.values(name) for name in named}
        yield from doubts.sentence_numbers(features, sentences)
    index, known = having(column_roles, "word_index"), ("word_index", "word", "nominal", "ignore")
    columns = {
        name: texts(table.frame[name])
        for name, role in column_roles.items()
        if role in known and not name.startswith("_")
    }
    for column, words in word_numbers.position_columns(guessed, columns, sentences).items():
        if index not in ([], [words]):
            continue
        what = f"The feature {short(column)} gives the position of {short(words)} in the sentence"
        if not words:
            what = f"Whole sentences are the stimuli, though some recur; {short(column)} fits the "
            what += "number of a word"
        yield Doubt(
            f"{what} in {len(sentences):,} of {len(sentences):,} rows: give it the role word_index "
            "if it says which word is meant.",
            f"Use {column}",
            "role",
            (f"{column}=word_index", *[f"{words}=word"] * bool(words)),
        )
    if not index and having(column_roles, "word"):
        yield Doubt(
            f"Whole sentences are the stimuli: {some(having(column_roles, 'word'))} names words "
            "that most of the sentences do not have, and no column says which word is meant."
        )


def _second_sentences(sentence: str, columns: Sequence[str], table: Table) -> Iterator[str]:
    """A sentence on columns that hold other sentences, as minimal pairs do."""
    least = 0.5 * _mean_words(table.frame[sentence])
    others = [
        column
        for column in columns
        if not column.startswith("_")
        and _mean_words(table.frame[column]) > max(least, 2.0)
        and not _are_words_in_sentences(table.frame[sentence], table.frame[column])
    ]
    if others:
        yield (
            f"A row of {table.name} has other texts too, in {some(others, 3)}: {short(sentence)} "
            "alone is read. To compare them, give each text a row of its own and a column that "
            "says which it is."
        )


def _are_words_in_sentences(sentences: pd.Series[str], texts: pd.Series[str]) -> bool:
    """Whether each text is whole words of its sentence, as a prefix is; an empty one is."""
    pairs = zip(sentences, texts.fillna(""), strict=True)
    return all(f"{text} " in f"{sentence} " for sentence, text in pairs)


def _first(names: list[str], known: tuple[str, ...]) -> str | None:
    plain = {name.strip().casefold().replace(" ", "_"): name for name in reversed(names)}
    return next((plain[name] for name in known if name in plain), None)


def _mean_words(column: pd.Series[str]) -> float:
    """Mean words of a cell; 0 for few values, or such as are in more rows than they have words.

    And for formulas and the like, where more than half is signs and single letters.
    """
    counts = column.value_counts()
    parts = [str(cell).split() for cell in counts.index]
    words, rows = list(map(len, parts)), int(counts.sum())
    signs = [part for cell in parts for part in cell if len(part) == 1 and part.isascii()]
    if len(counts) < min(_FEW, rows) or sum(words) < rows or 2 * len(signs) > sum(words):
        return 0.0
    return float(np.dot(words, counts)) / max(1, rows)


def _share_inside(words: pd.Series[str], sentences: pd.Series[str]) -> float:
    """The share of the words that occur in their sentence."""
    times, _ = occurrences(texts(words), texts(sentences))
    there = np.array([bool(cell and cell.strip()) for cell in texts(words)], dtype=np.bool_)
    return float(np.mean(times[there] > 0)) if there.any() else 0.0


def _find_word_numbers(table: Table, word: str, sentence: str) -> str | None:
    """The column of numbers that lead to each word, where a sentence has a word several times."""
    words, sentences = texts(table.frame[word]), texts(table.frame[sentence])
    if (occurrences(words, sentences)[0] <= 1).all():
        return None
    for name, cells in ((str(name), texts(table.frame[name])) for name in table.frame):
        if any(word_numbers.fits_words(cells, sentences, words, first) for first in (0, 1)):
            return name
    return None
