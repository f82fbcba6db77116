"""Logging in by Streamlit's own `st.login`, where secrets.toml has a section [auth]."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st
from streamlit.auth_util import get_secrets_auth_section, is_authlib_installed

PACKAGE = "Authlib>=1.3.2"  # which `st.login` needs


def providers() -> list[str | None]:
    """The named providers of [auth], or None for one without a name; empty without a log-in."""
    section = get_secrets_auth_section()
    named = [name for name, value in section.items() if isinstance(value, Mapping)]
    return [*named] or [None] * bool(section)


def login_available() -> bool:
    """Whether the package that `st.login` needs is installed."""
    return is_authlib_installed()


def is_needed() -> bool:
    """Whether the person in this window has to log in first."""
    return bool(providers()) and not st.user.is_logged_in


def login_page() -> None:
    """The page of somebody who has not logged in."""
    st.title("MLEM Explorer")
    st.write("Log in to see the analyses on this server.")
    for name in providers():
        label = "Log in" if name is None else f"Log in with {name.capitalize()}"
        st.button(label, key=f"log in {name}", type="primary", on_click=st.login, args=(name,))


def logout_button() -> None:
    """The button that logs out; nothing without a log-in."""
    if providers():
        st.button("Log out", icon=":material/logout:", on_click=st.logout)
