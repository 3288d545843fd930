# SPDX-License-Identifier: Apache-2.0
"""Layout: the boxes of a tensor that each rank holds; and PyTorch's meshes and placements as layouts."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _arguments, _native
from ._error import Box, Error, failure

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Placement


class PlacedBox(NamedTuple):
    """A box of a tensor, and its offsets in the local tensor of the rank that holds it."""

    box: Box
    local_offsets: tuple[int, ...]


class Layout(NamedTuple):
    """The boxes of a tensor that each rank holds: a shape, a mesh of ranks, and one placement per mesh dimension.

    placements: as text, for mesh dimensions from left to right: "S(0)", "SS(0,2)" (a _StridedShard), "R", "P(sum)".
    They follow PyTorch's rules for every shape, including uneven, empty, and strided shards. "SG(0,64:16:16)" cuts each
    segment of a fused dimension by itself, one after the other in a rank's tensor. A DTensor has no such placement.
    """

    shape: tuple[int, ...]
    mesh_sizes: tuple[int, ...]
    ranks: tuple[int, ...]
    placements: str

    @classmethod
    def of(cls, tensor: DTensor) -> Layout:
        """Returns the layout of a DTensor. Raises Error: unsupported for partials that are not reductions."""
        from torch.distributed.tensor import DTensor

        if not isinstance(tensor, DTensor):
            raise _wrong("tensor", "a DTensor", tensor)
        spec = tensor._spec
        sizes, ranks = mesh_of(spec.mesh)
        return _in_order(cls(tuple(tensor.shape), sizes, ranks, spelled(spec.placements)), spec)

    @classmethod
    def on(cls, device_mesh: DeviceMesh, placements: Sequence[Placement], shape: Sequence[int]) -> Layout:
        """Returns the layout of a tensor of this shape on a mesh of PyTorch."""
        try:
            return cls(tuple(shape), *mesh_of(device_mesh), spelled(placements))
        except Error:
            raise
        except Exception as cause:
            raise _wrong("device_mesh, placements, or shape", "a DeviceMesh, placements, and integers",
                         (device_mesh, placements, shape)) from cause

    def local_shape(self, rank: int) -> tuple[int, ...]:
        """Returns the sizes of a rank's local tensor. Raises Error: invalid_argument for a rank that is not in the
        mesh."""
        rank = _arguments.number("rank", rank, most=2**31 - 1)
        native = _made(_native_layout, self)
        if rank not in self.ranks:
            raise failure("invalid_argument", f"the mesh has no such rank: {self}", ranks=(rank,))
        return native.local_shape(rank)

    def boxes(self, rank: int) -> list[PlacedBox]:
        """Returns a rank's boxes, in the order of its local tensor: several if a strided shard has gaps, none for a
        rank that holds nothing. Raises Error if the placements do not fit the shape and the mesh."""
        rank = _arguments.number("rank", rank, most=2**31 - 1)
        return [PlacedBox(box, local) for _, box, local in _made(distribution, self).boxes(rank)]

    def __str__(self) -> str:
        return f"{list(self.shape)} on {list(self.mesh_sizes)} as {self.placements}"


def _wrong(name: str, expected: str, found: object) -> Error:
    return _arguments.wrong(name, expected, found)


def _made(make: Callable[[Layout], Any], layout: Layout) -> Any:
    """Makes the native object of a layout, whose fields a caller may have filled with anything."""
    try:
        return make(layout)
    except Error:
        raise
    except Exception as cause:
        raise _wrong("layout", "tuples of integers for shape, mesh sizes and ranks, and placements as text",
                     tuple(layout)) from cause


@functools.lru_cache(maxsize=4096)
def _native_layout(layout: Layout) -> _native.MeshLayout:
    return _native.MeshLayout.make(layout.shape, layout.mesh_sizes, layout.ranks, layout.placements)


@functools.lru_cache(maxsize=4096)
def distribution(layout: Layout) -> _native.Distribution:
    return _native_layout(layout).distribution()


def local_shape(layout: Layout, rank: int) -> tuple[int, ...]:
    return _native_layout(layout).local_shape(rank)


def mesh_of(device_mesh: DeviceMesh) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the mesh's sizes, and its ranks in row-major order."""
    known = _meshes.get(device_mesh)
    if known is None:
        ranks = device_mesh.mesh
        known = _meshes[device_mesh] = (tuple(ranks.shape), tuple(ranks.flatten().tolist()))
    return known


_meshes: dict[DeviceMesh, tuple[tuple[int, ...], tuple[int, ...]]] = {}  # a program has few


@functools.lru_cache(maxsize=4096)
def _spelled(placement: Placement) -> str:
    from torch.distributed.tensor.placement_types import Partial, Replicate, Shard, _StridedShard

    if isinstance(placement, _StridedShard):
        return f"SS({placement.dim},{placement.split_factor})"
    if type(placement) is Shard:
        return f"S({placement.dim})"
    if type(placement) is Replicate:
        return "R"
    if type(placement) is Partial:
        return f"P({placement.reduce_op})"
    raise failure("unsupported", f"a placement of its own kind: {placement!r}", expected="Shard, Replicate, Partial",
                  found=type(placement).__name__)


def refuse_segments(placements: object) -> None:
    """Raises Error for placements that are the text of segments, which no placement of a DTensor expresses."""
    texts = [placements] if isinstance(placements, str) else placements if isinstance(placements, Sequence) else []
    for one in texts:
        if isinstance(one, str) and one.strip().startswith("SG"):
            raise failure("unsupported", "a DTensor has no placement that cuts the segments of a dimension",
                          expected="Shard, Replicate, Partial", found=one,
                          hint="use shardmesh.Layout, and load the boxes of a rank")


def spelled(placements: Sequence[Placement]) -> str:
    refuse_segments(placements)
    return ", ".join(_spelled(placement) for placement in placements)


def _in_order(layout: Layout, spec: object) -> Layout:
    """Newer versions of PyTorch may apply mesh dimensions in another order than from left to right (shard_order).
    Returns the same layout on a mesh whose dimensions are in that order."""
    if getattr(spec, "use_strided_shard_as_shard_order", False):
        return layout  # the placements express the order
    order = getattr(spec, "shard_order", None) or ()
    before: dict[int, set[int]] = {}
    for entry in order:
        for first, second in zip(entry.mesh_dims, entry.mesh_dims[1:]):
            before.setdefault(second, set()).add(first)
    if all(first < second for second, firsts in before.items() for first in firsts):
        return layout
    dimensions: list[int] = []
    while len(dimensions) < len(layout.mesh_sizes):
        dimensions.append(next(d for d in range(len(layout.mesh_sizes))
                               if d not in dimensions and before.get(d, set()) <= set(dimensions)))
    import torch

    ranks = torch.tensor(layout.ranks).reshape(layout.mesh_sizes).permute(dimensions)
    placements = ", ".join(_spelled(spec.placements[d]) for d in dimensions)
    return Layout(layout.shape, tuple(ranks.shape), tuple(ranks.flatten().tolist()), placements)
