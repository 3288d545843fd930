# SPDX-License-Identifier: Apache-2.0
"""The exception that everything here raises, and the box that it may name."""
from __future__ import annotations

import re
from typing import NamedTuple


class Box(NamedTuple):
    """A rectangle of a tensor's index space, in elements: its offset and its size in each dimension."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        ranges = (f"{offset}:{offset + size}" for offset, size in zip(self.offsets, self.sizes))
        return f"[{', '.join(ranges)})"


class Error(Exception):
    """A failure. `str(error)` is one line, the same as on the command line. It ends in the code: "w: has another shape
    [shape_mismatch]".

    Fields that do not apply are empty. `others`: further problems of the same call, the first 99, each an Error.
    """

    def __init__(self, code: str, text: str, *, message: str = "", key: str = "", path: str = "",
                 ranks: tuple[int, ...] = (), boxes: tuple[Box, ...] = (), expected: str = "", found: str = "",
                 hint: str = "", errno: int = 0) -> None:
        super().__init__(f"{text} [{code}]")
        self.code = code
        self.message = message or text
        self.key = key
        self.path = path
        self.ranks = ranks
        self.boxes = boxes
        self.expected = expected
        self.found = found
        self.hint = hint
        self.errno = errno
        self.others: tuple[Error, ...] = ()

    @property
    def rank(self) -> int | None:
        """The first rank that the error names."""
        return self.ranks[0] if self.ranks else None

    def __reduce__(self):
        # Errors travel between ranks.
        return _rebuilt, (type(self), str(self), dict(self.__dict__))


def _rebuilt(kind: type, text: str, fields: dict) -> Error:
    made = kind.__new__(kind, text)  # subclasses have other constructor arguments
    made.args = (text,)
    made.__dict__.update(fields)
    return made


def printable_url(path: str) -> str:
    """A URL without its user information and query, which may hold secrets. Any other text is returned unchanged."""
    scheme, mark, rest = path.partition("://")
    if not mark or not re.fullmatch(r"[A-Za-z0-9+.-]+", scheme):
        return path
    host, slash, inside = rest.partition("?")[0].partition("/")
    user, _, after = host.rpartition("@")
    if scheme != "hf" or ":" in user:  # in hf://NAME@REVISION, "@" does not end user information, which has a ":" there
        host = after
    return f"{scheme}://{host}{slash}{inside}"


def failure(code: str, message: str, *, key: str = "", path: str = "", ranks: tuple[int, ...] = (), expected: str = "",
            found: str = "", hint: str = "") -> Error:
    """Makes an Error of the Python half; its line is composed as in the C++ half."""
    path = printable_url(path)
    text = ": ".join(part for part in (path, key, message) if part)
    if ranks:
        text += f" (rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))})"
    said = [f"expected {expected}"] * bool(expected) + [f"found {found}"] * bool(found)
    if said:
        text += f": {', '.join(said)}"
    if hint:
        text += f"; {hint}"
    if not text.isascii():
        text = _printable(text)
    return Error(code, text, message=message, key=key, path=path, ranks=ranks, expected=expected, found=found,
                 hint=hint)


def _printable(text: str) -> str:
    """Keeps surrogate escapes of paths, and spells out other surrogates, which no stream accepts."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text
