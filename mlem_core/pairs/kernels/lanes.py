"""Sums of eight whole numbers at once, which numba does not make of a loop by itself."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

# How many numbers are a row.
LANES = 8


def _add_lanes(_: Any, target: Any, i: Any, source: Any, j: Any) -> Any:
    whole = ir.IntType(64)
    row = ir.VectorType(whole, LANES)

    def generated(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        def row_at(array: int, at: int) -> Any:
            memory = context.make_array(signature.args[array])(context, builder, given[array]).data
            number = context.cast(builder, given[at], signature.args[at], types.intp)
            place = builder.gep(memory, [builder.mul(number, whole(LANES))])
            return builder.bitcast(place, row.as_pointer())

        own, other = row_at(0, 1), row_at(2, 3)
        total = builder.add(builder.load(own, align=8), builder.load(other, align=8))
        builder.store(total, own, align=8)
        return context.get_dummy_value()

    return types.void(target, i, source, j), generated


# add_lanes(target, i, source, j) adds row j of source (n, LANES) to row i of target (n, LANES),
# both int64 and C-contiguous. Nothing checks the numbers of the rows, which are at least 0.
add_lanes: Any = intrinsic(_add_lanes)
