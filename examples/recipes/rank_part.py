# SPDX-License-Identifier: Apache-2.0
"""Loads the rows of every tensor that one rank of a mesh of 3 holds. Usage: rank_part.py CHECKPOINT RANK"""
import sys

import shardmesh

path, rank = sys.argv[1], int(sys.argv[2])
mine = {}
for key, entry in shardmesh.open(path).items():
    if not isinstance(entry, shardmesh.TensorEntry):
        continue                                    # an object: every rank has it whole
    if not entry.shape:
        mine[key] = [entry.load()]                  # a scalar is not cut
        continue
    layout = shardmesh.Layout(entry.shape, mesh_sizes=(3,), ranks=(0, 1, 2), placements="S(0)")
    mine[key] = [entry.load(placed.box) for placed in layout.boxes(rank)]  # reads these boxes only
for key, parts in mine.items():
    print(f"{key}: {[list(part.shape) for part in parts]}")
