# SPDX-License-Identifier: Apache-2.0
"""Writes a checkpoint of any format in four formats, and compares each with the source.

Usage: convert_formats.py CHECKPOINT
"""
import sys

import shardmesh

source = sys.argv[1]
for name, format in (("copy.dcp", "dcp"), ("copy.safetensors", "safetensors"), ("copy.hf", "hf"), ("copy.pt", "pt")):
    report = shardmesh.convert(source, name, format)
    assert shardmesh.diff(source, name).equal
    print(f"{name}: equal (tensors: {report.tensors}, objects: {report.objects})")
