# SPDX-License-Identifier: Apache-2.0
"""What callers give, held against what is meant, before the C++ half sees it: an Error that names the argument."""
from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ._error import Error, failure

if TYPE_CHECKING:
    import torch

#: The largest number of threads, and of anything else.
_MOST_THREADS = 2**31 - 1
_MOST = 2**63 - 1


def _wrong(name: str, expected: str, found: Any, key: str = "") -> Error:
    shown = repr(found)
    return failure("invalid_argument", f"the argument {name} is not what it can be", key=key, expected=expected,
                   found=shown if len(shown) <= 100 else f"{shown[:97]}...")


def number(name: str, value: Any, least: int = 0, most: int = _MOST) -> int:
    try:
        made = operator.index(value)
    except TypeError:
        made = None
    if made is None or not least <= made <= most:
        raise _wrong(name, f"an integer from {least} to {most}" if most != _MOST else f"an integer of at least {least}", value)
    return made


def threads(value: Any) -> int:
    """0: all cores."""
    return number("threads", value, most=_MOST_THREADS)


def fraction(name: str, value: Any) -> float:
    """A number that is not negative, and is one."""
    try:
        made = float(value)
    except (TypeError, ValueError):
        made = -1.0
    if not made >= 0 or isinstance(value, str):
        raise _wrong(name, "a number of at least 0", value)
    return made


def seconds(name: str, value: Any) -> float | None:
    return None if value is None else fraction(name, value)


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(name, "text", value)
    return value


def texts(name: str, value: Any) -> list[str]:
    """Of several, or of one by itself."""
    if isinstance(value, str):
        return [value]
    made = list(value) if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)) else [None]
    if not all(isinstance(one, str) for one in made):
        raise _wrong(name, "a sequence of texts", value)
    return made


def path(value: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> str:
    made = os.fsdecode(value)
    if "\0" in made:  # the system would end the name there
        raise _wrong("path", "a path without a null character", made)
    return made


def key(value: Any) -> str:
    return text("key", value)


def box(value: Any, key: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(offsets, sizes)."""
    try:
        offsets, sizes = (tuple(map(operator.index, part)) for part in value)
    except (TypeError, ValueError):
        offsets = sizes = None
    if offsets is None or not all(-_MOST <= one <= _MOST for one in (*offsets, *sizes)):
        raise _wrong("box", "(offsets, sizes), each a sequence of integers", value, key)
    return offsets, sizes


def wanted(value: Any) -> list[tuple[Any, Any, Any]]:
    """(key, box or None, tensor) each."""
    made = [(key, None, one) for key, one in value.items()] if isinstance(value, Mapping) else None
    if made is None and isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        made = list(value)
    if made is None or not all(isinstance(one, (tuple, list)) and len(one) == 3 for one in made):
        raise _wrong("wanted", "{key: tensor}, or a sequence of (key, box, tensor)", value)
    return made


def distributed(value: Any) -> Any:
    from torch.distributed._shard.sharded_tensor import ShardedTensor
    from torch.distributed.tensor import DTensor

    if isinstance(value, (DTensor, ShardedTensor)):
        return value
    raise failure("invalid_argument", "the argument tensor is not what it can be", expected="a DTensor or a ShardedTensor",
                  found=f"{type(value).__module__}.{type(value).__qualname__}")


def tensor(value: Any, key: str) -> torch.Tensor:
    import torch

    if isinstance(value, torch.Tensor):
        return value
    raise failure("invalid_argument", "what it is to be loaded into is no tensor of PyTorch", key=key,
                  expected="torch.Tensor", found=f"{type(value).__module__}.{type(value).__qualname__}",
                  hint="torch.from_numpy shares an array's memory" if type(value).__module__ == "numpy" else "")
