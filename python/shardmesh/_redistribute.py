# SPDX-License-Identifier: Apache-2.0
"""redistribute: moves a DTensor or ShardedTensor to another layout, on the same or other ranks. Moves of whole state
dicts are in _mapped_moves."""
from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional, overload

import torch
import torch.distributed as dist
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed._shard.sharding_spec import ShardingSpec
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate

from . import _arguments, _native
from ._conventions import mapping_options
from ._error import failure
from ._layouts import Layout, distribution, local_shape, mesh_of, refuse_segments
from ._mapped_moves import RedistributeReport, move_state
from ._progress import Progress, reporting
from ._rank_sides import Distributed, boxes_of, holders_of, local_tensors, numbered, rank_of, side_of
from ._ranks import Members, members
from ._saving import check_containers
from ._tensors import Destination, fresh, memory_of, name_of, readable

@overload
def redistribute(tensor: Distributed, device_mesh: Optional[DeviceMesh] = None,
                 placements: Optional[Sequence[Placement]] = None, *, sharding_spec: Optional[ShardingSpec] = None,
                 process_group: Optional[dist.ProcessGroup] = None, timeout: Optional[float] = None,
                 memory_bytes: int = 0, progress: Progress = False) -> Distributed: ...


@overload
def redistribute(tensor: Mapping[str, Any], *, into: Mapping[str, Any], map: str | os.PathLike[str] | None = None,
                 config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
                 sizes: Mapping[str, int] | None = None, map_inverse: bool = False, allow_narrowing: bool = False,
                 process_group: Optional[dist.ProcessGroup] = None, timeout: Optional[float] = None,
                 memory_bytes: int = 0, progress: Progress = False) -> RedistributeReport: ...


def redistribute(tensor: Any, device_mesh: Optional[DeviceMesh] = None,
                 placements: Optional[Sequence[Placement]] = None, *, sharding_spec: Optional[ShardingSpec] = None,
                 into: Optional[Mapping[str, Any]] = None, map: str | os.PathLike[str] | None = None,
                 config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
                 sizes: Mapping[str, int] | None = None, map_inverse: bool = False, allow_narrowing: bool = False,
                 process_group: Optional[dist.ProcessGroup] = None, timeout: Optional[float] = None,
                 memory_bytes: int = 0, progress: Progress = False) -> Any:
    """Returns the tensor on another mesh or with other placements (a new DTensor), or with a sharding spec (a new
    ShardedTensor).

    Works between any two layouts: other meshes, larger, smaller, overlapping, or disjoint; uneven, empty, and strided
    shards; to and from partials. Only bytes that a rank wants and does not hold move, each once. The given tensor stays
    unchanged; autograd works between DTensors.

    Collective over the ranks of both meshes, or of the process group. Each of them has the DTensor, including ranks in
    neither mesh (PyTorch gives them an empty one). Tensors on other devices go through host memory.

    device_mesh: by default that of the tensor.
    timeout: in seconds.
    memory_bytes: limit for messages; 0: the default.

    With a state dict as the first argument, all its tensors fill those of the state dict `into` together, and the
    result is a RedistributeReport. It is collective over the process group, by default over all ranks, and each rank
    has all keys of both. A value is a DTensor, a ShardedTensor, a tensor that is whole on every rank, or (Layout,
    tensor) with this rank's part. Layouts are independent of names. Values of `into` may share their memory if the
    convention ties their names.

    map, config, sizes, map_inverse: the mapping from the convention of the state dict to that of `into`, as in `open`.
    The state has no configuration beside it, so pass `config` or `sizes`. None: both have the same names.
    allow_narrowing: permit casts that lose values, for tensors of `into` with another dtype.

    Raises Error, the same on all ranks: shape_mismatch, invalid_argument (placements that do not fit), unsupported
    (tensors without plain memory; segments, which a DTensor cannot have; ranks on several machines, if this package was
    built without PyTorch), deadline_exceeded, disagreement (also for tied tensors and repetitions that differ). With
    state dicts also the errors of `open` with a mapping, missing_key (a tensor that `into` lacks, or that the mapping
    does not make), gap, overlap, narrowing, and unsupported (values that are not tensors).
    """
    limits = {"seconds": _arguments.seconds("timeout", timeout),
              "memory_bytes": _arguments.number("memory_bytes", memory_bytes),
              "allow_narrowing": _arguments.flag("allow_narrowing", allow_narrowing)}
    mapping = mapping_options(map, config, sizes, map_inverse)
    if isinstance(tensor, Mapping):
        if device_mesh is not None or placements is not None or sharding_spec is not None:
            raise failure("invalid_argument", "a state dict moves into the tensors of another one, which have layouts",
                          hint="pass into, and neither device_mesh, placements, nor sharding_spec")
        if not isinstance(into, Mapping):
            raise _arguments.wrong("into", "a state dict, because the first argument is one", into)
        return move_state(tensor, into, mapping, process_group, limits, progress)
    if into is not None or mapping["map"] is not None or limits["allow_narrowing"]:
        raise failure("invalid_argument", "the arguments into, map, and allow_narrowing are for state dicts",
                      hint="pass {name: tensor}, or leave them out")
    tensor = _arguments.distributed(tensor)
    options = (process_group, limits["seconds"], limits["memory_bytes"], progress)
    if sharding_spec is not None:
        if device_mesh is not None or placements is not None:
            raise failure("invalid_argument", "both placements and a sharding spec say where the tensor goes",
                          hint="pass one of them")
        return _to_sharded_tensor(tensor, sharding_spec, options)
    if device_mesh is None:
        if not isinstance(tensor, DTensor):
            raise failure("invalid_argument", "a ShardedTensor has no mesh to stay on", hint="pass device_mesh")
        device_mesh = tensor.device_mesh
    if not isinstance(device_mesh, DeviceMesh):
        raise _arguments.wrong("device_mesh", "a DeviceMesh", device_mesh)
    if placements is None:
        placements = [Replicate()] * device_mesh.ndim
    refuse_segments(placements)
    if not isinstance(placements, Sequence) or not all(isinstance(one, Placement) for one in placements):
        raise _arguments.wrong("placements", "a sequence of placements", placements)
    if isinstance(tensor, DTensor) and tensor.requires_grad and torch.is_grad_enabled():
        return _Redistribute.apply(tensor, device_mesh, tuple(placements), options)
    return _to_dtensor(tensor, device_mesh, placements, options)


