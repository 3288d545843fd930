# SPDX-License-Identifier: Apache-2.0
"""shardmesh reads, writes, verifies, and reshards sharded checkpoints of PyTorch, safetensors, and Hugging Face.

`shardmesh.dcp` saves and loads on many ranks, and plugs into torch.distributed.checkpoint. See docs/python.md.
"""
import importlib
from typing import TYPE_CHECKING

from ._checkpoint import Checkpoint, Chunk, Entry, ObjectEntry, TensorEntry, load, map_tensor, open
from ._commands import DiffReport, Difference, VerifyReport, convert, diff, inspect, reshard, verify
from ._conventions import mapping_text, mappings
from ._deltas import DeltaReport, open_delta, save_delta
from ._devices import DeviceReport, Gpu, GpuLibrary, devices
from ._error import Box, Error
from ._layouts import Layout, PlacedBox
from ._loading import Loading
from ._mapped import MappedTensor
from ._native import version as __version__
from ._plan_cache import SavePlanCache
from ._run import Run
from ._run_values import KeepRules, PruneReport, ResumedRun, RunStep
from ._saving import SaveReport, save
from ._selection import Selection

if TYPE_CHECKING:
    from ._mapped_moves import RedistributeReport
    from ._redistribute import full_state_dict, redistribute
    from ._shards import Shards, flatten_sharded_tensors

# Names that need torch; importing torch takes a second.
_OF_TORCH = {"RedistributeReport": "_mapped_moves", "Shards": "_shards", "flatten_sharded_tensors": "_shards",
             "full_state_dict": "_redistribute", "redistribute": "_redistribute"}


def __getattr__(name: str):
    if name not in _OF_TORCH:
        raise AttributeError(f"module 'shardmesh' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_OF_TORCH[name]}", __name__), name)


__all__ = ["Box", "Checkpoint", "Chunk", "DeltaReport", "DeviceReport", "DiffReport", "Difference", "Entry", "Error",
           "Gpu", "GpuLibrary", "KeepRules", "Layout", "Loading", "MappedTensor", "ObjectEntry", "PlacedBox",
           "PruneReport", "RedistributeReport", "ResumedRun", "Run", "RunStep", "SavePlanCache", "SaveReport", "Selection", "Shards",
           "TensorEntry", "VerifyReport", "convert", "devices", "diff", "flatten_sharded_tensors", "full_state_dict",
           "inspect", "load", "map_tensor", "mapping_text", "mappings", "open", "open_delta", "redistribute", "reshard",
           "save", "save_delta", "verify"]
