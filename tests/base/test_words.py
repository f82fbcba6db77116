"""Names, lists, counts and layers as they are shown."""

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from mlem_core.base.labels import Names, shortened, width
from mlem_core.base.text import listed, many


def test_lists_and_counts_as_text():
    assert [listed(list(parts)) for parts in ("", "ab")] == ["", "a and b"]
    assert listed(["a", "b", "c"], last="or") == "a, b or c"
    assert listed(["a", "b", "c"], most=3) == "a, b and c"
    assert listed(["a", "b", "c", "d"], most=2) == "a, b and 2 more"
    assert [many(n, "row") for n in (0, 1, 2_000)] == ["0 rows", "1 row", "2,000 rows"]


@given(
    st.lists(
        st.text(st.sampled_from("ab_1长ب "), min_size=1, max_size=40), max_size=12, unique=True
    ),
    st.integers(6, 20),
)
def test_no_two_long_names_become_alike(names, longest):
    lines = [" ".join(name.split()) for name in names]
    short = shortened(names, longest)
    assert len(set(short)) == len(set(lines))
    assert all(
        one == line if width(line) <= longest else width(one) <= longest
        for one, line in zip(short, lines, strict=True)
    )


def test_features_and_layers_are_called_as_a_user_says():
    names = Names(
        features={"pos": "part of speech", "a × b": "both"},
        models={"fmri": "brain"},
        layers={"fmri:0": "V1", "fmri:2": "IT"},
    )
    assert names.feature("pos × word_length") == "part of speech × word length"
    assert names.feature("a × b") == "both"
    assert names.feature("pos: a_noun/a_verb") == "part of speech: a_noun/a_verb"
    assert names.layer_title(("fmri", 0)) == "brain V1"
    assert names.layer_title(("minilm", 0)) == "minilm layer 0"
    table = pd.DataFrame({"model": ["fmri", "fmri", "minilm"], "layer": [2, 1, 2]})
    table = table.assign(layer_a=["fmri:0", "fmri:1", "minilm:0"], pos=["fmri", "pos", "x"])
    named = names.table(table.assign(term=["pos", "not explained", None]))
    assert named["layer"].tolist() == ["IT", 1, 2]
    assert named["layer_a"].tolist() == ["brain:V1", "brain:1", "minilm:0"]
    assert named["term"].tolist()[:2] == ["part of speech", "not explained"]
    assert named["pos"].tolist() == ["fmri", "pos", "x"]
