# SPDX-License-Identifier: Apache-2.0
"""Fuses tensors along their rows, such as q, k, and v to qkv, and saves everything else unchanged.

Usage: fuse_qkv.py CHECKPOINT NEW FUSED KEY...
"""
import sys

import torch

import shardmesh

source, destination, fused, *keys = sys.argv[1:]
checkpoint = shardmesh.open(source)
parts = [checkpoint[key] for key in keys]
rows = [part.shape[0] for part in parts]
whole = torch.empty(sum(rows), *parts[0].shape[1:], dtype=getattr(torch, parts[0].dtype))
checkpoint.load_into(dict(zip(keys, whole.split(rows))))  # straight into its rows

state = {key: entry.load() for key, entry in checkpoint.items() if key not in keys}
shardmesh.save({**state, fused: whole}, destination)

written = shardmesh.open(destination)
assert torch.equal(written.load(fused), torch.cat([checkpoint.load(key) for key in keys]))
print(f"{written[fused]} of {len(keys)} tensors")
