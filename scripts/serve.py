"""Serve the app: `python scripts/serve.py [--server.port 8501 ...]`, as `streamlit run app.py`."""

from __future__ import annotations

import contextlib
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

# Where there is a folder named pages, Streamlit 1.67 takes its files for the pages until app.py has
# run once, and greets whoever opens the address of one on a fresh server with "Page not found".
PagesManager.uses_pages_directory = False
root = Path(__file__).resolve().parent.parent
for name in {"MLEM_CACHE", "MLEM_SHARED"} & {*os.environ}:
    os.environ[name] = os.environ[name] and os.path.abspath(os.environ[name])
os.chdir(root)
sys.path.insert(0, str(root))
if "--help" not in sys.argv:
    # What Home needs is loaded before the server answers: its first visitor would wait for it
    # longer, and two visitors at once would load it side by side.
    from mlem_core import figures  # noqa: F401
    from mlem_core.inference import intervals  # noqa: F401
    from mlem_core.robustness import flags  # noqa: F401
    from mlem_core.tasks import examples, followups  # noqa: F401

    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        examples.example()  # kept in memory; what is wrong with it, the page says
serve = "app.py"
if os.environ.get("MLEM_SHARED"):
    from mlem_core.base.errors import InputError
    from mlem_core.base.room import shared
    from mlem_core.storage.store import Store
    from mlem_core.tasks.visitors import signature

    serve = "scripts/shared_server.py"
    try:
        settings = shared()
        signature("", Store().root)  # what says that this server cannot sign says it now
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    # What Streamlit itself takes from a browser, before any page sees it.
    megabytes = 1 if settings is None else max(1, int(settings.upload_mb))
    os.environ.setdefault("STREAMLIT_SERVER_MAX_UPLOAD_SIZE", str(megabytes))
    # Whose word on where a visitor comes from uvicorn takes.
    os.environ["FORWARDED_ALLOW_IPS"] = "" if settings is None else ",".join(settings.proxies)
elif any(one.startswith("--server.address") for one in sys.argv) or (
    "STREAMLIT_SERVER_ADDRESS" in os.environ
):
    print(
        "note: whoever reaches this address sees and deletes everything; docs/security.md says "
        "how to serve many users.",
        file=sys.stderr,
    )
sys.argv[1:] = ["run", serve, *sys.argv[1:]]
cli.main()
