"""The stimulus CSV, or any other table of stimuli: read, made from a frame, written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mlem_core.base.parameters import names_in
from mlem_core.data.reading.content import Source
from mlem_core.data.reading.read_as import ReadAs
from mlem_core.data.reading.table import DETECTED, read_table
from mlem_core.data.roles import apply_roles
from mlem_core.data.stimuli import StimulusSet
from mlem_core.data.stimulus_table import from_frame, write_csv

__all__ = ["from_frame", "read_csv", "write_csv"]


def read_csv(
    source: Source,
    *,
    name: str | None = None,
    read_as: ReadAs = DETECTED,
    roles: Mapping[str, str] | None = None,
    ordered: Iterable[str] = (),
    nominal: Iterable[str] = (),
) -> StimulusSet:
    """Read and check a table of stimuli: a CSV in any dialect, or an .xlsx workbook.

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
    roles : column -> one of `mlem_core.data.roles.ROLES`; the others are guessed
    ordered, nominal : features whose kind is not what their values suggest, for short

    Raises
    ------
    InputError
        The file is missing, over `MAX_BYTES`, no table, or its content breaks the
        contract; one sentence says where and what was expected.
    """
    table = read_table(source, name, read_as)
    stimuli = apply_roles(table, roles)
    # By the feature's name, so that a mistake names the features and no other column.
    ordered, nominal = names_in(ordered), names_in(nominal)
    asked = {**dict.fromkeys(nominal, "nominal"), **dict.fromkeys(ordered, "ordered")}
    if not asked:
        return stimuli
    stimuli.with_kinds(ordered, nominal)
    return apply_roles(table, {**(roles or {}), **asked})