class _Redistribute(torch.autograd.Function):
    """The gradient moves back to the layout of the tensor; terms of a partial get it whole, as in PyTorch."""

    @staticmethod
    def forward(ctx, tensor, device_mesh, placements, options):
        ctx.device_mesh, ctx.options = tensor.device_mesh, options
        ctx.placements = [Replicate() if isinstance(p, Partial) else p for p in tensor.placements]
        return _to_dtensor(tensor, device_mesh, placements, options)

    @staticmethod
    def backward(ctx, gradient):
        return _to_dtensor(gradient, ctx.device_mesh, ctx.placements, ctx.options), None, None, None


def _as_dict_of_its_type(like: dict, items: dict) -> dict:
    """Constructors differ: that of a defaultdict takes its factory, which a copy has."""
    if type(like) is dict:
        return items
    made = copy.copy(like)
    made.clear()
    made.update(items)
    return made


def full_state_dict(state_dict: Mapping[str, Any], *, rank: Optional[int] = None,
                    process_group: Optional[dist.ProcessGroup] = None,
                    timeout: Optional[float] = None) -> Iterator[tuple[str, Any]]:
    """Yields the entries of a state dict one by one, with each sharded tensor whole and on the host. This takes the
    memory of one tensor at a time; torch.distributed.checkpoint.state_dict gathers all of them. Collective over the
    process group: every rank must take every entry.

    rank: the only rank of the process group (else of all ranks) that gets tensors; the others get None for each. None:
    every rank gets them.

    Tensors inside dicts and lists are also whole, all of an entry at a time. Other values are passed through.
    """
    if not isinstance(state_dict, Mapping):
        raise failure("invalid_argument", "a state dict must be a mapping", found=type(state_dict).__name__)
    check_containers(state_dict)
    if not dist.is_initialized():
        raise failure("unsupported", "the default process group has not been initialized",
                      hint="torch.distributed.init_process_group")
    ranks = set(dist.get_process_group_ranks(process_group) if process_group is not None
                else range(dist.get_world_size()))
    of_group = tuple(sorted(ranks))
    if rank is not None and rank not in ranks:
        raise failure("invalid_argument", "no rank of the process group", ranks=(rank,))
    timeout = _arguments.seconds("timeout", timeout)

    def whole_of(value: Any, key: str) -> Any:
        if isinstance(value, Mapping):
            made = {name: whole_of(one, f"{key}.{name}") for name, one in value.items()}
            return _as_dict_of_its_type(value, made) if isinstance(value, dict) else made
        if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            inside = [whole_of(one, f"{key}.{number}") for number, one in enumerate(value)]
            if isinstance(value, list):
                return inside
            return type(value)(*inside) if hasattr(value, "_fields") else tuple(inside)
        if not isinstance(value, (DTensor, ShardedTensor)):
            return value
        shape = tuple(value.shape if isinstance(value, DTensor) else value.size())
        group = members(ranks, process_group, timeout)
        is_mine = rank is None or rank == dist.get_rank()
        if rank is None:
            to = distribution(Layout(shape, (len(of_group),), tuple(range(len(of_group))), "R"))
        else:
            to = _native.Distribution.on_one_rank(shape, group.number_of(rank))
        with group.telling_others():
            whole = fresh(shape, value.dtype) if is_mine else None
        _move(value, group, to, [whole] if whole is not None else [], (process_group, timeout, 0, False), key)
        return whole

    for key, value in state_dict.items():
        yield key, whole_of(value, str(key))


