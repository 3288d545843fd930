# SPDX-License-Identifier: Apache-2.0
"""redistribute: moves a DTensor or ShardedTensor to another layout, on the same or other ranks."""
from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed._shard.sharding_spec import ShardingSpec
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate

from . import _arguments, _native
from ._error import failure
from ._layouts import Layout, distribution, local_shape, mesh_of, refuse_segments
from ._progress import Progress, reporting
from ._ranks import Members, members
from ._saving import check_containers
from ._tensors import Destination, fresh, memory_of, name_of, readable

Distributed = Union[DTensor, ShardedTensor]


def redistribute(tensor: Distributed, device_mesh: Optional[DeviceMesh] = None,
                 placements: Optional[Sequence[Placement]] = None, *, sharding_spec: Optional[ShardingSpec] = None,
                 process_group: Optional[dist.ProcessGroup] = None, timeout: Optional[float] = None,
                 memory_bytes: int = 0, progress: Progress = False) -> Distributed:
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

    Raises Error, the same on all ranks: shape_mismatch, invalid_argument (placements that do not fit), unsupported
    (tensors without plain memory; segments, which a DTensor cannot have; ranks on several machines, if this package was
    built without PyTorch), deadline_exceeded, disagreement.
    """
    tensor = _arguments.distributed(tensor)
    options = (process_group, _arguments.seconds("timeout", timeout), _arguments.number("memory_bytes", memory_bytes), progress)
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
            return type(value)(made) if isinstance(value, dict) else made
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


def _numbered(layout: Layout, group: Members) -> Layout:
    if group.ranks == tuple(range(len(group.ranks))):
        return layout
    return layout._replace(ranks=tuple(group.number_of(rank) for rank in layout.ranks))


def _holders(tensor: Distributed) -> set[int]:
    if isinstance(tensor, DTensor):
        return set(Layout.of(tensor).ranks)
    return {_rank_of(shard) for shard in tensor.metadata().shards_metadata}


def _rank_of(shard: Any) -> int:
    """The rank in the default group, whatever the tensor's own group."""
    return shard.placement.rank()


def _source(tensor: Distributed, group: Members, key: str = "") -> tuple[_native.Distribution, list[torch.Tensor]]:
    """Returns the distribution of a tensor, and this rank's local tensors in host memory."""
    if isinstance(tensor, DTensor):
        layout = Layout.of(tensor)
        mine = [readable(tensor._local_tensor, key)] if dist.get_rank() in layout.ranks else []
        return distribution(_numbered(layout, group)), mine
    return _boxes(tensor, group), [readable(one, key) for one in _local_tensors(tensor)]


def _boxes(tensor: ShardedTensor, group: Members) -> _native.Distribution:
    shards, slots = [], {}
    for shard in tensor.metadata().shards_metadata:
        rank = group.number_of(_rank_of(shard))
        slot = slots[rank] = slots.get(rank, -1) + 1
        shards.append((rank, slot, shard.shard_offsets, shard.shard_sizes))
    return _native.Distribution.of_boxes(tuple(tensor.size()), len(group.ranks), shards)


def _local_tensors(tensor: ShardedTensor) -> list[torch.Tensor]:
    """Returns the local tensors in the order of the metadata, which every rank knows."""
    local = {(tuple(one.metadata.shard_offsets), tuple(one.metadata.shard_sizes)): one.tensor
             for one in tensor.local_shards()}
    mine = [shard for shard in tensor.metadata().shards_metadata if _rank_of(shard) == dist.get_rank()]
    return [local[tuple(shard.shard_offsets), tuple(shard.shard_sizes)] for shard in mine]


def _to_dtensor(tensor: Distributed, device_mesh: DeviceMesh, placements: Sequence[Placement],
                options: tuple) -> DTensor:
    _, ranks = mesh_of(device_mesh)
    group = members(_holders(tensor) | set(ranks), *options[:2])
    rank, is_mine = dist.get_rank(), dist.get_rank() in ranks
    with group.telling_others():
        layout = Layout.on(device_mesh, placements, tensor.shape if isinstance(tensor, DTensor) else tensor.size())
        to = distribution(_numbered(layout, group))
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
    holders = {_rank_of(shard) for shard in made.metadata().shards_metadata}
    group = members(_holders(tensor) | holders, *options[:2])
    _move(tensor, group, _boxes(made, group), _local_tensors(made), options)
    return made


def _move(tensor: Distributed, group: Members, to: _native.Distribution, destinations: list[torch.Tensor],
          options: tuple, key: str = "") -> None:
    _, timeout, memory_bytes, progress = options
    with group.telling_others():
        source, memories = _source(tensor, group, key)
        filled = [Destination(one, key) for one in destinations]
    move = (key, source, to, name_of(tensor.dtype), [memory_of(one) for one in memories],
            [one.memory for one in filled])
    total = sum(one.nbytes for one in destinations)
    with group.moving(), reporting(progress, total, "redistribute") as report:
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
