"""Work on a disk of so many bytes, on which everything lies that is written.

    unshare -m python small_disk.py FOLDER KILOBYTES...

mounts a disk in FOLDER for each size, for this process alone, and analyses there; then it is made
large, and the same is done anew. Prints a JSON object: what was amiss, by the size.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from commands import analyze, contents


def mount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], check=True)


def left_over(disk: Path) -> list[str]:
    unfinished = disk / "store" / "unfinished"
    names = [*(disk / "tmp").glob("*"), *(disk / "work").rglob(".*"), *unfinished.glob("*")]
    return [f"left {path.relative_to(disk)}" for path in names]


def problems(disk: Path, kilobytes: int, expected: Mapping[str, bytes]) -> list[str]:
    """What is wrong after both runs; the expected files are those of one with room."""
    mount(disk, f"size={kilobytes}k")
    try:
        done = analyze(disk, inputs=disk.parent)
        status, said, found = done.returncode, done.stderr.decode(), left_over(disk)
        if status not in (0, 2) or "Traceback" in said:
            found.append(f"status {status}: {said[-500:]}")
        if status == 2 and (said.count("\n") != 1 or "free" not in said):
            found.append(f"no sentence: {said}")
        if status == 2 and (disk / "work" / "out").exists():
            found.append("an output of a run that failed")
        mount(disk, "remount,size=100m")
        again = analyze(disk, inputs=disk.parent)
        if again.returncode != 0 or contents(disk / "work" / "out") != expected:
            found.append(f"anew: status {again.returncode}: {again.stderr.decode()[-500:]}")
        return [*found, *left_over(disk)]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def main(folder: Path, sizes: list[int]) -> dict[str, list[str]]:
    disk = folder / "disk"
    disk.mkdir(parents=True)
    mount(disk, "size=100m")
    assert analyze(disk, inputs=folder).returncode == 0
    expected = contents(disk / "work" / "out")
    subprocess.run(["umount", str(disk)], check=True)
    found = {str(size): problems(disk, size, expected) for size in sizes}
    return {size: wrong for size, wrong in found.items() if wrong}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), [int(size) for size in sys.argv[2:]])))
