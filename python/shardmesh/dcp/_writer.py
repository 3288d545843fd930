# SPDX-License-Identifier: Apache-2.0
"""StorageWriter: PyTorch's planner decides which rank writes what; shardmesh writes it. Each rank writes its own file
of one folder, which appears whole or not at all, with checksums of every byte. PyTorch's own reader loads it."""
from __future__ import annotations

import dataclasses
import io
import os
import pickle
import threading
import uuid
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint import planner as planning
from torch.distributed.checkpoint import storage
from torch.futures import Future

from .. import _arguments, _native
from .._error import Box, failure
from .._parents import in_new_parents, remove_parents
from .._process import Owner
from .._progress import Progress, reporting
from .._saving import check_name
from .._tensors import memory_of, readable
from ._per_thread import PerThread
from ._reader import default_threads


class _Place:
    """The coordinator's message to a rank: the folder under its temporary name, and the rank whose file to write.

    A planner that caches plans sends a rank an empty plan that carries this message, and then uses the plan of an
    earlier save. The rank therefore takes the place that arrived last in this thread, not the one in its plan.
    """

    def __init__(self, folder: str, rank: int) -> None:
        self.folder = folder
        self.rank = rank

    @property
    def prefix(self) -> str:
        """For PyTorch's own writer, when it gets the plan from its cache."""
        return f"__{self.rank}_"

    def __reduce__(self) -> Any:
        return _arrived, (self.folder, self.rank)


_of_thread = threading.local()


def _arrived(folder: str, rank: int) -> _Place:
    _of_thread.place = place = _Place(folder, rank)
    return place


class _Written(NamedTuple):
    """A rank's report to the coordinator about one item."""

    file: str
    offset: int
    length: int
    digits: str


def _pickled(item: planning.WriteItem, planner: planning.SavePlanner) -> io.BytesIO:
    try:
        made = planner.resolve_data(item)
    except Exception as cause:  # from pickle, the object's own class, or the caller's planner
        raise failure("unsupported", f"cannot be pickled: {type(cause).__name__}: {cause}", key=item.index.fqn) from cause
    if not isinstance(made, io.BytesIO):
        raise failure("dtype_mismatch", "the planner returns no stream for an object of its plan", key=item.index.fqn,
                      expected="io.BytesIO", found=type(made).__name__)
    return made


