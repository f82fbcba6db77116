"""MATLAB's structs and cells as arrays; as a program, unpacks variables up to version 7.2.

    python -I matlab_process.py FILE.mat FOLDER VARIABLE...

SciPy's reader (1.17) ends the process on some damaged files, so it runs in one of its own, where
this package is not to be imported.
"""

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

# Fields of a struct that are no data of it, and how few numbers in a field are none either.
_ABOUT, _FEW = ("name", "color", "colour"), 3


def leaves(
    name: str, value: Any, parse: Callable[[Any], tuple[str, Any]], inside: bool = False
) -> Iterator[tuple[str, Any, str]]:
    """Arrays and texts in a variable: the name of each, its content, and its kind.

    Kinds are "array", "texts", and "rdm" for the field RDM of a struct. What a field `name` says
    is the name of its struct; else its number in the array is.

    Parameters
    ----------
    parse : gives the kind of a value and its content: a list of dictionaries of a "struct", a list
        of values of a "cell", a list of str of "texts", and any array with a size
    """
    kind, content = parse(value)
    if kind == "cell":
        for number, part in enumerate(content, 1):
            yield from leaves(f"{name}{{{number}}}", part, parse, True)
    elif kind == "struct":
        for number, fields in enumerate(content, 1):
            title = f"{name}({number})" if len(content) > 1 else name
            if "name" in fields and (parsed := parse(fields["name"]))[0] == "texts":
                title = "".join(parsed[1]).strip() or title
            if "RDM" in fields:
                for each, array, what in leaves(title, fields["RDM"], parse, True):
                    yield each, array, "rdm" if what == "array" else what
                continue
            for field, part in fields.items():
                if field not in _ABOUT:
                    yield from leaves(f"{title}.{field}", part, parse, True)
    elif kind == "texts" or not inside or content.size > _FEW:
        yield name, content, kind


def _parse(value: Any) -> tuple[str, Any]:
    """As `leaves` wants it, of what SciPy reads."""
    if value.dtype.names:
        elements, names = value.ravel(order="F"), value.dtype.names
        return "struct", [{name: element[name] for name in names} for element in elements]
    if value.dtype.kind in "US":
        return "texts", [str(text) for text in value.ravel()]
    if value.dtype.hasobject:
        cells = list(value.ravel(order="F"))
        if all(cell.dtype.kind in "US" and cell.size <= 1 for cell in cells):
            return "texts", ["".join(map(str, cell.ravel())) for cell in cells]
        return "cell", cells
    return "array", value


def _unpack(path: str, folder: str, names: list[str]) -> None:
    """Write each array of variables as FOLDER/NUMBER.npy, and what they are as JSON."""
    import numpy
    import scipy.io

    about: list[tuple[str, str]] = []
    for name in names:
        variable = scipy.io.loadmat(path, variable_names=[name])[name]
        for leaf, content, kind in leaves(name, variable, _parse):
            numpy.save(f"{folder}/{len(about)}.npy", numpy.array(content), allow_pickle=False)
            about.append((leaf, kind))
    with open(f"{folder}/about.json", "w", encoding="utf-8") as file:
        json.dump(about, file)


if __name__ == "__main__":
    _unpack(sys.argv[1], sys.argv[2], sys.argv[3:])
