# SPDX-License-Identifier: Apache-2.0
"""shardmesh: sharded checkpoints of PyTorch, safetensors and Hugging Face, read, written, checked and cut anew.

`shardmesh.dcp` saves and loads on many ranks, and plugs into torch.distributed.checkpoint. See docs/python.md.
"""
from ._checkpoint import Checkpoint, Chunk, Entry, ObjectEntry, TensorEntry, load, open
from ._commands import DiffReport, Difference, Selection, VerifyReport, convert, diff, inspect, reshard, verify
from ._error import Box, Error
from ._native import version as __version__
from ._saving import SaveReport, save

__all__ = ["Box", "Checkpoint", "Chunk", "DiffReport", "Difference", "Entry", "Error", "ObjectEntry", "SaveReport",
           "Selection", "TensorEntry", "VerifyReport", "convert", "diff", "inspect", "load", "open", "reshard", "save",
           "verify"]
