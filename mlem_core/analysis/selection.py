"""Selection of a user in an analysis: features, layers, and how the metric model is fitted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlem_core.base.errors import InputError, check_choice, unknown
from mlem_core.base.files import checked
from mlem_core.base.typing import Layer, layer_name
from mlem_core.estimators.registry import estimator_named
from mlem_core.pairs.similarities import RSA, SIMILARITIES
from mlem_core.pairs.tables import PairTables


@dataclass(frozen=True)
class Selection:
    """Part of an analysis that is shown, and the methods it is shown by.

    Attributes
    ----------
    features : names, in the order of the analysis
    layers : (model, layer), in the order of the analysis
    estimator : name, see `mlem_core.estimators.registry`
    interactions : whether products of two features are weighed too
    similarity : by which layers are compared beside their features, see
        `mlem_core.pairs.similarities`
    """

    features: tuple[str, ...]
    layers: tuple[Layer, ...]
    estimator: str
    interactions: bool
    similarity: str = RSA

    def checked(self, features: Sequence[str], layers: Sequence[Layer]) -> Selection:
        """Selection in the order of the features and layers that there are.

        Raises
        ------
        InputError
            A feature, layer, estimator or similarity that there is not; no feature or layer.
        """
        for name in self.features:
            check_choice("feature", name, features)
        kept = {*self.layers}
        check_layers(self.layers, dict.fromkeys(layers))
        estimator_named(self.estimator)
        SIMILARITIES.named(self.similarity)
        for what, chosen in (("feature", self.features), ("layer", self.layers)):
            if not chosen:
                raise InputError(f"no {what} is left; choose at least one.")
        return Selection(
            tuple(name for name in features if name in self.features),
            tuple(layer for layer in layers if layer in kept),
            self.estimator,
            self.interactions,
            self.similarity,
        )

    def of_tables(self, tables: PairTables, layers: Sequence[Layer]) -> PairTables:
        """The pair tables of the selection, from those of n_layers layers."""
        own = tables.of_layers(self.places(layers)).of_features(self.features)
        return own.with_interactions(self.interactions)

    def places(self, layers: Sequence[Layer]) -> list[int]:
        """Places of the selected layers among n_layers layers."""
        return [list(layers).index(layer) for layer in self.layers]

    def to_dict(self) -> dict[str, Any]:
        """Dictionary for JSON; RSA is not named, as nothing else was chosen."""
        return {
            "features": list(self.features),
            "layers": [list(layer) for layer in self.layers],
            "estimator": self.estimator,
            "interactions": self.interactions,
            **({} if self.similarity == RSA else {"similarity": self.similarity}),
        }

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> Selection:
        """Selection from the dictionary of `to_dict`; other entries are left alone.

        Raises
        ------
        InputError
            An entry is missing or of another form.
        """
        return checked(cls, kept, "what is chosen of the analysis")


def check_layers(asked: Iterable[Layer], layers: Collection[Layer]) -> None:
    """Raise InputError for a layer that there is not."""
    for layer in asked:
        if layer not in layers:
            raise unknown("layer", layer_name(layer), [layer_name(one) for one in layers])
