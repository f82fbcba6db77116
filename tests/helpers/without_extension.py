"""The program without one of its extensions: an analysis, its `why`, every screen and the report.

    python -m helpers.without_extension NAME FOLDER

What would import the extension fails. All is of a tiny analysis of two systems.
"""

import sys
from pathlib import Path

# Asked of the package, this module would be looked for in the records of all extensions.
import mlem_core.extending as extending


def main(absent: str, folder: Path) -> None:
    others = tuple(name for name in extending.BUILT_IN if name != absent)
    extending.BUILT_IN = others
    sys.modules[f"mlem_core.extensions.{absent}"] = None  # type: ignore[assignment]
    assert {*extending.extensions()} == {*others}

    from helpers.inputs import arguments_of, in_files, noise, words
    from helpers.screens import Screen, in_this_process, ran
    from mlem_core import Store
    from mlem_core.cli.commands import main as run_command
    from mlem_core.report.archive import write_archive
    from mlem_core.tasks import runner
    from pages.parts.canvas import VIEWS
    from pages.parts.screens import MOVED, SCREENS

    table = words(12)
    systems = {name: noise(len(table)) for name in ("one", "two")}
    spec = in_files(folder, table, systems, folds=3)
    options = [*arguments_of(spec), "--folds=3", "--bootstrap=1"]
    assert run_command(["analyze", *options, "--chance=20", f"--out={folder / 'out'}"]) == 0
    assert (folder / "out" / "similarity_intervals.csv").is_file()
    assert run_command(["why", "one:0", "two:1", *options]) == 0

    runner.start_process = in_this_process
    store = Store()
    job = ran(spec, store)
    for page in (*SCREENS, *MOVED):
        Screen(page, analysis=job.id)
    for view in VIEWS:
        Screen(analysis=job.id, view=view).unfold()
    for drawer in ("pairs", "rest", "erase", "checks", "how", "stimuli"):
        Screen(analysis=job.id, detail=drawer)
    write_archive(job.analysis(), folder / "all.zip", store, images=False)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
