"""Serve the app: `python scripts/serve.py [--server.port 8501 ...]`, as `streamlit run app.py`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from streamlit.runtime.pages_manager import PagesManager
from streamlit.web import cli

# Where there is a folder named pages, Streamlit 1.67 takes its files for the pages until app.py has
# run once, and greets whoever opens the address of one on a fresh server with "Page not found".
PagesManager.uses_pages_directory = False
os.chdir(Path(__file__).resolve().parent.parent)
sys.argv[1:] = ["run", "app.py", *sys.argv[1:]]
cli.main()
