"""What the controlled trio shows about architecture: the figures and tables of docs/trio.md.

    .venv/bin/python examples/trio/trio.py --out docs/trio

Three models of the same text, tokenizer, width and number of parameters, beside the same networks
with random weights. It takes a few minutes on two cores.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from mlem_core import AnalysisSpec, Store, figures, run
from mlem_core.analysis.analysis import Analysis
from mlem_core.data.csvfile import write_table
from mlem_core.measures.decomposition import decompose

TRIO = ("mini-bert", "mini-gpt2", "mini-mamba")


def analyse(without_first: bool = False) -> Analysis:
    """The trio and its untrained copies on the probing set."""
    spec = AnalysisSpec(
        stimuli="probing",
        models=(*TRIO, *(f"{name}@random" for name in TRIO)),
        positions="without-first" if without_first else "all",
    )
    return run(spec, Store())


def of_trio(analysis: Analysis) -> list[tuple[str, int]]:
    """The layers of the trained models."""
    return [layer for layer in analysis.layers if layer[0] in TRIO]


def best(analysis: Analysis) -> pd.DataFrame:
    """For every two models the pair of layers, after the embeddings, that is most alike by RSA.

    Returns
    -------
    model_a, layer_a, model_b, layer_b, rsa, and a column for each term of its decomposition; then
    the same of the same layers with random weights, as random_rsa and so on
    """
    rows = []
    for i, one in enumerate(TRIO):
        for other in TRIO[i + 1 :]:
            pairs = [
                (analysis.rsa[a, b], a, b)
                for a, (m, j) in enumerate(analysis.layers)
                for b, (n, k) in enumerate(analysis.layers)
                if (m, n) == (one, other) and j > 0 and k > 0
            ]
            _, a, b = max(pairs)
            ends = [analysis.layers[a], analysis.layers[b]]
            row = dict(
                zip(("model_a", "layer_a", "model_b", "layer_b"), sum(ends, ()), strict=True)
            )
            for prefix, suffix in (("", ""), ("random_", "@random")):
                at = [analysis.layers.index((model + suffix, layer)) for model, layer in ends]
                found = decompose(analysis.tables.of_layers(at), analysis.rsa[at][:, at])
                terms = found.pair(0, 1).set_index("term")["value"].to_dict()
                values = {"rsa": analysis.rsa[at[0], at[1]]} | terms
                row |= {f"{prefix}{name}": value for name, value in values.items()}
            rows.append(row)
    return pd.DataFrame(rows)


def main() -> None:
    """Write the figures (SVG) and the tables (CSV)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/trio"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, without_first in (("all", False), ("without-first", True)):
        analysis = analyse(without_first)
        features = [feature.name for feature in analysis.stimuli.features]
        results = analysis.results(layers=of_trio(analysis))
        draw = {
            f"profiles-{name}": figures.profiles(results.importance, results.scores, features),
            f"similarity-{name}": figures.similarity_matrices(
                results.similarity_profiles, results.similarity_rsa
            ),
        }
        for title, figure in draw.items():
            svg = figures.image(figure, "svg", width=1000, height=int(figure.layout.height))
            (out / f"{title}.svg").write_bytes(svg)
        write_table(best(analysis).round(4), out / f"best-{name}.csv")
        whole = analysis.results()
        mean = whole.scores.groupby(["model", "layer"], sort=False)["rho"].mean()
        importance = whole.importance.groupby(["model", "layer", "feature"], sort=False)
        table = importance["importance"].mean().unstack(sort=False)
        write_table(table.assign(rho=mean).round(4).reset_index(), out / f"layers-{name}.csv")


if __name__ == "__main__":
    main()
