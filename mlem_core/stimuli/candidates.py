"""Candidates: columns that follow from stimuli, to be features or to explain what these do not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlem_core.base.parameters import Registry
from mlem_core.extending import entry_modules
from mlem_core.stimuli.columns import Kind
from mlem_core.stimuli.stimulus_set import Rdm

# Name of the candidate that is a word's surprisal in a causal model.
SURPRISAL = "surprisal"


@dataclass(frozen=True)
class Candidate:
    """A column that follows from stimuli: it may explain their similarity, or be a feature.

    Attributes
    ----------
    label : as a sentence calls it
    values : of stimuli: (n_stimuli,) numbers or texts, missing is None or NaN; it may raise
        InputError. A second argument is the language, or the model, where there is one
    kind : None is what its values look like
    help : what it is; "" where it cannot be a feature
    is_identity : whether it says which word, item or sentence a stimulus is, or which word is next
        to it, and no more
    words_only : whether it is of words and not of sentences
    rdm : the distances of its values, where it is given by them
    languages : gives the codes of the languages that it can be of, where it is of one
    needs_model : whether it is computed by a model, which `add` names behind a colon
    """

    name: str
    label: str
    values: Callable[..., Any]
    kind: Kind | None = "nominal"
    help: str = ""
    is_identity: bool = False
    words_only: bool = False
    rdm: Rdm | None = None
    languages: Callable[[], list[str]] | None = None
    needs_model: bool = False


CANDIDATES = Registry[Candidate]("candidate", entry_modules)


def added_features() -> dict[str, Candidate]:
    """Candidates that can be features by their names, without a model."""
    entries = CANDIDATES.items()
    return {name: entry for name, entry in entries if entry.help and not entry.needs_model}


def added_column(name: str) -> str:
    """Column name of an added feature: `surprisal_gpt2` of "surprisal:gpt2"."""
    candidate, _, model = name.partition(":")
    return f"{candidate}_{re.sub(r'[^0-9A-Za-z]+', '_', Path(model).name)}" if model else name