def _to_dtensor(tensor: Distributed, device_mesh: DeviceMesh, placements: Sequence[Placement],
                options: tuple) -> DTensor:
    _, ranks = mesh_of(device_mesh)
    group = members(holders_of(tensor) | set(ranks), *options[:2])
    rank, is_mine = dist.get_rank(), dist.get_rank() in ranks
    with group.telling_others():
        layout = Layout.on(device_mesh, placements, tensor.shape if isinstance(tensor, DTensor) else tensor.size())
        to = distribution(numbered(layout, group))
        # Outside the mesh the local shape is (0,), as in PyTorch. With gradients it has all dimensions, as backward of
        # to_local() needs.
        has_gradient = isinstance(tensor, DTensor) and tensor.requires_grad
        shape = local_shape(layout, rank) if is_mine else (0,) * (max(1, len(layout.shape)) if has_gradient else 1)
        local = fresh(shape, tensor.dtype, _device(device_mesh))
    _move(tensor, group, to, [local] if is_mine else [], options)
    size = torch.Size(layout.shape)
    made = DTensor.from_local(local, device_mesh, placements, run_check=False, shape=size, stride=_dense(size))
    return made if is_mine else _elsewhere(made, local, size)


def _elsewhere(made: DTensor, local: torch.Tensor, size: torch.Size) -> DTensor:
    """On a rank outside the mesh, from_local substitutes its own local tensor, and that tensor's shape if the whole has
    no dimensions. This restores both."""
    meta = made._spec.tensor_meta._replace(shape=size, stride=_dense(size))
    return DTensor(local, dataclasses.replace(made._spec, tensor_meta=meta), requires_grad=False)


def _to_sharded_tensor(tensor: Distributed, spec: ShardingSpec, options: tuple) -> ShardedTensor:
    made = sharded_tensor.empty(spec, *tensor.size(), dtype=tensor.dtype, process_group=options[0])
    holders = {rank_of(shard) for shard in made.metadata().shards_metadata}
    group = members(holders_of(tensor) | holders, *options[:2])
    _move(tensor, group, boxes_of(made, group), local_tensors(made), options)
    return made


def _move(tensor: Distributed, group: Members, to: _native.Distribution, destinations: list[torch.Tensor],
          options: tuple, key: str = "") -> None:
    _, timeout, memory_bytes, progress = options
    with contextlib.ExitStack() as shown:
        with group.telling_others():
            source = side_of(tensor, group, key)
            memories = [readable(one, key) for one in source.local]
            filled = [Destination(one, key) for one in destinations]
            move = (key, source.where, to, name_of(tensor.dtype), [memory_of(one) for one in memories],
                    [one.memory for one in filled])
            total = sum(one.nbytes for one in destinations)
            report = shown.enter_context(reporting(progress, total, "redistribute"))
        with group.moving():
            group.native.redistribute([move], timeout, memory_bytes, report)
    for one in filled:
        one.finish()


def _device(device_mesh: DeviceMesh) -> torch.device:
    if device_mesh.device_type in ("cpu", "meta"):
        return torch.device(device_mesh.device_type)
    return torch.device(device_mesh.device_type, torch.get_device_module(device_mesh.device_type).current_device())


def _dense(shape: torch.Size) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
