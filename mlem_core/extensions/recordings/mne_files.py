"""Epochs and evoked responses of MNE: a layer a point in time, named "120 ms"."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.extensions.recordings.hdf5 import optional_package
from mlem_core.extensions.recordings.rsa_files import labels
from mlem_core.extensions.recordings.unpacked import BLOCK, UnpackedArray
from mlem_core.representations.array_files import ARRAY_FORMATS, ArrayFormat, FileArray
from mlem_core.storage.digests import Stamp, stamp


def _list_fif(path: Path) -> Iterator[tuple[str, FileArray]]:
    names, times, types, array = _read_fif(path, stamp(path))
    for name, texts in names.items():
        yield name, labels(texts)
    n = len(next(iter(names.values())))
    for kind, channels in types.items():
        for place, time in enumerate(times):
            title = f"{time:g} ms" if len(types) == 1 else f"{kind} {time:g} ms"
            part = (place, slice(None), channels)
            shape = (n, channels.stop - channels.start)
            yield title, FileArray(shape, "float32", "", array.part(part))


@lru_cache(maxsize=4)
def _read_fif(
    path: Path, now: Stamp | None
) -> tuple[dict[str, list[str]], NDArray[np.float64], dict[str, slice], UnpackedArray]:
    """Names of the rows, times in ms, channels of each type, and (n_times, n_rows, n_channels)."""
    mne = optional_package("mne", path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the names of files
        kind = mne.what(path)
        if kind == "epochs":
            recording = mne.read_epochs(path, preload=False, verbose="error")
            kinds = {number: name for name, number in recording.event_id.items()}
            names = {"events": [kinds[number] for number in recording.events[:, 2]]}
            if recording.metadata is not None:
                columns = recording.metadata.items()
                names |= {str(name): [*map(str, values)] for name, values in columns}
        elif kind == "evoked":
            evoked = mne.read_evokeds(path, verbose="error")
            names = {"conditions": [str(each.comment) for each in evoked]}
            recording = evoked[0]
            if len({(tuple(each.ch_names), each.times.tobytes()) for each in evoked}) > 1:
                raise InputError(
                    f"the conditions of {path.name} have other channels or times; expected the "
                    "same for all."
                )
        else:
            raise InputError(
                f"{path.name} holds {kind}; expected epochs or evoked responses of MNE."
            )
        picks = mne.pick_types(recording.info, meg=True, eeg=True, seeg=True, ecog=True, fnirs=True)
        of_channels = np.array(recording.get_channel_types(picks))
        order = np.argsort(of_channels, kind="stable")
        picks, of_channels = picks[order], of_channels[order]
        starts = {kind: np.flatnonzero(of_channels == kind) for kind in dict.fromkeys(of_channels)}
        types = {str(name): slice(where[0], where[-1] + 1) for name, where in starts.items()}
        n = len(next(iter(names.values())))
        step = max(1, BLOCK // (8 * len(recording.ch_names) * len(recording.times)))

        def blocks() -> Iterator[tuple[Any, NDArray[Any]]]:
            for start in range(0, n, step):
                rows = slice(start, min(start + step, n))
                if kind == "epochs":
                    data = recording[rows].get_data(picks, verbose="error")
                else:
                    data = np.array([each.data[picks] for each in evoked[rows]])
                yield (slice(None), rows), np.moveaxis(data, 2, 0)

        shape = (len(recording.times), n, len(picks))
        if not len(picks):
            raise InputError(f"{path.name} has no channel of data; expected MEG or EEG, for one.")
        array = UnpackedArray(path.name, shape, "float32", blocks())
    return names, np.round(recording.times * 1000, 3), types, array


ARRAY_FORMATS.register(ArrayFormat("MNE", (".fif", ".fif.gz"), _list_fif))
