"""A selection of an analysis with the store of what is computed of it, and stages: what is.

Background work, the command line, reports and screens ask a `Stage` for what it keeps (`find`) or
for its result (`get`). The first stage stands here: fits of metric models. The kept fit of a layer
holds whichever others are shown; with other features models are fitted anew. Of few stimuli that
takes less than a blink, of others seconds, for which a screen does not wait (`awaits_fits`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np

from mlem_core.analysis.analysis import Analysis, Selection
from mlem_core.analysis.layer_sources import get_representations
from mlem_core.analysis.layer_statistics import training_pairs
from mlem_core.analysis.results import Results
from mlem_core.base.typing import Progress, Report, counted, counting
from mlem_core.estimators.registry import FoldFits, estimator_named
from mlem_core.measures.importance import Fits, fitted, ranked_numbers
from mlem_core.storage.store import EntryKind, Store

T = TypeVar("T")
# Layers that are fitted together where it is reported how many are done.
LAYERS = 2
# Fits that rank more numbers take longer than a quarter of a second.
MOST_RANKED = 2**24


def no_report(_: Progress) -> None:
    """Report of progress to nobody."""


@dataclass(frozen=True)
class SelectionContext:
    """A selection of an analysis, with what is known of it.

    Attributes
    ----------
    store : where representations and results are; without one nothing is found or kept
    report : called as the work on a stage goes on; what it raises stops the work
    patient : whether fits are waited for that take long; else tables lack their numbers
    memory : what was computed before and others of the same analysis need too; `replace` hands it
        on, so that it is computed once
    """

    analysis: Analysis
    selection: Selection
    store: Store | None = None
    report: Report = field(default=no_report, repr=False, compare=False)
    patient: bool = True
    memory: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_analysis(
        cls, analysis: Analysis, store: Store | None = None, report: Report | None = None
    ) -> Self:
        """Context of the whole analysis."""
        return cls(analysis, analysis.select(), store, report or no_report)

    @property
    def results(self) -> Results:
        """All tables of the selection, from the fits that are kept, if they are.

        While it `awaits_fits`, scores, weights, importances and what follows from them are NaN.
        """
        analysis, selection = self.analysis, self.selection
        if self.awaits_fits:
            unknown = Fits.unknown(analysis.compute_pairs(selection))
            return self.once("known", lambda: analysis.compute_results(selection, unknown))
        return self.once("results", lambda: analysis.compute_results(selection, self._find_fits()))

    @property
    def awaits_fits(self) -> bool:
        """Whether metric models are still to be fitted, which takes too long to wait for."""
        estimator, analysis = estimator_named(self.selection.estimator), self.analysis
        if self.patient or analysis.has_fits(self.selection) or FITS.find(self) is not None:
            return False
        share = len(self.selection.layers) / len(analysis.layers)
        return estimator.slow or share * ranked_numbers(analysis.pairs) > MOST_RANKED

    def _find_fits(self) -> Fits | None:
        """The fits that are kept; without patience those of all layers, which may be shown next."""
        fits = FITS.find(self)
        if fits is None and not self.patient and not self.analysis.has_fits(self.selection):
            whole = self.all_layers
            of_all = whole.once("fits", lambda: self.analysis.compute_fits(whole.selection))
            return _fits_of_selection(self, of_all)
        return fits

    @property
    def required_store(self) -> Store:
        """The store, for what cannot be computed without one.

        Raises ValueError where there is none.
        """
        if self.store is None:
            raise ValueError("what is computed of representations needs a store, where they are.")
        return self.store

    def reselect(self, **changes: Any) -> Self:
        """Context with another selection; `changes` are of fields of the selection."""
        return replace(self, selection=replace(self.selection, **changes))

    @property
    def all_layers(self) -> Self:
        """Context with all layers of the analysis in place of the selected ones."""
        return self.reselect(layers=tuple(self.analysis.layers))

    @property
    def single_layers(self) -> list[Self]:
        """Contexts with each selected layer alone."""
        return [self.reselect(layers=(layer,)) for layer in self.selection.layers]

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Value of `compute()`, kept in the memory unless it is None.

        Parameters
        ----------
        key : with all that it depends on but the analysis and the selection
        """
        remembered: T | None = self.memory.get((self.selection, key))
        if remembered is not None:
            return remembered
        value = compute()
        if value is not None:
            self.remember(key, value)
        return value

    def remember(self, key: Hashable, value: Any) -> None:
        """Put a value into the memory, for `once`."""
        self.memory[self.selection, key] = value


def selection_key(context: SelectionContext, **options: Any) -> dict[str, Any]:
    """Key of a result that depends on all that is selected, and on the options."""
    return context.analysis.key(context.selection, **options)


