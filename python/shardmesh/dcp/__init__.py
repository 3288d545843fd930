# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of many ranks: torch.distributed.checkpoint on top of shardmesh.

    torch.distributed.checkpoint.load(state_dict, storage_reader=shardmesh.dcp.StorageReader(path))
    torch.distributed.checkpoint.save(state_dict, storage_writer=shardmesh.dcp.StorageWriter(path))

`shardmesh.dcp.load(state_dict, checkpoint_id=path)`, `save`, and `async_save` do the same, and raise one
shardmesh.Error on all ranks.
"""
from ._calls import LoadPlanner, async_save, load, save
from ._errors import CheckpointError
from ._rank_save import MappedMetadata
from ._reader import StorageReader
from ._writer import StorageWriter

__all__ = ["CheckpointError", "LoadPlanner", "MappedMetadata", "StorageReader", "StorageWriter", "async_save", "load",
           "save"]
