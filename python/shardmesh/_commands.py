# SPDX-License-Identifier: Apache-2.0
"""inspect, verify, diff, convert, and reshard: the commands of the same names as functions."""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _arguments, _native
from ._checkpoint import Checkpoint, open, opened
from ._error import Error, failure
from ._progress import Progress, reporting
from ._saving import MAX_SHARD_BYTES, SaveReport
from ._selection import Selection, options_of



def inspect(path: str | os.PathLike[str], *, all_parts: bool = False, rank: int | None = None,
            keys_at_ranks: bool = False, within: float | None = None) -> Checkpoint:
    """Opens a checkpoint to see its contents: a mapping of entries; `str` of an entry is one line.

    rank, keys_at_ranks, within: as in `open`, here and below.
    """
    return open(path, all_parts=all_parts, rank=rank, keys_at_ranks=keys_at_ranks, within=within)


@dataclass(frozen=True)
class VerifyReport:
    """The result of `verify`. `ok` if there are no problems; warnings are oddities that do not affect the data read."""

    #: at most a thousand, in the checkpoint's order; `more_problems` counts the rest
    problems: list[Error]
    more_problems: int
    warnings: list[Error]
    chunks: int
    objects: int
    bytes: int
    #: covered by a checksum that was compared
    checked_bytes: int
    #: chunks that hold bytes and have no checksum
    unchecked_chunks: int
    unchecked_objects: int
    #: tensors in the checkpoint that no entry names: neither checked nor converted
    unread_tensors: int = 0
    #: names in pickles that published scanners call dangerous, each once; each is a problem
    dangerous_globals: list[str] = field(default_factory=list)
    #: the number of other names in pickles that are not plain data, such as a program's own classes; each is a warning
    unknown_globals: int = 0

    @property
    def ok(self) -> bool:
        return not self.problems and not self.more_problems


def verify(path: str | os.PathLike[str], *, quick: bool = False, all_parts: bool = False, rank: int | None = None,
           keys_at_ranks: bool = False, threads: int = 0, allow_globals: str | Sequence[str] = (),
           progress: Progress = None, within: float | None = None) -> VerifyReport:
    """Verifies a checkpoint: every chunk is present, readable, of the declared dtype and shape, without overlap or gap,
    and unchanged if there are checksums. A checkpoint that cannot be opened gives a report with that problem.

    quick: open everything, but read no tensor's bytes.
    allow_globals: names in pickles ("module.name") to accept. Names that published scanners call dangerous are
    problems.
    """
    end, path = _arguments.end_of(within), _arguments.source(path)
    options = {"threads": _arguments.threads(threads),
               "allow_globals": _arguments.texts("allow_globals", allow_globals), "end": end}
    try:
        checkpoint = opened(path, all_parts=all_parts, rank=rank, keys_at_ranks=keys_at_ranks, end=end)
    except Error as problem:
        if problem.code == "invalid_argument" and not problem.path:  # the caller's, not the checkpoint's
            raise
        if problem.code == "deadline_exceeded":
            raise
        # Python runs a damaged pickle up to its defect, so the names in it still count.
        try:
            names = _native.verify_names(path, options)
        except Error:  # the path itself is wrong
            return VerifyReport([problem], 0, [], 0, 0, 0, 0, 0, 0)
        names["problems"] = [problem, *names["problems"]]
        return VerifyReport(**names)
    with reporting(progress, checkpoint.tensor_bytes, "verify") as report:
        return VerifyReport(**_native.verify(checkpoint, _arguments.flag("quick", quick), report, options))


@dataclass(frozen=True)
class Difference:
    """One key that differs, and the kind of difference: "only-left", "only-right", "kind", "dtype", "shape", "values",
    "object", "layout", or "unreadable"."""

    key: str
    kind: str
    #: the whole difference in one line, without the key
    text: str
    #: for values: the elements that differ, all elements, the first that differs, and the largest |a - b|
    different: int
    elements: int
    first_index: tuple[int, ...]
    largest: float

    def __str__(self) -> str:
        return f"{self.key}: {self.text}"


@dataclass(frozen=True)
class DiffReport:
    differences: list[Difference]
    #: reasons why entries could not be read
    problems: list[Error]
    #: numbers of compared tensors, objects, and bytes
    tensors: int
    objects: int
    bytes: int
    #: of the selection, for the user: casts that lose values, state that follows its parameters
    notes: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not self.differences and not self.problems


