"""The folder of the program, and what its files say of packages."""

import tomllib
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


def lines(name: str) -> list[str]:
    """The lines of a file that are no comment."""
    text = (ROOT / name).read_text("utf-8")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def pins(name: str) -> dict[str, str]:
    """Name of each package in a requirements file, as PyPI spells it, and the version pinned."""
    pairs = (line.split("==") for line in lines(name))
    return {canonicalize_name(package): version for package, version in pairs}


def project() -> Any:
    """The table `project` of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
