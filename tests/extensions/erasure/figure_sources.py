"""What the figure of an erasure is exported from."""

from dataclasses import replace

import numpy as np
import pandas as pd

from mlem_core.extensions.erasure.stage import ERASURE, Erasure
from mlem_core.tasks import examples


def rising_erasure(sources):
    """Measures of three later layers that rise from 0 to 1, beside a wide band."""
    analysis, where, other = examples.example(), ("mini-gpt2", 1), ("mini-mamba", 3)
    measures = ("importance", "rest", "RSA with mini-mamba:3")
    places = [(measure, layer) for measure in measures for layer in (1, 3, 6)]
    table = pd.DataFrame([*places, ("surprisal", 7)], columns=["measure", "layer"])
    ends = {"before": 1.0, "after": 0.5, "lower": 0.4, "upper": 0.6, "beyond": True}
    ends |= {"control_lower": 0.7, "control_upper": 1.1, "interchanged": 0.45}
    table = table.assign(model=where[0], feature="part_of_speech", **ends)
    erasure = Erasure(table, "part_of_speech", *where, np.zeros((2, 0, 0)), ())
    options = {"erased": "part_of_speech", "erased_at": "mini-gpt2:1", "other": "mini-mamba:3"}
    context = sources.context(analysis, **options)
    request = {"feature": "part_of_speech", "layer": where, "others": (other,), "later": None}
    replace(ERASURE, compute=lambda *_, **__: erasure).get(context, **request, positions="all")
    return context


FIGURE_SOURCES = {"erasure": rising_erasure}
