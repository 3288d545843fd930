# SPDX-License-Identifier: Apache-2.0
"""save_delta and open_delta: the differences between two checkpoints, as one file."""
from __future__ import annotations

import os
from dataclasses import dataclass, field

from . import _arguments, _native
from ._checkpoint import Checkpoint, opened
from ._progress import Progress, reporting


@dataclass(frozen=True)
class DeltaReport:
    """The counts and notes of a delta that was written."""

    #: tensors and objects of the new checkpoint in the delta, and the bytes of these tensors
    tensors: int
    bytes: int
    objects: int
    #: tensors that the base has with the same dtype and shape
    unchanged: int
    changed: int
    #: other tensors, which are stored whole
    added: int
    #: tensors of the base that the new checkpoint lacks
    removed: int
    #: of the file
    delta_bytes: int
    #: left out, as the caller allowed, because a delta cannot hold them
    skipped_tensors: int = 0
    skipped_objects: int = 0
    #: for the user
    notes: list[str] = field(default_factory=list)


def save_delta(base: str | os.PathLike[str], new: str | os.PathLike[str], path: str | os.PathLike[str], *,
               level: int = 3, block_bytes: int = 1 << 20, skip_unsupported: bool = False, overwrite: bool = False,
               threads: int = 0, progress: Progress = None, within: float | None = None) -> DeltaReport:
    """Writes the differences between two checkpoints of any formats to a file, which `open_delta` applies to the base.

    level: of zstd, from -7, the fastest, to 19, the smallest file.
    block_bytes: of elements that are compared and stored together.
    skip_unsupported: leave out entries that a delta cannot hold instead of refusing them.
    within: as in `open`.
    """
    end = _arguments.end_of(within)
    options = {"level": _arguments.number("level", level, -7, 19),
               "block_bytes": _arguments.number("block_bytes", block_bytes, 64, 16 << 20),
               "skip_unsupported": _arguments.flag("skip_unsupported", skip_unsupported),
               "overwrite": _arguments.flag("overwrite", overwrite), "threads": _arguments.threads(threads),
               "end": end}
    old, made = opened(base, end=end), opened(new, end=end)
    with reporting(progress, made.tensor_bytes, "delta") as report:
        return DeltaReport(**_native.save_delta(old, made, _arguments.destination(path), {**options, "report": report}))


def open_delta(base: str | os.PathLike[str], path: str | os.PathLike[str], *, limit_factor: int = 1,
               within: float | None = None) -> Checkpoint:
    """Opens the new checkpoint of a delta. The base may have another format and other chunks than the one from which the
    delta was made, but must have the same elements. Only the blocks that a read needs are read from both. Raises Error
    "checksum_mismatch" at the first read of a block that differs.

    limit_factor, within: as in `open`.
    """
    end = _arguments.end_of(within)
    return Checkpoint(_native.open_delta(_arguments.source(base), _arguments.source(path),
                                         _arguments.number("limit_factor", limit_factor, 1), end))
