# SPDX-License-Identifier: Apache-2.0
"""The Python package under torch.distributed.checkpoint, beside PyTorch's own reader and writer: the same files, the same
four gloo processes, in turns in one run."""
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TEXTS = {"load": "dcp.load of FSDP2 by rows onto FSDP2 + TP on 2 x 2", "load_same": "dcp.load of FSDP2 onto the same layout",
         "save": "dcp.save of FSDP2 + TP on 2 x 2, durably"}


def compare(case):
    def run(bench):
        package = bench.build / "python"
        if not (package / "shardmesh").is_dir():
            raise RuntimeError("the Python package is not built (docs/python.md)")
        line = [sys.executable, HERE / "dcp_ranks.py", case, bench.work / "dcp_ranks", "--repeat", bench.runs]
        done = subprocess.run([str(word) for word in line], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(package)})
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip()[-500:])
        said = json.loads(done.stdout.strip().splitlines()[-1])
        print(f"\n{TEXTS[case]}: {said['bytes'] >> 20} MiB, 4 gloo processes; the slowest rank")
        base = statistics.median(said["ours"])
        for name, key in (("shardmesh's", "ours"), ("PyTorch's", "theirs")):
            seconds = said[key]
            median = statistics.median(seconds)
            print(f"  {name:<44} {median:8.3f} s  ({min(seconds):.3f}..{max(seconds):.3f}, {len(seconds)} runs)"
                  f"   x{median / base:.2f}", flush=True)
    return run


CASES = {f"torch_dcp_{case}": compare(case) for case in TEXTS}
