"""The house's docstrings in NumPy's style, for the docs site (an extension of Griffe).

In the house a parameter is `name : what it is`, because its type is in the signature; NumPy's style
has the type there. And what is returned is said in plain sentences.
"""

from __future__ import annotations

import re

_SECTION = re.compile(r"^(Parameters|Attributes|Returns|Raises)\n-{3,}\n", re.M)
_NAMED = re.compile(r"^([*\w, ]+?) : (.*)$")


def as_numpy(docstring: str) -> str:
    """A docstring whose sections are in NumPy's style."""
    parts = _SECTION.split(docstring)
    text = parts[0]
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        if name == "Returns":
            text += f"**Returns** {body.strip()}\n\n"
        elif name == "Raises":
            text += f"{name}\n{'-' * len(name)}\n{body.rstrip()}\n\n"
        else:
            text += f"{name}\n{'-' * len(name)}\n{_items(body)}\n\n"
    return text.rstrip()


def _items(body: str) -> str:
    """Items with their descriptions on lines of their own, and other text left out of them."""
    lines: list[str] = []
    for line in body.rstrip().splitlines():
        named = _NAMED.match(line)
        if named:
            lines += [named[1], f"    {named[2]}"]
        elif line.strip() and not line.startswith(" "):
            lines += [f"    {line}"]  # more about the last one
        else:
            lines.append(line)
    return "\n".join(lines)


try:
    from griffe import Attribute, Docstring, ExprCall, Extension, Object
except ImportError:  # the tests read `as_numpy` without it
    pass
else:

    class HouseDocstrings(Extension):
        """Rewrites each docstring as it is collected, and shows fields as they are described."""

        def on_attribute_instance(self, *, attr: Attribute, **_: object) -> None:
            call = attr.value
            if not isinstance(call, ExprCall) or str(call.function) != "asked":
                return
            # `asked(default, label, help)` of `mlem_core.base.parameters`.
            default, label, *_rest = call.arguments
            attr.value = default
            attr.docstring = Docstring(f"{str(label).strip(chr(39))}.", parent=attr)

        def on_object(self, *, obj: Object, **_: object) -> None:
            if obj.docstring is not None:
                obj.docstring.value = as_numpy(obj.docstring.value)
