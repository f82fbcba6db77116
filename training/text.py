"""The training text: five sources, cleaned, in documents, and split into train, dev and test.

- `stories` and `present`: short texts that SmolLM2-135M-Instruct (Apache-2.0) wrote for this
  (writer.py), the latter asked for the present tense. They are in the repository, one to a line.
- `examples`: the example sentences of WordNet 3.0 (WordNet licence), Debian's wordnet-base.
- `novels`: three novels by Jane Austen (public domain), Debian's r-cran-janeaustenr (MIT).
- `bible`: the World English Bible (public domain), Debian's sword-text-web.

The Debian packages are fetched with apt-get and unpacked into a folder, not installed.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import re
import struct
import subprocess
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mlem_core.base.errors import InputError

HERE = Path(__file__).parent
WRITTEN = {name: HERE / f"{name}.txt.gz" for name in ("stories", "present")}
PACKAGES = ("wordnet-base", "r-cran-janeaustenr", "sword-text-web")
WORDNET = "usr/share/wordnet"
AUSTEN = "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
NOVELS = ("EMMA", "PRIDE AND PREJUDICE", "SENSE AND SENSIBILITY")
BIBLE = "usr/share/sword/modules/texts/ztext/engWEB2015eb"
PASSAGE = 25  # verses that are held out together
TWICE = ("stories", "present")  # in each round through the text: modern, simple and short
SOURCES = ("stories", "present", "examples", "novels", "bible")
PARTS = ("train", "dev", "test")
DEV_SHARE, TEST_SHARE = 0.02, 0.04

# A run of documents that belong together (a chapter's paragraphs) and are split together.
Group = list[str]


@dataclass(frozen=True)
class Text:
    """Groups of documents, by source, in one part."""

    train: dict[str, list[Group]]
    dev: dict[str, list[Group]]
    test: dict[str, list[Group]]

    def part(self, name: str) -> dict[str, list[Group]]:
        """The groups of a part, by source."""
        groups: dict[str, list[Group]] = getattr(self, name)
        return groups

    def documents(self, part: str) -> list[str]:
        """All documents of a part."""
        return [d for groups in self.part(part).values() for group in groups for d in group]


def load(folder: Path, sources: tuple[str, ...] = SOURCES, share: float = 1.0) -> Text:
    """The text of some sources, or a share of it, with what Debian carries kept in `folder`.

    The parts are drawn by the digest of a group's text: they are the same on every machine, and
    stay so when a source grows.
    """
    parts: dict[str, dict[str, list[Group]]] = {part: {} for part in PARTS}
    for source in sources:
        groups = _READERS[source](folder)
        for group in groups[: max(1, int(share * len(groups)))]:
            drawn = int(hashlib.sha256("\n".join(group).encode()).hexdigest()[:8], 16) / 2**32
            part = "test" if drawn < TEST_SHARE else "train"
            part = "dev" if TEST_SHARE <= drawn < TEST_SHARE + DEV_SHARE else part
            parts[part].setdefault(source, []).append(group)
    return Text(**parts)


def clean(text: str) -> str:
    """ASCII with plain quotes and dashes, and one space between words."""
    text = text.translate(str.maketrans("‘’“”–—", "''\"\"--"))
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"\s+", " ", re.sub(r"-{2,}", " - ", text).replace("_", "")).strip()


def written(name: str) -> list[Group]:
    """The texts of the writer as they lie in the repository, each a group of its own."""
    with gzip.open(WRITTEN[name], "rt", encoding="utf-8") as file:
        return [[line.rstrip("\n")] for line in file]


def tidy_stories(files: list[Path]) -> list[str]:
    """What of the writer's JSON lines is used: whole sentences, no loops, no copies, no chatter."""
    kept: dict[str, None] = {}
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            written = json.loads(line)
            text = clean(written["text"])
            if not written["done"]:
                text = text[: max(text.rfind(mark) for mark in (". ", "! ", "? ", '." ')) + 1]
            words = text.lower().split()
            triples = Counter(zip(words, words[1:], words[2:], strict=False))
            looped = sum(n - 1 for n in triples.values()) > 0.2 * max(1, len(words))
            chatter = re.search(r"\b(sentence|tense|verb|noun|english|word)s?\b", text.lower())
            if len(words) >= 5 and not looped and not chatter and text[-1] in ".!?\"'":
                kept.setdefault(text)
    return list(kept)


def in_the_present(text: str) -> bool:
    """Whether hardly a word of a text is in the past tense."""
    words = re.findall(r"[a-z]+", text.lower())
    past = sum(word in _PAST or word.endswith("ed") for word in words)
    return past <= 0.03 * len(words)


