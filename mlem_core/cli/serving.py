"""The command `mlem app`, and what `mlem` alone says."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import webbrowser
from pathlib import Path

from mlem_core.base.errors import InputError

INTRODUCTION = """\
MLEM Explorer: what makes two language models think alike?
It shows which features of words or sentences shape each layer, and make two layers similar.
  mlem app                                                      in the browser
  mlem analyze --stimuli probing --model mini-gpt2 --out results    tables as CSV
  mlem why mini-gpt2:2 mini-gpt2:6 --stimuli probing                two layers
`mlem --help` lists all commands."""
_PACKAGE = Path(__file__).resolve().parents[1]


def app_folder() -> Path:
    """Folder with app.py: that of an installed package, or the checkout's top.

    Raises InputError where neither is there.
    """
    there = [one for one in (_PACKAGE / "_app", _PACKAGE.parent) if (one / "app.py").is_file()]
    if not there:
        raise InputError(f"the app is not installed beside {str(_PACKAGE)!r}; install it again.")
    return there[0]


def _has_browser() -> bool:
    """Whether a person sits at this machine, with a browser to open."""
    screen = sys.platform in ("win32", "darwin") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    try:
        return screen and webbrowser.get() is not None
    except webbrowser.Error:
        return False


def serve_app(options: argparse.Namespace) -> int:
    """Serve the app in this process's place, as `make app` does; opens the browser if any."""
    script = app_folder() / "scripts" / "serve.py"
    command = [sys.executable, str(script)]
    if options.port is not None:
        command += ["--server.port", str(options.port)]
    if _has_browser() and not os.environ.get("MLEM_SHARED"):
        command += ["--server.headless", "false", "--server.showEmailPrompt", "false"]
    if sys.platform == "win32":
        return subprocess.call(command)
    os.execv(command[0], command)
