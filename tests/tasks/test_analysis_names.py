"""Names of analyses: the user's, or derived ones, which tell analyses apart."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.storage.files import write_json
from mlem_core.storage.store import Store
from mlem_core.tasks import analyses, examples, notes
from mlem_core.tasks.analyses import Job
from mlem_core.tasks.naming import chosen, derived, names

TWO = AnalysisSpec(stimuli="probing", models=("minilm", "mini-bert"))
FIVE = replace(TWO, models=("minilm", "mini-bert", "mini-gpt2", "mini-mamba", "smollm2"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def asked(spec: AnalysisSpec, store: Store, at: float = 1_700_000_000) -> Job:
    """An analysis that was asked for and never ran."""
    folder = store.root / "jobs" / analyses.job_id(spec)
    folder.mkdir(parents=True)
    write_json(folder / "spec.json", spec.to_dict())
    os.utime(folder / "spec.json", (at, at))
    job = analyses.find(folder.name, store)
    assert job is not None
    return job


def test_a_derived_name_says_what_was_chosen(store: Store) -> None:
    spec = replace(FIVE, estimator="spearman", features=("tense",), interactions=True)
    assert derived(asked(TWO, store)) == "probing · minilm, mini-bert"
    assert derived(asked(spec, store)) == (
        "probing · 5 models · 1 feature · spearman · with interactions"
    )
    example = analyses.find(examples.ID, store)
    assert example is not None
    assert derived(example) == "Example: probing, 11 models"


def test_how_stimuli_were_read_is_said_where_nothing_else_differs(store: Store) -> None:
    jobs = [asked(TWO, store), asked(replace(TWO, roles=(("tense", "ignore"),)), store)]
    assert derived(jobs[1]) == "probing · minilm, mini-bert"
    assert sorted(names(jobs, store).values()) == [
        "probing · minilm, mini-bert",
        "probing · minilm, mini-bert · roles tense=ignore",
    ]


def test_groups_are_named_without_their_members(store: Store) -> None:
    kinds = (("bert", ("mini-bert", "mini-bert@step64")), ("large", ("smollm2",)))
    spec = replace(
        FIVE,
        models=("mini-bert", "mini-bert@step64", "smollm2"),
        groups=kinds,
        labels=tuple((name, (f"objective:{name}", f"size:{name}")) for name, _ in kinds),
        trajectories=(("training", kinds[0][1]),),
    )
    assert list(chosen(spec).values()) == [
        "groups bert, large",
        "labels objective, size",
        "trajectories training",
    ]
    many = tuple((f"kind {k}", ("minilm",)) for k in range(5))
    assert chosen(replace(spec, groups=many))["groups"] == "5 groups"


def test_no_two_are_called_the_same(store: Store, tmp_path: Path) -> None:
    # Other models of the same number; the same file name with other content; the same name given.
    specs = [FIVE, replace(FIVE, models=("gpt2", *FIVE.models[1:]))]
    for n in range(2):
        folder = tmp_path / f"{n}"
        folder.mkdir()
        (folder / "mine.csv").write_text(f"sentence,a\nx y,{n}\n")
        specs.append(replace(TWO, stimuli=str(folder / "mine.csv")))
    jobs = [asked(spec, store) for spec in specs]
    jobs += [asked(replace(TWO, seed=seed), store, 1_700_000_000 + seed) for seed in (1, 2)]
    for job in jobs[-2:]:
        notes.change(job.id, store, lambda old: old.named("words"))
    found = names(jobs, store)
    assert len(set(found.values())) == len(jobs)
    assert found[jobs[0].id] == "probing · minilm, mini-bert, mini-gpt2, mini-mamba, smollm2"
    assert found[jobs[2].id].startswith("mine · minilm, mini-bert · 14 Nov")
    assert found[jobs[2].id].endswith(jobs[2].id[:6])  # started in the same minute
    assert found[jobs[4].id].startswith("words · ")
    assert names(jobs[4:5], store) == {jobs[4].id: "words"}
