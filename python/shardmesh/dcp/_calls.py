# SPDX-License-Identifier: Apache-2.0
"""load and save: PyTorch's own, with our reader, writer and planner, and one error on all ranks."""
from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as torch_checkpoint
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint import planner as planning
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import create_default_local_load_plan
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.tensor import DTensor

from .._error import Error, failure
from .._layouts import Layout
from .._progress import Progress
from .._tensors import name_of
from ._reader import Piece, StorageReader
from ._writer import StorageWriter


class LoadPlanner(torch_checkpoint.DefaultLoadPlanner):
    """PyTorch's planner; a key that is not there, or has another shape, is a shardmesh.Error that names what is near."""

    def __init__(self, reader: StorageReader, *, allow_partial_load: bool = False) -> None:
        super().__init__(allow_partial_load=allow_partial_load)
        self._reader = reader

    def create_local_plan(self) -> planning.LoadPlan:
        stored = self.metadata.state_dict_metadata if self.metadata else {}
        with self._our_errors():
            # PyTorch takes a checkpoint with more keys than this rank asks for to be of version 2.3, and looks for keys
            # of that version; a rank without shards of a ShardedTensor asks for fewer. Nothing is missing, so nothing is
            # to be guessed.
            if all(key in stored for key in self.state_dict):
                return create_default_local_load_plan(self.state_dict, self.metadata, not self.allow_partial_load)
            return super().create_local_plan()

    def pieces_and_plan(self) -> tuple[list[Piece], planning.LoadPlan]:
        """This rank's boxes of plain tensors and DTensors, by our layouts (PyTorch's planner takes some tenths of a
        millisecond for each), and its plan for the rest. Where anything does not fit, there are no pieces and PyTorch's planner says so.
        """
        stored = self.metadata.state_dict_metadata
        pieces, rest = [], {}
        for key, value in self.state_dict.items():
            found = stored.get(key)
            is_tensor = isinstance(found, dcp.TensorStorageMetadata)
            if found is None or is_tensor and found.size != getattr(value, "shape", found.size):
                return [], self.finish_plan(self.create_local_plan())
            of_value = _pieces_of(key, value) if is_tensor else None
            if of_value is None:
                rest[key] = value
            else:
                pieces += of_value
        with self._our_errors():
            return pieces, self.finish_plan(create_default_local_load_plan(rest, self.metadata, True))

    @contextlib.contextmanager
    def _our_errors(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError):
            self._raise_our_own()
            raise

    def _raise_our_own(self) -> None:
        stored = self.metadata.state_dict_metadata if self.metadata else {}
        native = self._reader.checkpoint._native
        for key, value in self.state_dict.items():
            found = stored.get(key)
            if found is None and not self.allow_partial_load:
                self._reader.checkpoint._load([(key, ((), ()), (0, "uint8", (), ()))], 1, True)
            elif isinstance(found, dcp.TensorStorageMetadata) and getattr(value, "size", None) is not None:
                shape = tuple(value.size())
                if shape != tuple(found.size):
                    native.load_whole(key, (0, name_of(value.dtype), shape, (0,) * len(shape)), None)
            elif isinstance(found, dcp.TensorStorageMetadata):
                raise failure("dtype_mismatch", "a tensor is stored, and what it is to be loaded into is none", key=key,
                              path=self._reader.path, expected="a tensor", found=type(value).__name__)


def _pieces_of(key: str, value: Any) -> list[Piece] | None:
    """None for what PyTorch's planner is asked for: ShardedTensors, partials, other subclasses, what is no tensor."""
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return [Piece(key, ((0,) * value.dim(), tuple(value.shape)), value.detach())]
    if type(value) is not DTensor or any(placement.is_partial() for placement in value.placements):
        return None
    layout, rank = Layout.of(value), dist.get_rank()
    if rank not in layout.ranks:
        return []
    local, pieces = value._local_tensor.detach(), []
    for box, offsets in layout.boxes(rank):
        target = local
        for dimension, (begin, size) in enumerate(zip(offsets, box.sizes)):
            target = target.narrow(dimension, begin, size)
        pieces.append(Piece(key, (box.offsets, box.sizes), target))
    return pieces


