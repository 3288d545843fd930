# SPDX-License-Identifier: Apache-2.0
"""load and save: PyTorch's own, with our reader, writer, and planner, and one error on all ranks."""
from __future__ import annotations

import contextlib
import io
import os
import pickle
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as torch_checkpoint
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint import planner as planning
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint._sharded_tensor_utils import _flatten_sharded_tensors
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import create_default_local_load_plan
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves, tree_map_only

from .. import _arguments, _native
from .._background import OwnedFuture
from .._checkpoint import pickle_failure
from .._conventions import mapping_options
from .._error import Error, failure
from .._layouts import Layout
from .._plan_cache import SavePlanCache
from .._progress import Progress
from .._saving import check_containers, check_tensors
from .._tensors import refuse_without_memory
from ._errors import one_error
from ._rank_save import StateOfRank, checked, save_by_ranks, start_save_by_ranks
from ._reader import Piece, StorageReader
from ._writer import StorageWriter, refuse_options


class _SavePlanner(torch_checkpoint.DefaultSavePlanner):
    """PyTorch's planner; a state dict that cannot be saved raises a shardmesh.Error that names the key."""

    def set_up_planner(self, state_dict: Any, storage_meta: dcp.StorageMeta | None = None,
                       is_coordinator: bool = False) -> None:
        check_containers(state_dict)
        check_tensors(state_dict)
        super().set_up_planner(state_dict, storage_meta, is_coordinator)


class _Refusal(torch_checkpoint.DefaultSavePlanner):
    """The planner and the writer of a rank whose arguments are wrong. The rank takes part in the first step of PyTorch's
    save, which passes its error to the ranks that would wait for it."""

    def __init__(self, problem: Exception) -> None:
        super().__init__()
        self._problem = problem

    def reset(self, checkpoint_id: Any = None) -> None:
        pass

    def storage_meta(self) -> None:
        return None

    def set_up_planner(self, state_dict: Any, storage_meta: dcp.StorageMeta | None = None,
                       is_coordinator: bool = False) -> None:
        raise self._problem


