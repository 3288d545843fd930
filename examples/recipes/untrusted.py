# SPDX-License-Identifier: Apache-2.0
"""Examines a checkpoint from an untrusted source. Runs nothing in it. Usage: untrusted.py CHECKPOINT"""
import sys

import shardmesh

report = shardmesh.verify(sys.argv[1])  # also of a checkpoint that cannot be opened
for problem in report.problems:         # damage, and names that published scanners call dangerous
    print(f"problem: {problem}")
for warning in report.warnings:         # names that are not plain data, and oddities
    print(f"warning: {warning}")
clean = report.ok and not report.warnings
print("nothing found" if clean else "do not load this with Python")
sys.exit(0 if clean else 1)
