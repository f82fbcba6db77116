"""The two analyses that `replicate` compares."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlem_core.analysis.analysis import Analysis, same_content
from mlem_core.analysis.run import run
from mlem_core.analysis.spec import AnalysisSpec
from mlem_core.base.errors import InputError
from mlem_core.base.text import short
from mlem_core.base.typing import Report
from mlem_core.cli.options import spec_from_options
from mlem_core.storage.store import Store


def two(options: argparse.Namespace, store: Store, report: Report) -> tuple[Analysis, Analysis]:
    """Two results, stimulus sets or halves; what is in the store is not computed again.

    Raises
    ------
    InputError
        One without --halves, or two with it; a result whose stimuli or models have changed since.
    """
    names = [options.first, *filter(None, [options.second])]
    if len(names) == 1 + options.halves:
        found = "two results with --halves" if options.halves else "one result"
        raise InputError(f"found {found}; expected two results, or one and --halves.")
    kept = [_manifest(name) for name in names]
    given = spec_from_options(options)
    specs = [
        AnalysisSpec.from_dict(was["parameters"]) if was else replace(given, stimuli=name)
        for name, was in zip(names, kept, strict=True)
    ]
    if options.halves:
        specs = [replace(specs[0], half=half) for half in ("first", "second")]
    made = [run(spec, store, report) for spec in specs]
    for name, was, analysis in zip(names, kept, made, strict=False):
        now, before = analysis.manifest, was.get("models", {})
        same = [
            same_content(before[of], of_now) for of, of_now in now["models"].items() if of in before
        ]
        if was and not (all(same) and was["digest"] == now["stimuli"]["digest"]):
            raise InputError(f"the stimuli or models of {short(name)} are not those of that run.")
    return made[0], made[1]


def _manifest(name: str) -> dict[str, Any]:
    """Manifest that `analyze` has written of a result; empty for a stimulus set."""
    path = Path(name) / "manifest.json"
    if not path.is_file():
        return {}
    try:
        kept = json.loads(path.read_bytes())
        models = {model: dict(facts) for model, facts in kept["models"].items()}
        digest = str(kept["stimuli"]["digest"])
        return {"parameters": kept["parameters"], "digest": digest, "models": models}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise InputError(f"the manifest.json in {short(name)} is none of analyze.") from None