class LoadPlanner(torch_checkpoint.DefaultLoadPlanner):
    """PyTorch's planner; a missing key, or another shape, raises a shardmesh.Error that names the nearest key."""

    def __init__(self, reader: StorageReader, *, allow_partial_load: bool = False) -> None:
        super().__init__(allow_partial_load=allow_partial_load)
        self._reader = reader
        self._keys: dict[int, dict[str, Any]] = {}  # of each dict with other keys than texts, by its id

    def set_up_planner(self, state_dict: Any, metadata: dcp.Metadata | None = None, is_coordinator: bool = False) -> None:
        super().set_up_planner(state_dict, metadata, is_coordinator)
        # PyTorch drops ShardedTensors of which this rank has no shards before it names entries. Other entries of a list,
        # or the list itself, would then get other names than in the save.
        flat, self.mappings = flatten_state_dict(state_dict)
        self.state_dict = _flatten_sharded_tensors(flat)

    def create_local_plan(self) -> planning.LoadPlan:
        stored = self.metadata.state_dict_metadata if self.metadata else {}
        with self._our_errors():
            # PyTorch takes a checkpoint with more keys than this rank requests for one of version 2.3, and looks for
            # keys of that version. A rank without shards of a ShardedTensor requests fewer keys. Nothing is missing, so
            # there is nothing to guess.
            if all(key in stored for key in self.state_dict):
                return create_default_local_load_plan(self.state_dict, self.metadata, not self.allow_partial_load)
            return super().create_local_plan()

    def pieces_and_plan(self) -> tuple[list[Piece], planning.LoadPlan]:
        """Returns this rank's boxes of plain tensors and DTensors, from our layouts, and PyTorch's plan for the rest.
        PyTorch's planner takes some tenths of a millisecond for each. If anything does not fit, there are no pieces,
        and PyTorch's planner raises the error."""
        stored = self.metadata.state_dict_metadata
        pieces, rest = [], {}
        for key, value in self.state_dict.items():
            found = stored.get(key)
            is_tensor = isinstance(found, dcp.TensorStorageMetadata)
            # A nested tensor has no shape to compare.
            if is_tensor and isinstance(value, torch.Tensor) and not isinstance(value, (DTensor, ShardedTensor)):
                refuse_without_memory(value, key, "fill")
            if found is None or is_tensor and found.size != getattr(value, "shape", found.size):
                return [], self.finish_plan(self.create_local_plan())
            of_value = _pieces_of(key, value) if is_tensor else None
            if of_value is None:
                rest[key] = value
            else:
                pieces += of_value
        with self._our_errors():
            return pieces, self.finish_plan(create_default_local_load_plan(rest, self.metadata, True))

    def load_bytes(self, read_item: planning.ReadItem, value: io.BytesIO) -> None:
        try:
            loaded = torch.load(value, weights_only=False)
        except Exception as cause:
            raise pickle_failure(cause, read_item.storage_index.fqn, self._reader.path) from cause
        # PyTorch's paths have text for every key of a dict. PyTorch adds a value under the text, and leaves the old value
        # under the integer.
        *above, last = self.mappings[read_item.dest_index.fqn]
        container: Any = self.original_state_dict
        for step in above:
            container = container[self._key_in(container, step)]
        container[self._key_in(container, last)] = loaded

    def _key_in(self, container: Any, step: Any) -> Any:
        """Returns the key or the index that a step of PyTorch's path means."""
        if not isinstance(container, Mapping) or step in container:
            return step
        if id(container) not in self._keys:
            self._keys[id(container)] = {str(key): key for key in container}
        return self._keys[id(container)][step]

    @contextlib.contextmanager
    def _our_errors(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError):
            self._raise_our_own()
            raise

    def _raise_our_own(self) -> None:
        stored = self.metadata.state_dict_metadata if self.metadata else {}
        for key, value in self.state_dict.items():
            self._reader.checkpoint._raise_conflict(key)
            found = stored.get(key)
            if found is None and not self.allow_partial_load:
                self._reader.checkpoint._load([(key, ((), ()), (0, "uint8", (), ()), None)], 1, True)
            elif isinstance(found, dcp.TensorStorageMetadata) and getattr(value, "size", None) is not None:
                shape = tuple(value.size())
                if shape != tuple(found.size):
                    raise failure("shape_mismatch", "the tensor to load into has a different shape than the stored one",
                                  key=key, path=self._reader.path, expected=str(list(found.size)), found=str(list(shape)),
                                  hint="load_into of shardmesh.open takes a box of the stored tensor, or cuts and fills it "
                                       "with allow_shape_mismatch")
            elif isinstance(found, dcp.TensorStorageMetadata):
                raise failure("dtype_mismatch", "a tensor is stored, but its destination is not a tensor", key=key,
                              path=self._reader.path, expected="a tensor", found=type(value).__name__)


def _pieces_of(key: str, value: Any) -> list[Piece] | None:
    """Returns None for values that PyTorch's planner handles: ShardedTensors, partials, other subclasses, and
    non-tensors."""
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
         no_dist: bool = False, allow_partial_load: bool = False, allow_narrowing: bool = True, threads: int = 0,
         progress: Progress = False, rank: int | None = None, extension_registry: Any = None,
         within: float | None = None) -> None:
    """Fills the tensors of a state dict (plain ones, DTensors, ShardedTensors) in place and replaces its objects, from
    a checkpoint of any format and any sharding. Collective. Like torch.distributed.checkpoint.load.

    no_dist: use this process alone, even if there are process groups.
    rank, extension_registry, within: as in `StorageReader`.

    Raises shardmesh.Error, the same on all ranks: that of the lowest rank that failed. It is a CheckpointError, so code
    that catches PyTorch's CheckpointException also catches it.
    """
    no_dist = _arguments.flag("no_dist", no_dist)

    def open_reader() -> StorageReader:
        _check_methods("planner", planner, "a LoadPlanner", "create_local_plan", "load_bytes", "resolve_tensor")
        group_rank = _rank_in(process_group, no_dist) if rank is None else rank
        return StorageReader(checkpoint_id, threads=threads, allow_narrowing=allow_narrowing, progress=progress,
                             rank=group_rank, extension_registry=extension_registry, within=within)

    def prepare() -> tuple[StorageReader, dict[str, Any]]:
        reader = open_reader()
        _refuse_other_state(state_dict)
        return reader, _plain(state_dict)

    with one_error("load", process_group, no_dist):
        if planner is not None:
            # PyTorch's load would call the methods of Stateful values on this rank alone, while other ranks wait.
            reader, plain = _on_all_ranks(prepare, process_group, no_dist)
            torch_checkpoint.load(plain, storage_reader=reader, process_group=process_group, planner=planner,
                                  no_dist=no_dist)
            _on_all_ranks(lambda: _put_back(state_dict, plain), process_group, no_dist)
        else:
            _load(state_dict, open_reader, allow_partial_load, process_group, no_dist)


