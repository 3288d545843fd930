# SPDX-License-Identifier: Apache-2.0
"""StorageReader: PyTorch's planner decides which boxes go where; shardmesh reads all of them in one call, on several
threads, straight into place. It reads any format that shardmesh opens, and runs no pickle of the description."""
from __future__ import annotations

import io
import os
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import planner as planning
from torch.distributed.checkpoint import storage
from torch.distributed.checkpoint.metadata import Metadata
from torch.futures import Future

from .. import _arguments
from .._checkpoint import Checkpoint, opened
from .._error import failure
from .._progress import Progress, reporting
from .._tensors import Destination
from ._description import description_of, is_of_ranks, transforms_of
from ._per_thread import PerThread
from ._transforms import Transforms


class Piece(NamedTuple):
    """A box of an entry, and the tensor to read it into."""

    key: str
    where: tuple[tuple[int, ...], tuple[int, ...]]
    target: torch.Tensor


class _Load:
    """One load."""

    def __init__(self, path: str, load_id: str) -> None:
        self.path = path
        self.load_id = load_id
        self.end: float | None = None  # see `_arguments.end_of`
        self.is_begun = False
        self.opened: Checkpoint | None = None
        self.opened_as: int | None = None
        self.failure: Exception | None = None

    def open(self, rank: int | None) -> None:
        self.opened, self.opened_as = Checkpoint(opened(self.path, rank=rank, end=self.end)), rank


