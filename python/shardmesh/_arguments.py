# SPDX-License-Identifier: Apache-2.0
"""Checks callers' arguments before the C++ half sees them; an Error names the argument."""
from __future__ import annotations

import operator
import os
import re
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from . import _native
from ._error import Error, failure, printable_url

if TYPE_CHECKING:
    import torch

#: The scheme of "s3://bucket/x". A single letter would be a Windows drive.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
#: A URL that went through pathlib, which removes one of the two slashes.
_SHORTENED_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/([^/].*)", re.DOTALL)

#: The upper limits: of a number of threads, and of every other number.
_MOST_THREADS = 2**31 - 1
_MOST = 2**63 - 1


def shown(value: Any) -> str:
    """Returns its repr, cut to a hundred characters. That of a URL lacks its secrets."""
    try:
        made = repr(printable_url(value) if isinstance(value, str) else value)
    except Exception:  # from the caller's class
        made = object.__repr__(value)
    return made if len(made) <= 100 else f"{made[:97]}..."


def wrong(name: str, expected: str, found: Any, key: str = "") -> Error:
    return failure("invalid_argument", f"the argument {name} is invalid", key=key, expected=expected,
                   found=shown(found))


def number(name: str, value: Any, least: int = 0, most: int = _MOST) -> int:
    try:
        made = operator.index(value)
    except Exception:  # not only TypeError: also an array of several values
        made = None
    if made is None or not least <= made <= most:
        raise wrong(name, f"an integer from {least} to {most}" if most != _MOST else f"an integer of at least {least}", value)
    return made


def threads(value: Any) -> int:
    """Checks a number of threads; 0 means all cores."""
    return number("threads", value, most=_MOST_THREADS)


def fraction(name: str, value: Any) -> float:
    """Checks a number that must not be negative or NaN."""
    try:
        made = float(value)
    except Exception:
        made = -1.0
    if not made >= 0 or isinstance(value, str):
        raise wrong(name, "a number of at least 0", value)
    return made


def flag(name: str, value: Any) -> bool:
    try:
        return bool(value)
    except Exception as cause:  # an array of several values
        raise wrong(name, "True or False", value) from cause


def callback(name: str, value: Any) -> Any:
    """Checks a function, or None."""
    if value is not None and not callable(value):
        raise wrong(name, "a function", value)
    return value


def seconds(name: str, value: Any) -> float | None:
    return None if value is None else fraction(name, value)


def end_of(within: Any) -> float | None:
    """Checks a time limit in seconds. Returns the end of a call that begins now, as `time.monotonic` counts; None for no
    limit."""
    return None if within is None else time.monotonic() + fraction("within", within)


def left_until(end: float | None) -> float | None:
    """Returns the time limit in seconds, from now, of a call that ends at a time from `end_of`."""
    return None if end is None else max(0.0, end - time.monotonic())


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise wrong(name, "text", value)
    return value


def texts(name: str, value: Any) -> list[str]:
    """Checks a list of texts; a single text becomes a list of one."""
    if isinstance(value, str):
        return [value]
    made = _listed(value) if not isinstance(value, (bytes, bytearray)) else None
    made = [None] if made is None else made
    if not all(isinstance(one, str) for one in made):
        raise wrong(name, "a sequence of texts", value)
    return made


def _listed(value: Any) -> list | None:
    """Returns a list, or None for a value that cannot be iterated over."""
    try:
        return list(value) if isinstance(value, Iterable) else None
    except Exception:  # an array of no dimensions, a generator that raises
        return None