def _place_of(item: planning.WriteItem, part: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Returns the offsets of a part and the shape of its tensor; None if the planner describes another part."""
    data = item.tensor_data
    if data is None or tuple(data.chunk.sizes) != tuple(part.shape):
        return None
    return tuple(data.chunk.offsets), tuple(data.size)


def _planned(item: planning.WriteItem, data: Any) -> torch.Tensor:
    """Returns the planner's tensor. Raises Error unless it is one, and has the dtype and the shape of the plan, which
    the description will have."""
    key, plan = item.index.fqn, item.tensor_data
    if not isinstance(data, torch.Tensor):
        raise failure("dtype_mismatch", "the planner returns no tensor for a tensor of its plan", key=key,
                      expected="torch.Tensor", found=type(data).__name__)
    if plan is not None and data.dtype != plan.properties.dtype:
        raise failure("dtype_mismatch", "the planner's tensor has another dtype than its plan", key=key,
                      expected=str(plan.properties.dtype), found=str(data.dtype), hint="convert it before you save it")
    if plan is not None and tuple(data.shape) != tuple(plan.chunk.sizes):
        raise failure("shape_mismatch", "the planner's tensor has another shape than its plan", key=key,
                      expected=str(list(plan.chunk.sizes)), found=str(list(data.shape)),
                      hint="reshape it before you save it")
    return data


def _check_written(metadata: dcp.Metadata, path: str) -> None:
    """Checks that everything that the description has was written."""
    for key, entry in metadata.state_dict_metadata.items():
        chunks = entry.chunks if isinstance(entry, dcp.TensorStorageMetadata) else [None]
        for chunk in chunks:
            if dcp.MetadataIndex(key, None if chunk is None else chunk.offsets) not in metadata.storage_data:
                box = "" if chunk is None else str(Box(tuple(chunk.offsets), tuple(chunk.sizes)))
                raise failure("gap", "the planner's description has an entry that none of its plans writes", key=key,
                              path=path, expected=box, hint="return all items from create_global_plan and finish_plan")


class _Save:
    """One save. If it is dropped before its commit, its staged files and the new parent folders are removed."""

    def __init__(self, path: str, save_id: str) -> None:
        self.path = path
        self.save_id = save_id
        self.end: float | None = None  # see `_arguments.end_of`
        self.is_begun = False
        self.folder: _native.RankFolder | None = None
        self._parents: list[str] = []  # created by this save
        self._owner = Owner()

    def begin(self, overwrite: bool) -> None:
        self.folder, self._parents = in_new_parents(self.path, lambda: _native.RankFolder.make(self.path, overwrite))

    def check_process(self) -> None:
        self._owner.check("a save", "begin a save in each process", self.path)

    def commit(self, description: bytes, written: list[tuple]) -> None:
        folder, self.folder = self.folder, None
        try:
            folder.commit(description, written)  # type: ignore[union-attr]
            self._parents = []
        finally:
            folder = None  # else an exception's traceback keeps it

    def discard(self) -> None:
        self.folder = None
        parents, self._parents = self._parents, []
        if self._owner.is_here:
            remove_parents(parents)

    def __del__(self) -> None:
        self.discard()


class StorageWriter(storage.StorageWriter):
    """A writer for torch.distributed.checkpoint.save and everything else that takes one.

    overwrite: replace an existing checkpoint once the new one is on the disk. Without it, an existing checkpoint is an
    error; PyTorch's own writer adds to the folder. All ranks must see the folder. Parent folders are created.
    previous: an earlier checkpoint of shardmesh in the same parent folder. Chunks that have not changed since are not
    written again: the new checkpoint refers to the old files, which must be kept.
    within: the time limit in seconds of each save, from its first call on; None: no limit. It ends what this rank writes
    (Error "deadline_exceeded"). The process group limits the waits for other ranks.

    Several saves may run at the same time, each in its own thread, as in several `async_save`. All calls of one save
    must come from one thread.

    `thread_count` is PyTorch's name for `threads`. The arguments after it are those of PyTorch's FileSystemWriter, and
    accept only their defaults: another value raises Error, of code "unsupported", with the alternative.
    """

    def __init__(self, path: str | os.PathLike[str], *, overwrite: bool = False, threads: int = 0,
                 memory_bytes: int = 0, progress: Progress = False, thread_count: int | None = None,
                 single_file_per_rank: bool = True, sync_files: bool = True, per_thread_copy_ahead: int | None = None,
                 cache_staged_state_dict: bool = False, _extensions: Any = None, serialization_format: Any = None,
                 previous: str | os.PathLike[str] | None = None, within: float | None = None) -> None:
        super().__init__()
        refuse_options(single_file_per_rank=single_file_per_rank, sync_files=sync_files,
                       per_thread_copy_ahead=per_thread_copy_ahead, cache_staged_state_dict=cache_staged_state_dict,
                       _extensions=_extensions, serialization_format=serialization_format)
        _arguments.end_of(within)  # checks it
        self._within = within
        self._path = self._checked(path)
        self._save_id = str(uuid.uuid4())
        self._saves: PerThread[_Save] = PerThread()
        self._overwrite = _arguments.flag("overwrite", overwrite)
        if thread_count is not None:
            threads = _arguments.number("thread_count", thread_count, 1, 2**31 - 1)
        self._threads = _arguments.threads(threads) or default_threads()
        self._memory_bytes = _arguments.number("memory_bytes", memory_bytes)
        self._progress = progress
        self._previous = "" if previous is None else _arguments.path(previous)

    @property
    def path(self) -> str:
        """The destination of this thread's save; before one, the last destination."""
        own = self._saves.own
        return self._path if own is None else own.path

    @property
    def save_id(self) -> str:
        own = self._saves.own
        return self._save_id if own is None else own.save_id

    @property
    def checkpoint_id(self) -> str:
        return self.path

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Removes the staged files of this thread's failed save."""
        path = self.path if checkpoint_id is None else self._checked(checkpoint_id)
        if checkpoint_id is not None:
            self._path = path
        self._save_id = str(uuid.uuid4())
        if self._saves.own is not None:
            self._saves.own.discard()
        self._saves.own = _Save(path, self._save_id)

    def _discard_all(self) -> None:
        """Removes the staged files of every thread. Precondition: no save runs."""
        for save in self._saves.all():
            save.discard()

    def _own(self) -> _Save:
        """This thread's save."""
        return self._saves.own or self._begun()

    def _begun(self) -> _Save:
        """Begins a save of this thread, with the path of its `reset`, or of the last `reset` of any thread."""
        own = self._saves.own
        if own is None or own.is_begun:
            if own is not None:
                own.discard()
            self._saves.own = own = _Save(self._path, self._save_id)
        own.is_begun = True
        own.end = _arguments.end_of(self._within)
        return own

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        own = self._begun()
        _of_thread.place = None
        refuse_options(use_collectives=kwargs.get("use_collectives", True))
        # This comes before any plan: a planner that caches plans keeps half of them if the global step fails.
        if is_coordinator:
            own.begin(self._overwrite)

    def prepare_local_plan(self, plan: planning.SavePlan) -> planning.SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[planning.SavePlan]) -> list[planning.SavePlan]:
        own = self._own()
        if own.folder is None:
            own.begin(self._overwrite)
        places = [_Place(own.folder.folder, rank) for rank in range(len(plans))]  # type: ignore[union-attr]
        _of_thread.place = places[0]  # without process groups nothing is sent
        return [dataclasses.replace(plan, storage_data=place) for plan, place in zip(plans, places)]

    def write_data(self, plan: planning.SavePlan, planner: planning.SavePlanner) -> Future[list[storage.WriteResult]]:
        own = self._own()
        own.check_process()
        place = getattr(_of_thread, "place", None) or plan.storage_data
        if not isinstance(place, _Place) or (own.folder is not None and own.folder.folder != place.folder):
            raise failure("unsupported", "the plan is not of this save", path=own.path,
                          hint="call prepare_global_plan in the thread that writes, or send its plans there")
        folder = None
        try:
            archives, tensors, kept, order = self._staged(plan, planner)
            # The coordinator made the folder; another process adds to it.
            folder = own.folder or _native.RankFolder.join(place.folder)
            with reporting(self._progress, sum(tensor.nbytes for tensor in kept), "save") as report:
                options = {"overwrite": False, "threads": self._threads, "memory_bytes": self._memory_bytes,
                           "end": own.end, "previous": self._previous, "destination": own.path, "report": report}
                places, sums = folder.write(place.rank, archives, tensors, options)
        except BaseException:
            if not dist.is_initialized() or dist.get_world_size() == 1:
                folder = None
                own.discard()  # no other rank writes to it, and a kept exception keeps this save
            raise
        finally:
            folder = None  # else an exception's traceback keeps it, and everything written
        results = []
        for item, (kind, number) in zip(plan.items, order):
            at = number + kind * len(archives)
            written = _Written(*places[at], sums[at][3])
            results.append(storage.WriteResult(item.index, written.length, written))
        done: Future[list[storage.WriteResult]] = Future()
        done.set_result(results)
        return done

    def _staged(self, plan: planning.SavePlan, planner: planning.SavePlanner) -> tuple[list, list, list, list]:
        """Returns the objects, the tensors, what keeps their memory, and for each item its kind and number."""
        archives, tensors, kept, order = [], [], [], []
        for item in plan.items:
            check_name(item.index.fqn, "")
            if item.type == planning.WriteItemType.BYTE_IO:
                data = _pickled(item, planner)
                archives.append(data.getvalue())
                order.append((0, len(archives) - 1))
                continue
            key, data = item.index.fqn, planner.resolve_data(item)
            kept.append(readable(_planned(item, data), key))
            tensors.append((key, memory_of(kept[-1]), _place_of(item, kept[-1]) if self._previous else None))
            order.append((1, len(tensors) - 1))
        return archives, tensors, kept, order

    def finish(self, metadata: dcp.Metadata, results: list[list[storage.WriteResult]]) -> None:
        own = self._own()
        own.check_process()
        if own.folder is None:
            raise failure("unsupported", "there is no save to finish", path=own.path,
                          hint="call prepare_global_plan first, in this thread")
        written = [result for of_rank in results for result in of_rank]
        metadata.version = filesystem.CURRENT_DCP_VERSION
        metadata.storage_data = {result.index: filesystem._StorageInfo(*result.storage_data[:3]) for result in written}
        metadata.storage_meta = self.storage_meta()
        try:
            _check_written(metadata, own.path)
            own.commit(pickle.dumps(metadata), [tuple(result.storage_data) for result in written])
        except BaseException:
            own.discard()
            raise
        finally:
            self._saves.own = None

    def storage_meta(self) -> dcp.StorageMeta:
        return dcp.StorageMeta(checkpoint_id=self.path, save_id=self.save_id)

    def _checked(self, checkpoint_id: str | os.PathLike[str]) -> str:
        path = _arguments.path(checkpoint_id)
        if not self.validate_checkpoint_id(checkpoint_id):
            raise failure("invalid_argument", "validate_checkpoint_id of the writer refuses it", path=path)
        return path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it is a path of this machine, or a file:// URL of one."""
        return _arguments.is_path(checkpoint_id)


