"""Serve the app: `python scripts/serve.py [--host ADDRESS] [--view-only] [--server.port 8501 ...]`.

Further options are Streamlit's. Another address than this machine's own needs `--view-only`, a
log-in, or a container that keeps others out; docs/hosting.md says more.
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import os
import sys
from pathlib import Path

try:
    from streamlit.runtime.pages_manager import PagesManager
    from streamlit.web import cli
except ModuleNotFoundError:
    needed = "the app needs the package streamlit, which is not installed: pip install streamlit."
    print(f"error: {needed}", file=sys.stderr)
    sys.exit(2)

CONTAINER = "MLEM_CONTAINER"  # set in the image: whoever publishes its port decides who reaches it


def is_this_machine(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse(sentence: str) -> None:
    """Print an error and end."""
    print(f"error: {sentence}", file=sys.stderr)
    sys.exit(2)


# Where there is a folder named pages, Streamlit 1.67 takes its files for the pages until app.py has
# run once, and greets whoever opens the address of one on a fresh server with "Page not found".
PagesManager.uses_pages_directory = False
root = Path(__file__).resolve().parent.parent
if os.environ.get("MLEM_CACHE"):
    os.environ["MLEM_CACHE"] = os.path.abspath(os.environ["MLEM_CACHE"])
os.chdir(root)
sys.path.insert(0, str(root))

from mlem_core.tasks import access  # noqa: E402
from pages.parts import login  # noqa: E402

parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
address = os.environ.get("STREAMLIT_SERVER_ADDRESS", "127.0.0.1")
parser.add_argument("--host", "--server.address", default=address)
parser.add_argument("--view-only", action="store_true")
options, of_streamlit = parser.parse_known_args()
if options.view_only:
    os.environ[access.VARIABLE] = "1"
if login.providers() and not login.login_available():
    refuse(f"the log-in of secrets.toml needs a package: pip install '{login.PACKAGE}'.")
if not is_this_machine(options.host) and not access.view_only() and not login.providers():
    if not os.environ.get(CONTAINER):
        refuse(
            f"whoever reaches {options.host or 'this machine'!r} could change and delete "
            "everything: add --view-only or set up a log-in (docs/hosting.md), or leave out --host."
        )
    print(
        "note: this container is for one person, and whoever reaches its port sees and deletes "
        "everything: publish it on 127.0.0.1 only (docs/hosting.md).",
        file=sys.stderr,
    )
if "--help" not in of_streamlit:
    # What Home needs is loaded before the server answers: the first page would wait for it longer.
    import scipy.special  # noqa: F401
    from PIL import Image

    from mlem_core.figures.context import FIGURES
    from mlem_core.inference import intervals  # noqa: F401
    from mlem_core.tasks import examples, followups  # noqa: F401
    from pages import my_analyses  # noqa: F401
    from pages.parts import drawers, frame, opening, view_details  # noqa: F401

    list(FIGURES)  # imports the modules of all
    Image.preinit()
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        examples.example()  # kept in memory; what is wrong with it, the page says
sys.argv[1:] = ["run", "app.py", f"--server.address={options.host}", *of_streamlit]
cli.main()
