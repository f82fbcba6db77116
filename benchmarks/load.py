"""`python -m benchmarks.load`: how the app answers when many use it at once.

Clients speak the browser's protocol (a WebSocket, messages of Streamlit's protocol buffers) with a
server of its own on this machine, which they share with it. Each opens the example, and every few
seconds ticks a feature off or on, or goes to another page. A wait ends with the last message of the
page's run. It measures what a server sends, not what a browser draws.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import psutil
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.timing import Table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).with_name("results") / "load.md"
PAGES = ("home", "profiles", "trust", "report")
PAUSE = (3.0, 7.0)  # seconds between two things that a client does
PATIENCE = 120.0  # seconds for an answer
FIGURE, PAGE = "a feature ticked off or on, all figures of a tab", "another page"


class Client:
    """One window of one visitor."""

    def __init__(self, connection: ClientConnection, rng: random.Random) -> None:
        self._connection = connection
        self._rng = rng
        self._features = ("", [], [])  # the widget's id, its options, which of them are chosen
        self._page = ""
        self._query = ""

    async def open(self, page: str) -> float:
        """Go to a page; how long it took, in seconds."""
        self._page = page
        message = BackMsg()
        state = message.rerun_script
        state.page_name = "" if page == "home" else page
        state.query_string = "analysis=example"
        return await self._ask(message)

    async def tick(self) -> float:
        """Tick a feature off or on."""
        widget, options, chosen = self._features
        one = self._rng.choice(options)
        now = [name for name in options if (name in chosen) != (name == one)] or options
        self._features = widget, options, now
        message = BackMsg()
        state = message.rerun_script
        state.page_name, state.query_string = self._page, self._query
        state.widget_states.widgets.add(id=widget).string_array_value.data[:] = now
        return await self._ask(message)

    async def _ask(self, message: BackMsg) -> float:
        began = time.perf_counter()
        await self._connection.send(message.SerializeToString())
        async with asyncio.timeout(PATIENCE):
            while True:
                answer = ForwardMsg()
                answer.ParseFromString(await self._connection.recv())
                kind = answer.WhichOneof("type")
                if kind == "delta":
                    self._see(answer)
                elif kind == "page_info_changed":
                    self._query = answer.page_info_changed.query_string
                elif kind == "script_finished":
                    return time.perf_counter() - began

    def _see(self, answer: ForwardMsg) -> None:
        element = answer.delta.new_element
        if (
            element.WhichOneof("type") == "button_group"
            and element.button_group.label == "Features"
        ):
            group = element.button_group
            options = [option.content for option in group.options]
            if group.id != self._features[0]:
                self._features = group.id, options, list(options)


async def use(address: str, seconds: float, seed: int, took: dict[str, list[float]]) -> None:
    """What one client does for so many seconds, and how long each thing took."""
    rng = random.Random(seed)
    await asyncio.sleep(rng.uniform(0, PAUSE[1]))
    end = time.monotonic() + seconds
    async with connect(f"ws{address[4:]}/_stcore/stream", max_size=None) as connection:
        client = Client(connection, rng)
        await client.open("profiles")
        page = "profiles"
        while time.monotonic() < end:
            await asyncio.sleep(rng.uniform(*PAUSE))
            if page == "profiles" and rng.random() < 0.75:
                took[FIGURE].append(await client.tick())
            else:
                page = rng.choice([one for one in PAGES if one != page])
                took[PAGE].append(await client.open(page))


async def loads(address: str, n: int, process: psutil.Process) -> list[tuple[int, float]]:
    """Load a page so many times, each in a new window; the server's memory in MB on the way."""
    held = []
    for done in range(n + 1):
        if done % max(1, n // 20) == 0:
            held.append((done, process.memory_info().rss / 1e6))
        async with connect(f"ws{address[4:]}/_stcore/stream", max_size=None) as connection:
            await Client(connection, random.Random(done)).open(PAGES[done % len(PAGES)])
    return held


@contextlib.contextmanager
def served(log: Path) -> Iterator[tuple[str, psutil.Process]]:
    """A server with a store of its own: its address and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "MLEM_CACHE": str(log.parent / "cache")}
    command = [sys.executable, "scripts/serve.py", "--server.port", str(port)]
    with log.open("wb") as output:
        server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/_stcore/health", timeout=1).close()
                break
            time.sleep(0.1)
        yield address, psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait()


def told(times: Sequence[float]) -> str:
    """Median and 95th percentile, and of how many."""
    if not times:
        return "none was done in the time"
    middle, slow = np.percentile(times, [50, 95])
    return f"{middle:.2f} s, {slow:.2f} s ({len(times):,})"


async def together(
    address: str, clients: int, seconds: float
) -> tuple[dict[str, list[float]], int]:
    """How long each thing took for so many clients at once, and how many of them broke off."""
    took: dict[str, list[float]] = defaultdict(list)
    work = [use(address, seconds, seed, took) for seed in range(clients)]
    ended = await asyncio.gather(*work, return_exceptions=True)
    for error in filter(None, ended):
        print(repr(error), file=sys.stderr)
    return took, sum(error is not None for error in ended)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--loads", type=int, default=2_000, help="pages loaded for the memory")
    options = parser.parse_args()
    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with served(log) as (address, process):
            asyncio.run(loads(address, 2 * len(PAGES), process))  # what a server loads once
            before, began = process.cpu_times(), time.monotonic()
            took, broke = asyncio.run(together(address, options.clients, options.seconds))
            after, passed = process.cpu_times(), time.monotonic() - began
            used = after.user + after.system - before.user - before.system
            done = len(took[FIGURE]) + len(took[PAGE]) + options.clients
            table.add(FIGURE, told(took[FIGURE]), target="0.5 s, 1.5 s")
            table.add(PAGE, told(took[PAGE]), target="1.5 s, 3 s")
            table.add("cores that the server used", f"{used / passed:.2f}")
            table.add("its processor time for one answer", f"{used / done:.2f} s")
            table.add("clients that broke off", str(broke), target="0")
            if options.loads:
                held = asyncio.run(loads(address, options.loads, process))
                print(", ".join(f"{done}: {mb:.0f} MB" for done, mb in held))
                grew = held[-1][1] - held[len(held) // 10][1]
                what = f"growth over {options.loads:,} page loads, after the first tenth"
                table.add(what, f"{grew:.0f} MB", target="50 MB")
        said = log.read_text()
        errors = sum("Traceback" in line or "ERROR" in line for line in said.splitlines())
        table.add("errors in the log", str(errors), target="0")
    what = f"{options.clients} clients for {options.seconds:,.0f} s"
    table.write(RESULTS, f"Median and 95th percentile (of how many); {what}.")


if __name__ == "__main__":
    main()
