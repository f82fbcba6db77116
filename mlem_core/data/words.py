"""Words of tables that do not count them: sentences put together of words, spans of characters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mlem_core.base.errors import InputError
from mlem_core.base.text import short, some
from mlem_core.data.columns import Cells, texts
from mlem_core.data.reading.table import Table

# The roles of the first character of a word in its sentence, and of the one after its last.
SPAN = ("start_idx", "end_idx")


def having(chosen: Mapping[str, str], role: str) -> list[str]:
    """The columns that have a role."""
    return [column for column, its in chosen.items() if its == role]


def carried_name(column: str, names: Sequence[str]) -> str:
    """The name of a column that is no feature, where others have these names."""
    carried = column if column.startswith("_") else f"_{column}"
    while carried in names and carried != column:
        carried = f"_{carried}"
    return carried


def with_words(
    table: Table, chosen: dict[str, str]
) -> tuple[Table, dict[str, str], tuple[str, ...]]:
    """A table with a sentence and a word_index, its roles, and what is to be said of it.

    Without a sentence they are those of the words of each sentence_id; with spans of characters,
    the word_index is that of the word in which a span ends. Any other table is as it was.

    Raises
    ------
    InputError
        An empty word; a span that is not in its sentence, ends with a space, or has one side only.
    """
    sentence, word, group, start, end = (
        having(chosen, role) for role in ("sentence", "word", "sentence_id", *SPAN)
    )
    notes: tuple[str, ...] = ()
    if not (sentence or having(chosen, "stimulus")) and len(word) == len(group) == 1:
        columns = _put_together(table.stripped(word[0]), table.stripped(group[0]), word[0])
        notes = (
            f"The sentences of {table.name} are put together from the words of each "
            f"{short(group[0])}, in the order of the rows.",
        )
    elif len(sentence) == len(start) == len(end) == 1 and not having(chosen, "word_index"):
        cells = (texts(table.frame[column[0]]) for column in (sentence, start, end))
        columns = {"word_index": list(map(_word_of, range(len(table.frame)), *cells))}
    elif start or end:
        raise InputError(
            f"the characters of the words of {table.name} are in {some([*start, *end])}; expected "
            "one column each for start_idx, end_idx and the sentence, and none for word_index."
        )
    else:
        return table, chosen, notes
    renamed = {name: carried_name(name, list(chosen)) for name in columns if name in chosen}
    frame = table.frame.rename(columns=renamed)
    first = list(frame).index(sentence[0]) + 1 if sentence else 0
    for place, (name, own) in enumerate(columns.items(), start=first):
        frame.insert(place, name, own)
    roles = {renamed.get(name, name): role for name, role in chosen.items()}
    return replace(table, frame=frame), {name: name for name in columns} | roles, notes


def _put_together(words: Cells, groups: Cells, column: str) -> dict[str, list[str]]:
    parts: defaultdict[str | None, list[str]] = defaultdict(list)
    places = []
    for row, (word, group) in enumerate(zip(words, groups, strict=True), start=1):
        if not word:
            raise InputError(
                f"the word in row {row} of the column {short(column)} is empty; expected one in "
                "each row, as sentences are put together from them."
            )
        parts[group] += word.split()  # of a word with a space the last part is the stimulus
        places.append(str(len(parts[group]) - 1))
    sentences = {group: " ".join(own) for group, own in parts.items()}
    return {"sentence": [sentences[group] for group in groups], "word_index": places}


def _word_of(row: int, sentence: str | None, *span: str | None) -> str:
    text = sentence or ""
    start, end = (int(at) if at and at.strip().isdecimal() else -1 for at in span)
    last = max(end - 1, start)
    if not 0 <= start <= end or last >= len(text) or text[last].isspace():
        found = " to ".join(short(at or "") for at in span)
        raise InputError(
            f"the characters in row {row + 1} are {found}; expected start_idx and end_idx of a "
            f"word, from 0 to {len(text)}, in {short(text)}."
        )
    return str(len(text[: last + 1].split()) - 1)
