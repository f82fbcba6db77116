"""NIfTI images of all stimuli: a layer a region of a mask or an atlas."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlem_core.base.errors import InputError
from mlem_core.base.text import many
from mlem_core.extensions.recordings.hdf5 import optional_package
from mlem_core.extensions.recordings.unpacked import BLOCK, UnpackedArray
from mlem_core.representations.array_files import ARRAY_FORMATS, ArrayFormat, FileArray
from mlem_core.stimuli.columns import texts
from mlem_core.stimuli.reading.table import read_table
from mlem_core.storage.digests import Stamp, stamp

_SUFFIXES = (".nii", ".nii.gz")
# Columns of a table of regions: those of BIDS, and of nilearn.
_NUMBERS, _NAMES = ("index", "value", "id", "label_id"), ("name", "label", "region")


def _list_nifti(path: Path, regions: str) -> Iterator[tuple[str, FileArray]]:
    if not regions:
        raise InputError(
            f"{path.name} is an image of a brain; name a mask or an atlas, whose regions become "
            "layers (--regions NAME=FILE)."
        )
    atlas = Path(regions)
    voxels, array = _read_nifti(path, stamp(path), atlas, stamp(atlas))
    names = _region_names(atlas, [*voxels])
    for number, columns in voxels.items():
        part = array.part((slice(None), columns))
        region = part()
        yield names[number], FileArray(region.shape, str(region.dtype), "", part)


@lru_cache(maxsize=4)
def _read_nifti(
    path: Path, now: Stamp | None, atlas: Path, atlas_now: Stamp | None
) -> tuple[dict[int, slice], UnpackedArray]:
    """Columns of each region by its number, and the array (n_volumes, n_voxels) of all regions."""
    nibabel = optional_package("nibabel", path)
    image = nibabel.load(path, keep_file_open=True)
    if image.ndim != 4:
        raise InputError(
            f"{path.name} has {image.ndim} axes; expected (x, y, z, stimuli), such as an image of "
            "betas with a volume for each stimulus."
        )
    numbers = _region_numbers(image, path, atlas)
    inside = np.flatnonzero(numbers)
    order = inside[np.argsort(numbers[inside], kind="stable")]
    sorted_numbers = numbers[order]
    columns = {
        int(number): slice(*map(int, np.searchsorted(sorted_numbers, (number, number + 1))))
        for number in np.unique(sorted_numbers)
    }
    n = image.shape[3]
    step = max(1, BLOCK // (8 * len(numbers)))

    def blocks() -> Iterator[tuple[Any, NDArray[Any]]]:
        for start in range(0, n, step):
            volumes = np.asanyarray(image.dataobj[..., start : start + step])
            yield (
                slice(start, start + volumes.shape[3]),
                volumes.reshape(-1, volumes.shape[3])[order].T,
            )

    dtype = "float64" if image.get_data_dtype().itemsize > 4 else "float32"
    return columns, UnpackedArray(path.name, (n, len(order)), dtype, blocks())


def _region_numbers(image: Any, path: Path, atlas: Path) -> NDArray[np.int64]:
    """The region (n_voxels,) of each voxel of an image, 0 for none; resampled where needed."""
    nibabel = optional_package("nibabel", path)
    if not atlas.name.lower().endswith(_SUFFIXES) or not atlas.is_file():
        raise InputError(
            f"{atlas.name!r} is no image of regions; expected a mask or an atlas that ends in "
            f"{' or '.join(_SUFFIXES)}."
        )
    regions = nibabel.load(atlas)
    if regions.ndim != 3:
        raise InputError(
            f"{atlas.name} has {regions.ndim} axes; expected (x, y, z), a whole number for each "
            "voxel."
        )
    if regions.shape != image.shape[:3] or not np.allclose(regions.affine, image.affine, atol=1e-3):
        resample = optional_package("nilearn.image", path).resample_img
        regions = resample(
            regions,
            target_affine=image.affine,
            target_shape=image.shape[:3],
            interpolation="nearest",
            force_resample=True,
            copy_header=True,
        )
    numbers = np.asanyarray(regions.dataobj).ravel()
    if not np.isfinite(numbers).all() or (numbers != np.rint(numbers)).any() or not numbers.any():
        raise InputError(
            f"{atlas.name} has no region within {path.name}, or numbers that are not whole; "
            "expected 0 outside and a whole number for each region."
        )
    return numbers.astype(np.int64)


def _region_names(atlas: Path, there: list[int]) -> dict[int, str]:
    """Names of regions by their numbers; those of a table beside the atlas where there is one."""
    stem = atlas.name.split(".nii")[0]
    tables = [atlas.with_name(stem + ending) for ending in (".tsv", ".csv")]
    table = next((path for path in tables if path.is_file()), None)
    if table is None:
        return {there[0]: stem} if len(there) == 1 else {n: f"region {n}" for n in there}
    frame = read_table(table, what="table of regions").frame
    number = next((column for column in frame if str(column).lower() in _NUMBERS), None)
    name = next((column for column in frame if str(column).lower() in _NAMES), None)
    if number is None or name is None:
        raise InputError(
            f"{table.name} has the columns {', '.join(map(str, frame))}; expected index and name "
            f"of {many(len(there), 'region')}."
        )
    cells = zip(texts(frame[number]), texts(frame[name]), strict=True)
    named = {str(key): value for key, value in cells}
    names = {n: named.get(str(n)) or f"region {n}" for n in there}
    titles = [*names.values()]
    return {n: f"{name} ({n})" if titles.count(name) > 1 else name for n, name in names.items()}


ARRAY_FORMATS.register(ArrayFormat("NIfTI", _SUFFIXES, _list_nifti, option="regions"))