def _refuse_other_state(state_dict: Any) -> None:
    if not isinstance(state_dict, dict):
        raise failure("invalid_argument", "a state dict must be a dict", found=type(state_dict).__name__)
    for key in state_dict:
        if not isinstance(key, str):
            raise failure("invalid_argument", "a key of a state dict must be text", expected="text", found=repr(key)[:100])


def _refuse_meta(value: Any, key: str = "") -> None:
    """Refuses meta tensors: PyTorch's planner gives them memory on the device of the process group, and raises
    ValueError without a group."""
    if isinstance(value, dict):
        for name, one in value.items():
            _refuse_meta(one, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            _refuse_meta(one, f"{key}.{number}")
    elif isinstance(value, torch.Tensor) and value.is_meta:
        refuse_without_memory(value, key, "fill")


def _rank_in(process_group: dist.ProcessGroup | None, no_dist: bool) -> int | None:
    if not dist.is_available() or not dist.is_initialized():
        return None
    rank = dist.get_rank(None if no_dist else process_group)
    return rank if rank >= 0 else None  # not in the group


def _load(state_dict: dict[str, Any], open_reader: Callable[[], StorageReader], allow_partial_load: bool,
          process_group: dist.ProcessGroup | None, no_dist: bool) -> None:
    """Like torch.distributed.checkpoint.load, whose ranks send their plans to one rank and get them back. This
    planner's global plan equals the local ones, so ranks exchange only errors, before anything is read and after it."""
    flat: dict[str, Any] = {}

    def plan() -> tuple[StorageReader, LoadPlanner, list[Piece], planning.LoadPlan]:
        reader = open_reader()
        planner = LoadPlanner(reader, allow_partial_load=allow_partial_load)
        _refuse_other_state(state_dict)
        flat.update(sorted(_plain(state_dict).items()))
        check_containers(flat)
        if not dist.is_available() or not dist.is_initialized():
            _refuse_meta(flat)
        metadata = reader.read_metadata(with_places=False)
        planner.set_up_planner(flat, metadata, False)
        reader.set_up_storage_reader(metadata, False)
        return reader, planner, *planner.pieces_and_plan()

    reader, planner, pieces, rest = _on_all_ranks(plan, process_group, no_dist)
    _on_all_ranks(lambda: reader.fill(pieces, rest, planner), process_group, no_dist)
    _on_all_ranks(lambda: _put_back(state_dict, flat), process_group, no_dist)


def _put_back(state_dict: dict[str, Any], loaded: dict[str, Any]) -> None:
    """Gives the loaded values to the state dict and to its Stateful values. A method that raises ends the load on all
    ranks; other values of the state may have been replaced by then."""
    for key, value in loaded.items():
        if not isinstance(state_dict[key], Stateful):
            state_dict[key] = value
            continue
        try:
            state_dict[key].load_state_dict(value)
        except Error:
            raise
        except Exception as cause:  # from the method
            raise failure("invalid_argument", f"its method load_state_dict raised {type(cause).__name__}: {cause}",
                          key=key) from cause


def _on_all_ranks(step: Callable[[], Any], process_group: dist.ProcessGroup | None, no_dist: bool) -> Any:
    """Returns the result of the step. Raises CheckpointException on all ranks if the step raises on any."""
    made, problem = None, None
    try:
        made = step()
    except Exception as raised:
        problem = (raised, traceback.extract_tb(raised.__traceback__))
    problems = [problem]
    if not no_dist and dist.is_available() and dist.is_initialized() and dist.get_world_size(process_group) > 1:
        if problem is not None:
            problem = (_portable(problem[0]), problem[1])
        problems = [None] * dist.get_world_size(process_group)
        dist.all_gather_object(problems, problem, group=process_group)
    failures = {rank: one for rank, one in enumerate(problems) if one is not None}
    if failures:
        raise CheckpointException("load", failures)
    return made


def _portable(problem: Exception) -> Exception:
    """Returns an exception that other ranks can unpickle: one that does not travel would leave them waiting."""
    try:
        pickle.loads(pickle.dumps(problem))
    except Exception:  # from the class of the exception
        return failure("invalid_argument", f"a rank raised an exception that cannot be pickled: {problem!r}")
    return problem


def _plain(state_dict: dict[str, Any]) -> dict[str, Any]:
    """Returns the state dict with the states of its Stateful values. PyTorch's save asks for them on this rank alone,
    while other ranks already wait for it."""
    plain = {}
    for key, value in state_dict.items():
        try:
            plain[key] = value.state_dict() if isinstance(value, Stateful) else value
        except Error:
            raise
        except Exception as cause:  # from the method
            raise failure("invalid_argument", f"its method state_dict raised {type(cause).__name__}: {cause}", key=key
                          ) from cause
    return plain


class _Stager:
    """Copies the state dict with another stager, by default PyTorch's. If the copy fails on a rank, all ranks raise its
    error. Otherwise their saves in the background would wait for that rank."""

    def __init__(self, given: Any, process_group: dist.ProcessGroup | None, no_dist: bool) -> None:
        self._is_own = given is None
        self._stager = DefaultStager(StagingOptions(False, False, False, False)) if given is None else given
        self._process_group, self._no_dist = process_group, no_dist

    def stage(self, state_dict: dict[str, Any], **options: Any) -> Any:
        return _on_all_ranks(lambda: self._copied(state_dict, options), self._process_group, self._no_dist)

    def close(self) -> None:
        """Ends PyTorch's stager. The caller ends its own."""
        if self._is_own:
            self._stager.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stager, name)

    def _copied(self, state_dict: dict[str, Any], options: dict[str, Any]) -> Any:
        try:
            return self._stager.stage(_resolved(state_dict), **options)
        except Exception as cause:
            if not self._is_own:
                raise
            raise failure("unsupported", f"the state dict cannot be copied: {type(cause).__name__}: {cause}",
                          hint="save it with save, or correct the method that copies the object") from cause


