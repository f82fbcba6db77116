"""An analysis as one writes it: the options of a command, and lines of Python."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from mlem_core.analysis.selection import Selection
from mlem_core.analysis.spec import AnalysisSpec, parameters
from mlem_core.base.errors import InputError
from mlem_core.base.parameters import Parameter, in_text
from mlem_core.base.text import short
from mlem_core.base.typing import Layer, layer_name


def _chosen(spec: AnalysisSpec) -> dict[str, tuple[Parameter, Any]]:
    """Parameters that are not the defaults, with their values."""
    defaults = AnalysisSpec()
    values = {name: (known, getattr(spec, name)) for name, known in parameters().items()}
    return {
        name: of
        for name, of in values.items()
        if name == "stimuli" or of[1] != getattr(defaults, name)
    }


def of_selection(spec: AnalysisSpec, selection: Selection, features: list[str]) -> AnalysisSpec:
    """The analysis of a selection alone, as an analysis of its own.

    Parameters
    ----------
    features : all of the analysis; layers stay those of the analysis
    """
    chosen = None if list(selection.features) == features else selection.features
    return replace(
        spec,
        features=spec.features if chosen is None else chosen,
        estimator=selection.estimator,
        interactions=selection.interactions,
    )


def options_of(spec: AnalysisSpec) -> list[str]:
    """Options of the command line that give an analysis: ["--stimuli=probing", ...].

    Raises
    ------
    InputError
        A value that no option stands for, such as a name with a comma.
    """
    options: list[str] = []
    for name, (known, value) in _chosen(spec).items():
        option = f"--{(known.option or name).replace('_', '-')}"
        if value is True:
            options.append(option)
            continue
        for one in value if known.repeated and isinstance(value, tuple) else (value,):
            whole = known.repeated or not isinstance(one, tuple)
            text = in_text(one) if whole else ",".join(map(str, one)) or "none"
            text = "all" if (name, one) == ("pairs", 0) else text
            if isinstance(one, tuple) and known.parse(text) != one:
                raise InputError(f"{short(text)} cannot be given as {option}; use Python.")
            options.append(f"{option}={text}")
    return options


def shell_line(command: str, spec: AnalysisSpec, *arguments: str) -> str:
    """A line for a shell, such as "mlem why minilm:3 gpt2:5 --stimuli=probing"."""
    return shlex.join(["mlem", command, *arguments, *options_of(spec)])


def python_of(spec: AnalysisSpec, pair: tuple[Layer, Layer] | None = None) -> str:
    """Lines of Python that run an analysis, and explain two layers."""
    given = ", ".join(f"{name}={value!r}" for name, (_, value) in _chosen(spec).items())
    lines = ["from mlem_core import AnalysisSpec, explain, run", ""]
    lines += [f"analysis = run(AnalysisSpec({given}))"]
    if pair is not None:
        a, b = map(layer_name, pair)
        lines.append(f"print(explain(analysis, {a!r}, {b!r}))")
    return "\n".join([*lines, "analysis.plot.profiles()"])
