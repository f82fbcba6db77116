"""What an audit has found, as tidy tables, and its files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

_TEXTS = "model model_a model_b variant outliers top top_before less more rsa_with note".split()  # noqa: SIM905
_NUMBERS = ("position0", "position0_ranks", "mean_cosine", "tau", "rho", "same", "rsa_change")


@dataclass(frozen=True)
class Audit:
    """What is to be known of each layer before its results are believed.

    Attributes
    ----------
    layers : model, layer, position0 and position0_ranks (share of the variance of the distances
        and of their ranks, see `position_share`), mean_cosine, n_outliers, outliers (numbers of the
        units, largest first), outlier_share (of the variance of all units), rho (held-out), top
        (most important feature), note (what is striking, in sentences)
    changes : model, layer, variant, tau (of the two profiles), top and top_before, less, more and
        lead (two features that changed places, if any did, see `comparison`), rho and
        rho_before, same (Spearman ρ of the distances in both), rsa_change and rsa_with (where the
        layer's RSA with another layer changes most)
    pairs : model_a, layer_a, model_b, layer_b, variant, rsa, rsa_before, tau, tau_before
    notices : sentences about what could not be looked at
    """

    layers: pd.DataFrame
    changes: pd.DataFrame
    pairs: pd.DataFrame
    notices: tuple[str, ...]

    def save(self, folder: Path | str) -> None:
        """Write the tables as CSV, and the notices, into an existing folder."""
        target = Path(folder)
        for name in ("layers", "changes", "pairs"):
            getattr(self, name).to_csv(target / f"{name}.csv", index=False)
        (target / "notices.json").write_text(json.dumps(self.notices), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path | str) -> Audit:
        """Read what `save` wrote."""
        source = Path(folder)
        tables = {
            name: pd.read_csv(
                source / f"{name}.csv",
                dtype=dict.fromkeys(_TEXTS, str),
                # An empty text is a text; what is empty elsewhere is a number that is not defined.
                keep_default_na=False,
                na_values={name: [""] for name in _NUMBERS},
            )
            for name in ("layers", "changes", "pairs")
        }
        notices = json.loads((source / "notices.json").read_text(encoding="utf-8"))
        return cls(**tables, notices=tuple(notices))
