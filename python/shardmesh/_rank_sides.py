# SPDX-License-Identifier: Apache-2.0
"""A tensor that ranks hold together: its distribution over them, and this rank's own local tensors. Storage is
shared."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Union

import torch
import torch.distributed as dist
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.tensor import DTensor, Partial

from . import _native
from ._error import failure
from ._layouts import Layout, distribution
from ._ranks import Members
from ._saving import check_containers

Distributed = Union[DTensor, ShardedTensor]
#: A tensor alone is whole on every rank. The pair has this rank's part of a tensor with that layout, whose ranks are
#: those of the default group; on a rank outside of it, the tensor has only the dtype.
Placed = Union[DTensor, ShardedTensor, torch.Tensor, tuple[Layout, torch.Tensor]]


class Side(NamedTuple):
    """One side of a move. `local` has this rank's tensor of each slot."""

    where: _native.Distribution
    dtype: torch.dtype
    local: list[torch.Tensor]


def side_of(value: Placed, group: Members, key: str = "") -> Side:
    """Returns the side of a tensor over the ranks of a group. Raises Error: invalid_argument if the group lacks a rank
    of the tensor; unsupported for other values."""
    if isinstance(value, ShardedTensor):
        check_ranks(holders_of(value), group, key)
        return Side(boxes_of(value, group), value.dtype, local_tensors(value))
    if isinstance(value, DTensor):
        return _laid_out(Layout.of(value), value._local_tensor, group, key)
    if isinstance(value, torch.Tensor):
        count = len(group.ranks)
        return Side(distribution(Layout(tuple(value.shape), (count,), tuple(range(count)), "R")), value.dtype, [value])
    if isinstance(value, tuple) and len(value) == 2:
        layout, tensor = value
        if isinstance(layout, Layout) and isinstance(tensor, torch.Tensor):
            layout.boxes(dist.get_rank())  # checks its fields
            return _laid_out(layout, tensor, group, key)
    raise failure("unsupported", "only tensors move between ranks", key=key,
                  expected="a DTensor, a ShardedTensor, a tensor, or (Layout, tensor)", found=type(value).__name__,
                  hint="leave it out of the state")


def _laid_out(layout: Layout, local: torch.Tensor, group: Members, key: str) -> Side:
    check_ranks(set(layout.ranks), group, key)
    return Side(distribution(numbered(layout, group)), local.dtype, [local] if dist.get_rank() in layout.ranks else [])


def check_ranks(ranks: set[int], group: Members, key: str) -> None:
    missing = sorted(ranks - set(group.ranks))
    if missing:
        raise failure("invalid_argument", "the process group lacks ranks that hold the tensor", key=key,
                      ranks=tuple(missing))


def numbered(layout: Layout, group: Members) -> Layout:
    """Returns the layout with the numbers that the group gives to the ranks."""
    if group.ranks == tuple(range(len(group.ranks))):
        return layout
    return layout._replace(ranks=tuple(group.number_of(rank) for rank in layout.ranks))


def holders_of(tensor: Distributed) -> set[int]:
    if isinstance(tensor, DTensor):
        return set(Layout.of(tensor).ranks)
    return {rank_of(shard) for shard in tensor.metadata().shards_metadata}


def rank_of(shard: Any) -> int:
    """The rank in the default group, whatever the tensor's own group."""
    return shard.placement.rank()


def boxes_of(tensor: ShardedTensor, group: Members) -> _native.Distribution:
    shards, slots = [], {}
    for shard in tensor.metadata().shards_metadata:
        rank = group.number_of(rank_of(shard))
        slot = slots[rank] = slots.get(rank, -1) + 1
        shards.append((rank, slot, shard.shard_offsets, shard.shard_sizes))
    return _native.Distribution.of_boxes(tuple(tensor.size()), len(group.ranks), shards)


def local_tensors(tensor: ShardedTensor) -> list[torch.Tensor]:
    """Returns the local tensors in the order of the metadata, which every rank knows."""
    local = {(tuple(one.metadata.shard_offsets), tuple(one.metadata.shard_sizes)): one.tensor
             for one in tensor.local_shards()}
    mine = [shard for shard in tensor.metadata().shards_metadata if rank_of(shard) == dist.get_rank()]
    return [local[tuple(shard.shard_offsets), tuple(shard.shard_sizes)] for shard in mine]


def parts_of(value: Union[Distributed, torch.Tensor], key: str) -> list[tuple[Sequence[int], torch.Tensor]]:
    """Returns (offsets, tensor) of each box that this rank holds. Raises Error: unsupported for terms that are not yet
    combined (Partial)."""
    if isinstance(value, ShardedTensor):
        found = [(tuple(shard.metadata.shard_offsets), shard.tensor) for shard in value.local_shards()]
    elif isinstance(value, DTensor):
        if any(isinstance(placement, Partial) for placement in value.placements):
            raise failure("unsupported", f"terms that are still to be combined: {value.placements}", key=key,
                          hint="redistribute it first")
        layout, rank, found = Layout.of(value), dist.get_rank(), []
        for box, offsets in layout.boxes(rank) if rank in layout.ranks else ():
            part = value._local_tensor
            for dimension, (begin, size) in enumerate(zip(offsets, box.sizes)):
                part = part.narrow(dimension, begin, size)
            found.append((box.offsets, part))
    else:
        found = [((0,) * value.dim(), value)]
    return [(offsets, part) for offsets, part in found if part.numel()]


def entries_of(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the entries of a state dict in the order of their keys, which every rank has. Nested dicts become keys
    with dots."""
    check_containers(state)
    yield from sorted(_nested(state, ""), key=lambda entry: entry[0])


def _nested(state: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in state.items():
        if isinstance(value, Mapping):
            yield from _nested(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
