"""Studies in units of work whose rows are kept as soon as they are there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd

from mlem_core.base.files import replacing
from mlem_core.base.parallel import cores

Row = dict[str, Any]
PART = "part"


@dataclass(frozen=True)
class Task:
    """One unit of work: `call(*arguments)` gives rows. The name says in the table what is done."""

    name: str
    call: Callable[..., list[Row]]
    arguments: tuple[Any, ...]


def read(path: Path) -> pd.DataFrame:
    """The rows that a study has so far."""
    return pd.read_csv(path) if path.exists() else pd.DataFrame({PART: []})


def _one_thread() -> None:
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    # Kept for as long as the process lives.
    globals()["_limits"] = threadpool_limits(1)


def execute(path: Path, tasks: Sequence[Task]) -> pd.DataFrame:
    """Do the tasks whose rows are not in the table yet, on all cores; the table with all rows.

    The table is written anew after each task, whole or not at all, in the order of the tasks.
    """
    done = read(path)
    left = [task for task in tasks if task.name not in set(done[PART])]
    if left:
        print(f"{path.stem}: {len(left)} of {len(tasks)} parts to do", flush=True)
    start = time.monotonic()
    parts = dict(list(done.groupby(PART)))
    with ProcessPoolExecutor(
        cores(), mp_context=get_context("spawn"), initializer=_one_thread
    ) as pool:
        futures = {pool.submit(task.call, *task.arguments): task for task in left}
        try:
            for n, future in enumerate(as_completed(futures), 1):
                task = futures[future]
                parts[task.name] = pd.DataFrame(future.result()).assign(**{PART: task.name})
                known = [parts[task.name] for task in tasks if task.name in parts]
                write(path, pd.concat(known, ignore_index=True))
                took = time.monotonic() - start
                print(f"  {n}/{len(left)} {task.name} ({took:.0f} s)", flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return read(path)


def write(path: Path, table: pd.DataFrame) -> None:
    """A CSV with seven digits, in place only when whole."""
    with replacing(path) as temporary:
        table.to_csv(temporary, index=False, float_format="%.7g")
