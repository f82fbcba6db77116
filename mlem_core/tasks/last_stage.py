"""The process of an analysis, and its last stage: intervals of all layers, and chance.

The analysis is done and can be opened once its tables are written. Then its last stage begins, a
follow-up that nobody has to wait for. Both together are shown as one run; cancelling it keeps what
is done, and running the analysis again goes on from there.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mlem_core.base.progress import StageTimes
from mlem_core.storage.store import Store
from mlem_core.tasks.analyses import INTERVALS, Job, make_analysis, read_requested_intervals
from mlem_core.tasks.followups import Followup, get_followup
from mlem_core.tasks.processes import live_pid
from mlem_core.tasks.runner import Status, execute


def find_last_stage(job: Job) -> Followup | None:
    """The follow-up with the intervals of an analysis; None where it was run without, or fails."""
    options = read_requested_intervals(job.folder)
    store = Store(job.folder.parent.parent)
    return get_followup(INTERVALS, job.id, options, store) if options else None


def begin_last_stage(job: Job) -> None:
    """Begin the last stage of a finished analysis, unless it was begun before."""
    followup = find_last_stage(job)
    if followup is not None and job.result.is_dir():
        followup.begin("later")


def run_status(job: Job) -> Status:
    """State of an analysis and its last stage as one: done where nothing more comes by itself."""
    status, followup = job.status(), find_last_stage(job)
    if status.state != "done" or followup is None:
        return status
    now = followup.status()
    # The process of the analysis begins its last stage before it ends.
    begins = not followup.folder.exists() and live_pid(job.folder) is not None
    if not (now.goes_on or begins):
        return status
    times = StageTimes(status.times.plan, [*status.stages, *now.stages], status.times.started)
    return Status("running" if begins else now.state, times, before=now.before)


def cancel_run(job: Job) -> None:
    """Cancel what goes on of an analysis: its run, or its last stage; what is done stays."""
    job.cancel()
    followup = find_last_stage(job)
    if followup is not None:
        followup.cancel()


if __name__ == "__main__":
    folder = Path(sys.argv[1]).absolute()
    status = execute(folder, make_analysis)
    if status == 0:
        begin_last_stage(Job.in_folder(folder))
    sys.exit(status)
