# SPDX-License-Identifier: Apache-2.0
"""Reads a matrix of a checkpoint of any format: whole, one row, and into existing memory.

Usage: read_tensor.py CHECKPOINT KEY
"""
import sys

import torch

import shardmesh

path, key = sys.argv[1:]
checkpoint = shardmesh.open(path)       # reads the description, no tensor
whole = checkpoint.load(key)            # a torch.Tensor of the stored dtype
row = checkpoint[key][1:2]              # a box of it: only these bytes are read

into = torch.empty(whole.shape, dtype=torch.float64)
checkpoint.load_into({key: into})       # in place, in the dtype of the memory

assert torch.equal(row, whole[1:2]) and torch.equal(into, whole.double())
print(f"{checkpoint[key]}, row 1 from {row[0, 0]:g}")
