"""What a process must be let have; with less, libraries end it without a word that helps."""

from __future__ import annotations

import sys

GB = 2**30
# What the libraries themselves take, measured: (limit, least, its unit, what it is of, its command)
_LEAST = (
    ("RLIMIT_AS", 3 * GB, GB, "GB of addresses", "ulimit -v"),
    ("RLIMIT_DATA", GB, GB, "GB of memory", "ulimit -d"),
    ("RLIMIT_NOFILE", 16, 1, "open files", "ulimit -n"),
)


def refused() -> str:
    """One sentence where this process may have less than the program needs; else empty."""
    if sys.platform == "win32":
        return ""
    import resource

    for name, least, unit, of, command in _LEAST:
        allowed, _ = resource.getrlimit(getattr(resource, name))
        if allowed not in (resource.RLIM_INFINITY, -1) and allowed < least:
            return (
                f"this process may have {allowed / unit:.3g} {of} ({command}); expected at least "
                f"{least / unit:g}."
            )
    return ""
