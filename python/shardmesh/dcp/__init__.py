# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of many ranks: torch.distributed.checkpoint with shardmesh below it.

    torch.distributed.checkpoint.load(state_dict, storage_reader=shardmesh.dcp.StorageReader(path))
    torch.distributed.checkpoint.save(state_dict, storage_writer=shardmesh.dcp.StorageWriter(path))

or `shardmesh.dcp.load(state_dict, checkpoint_id=path)` and `save`, which do that and raise shardmesh.Error on all ranks.
"""
from ._calls import LoadPlanner, load, save
from ._reader import StorageReader
from ._writer import StorageWriter

__all__ = ["LoadPlanner", "StorageReader", "StorageWriter", "load", "save"]
