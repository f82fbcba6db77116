"""What an analysis is, and its run from the stimuli to the tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mlem_core import representations
from mlem_core.checks import feature_notices
from mlem_core.distances import PRECOMPUTED, squared_distances
from mlem_core.errors import InputError, unknown
from mlem_core.gpu import cuda_device
from mlem_core.manifest import manifest_of
from mlem_core.metric import FoldFits, group_folds
from mlem_core.pairs import pair_tables
from mlem_core.patterns import FloatArray, IntArray, PairIndex, feature_columns
from mlem_core.representations import Representations
from mlem_core.results import Layer, Results, results_from_tables
from mlem_core.similarity import PairRanks, mds_map
from mlem_core.spec import AnalysisSpec
from mlem_core.stimuli import StimulusSet, read_csv, write_csv
from mlem_core.store import Store
from mlem_core.tables import PairTables
from mlem_core.variants import kept_stimuli, view

# Metric MDS of more stimuli takes too long to look at; a seeded sample shows the same clusters.
MAP_STIMULI = 1_000
TABLES_VERSION = 3
MAP_VERSION = 1


@dataclass(frozen=True)
class Progress:
    """How far one stage of a run is: `done` of `total` units (sentences, layers)."""

    stage: str
    model: str | None
    done: int
    total: int
    unit: str


Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Analysis:
    """A finished run: pair tables of all layers, from which every result follows.

    Attributes
    ----------
    spec : what was asked
    stimuli : with the features of the analysis; n_stimuli of them, without those left out
    layers : (model, layer) of each of the n_layers layers
    tables : pair tables of the n_layers layers
    rsa : (n_layers, n_layers) Spearman ρ of the neural distances
    folds : (n_stimuli,) the fold that tests each stimulus
    notices : sentences about what was left out or is not exact
    manifest : everything needed to run it again
    whole : the stimuli as they were given; `rows` says which of them `stimuli` are
    maps : maps (n_shown, 2) of the stimuli that are kept with the analysis, by layer; others are
        made from the representations
    """

    spec: AnalysisSpec
    stimuli: StimulusSet
    layers: list[Layer]
    tables: PairTables
    rsa: FloatArray
    folds: IntArray
    notices: list[str]
    manifest: dict[str, Any]
    whole: StimulusSet
    maps: Mapping[Layer, FloatArray] = field(default_factory=dict)

    @property
    def rows(self) -> IntArray:
        """(n_stimuli,) the row of each stimulus in the stimuli as they were given, from 0."""
        return kept_stimuli(self.whole, self.spec.positions)

    def results(
        self,
        features: Sequence[str] | None = None,
        layers: Sequence[Layer] | None = None,
        estimator: str | None = None,
        interactions: bool | None = None,
        fits: tuple[FoldFits, FloatArray] | None = None,
    ) -> Results:
        """All tables for some features and layers, from the pair tables alone.

        The same as a run with only these features, or with this estimator, would have given.

        Parameters
        ----------
        estimator, interactions : instead of those of the analysis
        fits : of these features and layers, where they have been computed before

        Raises
        ------
        InputError
            A feature or layer that the analysis does not have, or none; an unknown estimator; an
            estimator that fits ranks on an analysis of before they were kept.
        """
        estimator = self.spec.estimator if estimator is None else estimator
        interactions = self.spec.interactions if interactions is None else interactions
        tables, kept, rsa = self.chosen(features, layers, interactions)
        found = results_from_tables(tables, kept, rsa, self.folds, estimator, fits)
        return replace(found, folds=found.folds.assign(stimulus=self.rows))

    def chosen(
        self,
        features: Sequence[str] | None,
        layers: Sequence[Layer] | None,
        interactions: bool,
    ) -> tuple[PairTables, list[Layer], FloatArray]:
        """Pair tables of some features and layers, these layers, and their RSA.

        Raises
        ------
        InputError
            A feature or layer that the analysis does not have, or none.
        """
        tables, kept, rsa = self.tables, self.layers, self.rsa
        if layers is not None:
            for layer in layers:
                if layer not in self.layers:
                    raise unknown(
                        "layer",
                        f"{layer[0]}:{layer[1]}",
                        [f"{model}:{number}" for model, number in self.layers],
                    )
            at = [i for i, layer in enumerate(self.layers) if layer in set(layers)]
            if not at:
                raise InputError("no layer is left; choose at least one.")
            tables, kept, rsa = tables.of_layers(at), [kept[i] for i in at], rsa[np.ix_(at, at)]
        if features is not None:
            tables = tables.of_features(features)
        return tables.with_interactions(interactions), kept, rsa

    def stimulus_map(self, model: str, layer: int, store: Store) -> pd.DataFrame:
        """Map (metric MDS) of the stimuli in one layer: stimulus, x, y.

        Of more than `MAP_STIMULI` stimuli a seeded sample is shown.

        Raises
        ------
        InputError
            The layer is not in the analysis, or its representations are no longer in the store.
        """
        if (model, layer) not in self.layers:
            names = [f"{name}:{number}" for name, number in self.layers]
            raise unknown("layer", f"{model}:{layer}", names)
        n = len(self.stimuli)
        rng = np.random.default_rng(self.spec.seed)
        shown = np.sort(rng.permutation(n)[:MAP_STIMULI])
        if (model, layer) in self.maps:
            kept = self.maps[model, layer]
            return pd.DataFrame({"stimulus": shown, "x": kept[:, 0], "y": kept[:, 1]})

        def make(folder: Path) -> None:
            rows = np.asarray(self.representations(model, store).of(layer, shown))
            squared = squared_distances(rows, self.spec.distance, layer=f"{model} layer {layer}")
            square = np.zeros((len(shown), len(shown)))
            square[np.triu_indices(len(shown), 1)] = np.sqrt(squared)
            np.save(folder / "map.npy", mds_map(square + square.T, max_iter=100))

        identity = self.manifest["models"][model]["identity"]
        folder = store.entry(
            "stimulus-map",
            MAP_VERSION,
            make,
            representations=identity,
            layer=layer,
            distance=self.spec.distance,
            seed=self.spec.seed,
            n_stimuli=n,
        )
        points = np.load(folder / "map.npy", allow_pickle=False)
        return pd.DataFrame({"stimulus": shown, "x": points[:, 0], "y": points[:, 1]})

    def representations(self, model: str, store: Store) -> Representations:
        """The representations of one of its models, from the store or from its file.

        Raises
        ------
        InputError
            They are no longer in the store, or the file has gone.
        """
        files = dict(self.spec.representations)
        found: Representations | None
        if model in files:
            found = _from_file(self.spec, self.whole, files[model], model)
        else:
            found = representations.find(
                self.whole,
                model,
                store,
                dtype=self.spec.dtype,
                special_tokens=self.spec.special_tokens,
                pooling=self.spec.pooling,
            )
        if found is None:
            raise InputError(
                f"the representations of {model} are no longer in the store; run the analysis "
                "again to have them."
            )
        return view(found, self.rows, self.spec.positions, self.spec.units)

    def save(self, folder: Path | str) -> None:
        """Write the analysis into an existing folder: plain CSV, JSON and .npy, no pickle."""
        target = Path(folder)
        write_csv(self.whole, target / "stimuli.csv")
        self.tables.save(target / "tables.npz")
        np.save(target / "rsa.npy", self.rsa)
        np.save(target / "folds.npy", self.folds)
        if self.maps:
            kept = [layer for layer in self.layers if layer in self.maps]
            points = np.stack([self.maps[layer] for layer in kept]).astype(np.float32)
            at = [self.layers.index(layer) for layer in kept]
            np.savez_compressed(target / "maps.npz", layers=np.array(at), points=points)
        about = {
            "spec": self.spec.to_dict(),
            "stimuli": self.stimuli.name,
            "kinds": {feature.name: feature.kind for feature in self.stimuli.features},
            "layers": self.layers,
            "notices": self.notices,
            "manifest": self.manifest,
        }
        (target / "analysis.json").write_text(json.dumps(about), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path | str) -> Analysis:
        """Read what `save` wrote."""
        source = Path(folder)
        about = json.loads((source / "analysis.json").read_text(encoding="utf-8"))
        kinds = about["kinds"]
        spec = AnalysisSpec.from_dict(about["spec"])
        whole = read_csv(
            source / "stimuli.csv",
            name=about["stimuli"],
            ordered=[name for name, kind in kinds.items() if kind == "ordered"],
            nominal=[name for name, kind in kinds.items() if kind == "nominal"],
        ).select(list(kinds))
        layers = [(str(model), int(layer)) for model, layer in about["layers"]]
        maps = {}
        if (source / "maps.npz").exists():
            with np.load(source / "maps.npz", allow_pickle=False) as kept:
                points = kept["points"].astype(np.float64)
                maps = {layers[at]: points[i] for i, at in enumerate(kept["layers"])}
        return cls(
            spec=spec,
            stimuli=_kept(whole, spec),
            layers=layers,
            tables=PairTables.load(source / "tables.npz"),
            rsa=np.load(source / "rsa.npy", allow_pickle=False),
            folds=np.load(source / "folds.npy", allow_pickle=False),
            notices=about["notices"],
            manifest=about["manifest"],
            whole=whole,
            maps=maps,
        )


def run(spec: AnalysisSpec, store: Store, progress: Report | None = None) -> Analysis:
    """Run an analysis from top to bottom.

    Representations and pair tables come from the store when nothing that they depend on has
    changed. A model or file that cannot be used is left out, with a notice, if another remains.

    Parameters
    ----------
    progress : called as the work goes on

    Raises
    ------
    InputError
        Whatever the user gave that cannot be used; no model is left.
    """
    spec.check()
    whole = spec.load_stimuli().select(spec.features)
    stimuli = _kept(whole, spec)
    folds = _folds(whole, spec)
    found, notices = _all_representations(spec, whole, store, progress or (lambda _: None))
    rows = kept_stimuli(whole, spec.positions)
    found = [view(source, rows, spec.positions, spec.units) for source in found]
    if len(rows) < len(whole):
        left_out = len(whole) - len(rows)
        notices.append(f"{left_out} of {len(whole)} stimuli, those at position 0, were left out.")
    sources, layers = _chosen_layers(spec, found, notices)
    tables, rsa, notes, kept = _tables(spec, stimuli, folds, sources, layers, store, progress)
    layers = [layers[i] for i in kept]
    notices += notes + feature_notices(tables.with_interactions(spec.interactions))
    for (model, layer), squares in zip(layers, tables.rank_squares, strict=True):
        if squares == 0:
            notices.append(
                f"{model} layer {layer} represents all stimuli alike (every distance is the same); "
                "its scores and importances are 0."
            )
    manifest = manifest_of(spec, whole, stimuli, sources, layers, notices)
    return Analysis(spec, stimuli, layers, tables, rsa, folds, notices, manifest, whole)


def _kept(whole: StimulusSet, spec: AnalysisSpec) -> StimulusSet:
    if spec.positions == "all":
        return whole
    return whole.take(kept_stimuli(whole, spec.positions))


def _folds(whole: StimulusSet, spec: AnalysisSpec) -> IntArray:
    """Those of all stimuli, so that a sentence is in the same fold whichever words are left out."""
    folds = group_folds(whole.groups, spec.folds, spec.seed)[kept_stimuli(whole, spec.positions)]
    smallest = int(np.bincount(folds, minlength=spec.folds).min())
    if smallest < 3:
        raise InputError(
            f"a fold is left with {smallest} stimuli without those at position 0; each of the "
            f"{spec.folds} folds needs at least 3, so choose fewer folds or keep all positions."
        )
    return folds


def _from_file(spec: AnalysisSpec, stimuli: StimulusSet, path: str, name: str) -> Representations:
    distances = spec.distance == PRECOMPUTED
    return representations.from_file(path, stimuli, name, distances=distances)


def model_representations(
    spec: AnalysisSpec, stimuli: StimulusSet, name: str, store: Store, report: Report
) -> Representations:
    """What one model of an analysis makes of its stimuli, from the store where it is kept.

    Raises
    ------
    InputError
        As `mlem_core.representations.from_model`.
    """

    def sentences(done: int, total: int) -> None:
        report(Progress("representations", name, done, total, "sentences"))

    return representations.from_model(
        stimuli,
        name,
        store,
        device=spec.device,
        dtype=spec.dtype,
        special_tokens=spec.special_tokens,
        pooling=spec.pooling,
        progress=sentences,
    )


def _all_representations(
    spec: AnalysisSpec, stimuli: StimulusSet, store: Store, report: Report
) -> tuple[list[Representations], list[str]]:
    found: list[Representations] = []
    files: list[Representations] = []
    errors: dict[str, InputError] = {}
    # Files are read first: what is wrong with them shows before a model has run for minutes.
    for name, path in spec.representations:
        try:
            files.append(_from_file(spec, stimuli, path, name))
        except InputError as error:
            errors[name] = error
    for name in spec.models:
        try:
            found.append(model_representations(spec, stimuli, name, store, report))
        except InputError as error:
            errors[name] = error
    notices = [f"{name} was left out: {error}" for name, error in errors.items()]
    if not found and not files:
        if len(errors) == 1:
            raise next(iter(errors.values()))
        raise InputError("no model is left: " + " ".join(notices))
    notices += [f"A layer was left out: {why}" for source in files for why in source.left_out]
    return [*found, *files], notices


def _chosen_layers(
    spec: AnalysisSpec, found: Sequence[Representations], notices: list[str]
) -> tuple[dict[str, Representations], list[Layer]]:
    layers: list[Layer] = []
    for source in found:
        chosen = [n for n in source.layers if spec.layers is None or n in spec.layers]
        if not chosen:
            notices.append(
                f"{source.name} was left out: it has none of the layers "
                f"{', '.join(str(n) for n in spec.layers or ())}; it has {_span(source.layers)}."
            )
        layers += [(source.name, n) for n in chosen]
    if not layers:
        raise InputError(notices[-1])
    asked = set(spec.layers or ()) - {n for _, n in layers}
    if asked:
        notices.append(
            f"No model has the layers {', '.join(str(n) for n in sorted(asked))}; they were left "
            "out."
        )
    return {source.name: source for source in found}, layers


def _span(layers: Sequence[int]) -> str:
    return f"{layers[0]} to {layers[-1]}" if len(layers) > 1 else f"{layers[0]}"


def _tables(
    spec: AnalysisSpec,
    stimuli: StimulusSet,
    folds: IntArray,
    sources: Mapping[str, Representations],
    layers: Sequence[Layer],
    store: Store,
    progress: Report | None,
) -> tuple[PairTables, FloatArray, list[str], list[int]]:
    """The tables, RSA and notices of the layers that can be used, and which of `layers` these are.

    Raises
    ------
    InputError
        What is wrong with the first layer, if none can be used.
    """

    def counted(done: int, total: int) -> None:
        if progress is not None:
            progress(Progress("pair tables", None, done, total, "layers"))

    def make(folder: Path) -> None:
        counted(0, len(layers))
        index = PairIndex.build(feature_columns(stimuli), folds, spec.missing)
        errors: dict[int, InputError] = {}
        with PairRanks(len(layers), len(stimuli), folder) as ranks:

            def failed(position: int, error: InputError) -> None:
                errors[position] = error
                if len(errors) == len(layers):
                    raise errors[0]
                ranks.put(position, np.zeros(ranks.n_pairs, dtype=np.uint32))

            tables = pair_tables(
                index,
                [lambda name=name, n=n: sources[name][n] for name, n in layers],  # type: ignore[misc]
                names=[f"{name} layer {n}" for name, n in layers],
                distance=spec.distance,
                keep_ranks=ranks.put,
                train_ranks=True,
                failed=failed,
                progress=counted,
                device=cuda_device(spec.device),
            )
            kept = [i for i in range(len(layers)) if i not in errors]
            np.save(folder / "rsa.npy", ranks.rsa()[np.ix_(kept, kept)])
        tables.save(folder / "tables.npz")
        notes = [f"A layer was left out: {errors[i]}" for i in sorted(errors)]
        about = {"notes": [*index.notes, *notes], "layers": kept}
        (folder / "notes.json").write_text(json.dumps(about), encoding="utf-8")

    folder = store.entry(
        "pair-tables",
        TABLES_VERSION,
        make,
        stimuli=stimuli.digest,
        layers=[[sources[name].identity, n] for name, n in layers],
        missing=spec.missing,
        distance=spec.distance,
        folds=spec.folds,
        seed=spec.seed,
    )
    about = json.loads((folder / "notes.json").read_text(encoding="utf-8"))
    return (
        PairTables.load(folder / "tables.npz"),
        np.load(folder / "rsa.npy", allow_pickle=False),
        list(about["notes"]),
        list(about["layers"]),
    )
