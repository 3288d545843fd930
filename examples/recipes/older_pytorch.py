# SPDX-License-Identifier: Apache-2.0
"""Rewrites a DCP folder so that PyTorch before version 2.15 also loads it. Usage: older_pytorch.py CHECKPOINT NEW"""
import sys

from torch.distributed.checkpoint import FileSystemReader

import shardmesh

source, destination = sys.argv[1:]
report = shardmesh.convert(source, destination, "dcp")  # keeps the ranks' files and chunks
assert shardmesh.diff(source, destination).equal
described = FileSystemReader(destination).read_metadata()  # by the PyTorch that runs this program
print(f"tensors: {report.tensors}, files: {report.files}, entries: {len(described.state_dict_metadata)}")
