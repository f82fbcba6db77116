from __future__ import annotations

import pytest

from mlem_core.report.compared import compare

MAP = b"measure,model,layer,x,y\nrsa,a,0,0.5,0.0\nrsa,a,1,0.1,0.2\nrsa,a,2,0.0,0.4\n"
HEADER, *ROWS = MAP.splitlines(keepends=True)


def test_a_map_is_the_same_in_another_order_and_mirrored():
    assert compare("layer_map.csv", MAP, HEADER + b"".join(ROWS[::-1])).same
    assert compare("layer_map.csv", MAP, MAP.replace(b",0.5,", b",-0.5,").replace(
        b",0.1,", b",-0.1,")).same  # fmt: skip
    assert not compare("layer_map.csv", MAP, MAP.replace(b"0.2", b"0.3")).same


@pytest.mark.parametrize(
    ("header", "more"),
    [
        (b"measure,model,layer,x,Y\n", b""),
        (b"measure,model,layer,x,ya\n", b""),
        (b"measure,model,layer,x,y,p\n", b",0.1"),
        (b"measure,model,layer,x,y,x\n", b",0.1"),
    ],
)
def test_a_map_with_other_columns_is_another(header, more):
    rows = [row.rstrip() + more + b"\n" for row in ROWS]
    assert compare("layer_map.csv", MAP, header + b"".join(rows)).n_missing


def test_a_word_in_the_place_of_nothing_is_found():
    found = compare("why_partial.csv", b"quantity,value\na,p < .001\n", b"quantity,value\na,\n")
    assert found.n_different == 1 and "p < .001" in found.worst and "nothing" in found.worst