def save_written(name: str, files: list[Path]) -> int:
    """Write a file of `WRITTEN` from what the writer wrote; returns the number of texts."""
    kept = [text for text in tidy_stories(files) if name != "present" or in_the_present(text)]
    with (
        WRITTEN[name].open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file,
    ):
        file.write("".join(f"{text}\n" for text in kept).encode())
    return len(kept)


def examples(folder: Path) -> list[Group]:
    """WordNet's example sentences and phrases, each a group of its own, in random order."""
    fetch(folder)
    found: dict[str, None] = {}
    for file in sorted((folder / WORDNET).glob("data.*")):
        for line in file.read_text(encoding="latin-1").splitlines():
            for example in re.findall(r'"([^"]+)"', line.partition(" | ")[2]):
                text = clean(example).strip(" ;,`'")
                if len(text.split()) >= 2:
                    ends = text[-1] in ".!?" or len(text.split()) < 4
                    found.setdefault(text if ends else text + ".")
    groups = [[text] for text in found]
    random.Random(0).shuffle(groups)
    return groups


def novels(folder: Path) -> list[Group]:
    """Austen's novels: a group is a chapter, a document a paragraph."""
    fetch(folder)
    groups: list[Group] = []
    for lines in _character_vectors((folder / AUSTEN).read_bytes()):
        if lines[0] not in NOVELS:
            continue
        paragraphs = "\n".join(lines).split("\n\n")
        for paragraph in paragraphs:
            text = clean(paragraph)
            if re.match(r"(chapter|volume)\b", text, re.IGNORECASE):
                groups.append([])
            elif groups and len(text.split()) >= 3:
                groups[-1].append(text)
    return [group for group in groups if group]


def bible(folder: Path) -> list[Group]:
    """The World English Bible: a document is a verse, a group `PASSAGE` of them.

    Each testament is SWORD's zText: zlib blocks (`bzz`), their places (`bzs`: offset, size, size
    when whole) and the verses' places in them (`bzv`: block, offset, size).
    """
    fetch(folder)
    verses: list[str] = []
    for part in ("ot", "nt"):
        index, data, places = (
            (folder / BIBLE / f"{part}.{ending}").read_bytes() for ending in ("bzs", "bzz", "bzv")
        )
        blocks = [
            zlib.decompress(data[at : at + size])
            for at, size, _ in struct.iter_unpack("<3I", index)
        ]
        for block, at, size in struct.iter_unpack("<IIH", places):
            verse = blocks[block][at : at + size].decode("utf-8", "replace") if size else ""
            plain = clean(re.sub(r"<(note|title)\b.*?</\1>|<[^>]+>", "", verse, flags=re.DOTALL))
            if len(plain.split()) >= 3:
                verses.append(plain)
    return [verses[i : i + PASSAGE] for i in range(0, len(verses), PASSAGE)]


def _character_vectors(database: bytes) -> list[list[str]]:
    """The character vectors of one of R's lazy-load databases: zlib blocks after their sizes."""
    vectors, at = [], 0
    while at < len(database):
        stream = zlib.decompressobj()
        block = stream.decompress(database[at + 4 :])
        at = len(database) - len(stream.unused_data)
        place, lines = block.find(b"\x00\x04\x00\x09"), []
        while place >= 0 and block[place : place + 2] == b"\x00\x04":
            (size,) = struct.unpack(">i", block[place + 4 : place + 8])
            lines.append(block[place + 8 : place + 8 + size].decode("utf-8"))
            place += 8 + size
        vectors.append(lines)
    return vectors


def fetch(folder: Path) -> None:
    """Unpack the Debian packages into `folder`, unless they are there.

    Raises `InputError` where apt-get or dpkg-deb is missing or fails.
    """
    if all((folder / place).exists() for place in (WORDNET, AUSTEN, BIBLE)):
        return
    folder.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            ["apt-get", "download", "-qq", *PACKAGES], cwd=folder, check=True, capture_output=True
        )
        for file in sorted(folder.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", file.name, "."], cwd=folder, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise InputError(
            f"the Debian packages {' and '.join(PACKAGES)} cannot be fetched with apt-get: {error}."
        ) from error


_PAST_FORMS = "was were had did said went came saw got took made knew thought told felt"
_PAST = frozenset(_PAST_FORMS.split())
_READERS: dict[str, Callable[[Path], list[Group]]] = {
    "stories": lambda folder: written("stories"),
    "present": lambda folder: written("present"),
    "examples": examples,
    "novels": novels,
    "bible": bible,
}
