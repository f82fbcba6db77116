"""Commands as a user starts them, on a file that stands for a model, where something is amiss."""

import os
import subprocess
import sys

from helpers.inputs import in_files, noise, words
from helpers.repository import ROOT

# For a script of the tests that is a process of its own.
SCRIPTED = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}


def inputs_in(folder):
    """Write 46 words and two layers there; the options that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    table = words(12)
    in_files(folder, table, {"m": noise(len(table))})
    files = ["--stimuli", str(folder / "words.csv"), "--representations", f"m={folder / 'm.npz'}"]
    return [*files, "--folds", "3"]


def command(
    arguments, folder, package=ROOT, before=None, through=(), by=subprocess.run, **environment
):
    """`python -m mlem_core ARGUMENTS` in a folder, with nothing in the environment but this.

    `through` is a command that starts another one; `by` starts it, and waits or not.
    """
    # Python itself leaves half of a compiled module where the disk is full, and trusts it.
    least = {"PATH": os.environ["PATH"], "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    return by(
        [*through, sys.executable, "-m", "mlem_core", *arguments],
        cwd=folder,
        env=least | {name: value for name, value in environment.items() if value is not None},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=before,
    )


def analyze(folder, *more, **how):
    """Analyse those inputs in `folder`/work into out, the store and temporary files beside it.

    Parameters
    ----------
    how : for `command`; MLEM_CACHE=None for one without a store of its own
    """
    for name in ("work", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    around = {"MLEM_CACHE": str(folder / "store"), "TMPDIR": str(folder / "tmp")}
    arguments = ["analyze", *inputs_in(folder / "in"), "--out", "out", *more]
    return command(arguments, folder / "work", **{**around, **how})


def output_of(*arguments, **more):
    """What a command prints; it must succeed."""
    done = subprocess.run([*map(str, arguments)], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def contents(folder):
    """All files below a folder, hidden ones too."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
