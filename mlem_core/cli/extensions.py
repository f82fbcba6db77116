"""The command `extensions`: the extensions that are there."""

from __future__ import annotations

import argparse

from mlem_core.cli.streams import tell
from mlem_core.extending import extensions


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command: it has none."""


def list_extensions(options: argparse.Namespace) -> None:
    """Print each extension with what it is for."""
    for extension in extensions().values():
        tell(f"{extension.name}: {extension.sentence}")