def diff(left: str | os.PathLike[str], right: str | os.PathLike[str], *, tolerance: float = 0.0, layout: bool = False,
         ignore_dtype: bool = False, selection: Selection = Selection(), all_parts: bool = False,
         rank: int | None = None, keys_at_ranks: bool = False, map: str | os.PathLike[str] | None = None,
         config: str | os.PathLike[str] | Mapping[str, Any] | None = None, sizes: Mapping[str, int] | None = None,
         map_inverse: bool = False, threads: int = 0, progress: Progress = None,
         within: float | None = None) -> DiffReport:
    """Compares two checkpoints of any formats.

    tolerance: 0 compares bits (NaN equals NaN, -0 equals 0), else |a - b| <= T + T * |b|.
    layout: also compare how tensors are cut.
    ignore_dtype: compare values across dtypes.
    selection: the entries of both sides to compare, and their names and dtypes; a rule must match on one side at least.
    map, config, sizes, map_inverse: as in `open`, for the left checkpoint; the right one has the other convention.
    """
    end = _arguments.end_of(within)
    options = {"tolerance": _arguments.fraction("tolerance", tolerance), "end": end,
               **_flags(layout=layout, ignore_dtype=ignore_dtype), "threads": _arguments.threads(threads),
               **options_of(selection)}
    how: dict[str, Any] = {"all_parts": all_parts, "rank": rank, "keys_at_ranks": keys_at_ranks, "end": end}
    sides = [opened(left, check_sums=True, map=map, config=config, sizes=sizes, map_inverse=map_inverse, **how),
             opened(right, **how)]
    with reporting(progress, sum(side.tensor_bytes for side in sides), "diff") as report:
        made = _native.diff(*sides, {**options, "report": report})
    made["differences"] = [Difference(**one) for one in made["differences"]]
    return DiffReport(**made)


def _flags(**values: object) -> dict[str, bool]:
    return {name: _arguments.flag(name, value) for name, value in values.items()}


def convert(source: str | os.PathLike[str], destination: str | os.PathLike[str], format: str | None = None, *,
            selection: Selection = Selection(), overwrite: bool = False, max_shard_bytes: int = MAX_SHARD_BYTES,
            skip_objects: bool = False, skip_unsupported: bool = False, dedup: str = "none", nest: bool = False,
            components: bool = False, payload: str = "torch", item: str = "", quantize: Sequence[str] = (),
            like: str | os.PathLike[str] | None = None, allow_shape_mismatch: bool = False, dequantize: bool = False,
            all_parts: bool = False, rank: int | None = None, keys_at_ranks: bool = False,
            map: str | os.PathLike[str] | None = None,
            config: str | os.PathLike[str] | Mapping[str, Any] | None = None, sizes: Mapping[str, int] | None = None,
            map_inverse: bool = False, threads: int = 0, memory_bytes: int = 0,
            progress: Progress = None, within: float | None = None) -> SaveReport:
    """Rewrites a checkpoint as "dcp", "safetensors", "hf", "pt", "torch-checkpointing", "gguf", or "npz", streaming;
    whole or not at all. Every checksum of the source is compared before the destination appears.

    format: optional if the destination ends in .safetensors, .pt, .gguf, or .npz.
    dedup: "tied" or "equal" writes such tensors once.
    nest: for dcp, pt, and torch-checkpointing from flat names: split them at dots.
    skip_objects, skip_unsupported: leave such entries out instead of refusing them.
    components: write sparse, nested, quantized, and torchao tensors as their components also in dcp, pt, and
    torch-checkpointing.
    payload, item: for torch-checkpointing, as in `save`.
    quantize: for gguf; "Q8_0", or "RE=Q4_0" for the keys that match. The first rule that matches a key decides.
    like: tensors must have their shapes in that checkpoint; with allow_shape_mismatch they are cut and filled to them.
    dequantize, all_parts, map, config, sizes, map_inverse: as in `open`. The selection uses mapped names.
    """
    end = _arguments.end_of(within)
    if format is None:
        formats = {".safetensors": "safetensors", ".pt": "pt", ".gguf": "gguf", ".npz": "npz"}
        format = formats.get(os.path.splitext(_arguments.destination(destination))[1])
        if format is None:
            raise failure("invalid_argument", "pass a format: dcp, safetensors, hf, pt, torch-checkpointing, gguf, or npz",
                          path=_arguments.destination(destination))
    if not isinstance(dedup, str) or dedup not in ("none", "tied", "equal"):
        raise failure("invalid_argument", "the argument dedup is invalid", expected="none, tied, or equal", found=_arguments.shown(dedup))
    options = {"format": _arguments.text("format", format), "overwrite": _arguments.flag("overwrite", overwrite),
               "max_shard_bytes": _arguments.number("max_shard_bytes", max_shard_bytes, 1),
               **_flags(skip_objects=skip_objects, skip_unsupported=skip_unsupported, nest=nest, components=components,
                        allow_shape_mismatch=allow_shape_mismatch),
               "dedup": dedup, "payload": _arguments.text("payload", payload), "item": _arguments.text("item", item),
               "quantize": _arguments.texts("quantize", quantize), "threads": _arguments.threads(threads),
               "memory_bytes": _arguments.number("memory_bytes", memory_bytes), "end": end, **options_of(selection)}
    checkpoint = opened(source, dequantize=dequantize, check_sums=True, all_parts=all_parts, rank=rank,
                        keys_at_ranks=keys_at_ranks, map=map, config=config, sizes=sizes, map_inverse=map_inverse,
                        end=end)
    other = None if like is None else opened(like, end=end)
    with reporting(progress, checkpoint.tensor_bytes, "convert") as report:
        return SaveReport(**_native.convert(checkpoint, _arguments.destination(destination), {**options, "report": report}, other))