@dataclass(frozen=True)
class Stage(Generic[T]):
    """Something that is computed of a selection of an analysis, and kept.

    Attributes
    ----------
    name, version : with the key, those of its entries in the store
    kind : what is kept, see `mlem_core.storage.store.save_result`
    compute : function (context, **options) that computes it
    key : function (context, **options) that gives all that it depends on
    compressed : whether arrays are
    unpack : where what is computed and kept is not the result: function (context, kept, **options)
        that gives the result
    narrow : function (context, result) that gives the result of the context from that of all layers
        of the analysis; None where the latter does not answer for fewer layers
    join : function that makes one result of those of single layers, each kept by itself; None where
        layers are computed together
    by_layer : whether `get` computes layers one by one, where they can be joined
    label : of its progress by layers; by default its name
    """

    name: str
    version: int
    kind: type[Any]
    compute: Callable[..., Any]
    key: Callable[..., dict[str, Any]] = selection_key
    compressed: bool = False
    unpack: Callable[..., T] | None = None
    narrow: Callable[[Any, T], T] | None = None
    join: Callable[[Sequence[T]], T] | None = None
    by_layer: Callable[[SelectionContext], bool] = lambda context: True
    label: str = ""

    @property
    def entries(self) -> EntryKind[Any]:
        """Its entries in a store."""
        return EntryKind(self.name, self.version, self.kind, self.compressed)

    def folder(self, context: SelectionContext, **options: Any) -> Path | None:
        """Folder of the kept result of this very selection; None where there is none."""
        return self.entries.where(context.required_store, self.key(context, **options))

    def find(self, context: SelectionContext, **options: Any) -> T | None:
        """The result that is kept, or follows from what is kept; None where there is none."""
        if context.store is None:
            return None
        request = (self.name, *sorted(options.items()))
        return context.once(request, lambda: self._kept(context, **options))

    def get(self, context: SelectionContext, **options: Any) -> T:
        """The result, computed where it is not kept; then it is, if there is a store.

        Raises as `compute` does.
        """
        if context.store is None:
            result: T = self.compute(context, **options)
            return result
        layers = context.selection.layers
        if self.join is not None and len(layers) > 1 and self.by_layer(context):
            count = counting(context.report, self.label or self.name, "layers")
            count(0, len(layers))
            quiet = replace(context, report=no_report)
            single_layers = counted(quiet.single_layers, len(layers), count)
            return self.join([self.get(layer, **options) for layer in single_layers])

        kept = self.entries.get(
            context.required_store,
            self.key(context, **options),
            lambda: self.compute(context, **options),
        )
        return self._result(context, kept, options)

    def _kept(self, context: SelectionContext, **options: Any) -> T | None:
        store = context.required_store
        kept = self.entries.find(store, self.key(context, **options))
        if kept is not None:
            return self._result(context, kept, options)
        if self.narrow is not None:
            kept = self.entries.find(store, self.key(context.all_layers, **options))
            if kept is not None:
                return self.narrow(context, self._result(context, kept, options))
        if self.join is not None and len(context.selection.layers) > 1:
            parts = []
            for layer in context.single_layers:
                part = self._kept(layer, **options)
                if part is None:
                    return None
                parts.append(part)
            return self.join(parts)
        return None

    def _result(self, context: SelectionContext, kept: Any, options: dict[str, Any]) -> T:
        result: T = kept if self.unpack is None else self.unpack(context, kept, **options)
        return result


def compute_fits(context: SelectionContext) -> Fits:
    """Fits of the metric models of a selection.

    Raises as `Analysis.results`; InputError: representations that are no longer in the store, where
    single pairs are fitted.
    """
    analysis, selection = context.analysis, context.selection
    if estimator_named(selection.estimator).of_pairs:
        source = partial(get_representations, analysis, store=context.required_store)
        pairs = analysis.compute_pairs(selection)
        sources = [(layer, source(layer[0])) for layer in selection.layers]
        training = training_pairs(pairs, analysis.design, analysis.spec, sources)
        return fitted(pairs, selection.estimator, training_pairs=training)
    if context.report is no_report:
        return analysis.compute_fits(selection)
    count, total = counting(context.report, "fits", "layers"), len(selection.layers)
    parts = []
    for start in range(0, total, LAYERS):
        count(start, total)
        some = selection.layers[start : start + LAYERS]
        parts.append(analysis.compute_fits(replace(selection, layers=some)))
    count(total, total)
    return join_fits(parts)


def join_fits(by_layer: Sequence[Fits]) -> Fits:
    """The fits of n_layers layers as one, from those of each."""
    fits, importance = zip(*by_layer, strict=True)
    names = [part.name for part in fields(FoldFits)]
    joined = {name: np.concatenate([getattr(layer, name) for layer in fits]) for name in names}
    return Fits(FoldFits(**joined), np.concatenate(importance))


def _is_slow(context: SelectionContext) -> bool:
    return estimator_named(context.selection.estimator).slow


def _fits_of_selection(context: SelectionContext, fits: Fits) -> Fits:
    return fits.select_layers(context.selection.places(context.analysis.layers))


FITS = Stage[Fits](
    "fits", 4, Fits, compute_fits, narrow=_fits_of_selection, join=join_fits, by_layer=_is_slow
)
