"""From the states of a batch to the rows of its stimuli, a layer at a time, while the pass goes on.

On a GPU a layer's rows are copied out by a stream of their own, beside the computing of the next
layers and of the next batch; nothing else of a layer leaves the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.typing import IntArray

if TYPE_CHECKING:
    import torch


class Spans(NamedTuple):
    """Of which tokens each stimulus is the mean: all arrays are (n_rows,).

    sentence : its sentence in the batch
    first, last : the first and the last of its tokens in there
    """

    sentence: IntArray
    first: IntArray
    last: IntArray


def to_device(array: NDArray[Any], device: str) -> torch.Tensor:
    """An array on a device; on a GPU without waiting for what is computed there."""
    import torch

    tensor = torch.from_numpy(array)
    if device == "cpu":
        return tensor
    # From memory that is not pinned, a copy waits for all work before it.
    return tensor.pin_memory().to(device, non_blocking=True)


class PooledRows:
    """The rows of one batch, layer by layer as `take` is given them.

    Parameters
    ----------
    spans : of the stimuli of the batch
    n_tokens : of each of its sentences
    copies : of a GPU, the stream that copies; None on the CPU
    """

    def __init__(
        self, spans: Spans, n_tokens: int, device: str, copies: torch.cuda.Stream | None
    ) -> None:
        self._sentence = to_device(spans.sentence, device)
        self._copies, self._copied = copies, None if copies is None else copies.record_event()
        self._rows: list[torch.Tensor] = []
        self._last = self._shares = None
        if (spans.first == spans.last).all():
            self._last = to_device(spans.last, device)
        else:
            place = np.arange(n_tokens)
            inside = (place >= spans.first[:, None]) & (place <= spans.last[:, None])
            share = inside / inside.sum(axis=1, keepdims=True)
            self._shares = to_device(share.astype(np.float32), device)[:, None, :]

    def take(self, state: torch.Tensor) -> None:
        """Keep the stimuli's rows of the next layer, whose states are (n_inputs, n_tokens, n)."""
        import torch

        if self._shares is None:
            rows = state[self._sentence, self._last].float()
        else:
            rows = torch.matmul(self._shares, state.float()[self._sentence])[:, 0]
        if self._copies is None:
            self._rows.append(rows)
            return
        there = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True)
        self._copies.wait_stream(torch.cuda.current_stream(rows.device))
        with torch.cuda.stream(self._copies):
            there.copy_(rows, non_blocking=True)
        # Given up here, but not to be used for anything else before it has been copied.
        rows.record_stream(self._copies)
        self._copied = self._copies.record_event()
        self._rows.append(there)

    def arrays(self) -> list[NDArray[np.float32]]:
        """(n_rows, n_units) of each layer, as soon as all are here."""
        if self._copied is not None:
            self._copied.synchronize()
        return [rows.numpy() for rows in self._rows]
