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
    """A tensor as its boxes: who holds which, and this rank's own as plain tensors, which share the storage of what it
    was made from. Ranks are those of the default process group."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    #: of every rank, in the order of ranks
    boxes: tuple[tuple[int, Box], ...]
    #: of this rank
    local: tuple[tuple[Box, torch.Tensor], ...]

    @classmethod
    def of(cls, tensor: Union[DTensor, ShardedTensor]) -> Shards:
        """Its boxes. Raises Error: unsupported for a tensor with terms that are still to be combined (Partial)."""
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
        """The DTensor with these placements, of the same storage: no bytes move. Raises Error: shape_mismatch, naming
        the rank, when a rank of the mesh holds other boxes than these placements say (redistribute moves them);
        unsupported when its boxes lie in several tensors."""
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
        """The ShardedTensor with these boxes, of the same storage: no bytes move. Raises Error: unsupported when a box
        has several holders, which ShardedTensor does not know."""
        holders: dict[Box, int] = {}
        for rank, box in self.boxes:
            if holders.setdefault(box, rank) != rank:
                raise failure("unsupported", f"a ShardedTensor knows no replicas, and {box} has them",
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
    """The state dict with nested ShardedTensors (those of FSDP1 over tensor parallelism, whose shards are ShardedTensors
    themselves) made flat, at any depth of dicts and lists; what it is not about is taken over. As
    torch.distributed.checkpoint's _flatten_sharded_tensors, also for several shards of a rank, and for shards nested
    more than once; results share the storage. They know this rank's shards and where all others begin, but of a foreign
    inner shard not which rank holds it: meant for saving and loading, as there.
    """
    if not isinstance(state_dict, Mapping):
        raise failure("invalid_argument", "a state dict is a mapping", found=type(state_dict).__name__)
    check_containers(state_dict)
    return {key: _flat(value) for key, value in state_dict.items()}


def _flat(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _flat(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_flat(inner) for inner in value)
    if not isinstance(value, ShardedTensor) or not any(isinstance(one.tensor, ShardedTensor)
                                                       for one in value.local_shards()):
        return value
    rank = dist.get_rank()
    described, local = [], []
    by_box = {_box(one.metadata): one.tensor for one in value.local_shards()}
    for outer in value.metadata().shards_metadata:
        box = _box(outer)
        tensor = _flat(by_box.get(box))
        if not isinstance(tensor, ShardedTensor):
            described.append((outer.placement.rank(), box, tensor))
            continue
        mine = {_box(one.metadata): one.tensor for one in tensor.local_shards()}
        for inner in tensor.metadata().shards_metadata:
            inside = _box(inner)
            moved = Box(tuple(map(sum, zip(box.offsets, inside.offsets))), inside.sizes)
            described.append((inner.placement.rank(), moved, mine.get(inside)))
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
