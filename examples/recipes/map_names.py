# SPDX-License-Identifier: Apache-2.0
"""Writes the tensors of a checkpoint as bfloat16 safetensors under another naming convention, by a TOML file.

Usage: map_names.py CHECKPOINT MAPPING.toml NEW.safetensors
"""
import sys

import shardmesh

source, mapping, destination = sys.argv[1:]
half = shardmesh.Selection(cast=["bfloat16"])
report = shardmesh.convert(source, destination, map=mapping, selection=half, skip_objects=True)

# The same view, without a copy: a fused tensor is computed when it is read.
shown = shardmesh.open(source, map=mapping)
assert {entry.key for entry in shown.tensors} == set(shardmesh.open(destination))
print(f"tensors: {report.tensors} ({', '.join(sorted(entry.key for entry in shown.tensors))})")