def load(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str],
         process_group: dist.ProcessGroup | None = None, planner: planning.LoadPlanner | None = None,
         allow_partial_load: bool = False, allow_narrowing: bool = True, threads: int = 0,
         progress: Progress = False) -> None:
    """Collective. Fills the tensors of a state dict (plain ones, DTensors, ShardedTensors) in place and replaces its
    objects, from a checkpoint of any format, however it was cut. As torch.distributed.checkpoint.load.

    Raises shardmesh.Error, the same on all ranks: that of the lowest rank that has one.
    """
    reader = StorageReader(checkpoint_id, threads=threads, allow_narrowing=allow_narrowing, progress=progress)
    with one_error():
        if planner is not None:
            torch_checkpoint.load(state_dict, storage_reader=reader, process_group=process_group, planner=planner)
        else:
            _load(state_dict, reader, LoadPlanner(reader, allow_partial_load=allow_partial_load), process_group)


def _load(state_dict: dict[str, Any], reader: StorageReader, planner: LoadPlanner,
          process_group: dist.ProcessGroup | None) -> None:
    """As torch.distributed.checkpoint.load, whose ranks send their plans to one and get them back: this planner's
    global plan is the local ones, so only errors are exchanged, before anything is read and after it."""
    flat = {key: value.state_dict() if isinstance(value, Stateful) else value
            for key, value in sorted(state_dict.items())}

    def plan() -> tuple[list[Piece], planning.LoadPlan]:
        metadata = reader.read_metadata()
        planner.set_up_planner(flat, metadata, False)
        reader.set_up_storage_reader(metadata, False)
        return planner.pieces_and_plan()

    planned = _on_all_ranks(plan, process_group)
    _on_all_ranks(lambda: reader.fill(*planned, planner), process_group)
    for key, value in flat.items():
        if isinstance(state_dict[key], Stateful):
            state_dict[key].load_state_dict(value)
        else:
            state_dict[key] = value


def _on_all_ranks(step: Callable[[], Any], process_group: dist.ProcessGroup | None) -> Any:
    """What the step gives. Raises CheckpointException on all ranks when it raises on any."""
    made, problem = None, None
    try:
        made = step()
    except Exception as raised:
        problem = (raised, traceback.extract_tb(raised.__traceback__))
    problems = [problem]
    if dist.is_available() and dist.is_initialized() and dist.get_world_size(process_group) > 1:
        problems = [None] * dist.get_world_size(process_group)
        dist.all_gather_object(problems, problem, group=process_group)
    failures = {rank: one for rank, one in enumerate(problems) if one is not None}
    if failures:
        raise CheckpointException("load", failures)
    return made


def save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str],
         process_group: dist.ProcessGroup | None = None, planner: planning.SavePlanner | None = None,
         overwrite: bool = False, threads: int = 0, memory_bytes: int = 0, progress: Progress = False) -> dcp.Metadata:
    """Collective. Writes a state dict (plain tensors, DTensors, ShardedTensors, objects) as one DCP folder, which appears
    whole or not at all. As torch.distributed.checkpoint.save.

    Raises shardmesh.Error, the same on all ranks: that of the lowest rank that has one. The destination is as it was
    then.
    """
    writer = StorageWriter(checkpoint_id, overwrite=overwrite, threads=threads, memory_bytes=memory_bytes,
                           progress=progress)
    try:
        with one_error():
            return torch_checkpoint.save(state_dict, storage_writer=writer, process_group=process_group,
                                         planner=planner)
    finally:
        writer.reset()


@contextlib.contextmanager
def one_error() -> Iterator[None]:
    """PyTorch tells every rank of every rank's failure: out of that comes the first, with the ranks that have it."""
    try:
        yield
    except CheckpointException as failed:
        of_ranks = {rank: wrapped[0] for rank, wrapped in sorted(failed.failures.items())}
        ours = [problem for problem in of_ranks.values() if isinstance(problem, Error)]
        if not ours:  # a callback's, a planner's
            raise next(iter(of_ranks.values())) from failed
        first, others = ours[0], [problem for problem in ours[1:] if str(problem) != str(ours[0])]
        first.others = (*first.others, *others)
        raise first from failed
