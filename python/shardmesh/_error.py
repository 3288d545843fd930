# SPDX-License-Identifier: Apache-2.0
"""The exception that everything here raises, and the box that it may name."""
from __future__ import annotations

from typing import NamedTuple


class Box(NamedTuple):
    """A rectangle of a tensor's index space, in elements: where it begins and how large it is in each dimension."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        ranges = (f"{offset}:{offset + size}" for offset, size in zip(self.offsets, self.sizes))
        return f"[{', '.join(ranges)})"


class Error(Exception):
    """What went wrong, and where. `str(error)` is one line, the same that the C++ library and the command line say.

    Fields that do not apply are empty. `others`: further problems of the same call, each an Error.
    """

    def __init__(self, code: str, text: str, *, message: str = "", key: str = "", path: str = "",
                 ranks: tuple[int, ...] = (), boxes: tuple[Box, ...] = (), expected: str = "", found: str = "",
                 hint: str = "", errno: int = 0) -> None:
        super().__init__(text)
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
        """The first rank that it is about."""
        return self.ranks[0] if self.ranks else None

    def __reduce__(self):
        # Errors travel between ranks.
        return _rebuilt, (type(self), str(self), dict(self.__dict__))


def _rebuilt(kind: type, text: str, fields: dict) -> Error:
    made = kind.__new__(kind, text)  # subclasses are made of other arguments
    made.args = (text,)
    made.__dict__.update(fields)
    return made


def failure(code: str, message: str, *, key: str = "", path: str = "", ranks: tuple[int, ...] = (), expected: str = "",
            found: str = "", hint: str = "") -> Error:
    """An Error of the Python half, its line put together as the C++ half does."""
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
    """Surrogates of paths stay as Python has them; others, which no stream takes, are spelled out."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text
