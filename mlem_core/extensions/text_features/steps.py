"""Stimuli with added features, and with their rare values as one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from mlem_core.base.errors import InputError, check_choice
from mlem_core.base.text import many, short
from mlem_core.extensions.text_features.features import LANGUAGE
from mlem_core.stimuli.candidates import CANDIDATES, added_column, added_features
from mlem_core.stimuli.formats import STEPS, StimulusStep
from mlem_core.stimuli.stimulus_set import StimulusSet

# The value of all stimuli whose own value is rare.
OTHER = "other"


def add_feature(stimuli: StimulusSet, name: str, language: str = LANGUAGE) -> StimulusSet:
    """The stimuli with one of `added_features` as a further feature, or one of a model.

    Parameters
    ----------
    name : such as "word_length", or "surprisal:gpt2"
    language : of frequencies

    Raises InputError: an unknown feature; one of words where the stimuli are sentences; a column of
    that name is there, or all stimuli have the same value.
    """
    if model := _scoring_model(name):
        entry, arguments = CANDIDATES[name.partition(":")[0]], [model]
    else:
        choices = added_features()
        check_choice("feature to add", name, choices)
        entry = choices[name]
        arguments = [] if entry.languages is None else [language]
        if stimuli.level == "stimulus":
            raise InputError(
                f"{name} is a feature of text, and the stimuli of {stimuli.name} are none."
            )
        if entry.words_only and stimuli.level == "sentence":
            fit = [other for other, added in choices.items() if not added.words_only]
            raise InputError(
                f"{name} is a feature of words, and the stimuli of {stimuli.name} are sentences; "
                f"the choices are {', '.join(fit)}."
            )
    column, values = added_column(name), pd.Series(entry.values(stimuli, *arguments))
    notes = stimuli.notes
    if n := int(values.isna().sum()):
        notes = (*notes, f"{column} is missing for {n:,} of {len(stimuli):,} stimuli.")
    added = stimuli.with_feature(column, values, entry.kind or "nominal")
    return replace(added, notes=notes)


def _scoring_model(name: str) -> str:
    """Model of an added feature "surprisal:MODEL" or so; "" of any other."""
    candidate, _, model = name.partition(":")
    return model if candidate in CANDIDATES and CANDIDATES[candidate].needs_model else ""


def merge_rare(stimuli: StimulusSet, name: str, least: int) -> StimulusSet:
    """The stimuli with the rare values of a categorical feature as one value, "other".

    Rare are those that fewer than `least` stimuli have. A missing value stays missing.

    Raises InputError: no categorical feature of that name; `least` is below 2; all values are rare.
    """
    nominal = [feature.name for feature in stimuli.features if feature.kind == "nominal"]
    check_choice("categorical feature to merge rare values of", name, nominal)
    if least < 2:
        raise InputError(f"found {least} stimuli for {name!r}; expected at least 2.")
    column = stimuli.table[name]
    counts = column.value_counts()
    rare = counts[counts < least]
    if len(rare) == len(counts):
        raise InputError(
            f"no value of {name!r} has {least:,} stimuli; the most frequent, "
            f"{short(str(counts.index[0]))}, has {counts.iloc[0]:,}: choose a smaller number."
        )
    other = next(name for name in (OTHER, f"{OTHER} (rare)") if name not in counts.index)
    note = f"No value of {name} has fewer than {least:,} stimuli; none was merged."
    if len(rare):
        note = (
            f"{many(len(rare), 'value')} of {name} with fewer than {least:,} stimuli "
            f"({rare.sum():,} stimuli in all) became the value {other!r}, which makes "
            f"{len(counts) - len(rare) + 1} values."
        )
    merged = column.where(~column.isin(rare.index), other)
    table = stimuli.table.assign(**{name: merged})
    return replace(stimuli, table=table, notes=(*stimuli.notes, note))


def _add_features(stimuli: StimulusSet, source: Any) -> StimulusSet:
    for name in source.add:
        stimuli = add_feature(stimuli, name, source.language)
    return stimuli


def _scoring_models(source: Any) -> tuple[str, ...]:
    return tuple(filter(None, map(_scoring_model, source.add)))


def _merge_rare_values(stimuli: StimulusSet, source: Any) -> StimulusSet:
    for name, least in source.merge_rare:
        stimuli = merge_rare(stimuli, name, least)
    return stimuli


STEPS.register(StimulusStep("add", 10, _add_features, models=_scoring_models))
STEPS.register(StimulusStep("merge_rare", 30, _merge_rare_values))
