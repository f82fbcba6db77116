"""The models of the example in their kinds: a seed is named once, and groups and labels follow."""

from __future__ import annotations

from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.models.registry import defaults
from mlem_core.tasks import examples

SEEDS = ("mini-bert", "mini-bert-s1", "mini-bert-s2")


def with_seeds(**more: examples.Kind) -> dict[str, examples.Kind]:
    kinds = {**examples.KINDS, **more}
    return kinds | {"mini-bert": kinds["mini-bert"]._replace(models=SEEDS)}


def test_every_model_that_an_analysis_begins_with_is_in_one_kind() -> None:
    named = [model for kind in examples.KINDS.values() for model in kind.models]
    assert set(defaults()) <= set(named) and len(set(named)) == len(named)
    factors = {
        tuple(label.partition(":")[0] for label in kind.labels) for kind in examples.KINDS.values()
    }
    assert len(factors) == 1


def test_one_model_of_each_kind_is_no_group() -> None:
    ones = {name: kind._replace(models=kind.models[:1]) for name, kind in examples.KINDS.items()}
    models = tuple(sorted(kind.models[0] for kind in ones.values()))
    plain = AnalysisSpec(stimuli="probing", models=models, layers=examples.LAYERS)
    assert examples.of_kinds(ones) == plain


def test_seeds_make_groups_with_the_labels_of_their_kind() -> None:
    causal = examples.Kind(("a", "a-s1"), ("objective:causal", "family:transformer"))
    spec = examples.of_kinds(with_seeds(causal=causal))
    spec.check()
    groups = dict(spec.groups)
    assert spec.has_seeds and (groups["mini-bert"], groups["causal"]) == (SEEDS, ("a", "a-s1"))
    assert dict(spec.labels)["causal"] == causal.labels
    assert {*SEEDS, "a", "a-s1", *defaults()} <= {*spec.models} and "causal" not in spec.models


def test_checkpoints_are_models_with_the_labels_of_their_run() -> None:
    steps = {"mini-bert": ("mini-bert@step500", "mini-bert@step1000")}
    for kinds in (examples.KINDS, with_seeds()):
        spec = examples.of_kinds(kinds, steps)
        spec.check()
        assert dict(spec.trajectories) == steps and {*steps["mini-bert"]} <= {*spec.models}
    assert dict(spec.labels)["mini-bert@step500"] == examples.KINDS["mini-bert"].labels
