# SPDX-License-Identifier: Apache-2.0
"""Shards: a DTensor or ShardedTensor as boxes and the tensors that hold them, and back; storage is shared."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch.distributed._shard.sharded_tensor import Shard, ShardedTensor, ShardedTensorMetadata, TensorProperties
from torch.distributed._shard.sharding_spec import ShardMetadata
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement

from . import _arguments
from ._error import Box, failure
from ._layouts import Layout
from ._saving import check_containers


@dataclass(frozen=True)
class Shards:
    """A tensor as its boxes: the boxes of every rank, and this rank's own as plain tensors. These share the storage of
    the original. Ranks are those of the default process group."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    #: of every rank, in the order of ranks
    boxes: tuple[tuple[int, Box], ...]
    #: of this rank
    local: tuple[tuple[Box, torch.Tensor], ...]

    @classmethod
    def of(cls, tensor: Union[DTensor, ShardedTensor]) -> Shards:
        """Returns the boxes of a tensor. Raises Error: unsupported for a tensor whose terms are not yet combined
        (Partial)."""
        tensor = _arguments.distributed(tensor)
        if isinstance(tensor, ShardedTensor):
            boxes = sorted((shard.placement.rank(), _box(shard)) for shard in tensor.metadata().shards_metadata)
            local = tuple((_box(shard.metadata), shard.tensor) for shard in tensor.local_shards())
            return cls(tuple(tensor.size()), tensor.dtype, tuple(boxes), local)
        if any(isinstance(placement, Partial) for placement in tensor.placements):
            raise failure("unsupported", f"terms that are still to be combined: {tensor.placements}",
                          hint="redistribute it first")
        layout, rank = Layout.of(tensor), dist.get_rank()
        boxes = tuple((one, placed.box) for one in sorted(layout.ranks) for placed in layout.boxes(one))
        local = tuple((placed.box, _part(tensor._local_tensor, placed.local_offsets, placed.box.sizes))
                      for placed in layout.boxes(rank)) if rank in layout.ranks else ()
        return cls(tuple(tensor.shape), tensor.dtype, boxes, local)

    def dtensor(self, device_mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
        """Returns the DTensor with these placements and the same storage: no bytes move. Raises Error: shape_mismatch,
        naming the rank, if a rank of the mesh holds other boxes than the placements require (`redistribute` moves
        them); unsupported if its boxes lie in several tensors."""
        layout, rank = Layout.on(device_mesh, placements, self.shape), dist.get_rank()
        for one in layout.ranks:
            expected = [placed.box for placed in layout.boxes(one)]
            found = [box for holder, box in self.boxes if holder == one and 0 not in box.sizes]
            if sorted(expected) != sorted(found):
                raise failure("shape_mismatch", f"not the boxes of {layout}", ranks=(one,),
                              expected=", ".join(map(str, expected)) or "none",
                              found=", ".join(map(str, found)) or "none", hint="shardmesh.redistribute moves them")
        held = [tensor for box, tensor in self.local if 0 not in box.sizes]
        if len(held) > 1:
            raise failure("unsupported", f"{len(held)} boxes, which are several tensors here", ranks=(rank,),
                          hint="shardmesh.redistribute copies them into one")
        sizes = layout.local_shape(rank) if rank in layout.ranks else (0,)
        local = held[0] if held else torch.empty(sizes, dtype=self.dtype, device=device_mesh.device_type)
        stride = torch.empty(self.shape, device="meta").stride()
        return DTensor.from_local(local, device_mesh, placements, run_check=False, shape=torch.Size(self.shape),
                                  stride=stride)

    def sharded_tensor(self, process_group: Optional[dist.ProcessGroup] = None) -> ShardedTensor:
        """Returns the ShardedTensor with these boxes and the same storage: no bytes move. Raises Error: unsupported if
        a box has several holders, because ShardedTensor has no replicas."""
        holders: dict[Box, int] = {}
        for rank, box in self.boxes:
            if holders.setdefault(box, rank) != rank:
                raise failure("unsupported", f"a ShardedTensor has no replicas, but {box} has some",
                              ranks=(holders[box], rank))
        device = self.local[0][1].device if self.local else torch.device("cpu")

        def metadata(rank: int, box: Box) -> ShardMetadata:
            where = str(device) if rank == dist.get_rank() or device.index is None else device.type
            return ShardMetadata(list(box.offsets), list(box.sizes), f"rank:{rank}/{where}")

        shards = [Shard(tensor, metadata(dist.get_rank(), box)) for box, tensor in self.local]
        described = ShardedTensorMetadata([metadata(rank, box) for rank, box in self.boxes], torch.Size(self.shape),
                                          TensorProperties(dtype=self.dtype))
        return ShardedTensor._init_from_local_shards_and_global_metadata(shards, described, process_group)


def flatten_sharded_tensors(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the state dict with nested ShardedTensors made flat, at any depth of dicts and lists; other values are
    kept. FSDP1 over tensor parallelism makes nested ones: their shards are ShardedTensors themselves.

    Like torch.distributed.checkpoint's _flatten_sharded_tensors, but also for several shards per rank and for deeper
    nesting. Results share the storage. They know this rank's shards and the offsets of all others, but not the rank
    that holds another rank's inner shard: as in PyTorch, they are meant for saving and loading.
    """
    if not isinstance(state_dict, Mapping):
        raise failure("invalid_argument", "a state dict must be a mapping", found=type(state_dict).__name__)
    check_containers(state_dict)
    return {key: _flat(value) for key, value in state_dict.items()}


def _flat(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _flat(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        inside = [_flat(inner) for inner in value]
        if isinstance(value, list):
            return inside
        return type(value)(*inside) if hasattr(value, "_fields") else tuple(inside)
    if not isinstance(value, ShardedTensor) or not any(isinstance(one.tensor, ShardedTensor)
                                                       for one in value.local_shards()):
        return value
    rank = dist.get_rank()
    described, local = [], []
    # Each is found once: empty shards of several ranks have one box. PyTorch's placements do not tell them apart.
    held = {_box(one.metadata): one.tensor for one in value.local_shards()}
    for outer in value.metadata().shards_metadata:
        box = _box(outer)
        tensor = _flat(held.pop(box, None))
        if not isinstance(tensor, ShardedTensor):
            described.append((outer.placement.rank(), box, tensor))
            continue
        mine = {_box(one.metadata): one.tensor for one in tensor.local_shards()}
        for inner in tensor.metadata().shards_metadata:
            inside = _box(inner)
            moved = Box(tuple(map(sum, zip(box.offsets, inside.offsets))), inside.sizes)
            described.append((inner.placement.rank(), moved, mine.pop(inside, None)))
    other = 0 if rank else min(1, dist.get_world_size() - 1)
    metadata = []
    for holder, box, tensor in described:
        place = f"rank:{rank}/{tensor.device}" if tensor is not None else f"rank:{holder if holder != rank else other}/cpu"
        one = ShardMetadata(list(box.offsets), list(box.sizes), place)
        metadata.append(one)
        if tensor is not None:
            local.append(Shard(tensor, one))
    whole = ShardedTensorMetadata(metadata, value.size(), value.metadata().tensor_properties)
    return ShardedTensor._init_from_local_shards_and_global_metadata(local, whole)


def _box(shard: ShardMetadata) -> Box:
    return Box(tuple(shard.shard_offsets), tuple(shard.shard_sizes))


def _part(tensor: torch.Tensor, offsets: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
    for dimension, (offset, size) in enumerate(zip(offsets, sizes)):
        tensor = tensor.narrow(dimension, offset, size)
    return tensor
