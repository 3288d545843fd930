# SPDX-License-Identifier: Apache-2.0
"""The Python package beside PyTorch's own: its reader and writer under torch.distributed.checkpoint on the same
files, and redistribute on the same DTensors. Both run in the same gloo processes, alternating in one run."""
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TEXTS = {"load": "dcp.load of FSDP2 by rows onto FSDP2 + TP on 2 x 2", "load_same": "dcp.load of FSDP2 onto the same layout",
         "save": "dcp.save of FSDP2 + TP on 2 x 2, durably"}


def python(bench, script, *arguments):
    """Returns the standard output of a script with PyTorch and our package."""
    package = bench.build / "python"
    if not (package / "shardmesh").is_dir():
        raise RuntimeError("the Python package is not built (docs/python.md)")
    line = [sys.executable, HERE / script, *arguments]
    done = subprocess.run([str(word) for word in line], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(package)})
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-500:])
    return [json.loads(said) for said in done.stdout.strip().splitlines()]


def compare(case):
    def run(bench):
        if bench.only_counts:
            return
        said = python(bench, "dcp_ranks.py", case, bench.work / "dcp_ranks", "--repeat", bench.runs)[-1]
        print(f"\n{TEXTS[case]}: {said['bytes'] >> 20} MiB, 4 gloo processes; the slowest rank")
        ours = next(iter(said["seconds"].values()))
        base = statistics.median(ours)
        for name, seconds in said["seconds"].items():
            if seconds is not ours:
                bench.note_ratio(f"{TEXTS[case]}: {name}", ours, seconds)
            median = statistics.median(seconds)
            print(f"  {name:<44} {median:8.3f} s  ({min(seconds):.3f}..{max(seconds):.3f}, {len(seconds)} runs)"
                  f"   x{median / base:.2f}", flush=True)
    return run


def redistribute(bench):
    if bench.only_counts:
        return
    for ranks in (2, 4):
        print(f"\nredistribute from Python, {ranks} processes; the slowest rank, medians")
        for said in python(bench, "redistribute_ranks.py", ranks, "--repeat", bench.runs):
            bench.note_ratio(f"{ranks} processes, {said['case']}, {said['bytes'] >> 10} KiB: DTensor", said["ours"], said["theirs"])
            ours, theirs = statistics.median(said["ours"]), statistics.median(said["theirs"])
            print(f"  {said['case']:<16} {said['bytes'] >> 10:>7} KiB   shardmesh {1e6 * ours:9.0f} us"
                  f"   DTensor {1e6 * theirs:9.0f} us   x{theirs / ours:.2f}", flush=True)


CASES = {**{f"torch_dcp_{case}": compare(case) for case in TEXTS}, "torch_redistribute": redistribute}
