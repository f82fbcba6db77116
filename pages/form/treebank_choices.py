"""Choices of how a treebank is read, in the form for a new analysis."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from mlem_core.analysis.spec import parameters
from mlem_core.extensions.treebank.stimuli import SAMPLE
from mlem_core.stimuli.stimulus_set import Feature
from pages.form import state
from pages.parts import choices

_MOST = 1_000_000


def show_choices(features: Sequence[Feature]) -> None:
    """Draw the level and the sample; `features` are those that it may be balanced by."""
    about = parameters()
    sample, balance = about["sample"], about["balance"]
    names = [feature.name for feature in features]
    first, second = st.columns(2)
    with first:
        state.field("level")
        choices.whole_number(sample.label, "sample", SAMPLE, 2, _MOST, step=100, help=sample.text)
    with second:
        choices.choose_many(
            balance.label,
            list(dict.fromkeys([*names, *(choices.get("balance") or [])])),
            "balance",
            [],
            placeholder="as they come",
            help=balance.text,
        )
        state.field("sample_seed")
