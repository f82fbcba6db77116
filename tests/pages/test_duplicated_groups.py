"""Groups of models in the form: what an analysis had is what its duplicate asks for."""

from __future__ import annotations

from mlem_core.analysis.spec import AnalysisSpec, parameters
from mlem_core.base.parameters import in_text
from pages.parts.duplicate import form_of


def test_groups_and_labels_are_a_text_each_that_is_read_again() -> None:
    groups = {"g": ["minilm", "a@r2"], "h": ["b"]}
    labels = {"g": ["objective:mlm", "size:small"], "h": ["objective:causal"]}
    spec = AnalysisSpec(models=("minilm", "a@r2", "b"), groups=groups, labels=labels)
    form = form_of(spec)
    assert form["groups"] == ["g=minilm,a@r2; h=b"]
    for name in ("groups", "labels"):
        (text,) = form[name] or []
        parse = parameters()[name].parse
        assert tuple(parse(one.strip()) for one in text.split(";")) == getattr(spec, name)
    assert form_of(AnalysisSpec(models=("minilm",)))["groups"] is None


def test_a_value_is_written_as_the_command_line_reads_it() -> None:
    assert in_text(("brain", "brain.npz")) == "brain=brain.npz"
    assert in_text(("g", ("a", "b"))) == "g=a,b" and in_text(3) == "3"