def reshard(source: str | os.PathLike[str], destination: str | os.PathLike[str], mesh: str | int | None = None, *,
            place: Sequence[str] = (), default: str | None = None, like: str | os.PathLike[str] | None = None,
            allow_shape_mismatch: bool = False, optimizer_follows: bool = True, selection: Selection = Selection(),
            overwrite: bool = False, skip_unsupported: bool = False, dequantize: bool = False, all_parts: bool = False,
            rank: int | None = None, keys_at_ranks: bool = False, map: str | os.PathLike[str] | None = None,
            config: str | os.PathLike[str] | Mapping[str, Any] | None = None, sizes: Mapping[str, int] | None = None,
            map_inverse: bool = False, threads: int = 0, memory_bytes: int = 0,
            progress: Progress = None, within: float | None = None) -> SaveReport:
    """Rewrites a checkpoint as DCP for another mesh, with one file for each rank.

    mesh: 3, "2,4", or "dp=2,tp=4".
    place: "RE=S(0),R"; the first that matches a key applies.
    default: placements of all other keys.
    like: take boxes and ranks from another checkpoint's tensors instead of a mesh; with allow_shape_mismatch, tensors of
    another shape there are cut at the end or filled with zeros.
    dequantize, all_parts, map, config, sizes, map_inverse: as in `open`. `place` and the selection use mapped names.
    """
    end = _arguments.end_of(within)
    if (mesh is None) == (like is None):
        raise failure("invalid_argument", "pass either mesh (with place) or like")
    options = {"mesh": None if mesh is None else _arguments.text("mesh", str(mesh) if isinstance(mesh, int) else mesh),
               "place": _arguments.texts("place", place),
               "default": None if default is None else _arguments.text("default", default),
               **_flags(optimizer_follows=optimizer_follows, overwrite=overwrite, skip_unsupported=skip_unsupported,
                        allow_shape_mismatch=allow_shape_mismatch),
               "threads": _arguments.threads(threads), "end": end,
               "memory_bytes": _arguments.number("memory_bytes", memory_bytes), **options_of(selection)}
    checkpoint = opened(source, dequantize=dequantize, check_sums=True, all_parts=all_parts, rank=rank,
                        keys_at_ranks=keys_at_ranks, map=map, config=config, sizes=sizes, map_inverse=map_inverse,
                        end=end)
    other = None if like is None else opened(like, end=end)
    with reporting(progress, checkpoint.tensor_bytes, "reshard") as report:
        return SaveReport(**_native.reshard(checkpoint, _arguments.destination(destination), {**options, "report": report}, other))