def _resolved(state_dict: dict[str, Any]) -> dict[str, Any]:
    """Returns the state dict with values of their own in place of conjugates and negatives. These are marks on a tensor,
    which PyTorch's stager loses: it copies the memory."""
    if not any(map(_is_marked, tree_leaves(state_dict))):
        return state_dict
    return tree_map_only(_is_marked, _without_marks, state_dict)


def _is_marked(value: Any) -> bool:
    local = value._local_tensor if isinstance(value, DTensor) else value
    return isinstance(local, torch.Tensor) and (local.is_conj() or local.is_neg())


def _without_marks(value: torch.Tensor) -> torch.Tensor:
    if not isinstance(value, DTensor):
        return value.detach().resolve_conj().resolve_neg()
    local = value._local_tensor.detach().resolve_conj().resolve_neg()
    return DTensor.from_local(local, value.device_mesh, value.placements, run_check=False, shape=value.shape,
                              stride=value.stride())


def _check_methods(name: str, value: Any, kind: str, *methods: str) -> None:
    """Checks an argument of PyTorch's, or None, before PyTorch's functions call it on this rank alone."""
    if value is not None and (isinstance(value, type) or not all(callable(getattr(value, one, None)) for one in methods)):
        raise _arguments.wrong(name, f"{kind} of torch.distributed.checkpoint", value)


def _refuse_outside(process_group: dist.ProcessGroup | None, no_dist: bool) -> None:
    if not no_dist and process_group is not None and dist.is_initialized() and dist.get_rank(process_group) < 0:
        raise failure("invalid_argument", "this process is not a rank of the process group",
                      hint="call it on the ranks of the group, or pass no_dist=True")


def _writer_of(state_dict: dict[str, Any], checkpoint_id: str | os.PathLike[str], planner: Any, use_collectives: bool,
               **options: Any) -> StorageWriter:
    """The common start of both kinds of save. Raises the errors of their arguments."""
    refuse_options(use_collectives=use_collectives)
    _check_methods("planner", planner, "a SavePlanner", "create_local_plan", "create_global_plan", "resolve_data")
    _refuse_other_state(state_dict)
    return StorageWriter(checkpoint_id, **options)


def _refuse_without_planner(is_mapped: bool, arguments: dict[str, bool], use_collectives: bool) -> None:
    """Checks a save that the C++ half plans. arguments: whether each argument that such a save lacks was given."""
    refuse_options(use_collectives=use_collectives)
    for name, is_given in arguments.items():
        if is_given:
            raise failure("invalid_argument",
                          f"the argument {name} does not go with a {'mapping' if is_mapped else 'plan_cache'}",
                          hint="shardmesh.save writes the state of one process" if name == "no_dist" else "leave it out")


