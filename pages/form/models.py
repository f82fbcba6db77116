"""Step 3, Models: which models and files, how the analysis is computed, and what it takes."""

from __future__ import annotations

from typing import Any

import streamlit as st

from pages.form import options as more_options
from pages.form import representations
from pages.form.draft import Draft
from pages.parts import choices
from pages.parts.wording import plain


@st.cache_resource(ttl=60, show_spinner="Looking for models …")
def _available() -> dict[str, bool]:
    from mlem_core.models.registry import MODELS

    return {name: model.available() for name, model in MODELS.items()}


def chosen() -> list[str]:
    """The names of the chosen models."""
    from mlem_core.models.registry import defaults

    asked = choices.get("models")
    if asked is None:
        return list(defaults())
    return [name for name in asked if name != choices.NOTHING]


def show(draft: Draft, options: dict[str, Any], wrong: str) -> None:
    """Draw the step; `wrong` says what cannot be used."""
    if wrong:
        st.error(plain(wrong), icon=":material/error:")
    left, right = st.columns(2, gap="large")
    with left:
        _models()
    with right:
        representations.show(draft)
    more_options.show(draft.stimuli, options)


def _models() -> None:
    from mlem_core.models.registry import MODELS

    available = _available()
    names = chosen()
    key = "form models"
    st.session_state[key] = names
    st.multiselect(
        "Models",
        list(dict.fromkeys([*available, *names])),
        key=key,
        on_change=lambda: choose(st.session_state[key]),
        format_func=lambda name: (
            name if available.get(name, True) else f"{name} (not reachable now)"
        ),
        accept_new_options=True,
        wrap=True,
        placeholder="Choose, or type a hub id or a folder",
        help="Models of this list, or type any id of the Hugging Face hub or a folder with a "
        "model (safetensors or GGUF).",
    )
    lines = []
    for name in names:
        if name not in available:
            lines.append(f"{name}: a hub id or a folder.")
        elif available[name]:
            lines.append(f"{name}: {MODELS[name].label}.")
        else:
            origin = MODELS[name].package or "the Hugging Face hub"
            lines.append(
                f"{name}: {MODELS[name].label}, from {origin}; it cannot be reached now, and the "
                "run leaves it out if that stays so."
            )
    st.caption("  \n".join(plain(line) for line in lines))


def choose(names: list[str]) -> None:
    """Choose these models; none is a choice too."""
    from mlem_core.models.registry import defaults

    choices.put("models", None if set(names) == set(defaults()) else names or [choices.NOTHING])
