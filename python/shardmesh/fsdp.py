# SPDX-License-Identifier: Apache-2.0
"""FSDP1 on shardmesh: after `shardmesh.fsdp.use(model)`, PyTorch's FullyShardedDataParallel uses shardmesh to shard and
gather the state dicts of tensor-parallel models (FSDP over DTensors)."""
from __future__ import annotations

from typing import Any, Optional

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import fsdp as torch_fsdp

from ._arguments import wrong
from ._error import failure
from ._redistribute import redistribute


class DTensorExtensions(torch_fsdp.DTensorExtensions):
    """PyTorch's extensions, with shardmesh for the two that move or cut tensors. Uneven and strided shards, and meshes
    of more than two dimensions, need no special cases."""

    def chunk_dtensor(self, tensor: torch.Tensor, rank: int, device_mesh: DeviceMesh) -> DTensor:
        """Returns this rank's part of a parameter that its tensor-parallel rank holds whole."""
        _check("tensor", tensor, torch.Tensor)
        if device_mesh is not None:
            _check("device_mesh", device_mesh, DeviceMesh)
        root = device_mesh._get_root_mesh() if device_mesh is not None else None
        if root is None or root.ndim < 2:
            raise failure("unsupported", "FSDP over tensor parallelism needs a mesh with both dimensions",
                          found="no parent mesh" if root is None else "a parent mesh of one dimension")
        whole = [Replicate()] * root.ndim
        local = tensor.detach()
        if isinstance(tensor, DTensor):
            whole[-1], local = tensor.placements[0], tensor._local_tensor.detach()
            cut = [*whole[:-2], Shard(0), whole[-1]]
        else:
            cut = [Shard(0), *whole[1:]]
        held = DTensor.from_local(local, root, whole, run_check=False, shape=tensor.shape,
                                  stride=torch.empty(tensor.shape, device="meta").stride())
        return redistribute(held, root, cut)

    def all_gather_dtensor(self, tensor: DTensor, parent_mesh: Optional[DeviceMesh]) -> torch.Tensor:
        """Returns the whole part of a parameter that this tensor-parallel rank holds."""
        _check("tensor", tensor, DTensor)
        if parent_mesh is not None:
            _check("parent_mesh", parent_mesh, DeviceMesh)
        if parent_mesh != tensor.device_mesh:
            raise failure("invalid_argument", "the tensor is not on the parent mesh", expected=str(parent_mesh),
                          found=str(tensor.device_mesh))
        placements: list[Any] = [Replicate()] * (tensor.device_mesh.ndim - 1) + [tensor.placements[-1]]
        return redistribute(tensor, tensor.device_mesh, placements)._local_tensor


def _check(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise wrong(name, f"a {kind.__module__}.{kind.__qualname__}", value)


def use(model: torch.nn.Module) -> torch.nn.Module:
    """Makes the FullyShardedDataParallel modules of a model, including the model itself, use these extensions. This
    affects those to which PyTorch gave its own: the modules over tensor parallelism. Returns the model."""
    _check("model", model, torch.nn.Module)
    for module in FullyShardedDataParallel.fsdp_modules(model):
        given = module._fsdp_extension
        if given is None:
            continue
        ours = DTensorExtensions(given.device_handle)
        ours.compute_stream = given.compute_stream
        module._fsdp_extension = ours
        if module._handle is not None:
            module._handle._fsdp_extension = ours
    return model