class StorageReader(storage.StorageReader):
    """A reader for torch.distributed.checkpoint.load and everything else that takes one. It may be reused: each load
    opens the checkpoint again. Several loads may run at the same time, each in its own thread.

    allow_narrowing: a tensor may be loaded into a dtype that holds less, as PyTorch does silently.
    threads: of this rank; 0: all cores, divided among the ranks of this machine (LOCAL_WORLD_SIZE).
    rank: the rank whose values are read, if ranks that saved with use_collectives=False hold different ones under a
    key. None: this process's rank; without process groups Error "disagreement".
    within: the time limit in seconds of each load, from its first call on; None: no limit. It ends what this rank opens
    and reads (Error "deadline_exceeded"). The process group limits the waits for other ranks.
    extension_registry: PyTorch's ExtensionRegistry, for items that were written through your own stream extensions
    (zstd needs none).
    """

    def __init__(self, path: str | os.PathLike[str], *, threads: int = 0, allow_narrowing: bool = True,
                 progress: Progress = False, rank: int | None = None, extension_registry: Any = None,
                 within: float | None = None) -> None:
        super().__init__()
        _arguments.end_of(within)  # checks it
        self._within = within
        self._path = self._checked(path)
        self._load_id = str(uuid.uuid4())
        self._loads: PerThread[_Load] = PerThread()
        self._threads = _arguments.threads(threads) or default_threads()
        self._allow_narrowing = _arguments.flag("allow_narrowing", allow_narrowing)
        self._progress = progress
        self._rank = None if rank is None else _arguments.number("rank", rank, most=2**31 - 1)
        self._transforms = Transforms(extension_registry)

    @property
    def path(self) -> str:
        """The source of this thread's load; before one, the last source."""
        own = self._loads.own
        return self._path if own is None else own.path

    @property
    def load_id(self) -> str:
        own = self._loads.own
        return self._load_id if own is None else own.load_id

    @property
    def checkpoint_id(self) -> str:
        return self.path

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint as of this thread's last `read_metadata`; opened on first use."""
        own = self._own()
        if own.opened is None:
            own.open(self._default_rank())
        return own.opened  # type: ignore[return-value]

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        path = self.path if checkpoint_id is None else self._checked(checkpoint_id)
        if checkpoint_id is not None:
            self._path = path
        self._load_id = str(uuid.uuid4())
        self._loads.own = _Load(path, self._load_id)

    def _own(self) -> _Load:
        """This thread's load."""
        return self._loads.own or self._begun()

    def _begun(self) -> _Load:
        """Begins a load of this thread, with the path of its `reset`, or of the last `reset` of any thread."""
        own = self._loads.own
        if own is None or own.is_begun:
            self._loads.own = own = _Load(self._path, self._load_id)
        own.is_begun = True
        own.end = _arguments.end_of(self._within)
        return own

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        # PyTorch would take an exception from here for a folder without `.metadata`, look for one per rank, and report
        # "metadata is None". The next call raises it instead, and all ranks get it.
        load = self._begun()  # the files may have changed since the last load
        try:
            own = self._default_rank()
            load.open(kwargs.get("rank", own) if self._rank is None else own)
            return description_of(self.checkpoint, load.load_id, with_places=kwargs.get("with_places", True))
        except Exception as problem:
            load.failure = problem
            return Metadata({}, planner_data={}, storage_data={})

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        own = self._own()
        if own.failure is not None:
            problem, own.failure = own.failure, None
            raise problem
        rank = kwargs.get("rank")  # in the process group, or 0 without one
        if (self._rank is None and rank is not None and rank != own.opened_as and _has_ranks()
                and own.opened is not None and is_of_ranks(own.opened)):
            own.open(rank)

    def _default_rank(self) -> int | None:
        if self._rank is not None:
            return self._rank
        return dist.get_rank() if _has_ranks() else None

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
        """Reads the pieces and the items of the plan, all in one call."""
        pieces, committed = list(pieces), []
        transforms = transforms_of(self.checkpoint) if self._transforms.are_known else {}
        for item in plan.items:
            key = item.storage_index.fqn
            through = transforms.get(key)
            if item.type == planning.LoadItemType.BYTE_IO:
                archive = self._transforms.object_of(self.checkpoint, key, through) if through else None
                if archive is None:
                    archive = self.checkpoint._object_bytes(key, self._own().end)
                planner.load_bytes(item, io.BytesIO(archive))
                continue
            target = planner.resolve_tensor(item)
            if not isinstance(target, torch.Tensor):
                raise failure("dtype_mismatch", "the planner returns no tensor to read into", key=key,
                              expected="torch.Tensor", found=type(target).__name__)
            if tuple(target.shape) != tuple(item.lengths):
                raise failure("shape_mismatch", "the planner's tensor does not match the data to read", key=key,
                              expected=str(list(item.lengths)), found=str(list(target.shape)))
            origin = item.storage_index.offset or (0,) * len(item.lengths)
            offsets = tuple(begin + more for begin, more in zip(origin, item.storage_offsets))
            pieces.append(Piece(key, (offsets, tuple(item.lengths)), target))
            committed.append((item, target))
        self._read([piece for piece in pieces if piece.key not in transforms])
        for piece in pieces:
            if piece.key in transforms:
                self._transforms.fill(self.checkpoint, piece.key, piece.where, piece.target, transforms[piece.key])
        for item, target in committed:
            planner.commit_tensor(item, target)

    def _read(self, pieces: list[Piece]) -> None:
        destinations = [Destination(piece.target, piece.key) for piece in pieces]
        total = sum(piece.target.nbytes for piece in pieces)
        with reporting(self._progress, total, "load") as report:
            self.checkpoint._load([to.request(piece.where) for piece, to in zip(pieces, destinations)], self._threads,
                                  self._allow_narrowing, report, end=self._own().end)
            if report:
                report(total)
        for to in destinations:
            to.finish()

    def _checked(self, checkpoint_id: str | os.PathLike[str]) -> str:
        path = _arguments.source(checkpoint_id)
        if not self.validate_checkpoint_id(checkpoint_id):
            raise failure("invalid_argument", "validate_checkpoint_id of the reader refuses it", path=path)
        return path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it is a path of this machine, or a URL."""
        return _arguments.is_source(checkpoint_id)


def _has_ranks() -> bool:
    return dist.is_available() and dist.is_initialized()


def default_threads() -> int:
    """Returns a rank's share of the cores: ranks of one machine read at the same time."""
    try:
        ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    except ValueError:
        ranks = 1
    return max(1, len(os.sched_getaffinity(0)) // max(1, ranks))
