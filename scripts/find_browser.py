"""Find a Chrome or Chromium for the browser tests; as a program, install one where there is none.

A browser counts when it starts: an installed stub (a snap's launcher, say) is passed over.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MACOS = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"


# A page that stands alone is opened in it too, where it is there.
FIREFOX = "firefox-esr"
# Of the widths of Arial and Times; and what lists fonts.
FONTS = ("fonts-liberation", "fontconfig")


def find_browser() -> str | None:
    """Path of the first browser that starts: on the PATH, in macOS's place, or Playwright's own."""
    found = [path for name in NAMES if (path := shutil.which(name))]
    candidates = dict.fromkeys([*found, MACOS])
    return next((path for path in candidates if _starts(path)), None) or _playwrights_own()


def launch_arguments() -> list[str]:
    """Chrome refuses to run as root inside its sandbox."""
    return ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []


def _starts(path: str) -> bool:
    if not Path(path).is_file():
        return False
    command = [path, "--headless", "--disable-gpu", *launch_arguments()]
    try:
        run = subprocess.run(
            [*command, "--dump-dom", "data:text/html,<p>ready"],
            capture_output=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"ready" in run.stdout


def _playwrights_own() -> str | None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if _starts(path) else None


def _install() -> str | None:
    """Try Debian's package where that is allowed, then Playwright's download."""
    if _install_debians() and (path := find_browser()):
        return path
    print("browser: installing Playwright's Chromium", file=sys.stderr)
    dependencies = ["--with-deps"] if launch_arguments() and shutil.which("apt-get") else []
    subprocess.run(
        [sys.executable, "-m", "playwright", "install", *dependencies, "chromium"],
        capture_output=True,
    )
    return find_browser()


def _install_debians() -> bool:
    """Whether that is allowed, and was tried."""
    if not _may_use_apt():
        return False
    print("browser: installing Debian's chromium and firefox-esr", file=sys.stderr)
    _apt_install("chromium", FIREFOX, *FONTS)
    return True


def _apt_install(*packages: str) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "-qq", "update"],
        ["apt-get", "-qq", "install", "-y", "--no-install-recommends", *packages],
    ):
        subprocess.run(command, env=environment, capture_output=True)


def _has_fonts() -> bool:
    """Whether PDFs can be written in the fonts that they name (or ones of the same widths)."""
    if shutil.which("fc-list") is None:
        return False
    listed = subprocess.run(["fc-list", "Liberation Sans"], capture_output=True).stdout
    return bool(listed.strip())


def _may_use_apt() -> bool:
    """On Debian, as root. Ubuntu's chromium is only a pointer to a snap."""
    try:
        return (
            bool(launch_arguments())
            and "ID=debian" in Path("/etc/os-release").read_text().splitlines()
        )
    except OSError:
        return False


def main() -> int:
    if "--apt" in sys.argv:
        # Beside a set-up, before Playwright is there; what it lacks is found and said afterwards.
        if not (any(map(shutil.which, NAMES)) and shutil.which(FIREFOX)):
            _install_debians()
        return 0
    found = find_browser() or _install()
    if found and not _has_fonts() and _may_use_apt():
        print("browser: installing Liberation's fonts, which PDFs are written in", file=sys.stderr)
        _apt_install(*FONTS)
    if found:
        return 0
    print(
        "browser: the browser tests need Chrome or Chromium; none is installed and none could be "
        "(install one and put it on the PATH).",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