def source(value: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> str:
    """Returns the path or URL of something to read. A "file:" URL becomes a path; the C++ half judges other URLs."""
    return _path_and_scheme(value)[0]


def destination(value: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> str:
    """Returns the path or URL of something to write, as `source` does for something to read."""
    return source(value)


def is_url(path: str) -> bool:
    return _SCHEME.match(path) is not None


def path(value: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> str:
    """Returns a path of this machine, also given as a "file:" URL. Raises Error for other URLs."""
    made, scheme = _path_and_scheme(value)
    if scheme:
        raise failure("unsupported", f"is a URL of a store ({scheme}://), which this argument cannot be",
                      path=made, expected="a path of this machine, or file://",
                      hint="write to a local folder, and copy it with shardmesh.convert")
    return made


def _path_and_scheme(value: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> tuple[str, str]:
    """Returns a path and an empty scheme, or a URL and its scheme, which is not "file"."""
    try:
        made = os.fsdecode(value)
    except Exception as cause:
        raise wrong("path", "a path: text, bytes, or os.PathLike", value) from cause
    shortened = _SHORTENED_URL.match(_usable(made))
    if shortened is not None:
        made = _lengthened(value, made, shortened[1], shortened[2])
    scheme = _SCHEME.match(made)
    if scheme is None:
        return made, ""
    return (_usable(_local(made)), "") if scheme[1].lower() == "file" else (made, scheme[1])


def _usable(made: str) -> str:
    if "\0" in made:  # the system would end the path there
        raise wrong("path", "a path without a null character", made)
    if not made:  # of an unset variable, perhaps; abspath would make it the current folder
        raise wrong("path", "a path that is not empty", made)
    return made


def _lengthened(value: Any, made: str, scheme: str, rest: str) -> str:
    """Judges a path such as "s3:/bucket/x". "file:/x" is the short form of file:///x (RFC 8089) if it is text."""
    if not isinstance(value, os.PathLike):
        if scheme.lower() == "file":
            return f"{scheme}:///{rest}"
        _native.check_not_shortened(made)
        return made
    if os.path.lexists(made):
        return made
    slashes = "///" if scheme.lower() == "file" else "//"
    raise failure("invalid_argument", "is a URL that pathlib has shortened", path=f"{scheme}:{slashes}{rest}",
                  expected=f"{scheme}:{slashes}", found=f"{scheme}:/",
                  hint="give the URL as a text; give a local path as an absolute one")


def _local(url: str) -> str:
    """Returns the path that a file:// URL names."""
    host, _, below = url[len("file://"):].partition("/")
    if host not in ("", "localhost"):
        raise failure("unsupported", "is a file:// URL of another machine", path=url, expected="file:///path",
                      found=f"host {host}")
    return "/" + urllib.parse.unquote(below, errors="surrogateescape")


def is_path(value: Any) -> bool:
    """Whether `path` accepts the value."""
    return _accepts(path, value)


def is_source(value: Any) -> bool:
    """Whether `source` accepts the value."""
    return _accepts(source, value)


def _accepts(check: Callable[[Any], str], value: Any) -> bool:
    try:
        check(value)
    except Error:
        return False
    return True


def key(value: Any) -> str:
    return text("key", value)


def box(value: Any, key: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Checks a box: (offsets, sizes)."""
    try:
        offsets, sizes = (tuple(map(operator.index, part)) for part in value)
    except Exception:  # from iteration, or from __index__
        offsets = sizes = None
    if offsets is None or not all(-_MOST <= one <= _MOST for one in (*offsets, *sizes)):
        raise wrong("box", "(offsets, sizes), each a sequence of integers", value, key)
    if len(offsets) != len(sizes):
        raise failure("shape_mismatch", "offsets and sizes of a box differ in length", key=key, expected=str(len(offsets)),
                      found=str(len(sizes)))
    return offsets, sizes


def wanted(value: Any) -> list[tuple[Any, Any, Any]]:
    """Returns a list of (key, box or None, tensor)."""
    made = [(key, None, one) for key, one in value.items()] if isinstance(value, Mapping) else None
    if made is None and not isinstance(value, (str, bytes)):
        made = _listed(value)
    if made is None or not all(isinstance(one, (tuple, list)) and len(one) == 3 for one in made):
        raise wrong("wanted", "{key: tensor}, or a sequence of (key, box, tensor)", value)
    return made


def distributed(value: Any) -> Any:
    from torch.distributed._shard.sharded_tensor import ShardedTensor
    from torch.distributed.tensor import DTensor

    if isinstance(value, (DTensor, ShardedTensor)):
        return value
    raise failure("invalid_argument", "the argument tensor is invalid", expected="a DTensor or a ShardedTensor",
                  found=f"{type(value).__module__}.{type(value).__qualname__}")


def tensor(value: Any, key: str) -> torch.Tensor:
    import torch

    if isinstance(value, torch.Tensor):
        return value
    raise failure("invalid_argument", "the destination is not a tensor of PyTorch", key=key,
                  expected="torch.Tensor", found=f"{type(value).__module__}.{type(value).__qualname__}",
                  hint="torch.from_numpy shares an array's memory" if type(value).__module__ == "numpy" else "")
