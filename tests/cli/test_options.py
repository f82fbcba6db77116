from __future__ import annotations

import argparse

from mlem_core.cli.options import parser
from mlem_core.data.datasets import SETS


def commands() -> dict[str, argparse.ArgumentParser]:
    actions = parser(None)._actions
    (found,) = (one for one in actions if isinstance(one, argparse._SubParsersAction))
    return dict(found.choices)


def test_every_option_is_explained() -> None:
    for name, command in commands().items():
        assert not [action.dest for action in command._actions if not action.help], name
        assert command.format_help()


def test_the_built_in_sets_are_named() -> None:
    said = commands()["stimuli"].format_help()
    assert all(name in said for name in SETS)
