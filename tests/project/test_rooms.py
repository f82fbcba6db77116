"""Lines of each room and part of the program, and how many each may have (`-s` prints them)."""

from helpers.repository import ROOT

# Each limit is what is there, up to the next hundred.
KERNEL = {
    "base": 2_000,
    "storage": 700,
    "stimuli": 4_900,
    "representations": 3_800,
    "pairs": 5_500,
    "estimators": 1_200,
    "measures": 1_300,
    "inference": 4_000,
    "analysis": 4_600,
    "__init__.py": 100,
    "comparing.py": 200,
}
SHELL = {
    "app.py": 100,
    "__main__.py": 100,
    "cli": 1_200,
    "extending.py": 400,
    "figures": 4_700,
    "report": 1_700,
    "tasks": 1_900,
    "pages": 5_660,
}
EXTENSIONS = {
    "candidates": 1_000,
    "cluster": 500,
    "decoding": 300,
    "erasure": 1_400,
    "rank_estimators": 900,
    "repeated_measures": 300,
    "recordings": 2_700,
    "replication": 500,
    "systems": 3_700,  # to come to 3,000
    "web_page": 400,
}
EXTENSION = 1_000  # of one that is not in the table
WHOLE = {"kernel": 27_800, "shell": 15_450, "program": 57_900, "tests": 28_000}


def lines(path):
    """Lines of a module, or of all below a folder."""
    files = [path] if path.suffix == ".py" else path.rglob("*.py")
    return sum(len(file.read_text("utf-8").splitlines()) for file in files)


def lines_of_rooms():
    """Lines of each room, by part and name; modules beside the packages are rooms too."""
    rooms = {"kernel": {}, "shell": {}, "extensions": {}}
    package = ROOT / "mlem_core"
    files = [*package.glob("*.py"), *package.glob("*/*.py"), ROOT / "pages/x.py", ROOT / "app.py"]
    for path in sorted({file if file.parent in (package, ROOT) else file.parent for file in files}):
        if path != package / "extensions":
            part = "kernel" if path.name in KERNEL else "shell"
            rooms[part][path.name] = lines(path)
    for path in sorted((package / "extensions").glob("*/__init__.py")):
        rooms["extensions"][path.parent.name] = lines(path.parent)
    return rooms


def test_no_room_and_no_part_is_larger_than_its_limit():
    limits = {"kernel": KERNEL, "shell": SHELL, "extensions": EXTENSIONS}
    rooms = lines_of_rooms()
    rows = []
    for part, sizes in rooms.items():
        usual = EXTENSION if part == "extensions" else 0
        rows += [(part, room, n, limits[part].get(room, usual)) for room, n in sizes.items()]
    sums = {part: sum(sizes.values()) for part, sizes in rooms.items()}
    sums |= {"program": sum(sums.values()), "tests": lines(ROOT / "tests")}
    rows += [("", part, sums[part], limit) for part, limit in WHOLE.items()]
    for part, room, n, limit in rows:
        print(f"{part:12}{room:22}{n:7,} of {limit:6,}")
    assert not [room for _, room, n, limit in rows if n > limit]
