# SPDX-License-Identifier: Apache-2.0
"""Costs of a run that hardly depend on the machine: system calls, allocations, and peak memory; and, as a slope
between two sizes, the cost of one more chunk, tensor, or message. Needs no package. tests/oracle/counts.py compares
the slopes."""
import json
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

SIZES = (1000, 3000)
SKIPPED = 77  # count_calls: this machine does not allow tracing


class CannotCount(RuntimeError):
    """This machine does not let a process trace its children."""


class Counter:
    """Runs programs of a build under its count_calls and resource_preload."""

    def __init__(self, tracer, shim):
        self.tracer, self.shim = Path(tracer), Path(shim)

    @classmethod
    def of_build(cls, build):
        return cls(build / "tests" / "oracle" / "count_calls", build / "tests" / "oracle" / "resource_preload.so")

    def count(self, line, folder=None):
        """Returns {"calls", "allocations", "peak_bytes", "by_number"} of one run in `folder`. Raises CannotCount, or
        RuntimeError if the run fails."""
        with tempfile.TemporaryDirectory(prefix="shardmesh-counts-") as scratch:
            calls, allocations = Path(scratch) / "calls", Path(scratch) / "allocations"
            preload = ["env", f"LD_PRELOAD={self.shim}", "FAULT_KIND=memory", f"FAULT_COUNT_FILE={allocations}"]
            whole = [str(word) for word in (self.tracer, calls, *preload, *line)]
            done = subprocess.run(whole, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  text=True)
            if done.returncode == SKIPPED:
                raise CannotCount("this machine lets no process trace another (ptrace, seccomp)")
            if done.returncode != 0:
                raise RuntimeError(f"{' '.join(map(str, line[:3]))} exits {done.returncode}: {done.stderr.strip()[-500:]}")
            found = json.loads(calls.read_text())
            found["allocations"] = int(allocations.read_text())
            return found

    def least(self, line, runs=2, folder=None):
        """Returns the smallest value of each figure over some runs: threads that meet by chance add to a count, but
        never reduce it."""
        found = [self.count(line, folder) for _ in range(runs)]
        return {name: min(one[name] for one in found) for name in ("calls", "allocations", "peak_bytes")}


def write_tensors(path, count):
    """Writes a safetensors file of `count` tensors of 64 bytes."""
    header = {f"layers.{i:06d}.weight": {"dtype": "F32", "shape": [4, 4], "data_offsets": [64 * i, 64 * i + 64]}
              for i in range(count)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(64 * count))


class Samples:
    """The same tensors in every format, for one number of tensors."""

    def __init__(self, tool, folder, count):
        self.folder, self.count = Path(folder) / str(count), count
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        write_tensors(self.folder / "model.safetensors", count)
        for target, name in (("dcp", "dcp"), ("pt", "model.pt"), ("torch-checkpointing", "tc")):
            subprocess.run([tool, "convert", self.folder / "model.safetensors", self.folder / name, "--to", target, "--no-sync"],
                           check=True, capture_output=True)
        subprocess.run([tool, "reshard", self.folder / "dcp", self.folder / "rows", "--mesh", "2", "--place", ".*=S(0)",
                        "--no-sync"], check=True, capture_output=True)
        shutil.copytree(self.folder / "dcp", self.folder / "no_items")
        for item in (self.folder / "no_items").glob("*.distcp"):
            item.unlink()

    def line(self, words):
        """Returns a command to run in the folder of samples, so that no count depends on the folder's location; DST
        is an empty folder."""
        shutil.rmtree(self.folder / "made", ignore_errors=True)
        (self.folder / "made").mkdir()
        return [str(word).replace("SRC/", "").replace("DST", "made") for word in words]


def tool_work(tool):
    """Name -> command, for work that grows with the number of tensors (of one chunk each, except `rows`: two)."""
    lines = {
        "inspect dcp": ["inspect", "SRC/dcp"],
        "inspect dcp without its items": ["inspect", "SRC/no_items"],
        "inspect dcp, two chunks each": ["inspect", "SRC/rows"],
        "inspect pt": ["inspect", "SRC/model.pt"],
        "inspect safetensors": ["inspect", "SRC/model.safetensors"],
        "verify dcp": ["verify", "SRC/dcp"],
        "verify dcp, two chunks each": ["verify", "SRC/rows"],
        "verify pt": ["verify", "SRC/model.pt"],
        "verify safetensors": ["verify", "SRC/model.safetensors"],
        "verify torch-checkpointing": ["verify", "SRC/tc"],
        "diff dcp safetensors": ["diff", "SRC/dcp", "SRC/model.safetensors"],
        "convert dcp safetensors": ["convert", "SRC/dcp", "DST/a.safetensors", "--no-sync"],
        "convert dcp pt": ["convert", "SRC/dcp", "DST/a.pt", "--no-sync"],
        "convert pt dcp": ["convert", "SRC/model.pt", "DST/a", "--to", "dcp", "--no-sync"],
        "convert safetensors dcp": ["convert", "SRC/model.safetensors", "DST/a", "--to", "dcp", "--no-sync"],
        "convert safetensors torch-checkpointing": ["convert", "SRC/model.safetensors", "DST/a", "--to", "torch-checkpointing",
                                                    "--no-sync"],
        "reshard dcp": ["reshard", "SRC/dcp", "DST/a", "--mesh", "4", "--place", ".*=S(0)", "--no-sync"],
    }
    # One thread: two that need the same thing at once may both make it.
    return {name: [tool, *line, "--threads", "1"] for name, line in lines.items()}


def program_work(bench=None, ranks=None):
    """The same for the library's functions: loading into memory, and ranks that load and save together."""
    work = {}
    if bench:
        for what in ("dcp", "model.safetensors", "model.pt"):
            work[f"load {what}"] = [bench, "load", f"SRC/{what}", "--repeat", "1", "--threads", "1"]
    if ranks:
        work["four ranks load and save dcp"] = [ranks, "SRC/dcp", "DST/a", "4"]
    return work


def message_work(bench):
    """Commands that repeat a move as often as their last word states."""
    return {f"two ranks move 64 KiB, {case}": [bench, case, str(64 << 10), "REPEAT", "ranks", "4"]
            for case in ("rows_to_columns", "rows_to_all")} if bench else {}


def slope(small, large, steps):
    return {name: round((large[name] - small[name]) / steps, 2) for name in ("calls", "allocations")}


def slopes(counter, work, tool, chosen=lambda name: True):
    """Name -> the cost of one more tensor; a failing line raises RuntimeError. The folder's path always has the same
    length, because some allocations depend on it."""
    steps = SIZES[1] - SIZES[0]
    with tempfile.TemporaryDirectory(prefix="shardmesh-counts-") as folder:
        samples = [Samples(tool, folder, count) for count in SIZES]
        return {name: slope(*(counter.least(of.line(line), 1, of.folder) for of in samples), steps)
                for name, line in work.items() if chosen(name)}


def message_slopes(counter, work, chosen=lambda name: True):
    """Name -> the cost of one more move."""
    return {name: slope(*(counter.least([word.replace("REPEAT", str(repeat)) for word in map(str, line)]) for repeat in SIZES),
                        SIZES[1] - SIZES[0]) for name, line in work.items() if chosen(name)}
