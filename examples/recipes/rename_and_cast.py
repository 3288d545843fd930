# SPDX-License-Identifier: Apache-2.0
"""Writes a model as bfloat16 safetensors under shorter names, without optimizer state.

Usage: rename_and_cast.py CHECKPOINT NEW.safetensors
"""
import sys

import shardmesh

source, destination = sys.argv[1:]
chosen = shardmesh.Selection(no_optimizer=True, rename=[r"model\.(.*)=\1"], cast=["bfloat16"])
report = shardmesh.convert(source, destination, selection=chosen)

written = {key: entry for key, entry in shardmesh.open(destination).items()
           if isinstance(entry, shardmesh.TensorEntry)}
assert len(written) == report.tensors
assert all(entry.dtype == "bfloat16" and not key.startswith("model.") for key, entry in written.items())
print(f"tensors: {report.tensors}")
