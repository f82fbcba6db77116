"""Thumbnails of stimuli that are images."""

from __future__ import annotations

import base64
import contextlib
import io
import stat
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

# Of images that stimuli are.
SUFFIXES, FORMATS = (".png", ".jpg", ".jpeg"), ("PNG", "JPEG")
SIDE = 64  # px
# Bytes of a file, pixels of an image, and characters of all thumbnails of a page.
LARGEST, PIXELS, ALL = 20_000_000, 40_000_000, 3_000_000


def thumbnails(names: Sequence[object], folder: Path) -> list[str | None] | None:
    """Thumbnail of each name as a data URI, None for what is no image; None where none is.

    Parameters
    ----------
    names : paths, whole or beside the file of stimuli
    folder : of that file
    """
    images, left = list[str | None](), ALL
    for name in map(str, names):
        image = None
        # What begins with two slashes may be a place in a network.
        is_path = name.lower().endswith(SUFFIXES) and name[:2] not in ("//", r"\\")
        if left > 0 and is_path and "\0" not in name:
            with contextlib.suppress(OSError):
                about = (folder / name).stat()
                if stat.S_ISREG(about.st_mode) and about.st_size <= LARGEST:
                    image = _thumbnail(folder / name, about.st_mtime_ns)
        left -= len(image or "")
        images.append(image)
    return images if any(images) else None


@lru_cache(maxsize=8192)
def _thumbnail(path: Path, changed: int) -> str | None:
    from PIL import Image

    try:
        with Image.open(path, formats=FORMATS) as image:
            if image.width * image.height > PIXELS:
                return None
            image.draft("RGB", (SIDE, SIDE))
            small = image.convert("RGB")
            small.thumbnail((SIDE, SIDE))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    content = io.BytesIO()
    small.save(content, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"
