"""Options of an analysis by which recordings are read."""

from __future__ import annotations

import os
from dataclasses import dataclass

from mlem_core.analysis.model_source import ModelSource, NamesInChoices
from mlem_core.base.parameters import option


@dataclass(frozen=True, kw_only=True)
class RecordingOptions(ModelSource):
    """The options of recordings; the fields are described in place."""

    regions: tuple[tuple[str, str], ...] = option(
        (),
        "Regions",
        "A mask or an atlas (NIfTI) for an image of a brain (.nii, .nii.gz), whose regions become "
        "layers. A table of the atlas's name (.tsv, .csv: index, name) names them.",
        metavar="NAME=FILE",
        pair=os.path.expanduser,
        section="files",
    )

    def names_in_choices(self) -> NamesInChoices:
        """As of `ModelSource`."""
        yield from super().names_in_choices()
        files = dict(self.representations)
        yield "representations file with regions", dict(self.regions), files
