"""A study that is too large to run here: what it would take, from durations measured here.

python -m benchmarks.cluster_study

Models × layers × stimuli on GPUs with some cores each. The durations of one piece of each kind of
work are measured on this machine in processor seconds; the study is then worked out on paper, and
run by Dask itself on workers that sleep for these durations, many times faster.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.scale import features, planted
from mlem_core.data.folds import stimulus_folds
from mlem_core.data.stimulus_csv import from_frame
from mlem_core.pairs.build import LayerWork, one_layer
from mlem_core.pairs.columns import feature_columns
from mlem_core.pairs.designs import PairDesign
from mlem_core.pairs.patterns import PairIndex
from mlem_core.pairs.ranks import PairRanks, part_sums, rank_parts
from mlem_core.scale.executor import about_here
from mlem_core.storage.digests import sha256_file

MODELS, LAYERS, STIMULI, UNITS, WORDS = 100, 33, 100_000, 1024, 10
GPUS, CORES = 8, 64
# Of a model of 300 million parameters: loading it, and its passes at 10,000 tokens a second.
LOADING, TOKENS = 20.0, 10_000.0
# Bytes a second that the shared disk gives to all workers together.
DISK = 1e9
FASTER = 60


class Kind(NamedTuple):
    """One kind of work: how often, seconds of a core each, bytes that each reads and writes."""

    what: str
    n: int
    seconds: float
    n_bytes: float
    at_once: int

    @property
    def hours(self) -> float:
        """By computing alone."""
        return self.n * self.seconds / self.at_once / 3600

    @property
    def disk_hours(self) -> float:
        return self.n * self.n_bytes / DISK / 3600


def processor_seconds(call: Callable[[], object]) -> float:
    """Of this process; what waits for others on this machine does not count."""
    start = time.process_time()
    call()
    return time.process_time() - start


def measured() -> list[Kind]:
    """The kinds of work of the study, with what one piece takes here."""
    rng = np.random.default_rng(0)
    table = features(STIMULI, rng)
    texts = [" ".join(f"w{n}_{k}" for k in range(WORDS)) for n in range(STIMULI // WORDS)]
    words = {"sentence": np.repeat(texts, WORDS), "word_index": np.tile(range(WORDS), len(texts))}
    stimuli = from_frame(table.assign(**words), "study")
    folds = stimulus_folds(stimuli, "sentences", 5, 0)
    index = PairIndex.build(feature_columns(stimuli), folds, design=PairDesign.of(folds))
    rows = rng.standard_normal((STIMULI, UNITS), dtype=np.float32)
    rows[:, :4] = planted(table, 0)
    work = LayerWork("euclidean", "layer", train_ranks=True, ranks=True, designs=True)
    assert index.cell.size
    found = []
    layer = processor_seconds(lambda: found.append(one_layer(index, lambda: rows, work)))
    doubled = found[0].doubled
    assert doubled is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ranks.npy"
        layer += processor_seconds(lambda: (np.save(path, doubled), sha256_file(path)))
        n_layers, n_pairs = MODELS * LAYERS, index.design.n_pairs
        parts = list(rank_parts(n_layers, 0, n_pairs))
        files = PairRanks(n_layers, n_pairs)
        for number in range(n_layers):
            files.put(number, path)
        off = next(part for part in parts if part.a != part.b)
        rsa = processor_seconds(lambda: part_sums(files, off))
    tokens = STIMULI / WORDS * WORDS * 1.3
    layer_bytes = 4.0 * STIMULI * UNITS
    part_bytes = 4.0 * (off.a[1] - off.a[0] + off.b[1] - off.b[0]) * (off.last - off.first)
    return [
        Kind("extraction: a model", MODELS, LOADING + tokens / TOKENS, LAYERS * layer_bytes, GPUS),
        Kind("pass over the pairs: a layer", n_layers, layer, layer_bytes + 4.0 * n_pairs, CORES),
        Kind("RSA: a part of the products", len(parts), rsa, part_bytes, CORES),
    ]


def slept(seconds: float) -> None:
    """What a worker does in the simulation."""
    time.sleep(seconds)


def simulated(kinds: list[Kind]) -> list[float]:
    """Hours of each kind, one after the other, by Dask on workers that sleep."""
    from distributed import Client, LocalCluster, wait

    hours = []
    for kind in kinds:
        # Many short pieces go together: Dask's own millisecond would count FASTER times.
        together = max(1, kind.n // 2000)
        with (
            LocalCluster(1, threads_per_worker=kind.at_once, processes=False) as cluster,
            Client(cluster) as client,
        ):
            start = time.perf_counter()
            pieces = range(-(-kind.n // together))
            durations = [together * kind.seconds / FASTER for _ in pieces]
            wait(client.map(slept, durations, pure=False))
            hours.append((time.perf_counter() - start) * FASTER / 3600)
    return hours


def main() -> None:
    """Print the table."""
    kinds = measured()
    print(
        f"{MODELS} models × {LAYERS} layers × {STIMULI:,} stimuli of {UNITS} units on {GPUS} GPUs"
    )
    print(f"and {CORES} cores; {about_here()['mlem_core']}")
    print("| what | pieces | seconds each | hours | by Dask | TB | hours of the disk |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for kind, dask in zip(kinds, simulated(kinds), strict=True):
        print(
            f"| {kind.what} | {kind.n:,} | {kind.seconds:.2f} | {kind.hours:.2f} | {dask:.2f} | "
            f"{kind.n * kind.n_bytes / 1e12:.1f} | {kind.disk_hours:.2f} |"
        )


if __name__ == "__main__":
    main()