#: Options of PyTorch that shardmesh lacks: the values that change nothing, and the alternative.
_REFUSED = {
    "single_file_per_rank": ((True,), "leave it out: every rank writes one file, or let PyTorch's FileSystemWriter write"),
    "sync_files": ((True,), "leave it out: a checkpoint appears when it is on the disk"),
    "per_thread_copy_ahead": ((None,), "memory_bytes= bounds the memory for staging"),
    "cache_staged_state_dict": ((False,), "give async_save a stager that you keep: async_stager=DefaultStager(...)"),
    "_extensions": ((None, (), []), "let PyTorch's FileSystemWriter write; StorageReader(extension_registry=) reads it"),
    "serialization_format": ((None, filesystem.SerializationFormat.TORCH_SAVE),
                             "shardmesh.convert writes safetensors from a checkpoint"),
    "use_collectives": ((True,), "leave it out, or let PyTorch's FileSystemWriter write; shardmesh reads what it writes"),
}


def refuse_options(**given: Any) -> None:
    for name, value in given.items():
        plain, instead = _REFUSED[name]
        if not any(type(value) is type(one) and value == one for one in plain):
            raise failure("unsupported", f"the option {name} of PyTorch's writer has no counterpart here",
                          expected=repr(plain[0]), found=_arguments.shown(value), hint=instead)
