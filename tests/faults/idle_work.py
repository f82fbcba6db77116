"""Background work that does what a test asks for: `python -m idle_work FOLDER`."""

import sys
import time
from pathlib import Path

from mlem_core.tasks.runner import carry_out


def make(request, folder, report):
    """Note when it began, then hold memory and wait as asked, and until a file says go."""
    with Path(request["began"]).open("a") as file:
        file.write(f"{folder.parent.name}\n")
    held = bytearray(int(request.get("bytes", 0)))
    held[::4096] = b"x" * len(held[::4096])
    time.sleep(float(request.get("seconds", 0)))
    go = request.get("go")
    while go and not Path(go).exists():
        time.sleep(0.02)
    (folder / "done").touch()


if __name__ == "__main__":
    sys.exit(carry_out(Path(sys.argv[1]).absolute(), make))
