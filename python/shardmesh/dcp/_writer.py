# SPDX-License-Identifier: Apache-2.0
"""StorageWriter: PyTorch's planner says who writes what, shardmesh writes it: each rank its file of one folder, which
appears whole or not at all, with checksums of every byte. PyTorch's own reader loads it."""
from __future__ import annotations

import dataclasses
import os
import pickle
from typing import Any, NamedTuple

import torch.distributed as dist
from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint import planner as planning
from torch.distributed.checkpoint import storage
from torch.futures import Future

from .. import _arguments, _native
from .._error import failure
from .._progress import Progress, reporting
from .._tensors import memory_of, readable
from ._reader import default_threads


class _Place(NamedTuple):
    """What the coordinator tells a rank: the folder under its temporary name, and whose file to write."""

    folder: str
    rank: int


class _Written(NamedTuple):
    """What a rank tells the coordinator of one item."""

    file: str
    offset: int
    length: int
    digits: str


class StorageWriter(storage.StorageWriter):
    """For torch.distributed.checkpoint.save and all that takes such a writer.

    overwrite: replace the checkpoint that is there, once the new one is on the disk; without it, one that is there is
    an error (PyTorch's own writer adds to the folder). All ranks see the folder. Do not use it with planners that cache
    their plans (enable_plan_caching): a plan names the folder of one save.
    """

    def __init__(self, path: str | os.PathLike[str], *, overwrite: bool = False, threads: int = 0,
                 memory_bytes: int = 0, progress: Progress = False) -> None:
        super().__init__()
        self.path = _arguments.path(path)
        self._overwrite = overwrite
        self._threads = _arguments.threads(threads) or default_threads()
        self._memory_bytes = _arguments.number("memory_bytes", memory_bytes)
        self._progress = progress
        self._folder: _native.RankFolder | None = None

    @property
    def checkpoint_id(self) -> str:
        return self.path

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Takes away what a save that failed has staged."""
        if checkpoint_id is not None:
            self.path = _arguments.path(checkpoint_id)
        self._folder = None

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._folder = None
        if not kwargs.get("use_collectives", True):
            raise failure("unsupported", "ranks that save without telling each other", path=self.path,
                          hint="use_collectives=True, or torch.distributed.checkpoint.FileSystemWriter")

    def prepare_local_plan(self, plan: planning.SavePlan) -> planning.SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[planning.SavePlan]) -> list[planning.SavePlan]:
        self._folder = _native.RankFolder.make(self.path, self._overwrite)
        return [dataclasses.replace(plan, storage_data=_Place(self._folder.folder, rank))
                for rank, plan in enumerate(plans)]

    def write_data(self, plan: planning.SavePlan, planner: planning.SavePlanner) -> Future[list[storage.WriteResult]]:
        place = plan.storage_data
        if not isinstance(place, _Place) or (self._folder is not None and self._folder.folder != place.folder):
            raise failure("unsupported", "the plan is not of this save", path=self.path,
                          hint="a planner with enable_plan_caching=False")
        archives, tensors, kept, order = [], [], [], []
        for item in plan.items:
            data = planner.resolve_data(item)
            if item.type == planning.WriteItemType.BYTE_IO:
                archives.append(data.getvalue())
                order.append((0, len(archives) - 1))
                continue
            key = item.index.fqn
            kept.append(readable(data, key))
            tensors.append((key, memory_of(kept[-1])))
            order.append((1, len(tensors) - 1))
        # The coordinator made the folder; another process adds to it.
        folder = self._folder or _native.RankFolder.join(place.folder)
        total = sum(tensor.nbytes for tensor in kept)
        try:
            with reporting(self._progress, total, "save") as report:
                options = {"overwrite": False, "threads": self._threads, "memory_bytes": self._memory_bytes,
                           "report": report}
                places, sums = folder.write(place.rank, archives, tensors, options)
        except BaseException:
            if not dist.is_initialized() or dist.get_world_size() == 1:
                self._folder = None  # nobody else writes into it, and whoever keeps the exception keeps this writer
            raise
        finally:
            folder = None  # else an exception's traceback keeps it, and what was written
        results = []
        for item, (kind, number) in zip(plan.items, order):
            at = number + kind * len(archives)
            written = _Written(*places[at], sums[at][3])
            results.append(storage.WriteResult(item.index, written.length, written))
        done: Future[list[storage.WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: dcp.Metadata, results: list[list[storage.WriteResult]]) -> None:
        folder, self._folder = self._folder, None
        written = [result for of_rank in results for result in of_rank]
        metadata.version = filesystem.CURRENT_DCP_VERSION
        metadata.storage_data = {result.index: filesystem._StorageInfo(*result.storage_data[:3]) for result in written}
        metadata.storage_meta = self.storage_meta()
        try:
            folder.commit(pickle.dumps(metadata), [tuple(result.storage_data) for result in written])
        finally:
            folder = None

    def storage_meta(self) -> dcp.StorageMeta:
        return dcp.StorageMeta(checkpoint_id=self.path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return "://" not in _arguments.path(checkpoint_id)
