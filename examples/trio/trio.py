"""What the small models show about architecture, objective and training: docs/trio.md.

    .venv/bin/python examples/trio/trio.py --out docs/trio

Kinds of models of the same text, tokenizer, width and number of parameters, in as many seeds as
come with the program, beside the same networks with random weights; and the trio in its training.
It takes some minutes on two cores.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

import pandas as pd

from mlem_core import AnalysisSpec, Store, run
from mlem_core.analysis.analysis import Analysis
from mlem_core.extensions.systems.group_figures import (
    group_profiles,
    group_similarity,
    trajectories,
    universality,
)
from mlem_core.extensions.systems.group_spec import group_options
from mlem_core.extensions.systems.model_groups import Members, model_similarity
from mlem_core.extensions.systems.summary import GroupSummary, group_tables, lines
from mlem_core.figures.export import image
from mlem_core.figures.profiles import profiles
from mlem_core.figures.similarity import similarity_matrices
from mlem_core.measures.decomposition import decompose
from mlem_core.representations.registry import MODELS, models_with_seeds, seeds, variants
from mlem_core.stimuli.stimulus_csv import write_table

TRIO = ("mini-bert", "mini-gpt2", "mini-mamba")
# The kinds that come with the program.
KINDS = tuple(name for name, model in MODELS.items() if model.packed)


def labels(kind: str) -> tuple[str, str]:
    """What a kind is trained to do, and its family."""
    objective = "causal" if MODELS[kind].causal else "masked"
    return f"objective:{objective}", f"family:{'state space' if 'mamba' in kind else 'transformer'}"


def of_kinds(without_first: bool = False) -> Analysis:
    """All kinds and seeds, and the untrained copies of each kind, on the probing set."""
    return run(
        AnalysisSpec(
            stimuli="probing",
            as_in="paper1",
            models=(
                *(model for kind in KINDS for model in seeds(kind)),
                *(f"{kind}@random" for kind in KINDS),
            ),
            positions="without-first" if without_first else "all",
            groups=tuple(models_with_seeds().items()),
            labels=tuple(
                (name, labels(kind)) for kind in KINDS for name in (kind, f"{kind}@random")
            ),
        ),
        Store(),
    )


def of_training() -> Analysis:
    """The trio's steps of training, on the probing set."""
    steps = {kind: tuple(f"{kind}@step{n}" for n in variants(kind, "step")) for kind in TRIO}
    return run(
        AnalysisSpec(
            stimuli="probing",
            as_in="paper1",
            models=tuple(model for members in steps.values() for model in members),
            trajectories=tuple(steps.items()),
        ),
        Store(),
    )


def best(analysis: Analysis) -> pd.DataFrame:
    """For every two kinds, seed 0, the pair of layers after the embeddings most alike by RSA.

    Returns
    -------
    model_a, layer_a, model_b, layer_b, rsa, and a column for each term of its decomposition; then
    the same of the same layers with random weights, as random_rsa and so on
    """
    rows = []
    for i, one in enumerate(KINDS):
        for other in KINDS[i + 1 :]:
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
                found = decompose(analysis.pairs.select_layers(at).moments)
                terms = found.pair(0, 1).set_index("term")["value"].to_dict()
                values = {"rsa": analysis.rsa[at[0], at[1]]} | terms
                row |= {f"{prefix}{name}": value for name, value in values.items()}
            rows.append(row)
    return pd.DataFrame(rows)


def by_layer(analysis: Analysis) -> pd.DataFrame:
    """Score and importances of every layer, means over folds."""
    whole = analysis.results()
    mean = whole.scores.groupby(["model", "layer"], sort=False)["rho"].mean()
    importance = whole.importance.groupby(["model", "layer", "feature"], sort=False)
    table = importance["importance"].mean().unstack(sort=False)
    return table.assign(rho=mean).round(4).reset_index()


def save(figure: Any, path: Path) -> None:
    """A figure as SVG."""
    svg = image(figure, "svg", width=1000, height=int(figure.layout.height))
    path.write_bytes(svg)


def of_members_of_kinds(analysis: Analysis) -> pd.DataFrame:
    """RSA of every two models of one group, layers of the same depth, as model_a, model_b, rsa."""
    models = list(dict.fromkeys(model for model, _ in analysis.layers))
    members = Members.from_table(group_options(analysis.spec).models_table(models), analysis.layers)
    alike = model_similarity(analysis.rsa, members)
    rows = [
        (members.members[a], members.members[b], alike[a, b])
        for group in range(len(members.groups))
        for a, b in itertools.combinations(members.group_members(group), 2)
    ]
    return pd.DataFrame(rows, columns=["model_a", "model_b", "rsa"])


def write_groups(analysis: Analysis, features: list[str], out: Path, name: str) -> None:
    """What is said of the kinds with several seeds, and its figures."""
    trained = [one for one in analysis.layers if not one[0].endswith("@random")]
    selected = analysis.select(layers=trained)
    found = GroupSummary(analysis, selected)
    for file, table in group_tables(found).items():
        write_table(table.round(4), out / f"{Path(file).stem}-{name}.csv")
    write_table(of_members_of_kinds(analysis).round(4), out / f"members-{name}.csv")
    (out / f"groups-{name}.txt").write_text("\n".join(lines(found)) + "\n", encoding="utf-8")
    save(group_profiles(found.profiles, features), out / f"groups-{name}.svg")
    save(group_similarity(found.similarity), out / f"group-similarity-{name}.svg")
    save(universality(found.universality), out / f"universality-{name}.svg")


def main() -> None:
    """Write the figures (SVG) and the tables (CSV)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/trio"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, without_first in (("all", False), ("without-first", True)):
        analysis = of_kinds(without_first)
        features = [feature.name for feature in analysis.stimuli.features]
        kinds = analysis.results(layers=[one for one in analysis.layers if one[0] in KINDS])
        save(
            profiles(kinds.importance, kinds.scores, features),
            out / f"profiles-{name}.svg",
        )
        save(
            similarity_matrices(kinds.similarity_profiles, kinds.similarity_rsa),
            out / f"similarity-{name}.svg",
        )
        write_table(best(analysis).round(4), out / f"best-{name}.csv")
        write_table(by_layer(analysis), out / f"layers-{name}.csv")
        if analysis.spec.groups:
            write_groups(analysis, features, out, name)
    analysis = of_training()
    trained = GroupSummary.from_analysis(analysis)
    for file, table in group_tables(trained).items():
        write_table(table, out / file)
    features = [feature.name for feature in analysis.stimuli.features]
    of_mean = trained.trajectories[trained.trajectories["layer"].isna()]
    save(trajectories(of_mean, features), out / "training.svg")
    write_table(by_layer(analysis), out / "layers-training.csv")


if __name__ == "__main__":
    main()
