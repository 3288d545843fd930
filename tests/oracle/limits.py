# SPDX-License-Identifier: Apache-2.0
"""Large data with scarce resources: peak memory under --memory, thousands of files with few descriptors. Needs no
package."""
import json
import os
import resource
import struct
import subprocess
import sys

from common import Oracle

MIB = 1 << 20


def write_safetensors(path, rows, columns):
    """One int32 tensor "w" whose element i has value i, without any package."""
    size = rows * columns * 4
    header = json.dumps({"w": {"dtype": "I32", "shape": [rows, columns], "data_offsets": [0, size]}}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for row in range(rows):
            file.write(struct.pack(f"<{columns}i", *range(row * columns, (row + 1) * columns)))


def peak_bytes(oracle, case, *arguments, limits=None):
    process = subprocess.Popen([oracle.tool, *oracle.line(arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               preexec_fn=limits)
    err = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    oracle.check(process.returncode == 0, case, f"exits {process.returncode}: {err[-300:]}")
    return usage.ru_maxrss * 1024


def model_in_many_files(oracle, few):
    """A model of 300 torch.save files, more than may be open: each is reopened when needed."""
    whole, parts = oracle.work / "whole.safetensors", oracle.work / "parts"
    write_safetensors(whole, 300, 64)
    parts.mkdir()
    one = oracle.work / "one.pt"
    oracle.succeeds("300 files", "convert", whole, one)
    files = {f"w{i}": f"pytorch_model-{i + 1:05}-of-00300.bin" for i in range(300)}
    for key, file in files.items():
        oracle.succeeds("300 files", "convert", one, parts / f"{file}.pt", "--rename", f"w={key}")
        (parts / f"{file}.pt").rename(parts / file)
    (parts / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    merged = oracle.work / "merged.safetensors"
    for arguments in (["inspect", parts], ["verify", parts], ["convert", parts, merged], ["diff", parts, merged]):
        peak_bytes(oracle, "300 files", *arguments, limits=few)
    found = json.loads(oracle.succeeds("300 files", "inspect", merged, "--json") or "{}").get("tensors", {})
    oracle.check(sorted(found) == sorted(files), "300 files", f"{len(found)} tensors")


def main():
    oracle = Oracle(__doc__, syncs=False)
    flat = oracle.work / "w.safetensors"
    write_safetensors(flat, 4096, 8192)  # 128 MiB
    rows, columns, again = (oracle.work / name for name in ("rows", "columns", "again"))
    oracle.succeeds("memory", "reshard", flat, rows, "--mesh", "8", "--place", "w=S(0)")
    for source, target, place in ((rows, columns, "w=S(1)"), (columns, again, "w=S(0)")):
        peak = peak_bytes(oracle, "memory", "reshard", source, target, "--mesh", "8", "--place", place, "--memory", "16MiB")
        oracle.check(peak < 64 * MIB, "memory", f"{place}: peak {peak / MIB:.0f} MiB with --memory 16MiB")
    oracle.succeeds("memory", "diff", flat, again)

    few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))  # noqa: E731
    many = oracle.work / "many"
    for arguments in (["reshard", flat, many, "--mesh", "4096", "--place", "w=S(0)"], ["verify", many], ["diff", flat, many],
                      ["convert", many, oracle.work / "one.safetensors"]):
        peak_bytes(oracle, "4096 files", *arguments, limits=few)
    oracle.check(len(list(many.glob("*.distcp"))) == 4096, "4096 files", "not one file per rank")
    oracle.succeeds("4096 files", "diff", flat, oracle.work / "one.safetensors")
    model_in_many_files(oracle, few)
    oracle.finish()


if __name__ == "__main__":
    sys.exit(main())
