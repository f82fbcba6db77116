"""The command `app`: serve the app in the place of this process."""

from __future__ import annotations

import argparse
import os
import sys
import webbrowser
from pathlib import Path
from typing import NoReturn

from mlem_core.base.errors import InputError

_PACKAGE = Path(__file__).resolve().parents[1]


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.add_argument("--port", type=int, help="default: 8501, or the next one that is free")
    command.add_argument(
        "--host",
        metavar="ADDRESS",
        help="the address to listen on (default: 127.0.0.1); one that other machines reach needs "
        "--view-only or a log-in, see docs/hosting.md",
    )
    command.add_argument(
        "--view-only",
        action="store_true",
        help="only show finished analyses: nothing can be uploaded, run, renamed or deleted",
    )


def app_folder() -> Path:
    """Folder with app.py: that of an installed package, or the checkout's top.

    Raises InputError where neither is there.
    """
    there = [
        folder for folder in (_PACKAGE / "_app", _PACKAGE.parent) if (folder / "app.py").is_file()
    ]
    if not there:
        raise InputError(f"the app is not installed beside {str(_PACKAGE)!r}; install it again.")
    return there[0]


def _has_browser() -> bool:
    """Whether a person sits at this machine, with a browser to open."""
    screens = map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))
    try:
        return (sys.platform == "darwin" or any(screens)) and webbrowser.get() is not None
    except webbrowser.Error:
        return False


def serve_app(options: argparse.Namespace) -> NoReturn:
    """Serve the app in this process's place, as `make app` does; opens the browser if any."""
    script = app_folder() / "scripts" / "serve.py"
    command = [sys.executable, str(script)]
    if options.port is not None:
        command += ["--server.port", str(options.port)]
    if options.host is not None:
        command += ["--host", options.host]
    if options.view_only:
        command.append("--view-only")
    if _has_browser():
        command += ["--server.headless", "false", "--server.showEmailPrompt", "false"]
    os.execv(command[0], command)