def save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str],
         process_group: dist.ProcessGroup | None = None, planner: planning.SavePlanner | None = None,
         no_dist: bool = False, use_collectives: bool = True, overwrite: bool = False, threads: int = 0,
         memory_bytes: int = 0, progress: Progress = False, previous: str | os.PathLike[str] | None = None,
         within: float | None = None, map: str | os.PathLike[str] | None = None,
         config: str | os.PathLike[str] | Mapping[str, Any] | None = None, sizes: Mapping[str, int] | None = None,
         map_inverse: bool = False, plan_cache: SavePlanCache | None = None) -> dcp.Metadata:
    """Writes a state dict (plain tensors, DTensors, ShardedTensors, objects) as one DCP folder, which appears whole or
    not at all. Collective. Like torch.distributed.checkpoint.save.

    no_dist: use this process alone, even if there are process groups.
    use_collectives: False is refused.
    previous: an earlier checkpoint of shardmesh in the same parent folder. Chunks that have not changed since are not
    written again: the new checkpoint refers to the old files, which must be kept.
    within: as in `StorageWriter`.
    map, config, sizes, map_inverse: save under another naming convention, as in `shardmesh.open`. The state has no
    configuration beside it, so pass `config` or `sizes`. The ranks write even parts of the new tensors. Tied tensors are
    compared. A planner and no_dist are refused; `shardmesh.save` writes the state of one process. The result is a
    `MappedMetadata`, whose `notes` name every tensor that the mapping leaves out.
    plan_cache: keep the plan for the next save, and use that of the save before if this one repeats it. Every rank
    passes one, or none does. shardmesh plans the save then, so a planner is refused, and the description says that no
    tensor requires a gradient. The lowest rank's value of an object is written.

    Raises shardmesh.Error, the same on all ranks: that of the lowest rank that failed. It is a CheckpointError, so code
    that catches PyTorch's CheckpointException also catches it. The destination is then unchanged.
    """
    no_dist = _arguments.flag("no_dist", no_dist)
    with one_error("save", process_group, no_dist):
        _refuse_outside(process_group, no_dist)
        is_mapped = map is not None

        def prepare() -> tuple[_native.ChosenMapping | None, StateOfRank]:
            refused = {"planner": planner is not None, "no_dist": is_mapped and no_dist}
            _refuse_without_planner(is_mapped, refused, use_collectives)
            _refuse_other_state(state_dict)
            mapping = mapping_options(map, config, sizes, map_inverse)
            return _native.ChosenMapping.make(mapping) if is_mapped else None, StateOfRank(_plain(state_dict))

        if is_mapped or plan_cache is not None:
            options = {"overwrite": overwrite, "threads": threads, "memory_bytes": memory_bytes, "previous": previous,
                       "within": within, "plan_cache": plan_cache}
            return save_by_ranks(prepare, checkpoint_id, is_mapped, process_group, no_dist, options, progress)
        try:
            mapping_options(map, config, sizes, map_inverse)  # refuses the others without `map`
            writer = _writer_of(state_dict, checkpoint_id, planner, use_collectives, overwrite=overwrite, threads=threads,
                                memory_bytes=memory_bytes, progress=progress, previous=previous, within=within)
            state_dict = _plain(state_dict)
        except Exception as problem:  # also from methods of the state dict
            writer = planner = _Refusal(_portable(problem))
            state_dict = {}
        try:
            return torch_checkpoint.save(state_dict, storage_writer=writer, process_group=process_group,
                                         planner=planner or _SavePlanner(), no_dist=no_dist)
        finally:
            writer.reset()


