"""The process of a task: `python -m mlem_core.tasks FOLDER`."""

import sys
from pathlib import Path

from mlem_core.tasks.followups import begin_last_stage, make
from mlem_core.tasks.runner import Task, execute

if __name__ == "__main__":
    folder = Path(sys.argv[1]).absolute()
    status = execute(folder, make)
    if status == 0:
        begin_last_stage(Task(folder.name, folder))
    sys.exit(status)
