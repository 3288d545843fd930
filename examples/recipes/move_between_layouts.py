# SPDX-License-Identifier: Apache-2.0
"""Moves a DTensor from rows to columns, and to another mesh.

Usage: torchrun --nproc-per-node 2 move_between_layouts.py
"""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import shardmesh

dist.init_process_group("gloo")
world = dist.get_world_size()
rows = distribute_tensor(torch.arange(24.0).reshape(6, 4), init_device_mesh("cpu", (world,)), [Shard(0)])

columns = shardmesh.redistribute(rows, placements=[Shard(1)])
square = shardmesh.redistribute(rows, init_device_mesh("cpu", (world // 2, 2)), [Shard(0), Shard(1)])

assert torch.equal(columns.full_tensor(), rows.full_tensor())
assert torch.equal(square.full_tensor(), rows.full_tensor())
print(f"rank {dist.get_rank()}: {list(rows.to_local().shape)}, {list(columns.to_local().shape)}")
dist.destroy_process_group()