def async_save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str],
               process_group: dist.ProcessGroup | None = None, planner: planning.SavePlanner | None = None,
               async_checkpointer_type: Any = AsyncCheckpointerType.THREAD, async_stager: Any = None,
               no_dist: bool = False, use_collectives: bool = True, overwrite: bool = False, threads: int = 0,
               memory_bytes: int = 0, progress: Progress = False, previous: str | os.PathLike[str] | None = None,
               within: float | None = None, map: str | os.PathLike[str] | None = None,
               config: str | os.PathLike[str] | Mapping[str, Any] | None = None, sizes: Mapping[str, int] | None = None,
               map_inverse: bool = False, plan_cache: SavePlanCache | None = None) -> Any:
    """Runs `save` in the background, after copying the state dict. Collective. Like
    torch.distributed.checkpoint.async_save, it returns a Future of the Metadata, or an AsyncSaveResponse if the stager
    also copies in the background. The futures raise the errors of `save`.

    within: as in `StorageWriter`. It does not count the copy of the state dict.
    map, config, sizes, map_inverse: as in `save`. The mapping is read before this returns. A stager and another type of
    checkpointer are also refused.
    plan_cache: as in `save`, which may use the same cache. A stager and another type of checkpointer are also refused.
    """
    no_dist = _arguments.flag("no_dist", no_dist)
    if map is not None or plan_cache is not None:
        is_mapped = map is not None
        return _async_save_by_ranks(
            state_dict, checkpoint_id, process_group, no_dist, progress,
            refused={"planner": planner is not None, "no_dist": is_mapped and no_dist,
                     "async_stager": async_stager is not None,
                     "async_checkpointer_type": async_checkpointer_type != AsyncCheckpointerType.THREAD},
            use_collectives=use_collectives,
            mapping={"map": map, "config": config, "sizes": sizes, "map_inverse": map_inverse},
            options={"overwrite": overwrite, "threads": threads, "memory_bytes": memory_bytes, "previous": previous,
                     "within": within, "plan_cache": plan_cache})

    def prepare() -> tuple[StorageWriter, dict[str, Any]]:
        mapping_options(map, config, sizes, map_inverse)  # refuses the others without `map`
        _check_methods("async_stager", async_stager, "an AsyncStager", "stage")
        if not isinstance(async_checkpointer_type, AsyncCheckpointerType):
            raise _arguments.wrong("async_checkpointer_type", "an AsyncCheckpointerType", async_checkpointer_type)
        writer = _writer_of(state_dict, checkpoint_id, planner, use_collectives, overwrite=overwrite, threads=threads,
                            memory_bytes=memory_bytes, progress=progress, previous=previous, within=within)
        plain = _plain(state_dict)
        check_containers(plain)  # before PyTorch copies it
        check_tensors(plain)
        return writer, plain

    with one_error("save", process_group, no_dist):
        _refuse_outside(process_group, no_dist)
        writer, plain = _on_all_ranks(prepare, process_group, no_dist)
        stager = _Stager(async_stager, process_group, no_dist)
        try:
            begun = torch_checkpoint.async_save(plain, storage_writer=writer, process_group=process_group,
                                                planner=planner or _SavePlanner(),
                                                async_checkpointer_type=async_checkpointer_type, async_stager=stager,
                                                no_dist=no_dist)
        except BaseException:
            stager.close()
            raise
    upload = begun if isinstance(begun, Future) else begun.upload_completion
    upload.add_done_callback(lambda _: stager.close())
    if isinstance(begun, Future):
        return _with_one_error(begun, writer._discard_all)
    begun.upload_completion = _with_one_error(begun.upload_completion, writer._discard_all)
    return begun


def _async_save_by_ranks(state_dict: dict[str, Any], checkpoint_id: str | os.PathLike[str],
                         process_group: dist.ProcessGroup | None, no_dist: bool, progress: Progress, *,
                         refused: dict[str, bool], use_collectives: bool, mapping: dict[str, Any],
                         options: dict[str, Any]) -> Future:
    is_mapped = mapping["map"] is not None

    def prepare() -> tuple[_native.ChosenMapping | None, StateOfRank]:
        _refuse_without_planner(is_mapped, refused, use_collectives)
        _refuse_other_state(state_dict)
        _arguments.path(checkpoint_id)
        checked(options)
        chosen = mapping_options(*mapping.values())  # refuses the others without `map`
        return (_native.ChosenMapping.make(chosen) if is_mapped else None,
                StateOfRank(_plain(state_dict), is_copied=True))

    with one_error("save", process_group, no_dist):
        _refuse_outside(process_group, no_dist)
        chosen, copied = _on_all_ranks(prepare, process_group, no_dist)
        begun = start_save_by_ranks(copied, checkpoint_id, chosen, process_group, no_dist, options, progress)
    return _with_one_error(begun, lambda: None)


def _with_one_error(upload: Future, discard: Callable[[], None]) -> Future:
    made = OwnedFuture()

    def finish(done: Future) -> None:
        try:
            with one_error("save", None, True):
                metadata = done.result()
        except BaseException as problem:
            discard()
            made.set_exception(problem)
        else:
            made.set_result(metadata)

    upload.add_done_callback(finish)
    return made
