# SPDX-License-Identifier: Apache-2.0
"""StorageReader: PyTorch's planner says which boxes go where, shardmesh reads them: all in one call, on several threads,
straight into place. Any format that shardmesh opens will do; no pickle of the description is run."""
from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint import planner as planning
from torch.distributed.checkpoint import storage
from torch.futures import Future

from .. import _arguments
from .._checkpoint import Checkpoint, ObjectEntry, TensorEntry, open
from .._error import failure
from .._progress import Progress, reporting
from .._tensors import Destination


class Piece(NamedTuple):
    """A box of an entry, and the tensor that it is read into."""

    key: str
    where: tuple[tuple[int, ...], tuple[int, ...]]
    target: torch.Tensor


class StorageReader(storage.StorageReader):
    """For torch.distributed.checkpoint.load and all that takes such a reader.

    allow_narrowing: a tensor may be loaded into a dtype that holds less, as PyTorch does without a word. threads: of
    this rank; 0: all cores divided among the ranks of this machine, as LOCAL_WORLD_SIZE says.
    """

    def __init__(self, path: str | os.PathLike[str], *, threads: int = 0, allow_narrowing: bool = True,
                 progress: Progress = False) -> None:
        super().__init__()
        self.path = _arguments.path(path)
        self._threads = _arguments.threads(threads) or default_threads()
        self._allow_narrowing = allow_narrowing
        self._progress = progress
        self._opened: Checkpoint | None = None
        self._failure: Exception | None = None

    @property
    def checkpoint_id(self) -> str:
        return self.path

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint; opened when it is first asked for."""
        if self._opened is None:
            self._opened = open(self.path)
        return self._opened

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self.path = _arguments.path(checkpoint_id)
        self._opened = self._failure = None

    def read_metadata(self, *args: Any, **kwargs: Any) -> dcp.Metadata:
        # PyTorch would take an exception from here for a folder without `.metadata`, go on to look for one per rank and
        # say "metadata is None": it is raised in the next call, which all ranks hear of.
        try:
            return metadata_of(self.checkpoint)
        except Exception as problem:
            self._failure = problem
            return dcp.Metadata({}, planner_data={}, storage_data={})

    def set_up_storage_reader(self, metadata: dcp.Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if self._failure is not None:
            problem, self._failure = self._failure, None
            raise problem

    def prepare_local_plan(self, plan: planning.LoadPlan) -> planning.LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[planning.LoadPlan]) -> list[planning.LoadPlan]:
        return plans

    def read_data(self, plan: planning.LoadPlan, planner: planning.LoadPlanner) -> Future[None]:
        self.fill([], plan, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def fill(self, pieces: Sequence[Piece], plan: planning.LoadPlan, planner: planning.LoadPlanner) -> None:
        """The pieces, and what the plan says: all in one call."""
        pieces, committed = list(pieces), []
        for item in plan.items:
            key = item.storage_index.fqn
            if item.type == planning.LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(self.checkpoint.object_bytes(key)))
                continue
            target = planner.resolve_tensor(item)
            if tuple(target.shape) != tuple(item.lengths):
                raise failure("shape_mismatch", "the planner's tensor does not fit what is to be read", key=key,
                              expected=str(list(item.lengths)), found=str(list(target.shape)))
            origin = item.storage_index.offset or (0,) * len(item.lengths)
            offsets = tuple(begin + more for begin, more in zip(origin, item.storage_offsets))
            pieces.append(Piece(key, (offsets, tuple(item.lengths)), target))
            committed.append((item, target))
        destinations = [Destination(piece.target, piece.key) for piece in pieces]
        total = sum(piece.target.nbytes for piece in pieces)
        with reporting(self._progress, total, "load") as report:
            self.checkpoint._load([(piece.key, piece.where, to.memory) for piece, to in zip(pieces, destinations)],
                                  self._threads, self._allow_narrowing, report)
            if report:
                report(total)
        for to in destinations:
            to.finish()
        for item, target in committed:
            planner.commit_tensor(item, target)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return "://" not in _arguments.path(checkpoint_id)


def default_threads() -> int:
    """A rank's share of the cores: ranks of one machine read at the same time."""
    return max(1, len(os.sched_getaffinity(0)) // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def metadata_of(checkpoint: Checkpoint) -> dcp.Metadata:
    """The description as PyTorch's planners read it."""
    described: dict[str, Any] = {}
    paths: dict[str, tuple] = {}
    for key, entry in checkpoint.items():
        paths[key] = entry.path
        if isinstance(entry, ObjectEntry):
            described[key] = dcp.BytesStorageMetadata()
        else:
            described[key] = _tensor(entry, checkpoint)
    return dcp.Metadata(described, planner_data=paths, storage_data={}, storage_meta=dcp.StorageMeta(checkpoint.path))


def _tensor(entry: TensorEntry, checkpoint: Checkpoint) -> dcp.TensorStorageMetadata:
    # A dtype that this PyTorch lacks, or a representation that shardmesh does not read: whoever wants it gets the error.
    dtype = getattr(torch, entry.dtype, torch.uint8)
    chunks = [dcp.ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))
              for offsets, sizes, *_ in checkpoint._native.chunks(entry._index)]
    return dcp.TensorStorageMetadata(dcp.TensorProperties(dtype=dtype, requires_grad=entry.requires_grad),
                                     torch.Size(entry.shape), chunks)
