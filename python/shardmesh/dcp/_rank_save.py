# SPDX-License-Identifier: Apache-2.0
"""save and async_save with a mapping or a kept plan. PyTorch's planner takes no part: the C++ half plans. With a mapping,
the tensors that are written exist only during the save."""
from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.checkpoint import metadata as dcp

from .. import _arguments, _native
from .._parents import new_parents
from .._plan_cache import SavePlanCache
from .._progress import Progress, reporting
from .._rank_sides import parts_of
from .._ranks import Members, alone, members
from .._saving import archive_of, flattened, refuse_inside
from .._tensors import memory_of, name_of, readable
from ._reader import StorageReader, default_threads


@dataclasses.dataclass
class MappedMetadata(dcp.Metadata):
    """PyTorch's Metadata of a checkpoint that was saved with a mapping, and the notes of the save."""

    notes: list[str] = dataclasses.field(default_factory=list)


def save_by_ranks(prepare: Callable[[], tuple[_native.ChosenMapping | None, StateOfRank]],
                  checkpoint_id: str | os.PathLike[str], is_mapped: bool, process_group: dist.ProcessGroup | None,
                  no_dist: bool, options: dict[str, Any], progress: Progress) -> dcp.Metadata:
    """Writes the state of all ranks, under the convention to which the mapping leads if there is one. If `prepare` raises
    on a rank, all ranks raise."""
    group = _group(process_group, no_dist, is_mapped)
    with group.telling_others(_call(is_mapped)):
        chosen, state = prepare()
    return _written(state, checkpoint_id, chosen, group, options, progress)


def start_save_by_ranks(copied: StateOfRank, checkpoint_id: str | os.PathLike[str],
                        chosen: _native.ChosenMapping | None, process_group: dist.ProcessGroup | None, no_dist: bool,
                        options: dict[str, Any], progress: Progress) -> Future[dcp.Metadata]:
    """Writes a copy of the state in the background, after earlier such saves. The ranks meet before this returns."""
    group = _group(process_group, no_dist, chosen is not None, use="background/")
    return _worker().submit(_written, copied, checkpoint_id, chosen, group, options, progress)


#: By the number of the process, because a forked child lacks the thread. All saves of a process share one thread, so
#: those of several process groups cannot wait for each other in a circle.
_workers: dict[int, ThreadPoolExecutor] = {}


def _worker() -> ThreadPoolExecutor:
    if os.getpid() not in _workers:
        _workers[os.getpid()] = ThreadPoolExecutor(max_workers=1, thread_name_prefix="shardmesh-save")
    return _workers[os.getpid()]


def _call(is_mapped: bool) -> str:
    """Returns the name of the call that the ranks are in, as the C++ half spells it."""
    return "save_mapped" if is_mapped else "save"


def _written(state: StateOfRank, checkpoint_id: str | os.PathLike[str], chosen: _native.ChosenMapping | None,
             group: Members, options: dict[str, Any], progress: Progress) -> dcp.Metadata:
    with contextlib.ExitStack() as kept:
        with group.telling_others(_call(chosen is not None)):
            given = {"destination": _arguments.path(checkpoint_id), **checked(options)}
            if group.native.rank == 0:
                kept.enter_context(new_parents(given["destination"]))
            total = -(-state.size_bytes // len(group.ranks))
            how = {**given, "report": kept.enter_context(reporting(progress, total, "save"))}
        with group.moving():
            if chosen is None:
                group.native.save(state.tensors, state.objects, how)
                notes = None
            else:
                notes = group.native.save_mapped(chosen, state.tensors, state.objects, how)["notes"]
    described = StorageReader(checkpoint_id).read_metadata()
    return described if notes is None else MappedMetadata(**vars(described), notes=notes)


def _group(process_group: dist.ProcessGroup | None, no_dist: bool, is_mapped: bool, use: str = "") -> Members:
    if not is_mapped and (no_dist or not dist.is_initialized()):
        return alone()
    return members(_ranks_of(process_group), process_group, use=use)


class StateOfRank:
    """A state dict as the C++ half takes it: this rank's boxes of each tensor, and pickled objects.

    is_copied: the parts have memory of their own, so that the state may change."""

    def __init__(self, state_dict: dict[str, Any], *, is_copied: bool = False) -> None:
        self.tensors: list[tuple] = []
        self.objects: list[tuple] = []
        self.size_bytes = 0  # of whole tensors
        self._kept: list[torch.Tensor] = []  # their memory is used
        for key, path, value in flattened(state_dict, "dcp"):
            if isinstance(value, (torch.Tensor, ShardedTensor)):
                self._add_tensor(key, path, value, is_copied)
            else:
                refuse_inside(value, key)
                self.objects.append((path, archive_of(value, key)))

    def _add_tensor(self, key: str, path: tuple, value: Any, is_copied: bool) -> None:
        shape = tuple(value.size())
        parts = []
        for offsets, part in parts_of(value, key):
            plain = readable(part, key)
            if is_copied and plain.data_ptr() == part.data_ptr():
                plain = plain.clone(memory_format=torch.contiguous_format)
            self._kept.append(plain)
            parts.append((offsets, memory_of(plain)))
        self.tensors.append((path, shape, name_of(value.dtype), parts))
        self.size_bytes += math.prod(shape) * value.dtype.itemsize


def checked(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options as the C++ half takes them. The time limit begins with this call."""
    previous, cache = options["previous"], options["plan_cache"]
    if cache is not None and not isinstance(cache, SavePlanCache):
        raise _arguments.wrong("plan_cache", "a shardmesh.SavePlanCache", cache)
    return {"overwrite": _arguments.flag("overwrite", options["overwrite"]),
            "threads": _arguments.threads(options["threads"]) or default_threads(),
            "memory_bytes": _arguments.number("memory_bytes", options["memory_bytes"]),
            "plan_cache": None if cache is None else cache._native,
            "previous": "" if previous is None else _arguments.path(previous),
            "end": _arguments.end_of(options["within"])}


def _ranks_of(process_group: dist.ProcessGroup | None) -> set[int]:
    if process_group is not None:
        return set(dist.get_process_group_ranks(process_group))
    return set(range(dist.get_world_size())) if dist.is_available() and dist.is_initialized() else set()
