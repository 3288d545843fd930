# SPDX-License-Identifier: Apache-2.0
"""Loads beside the limits of the machine: a disk read past the cache, memory copied, and one tensor instead of many."""
import json
import shutil
import subprocess


def fio(files):
    """Measures fio reading the same files past the cache, with 64 outstanding requests of 1 MiB."""
    line = ["fio", "--name=read", "--filename=" + ":".join(map(str, files)), "--file_service_type=sequential", "--rw=read",
            "--direct=1", "--bs=1M", "--iodepth=64", "--ioengine=libaio", "--readonly", "--output-format=json"]

    def side(repeat):
        jobs = []
        for _ in range(repeat):
            done = subprocess.run(line, capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"fio: {done.stderr.strip()[-300:]}")
            jobs.append(json.loads(done.stdout)["jobs"][0]["read"])
        return {"bytes": jobs[0]["io_bytes"], "seconds": [job["runtime"] / 1e3 for job in jobs]}
    return side


def cold(bench):
    """Measures loads as after a start of the machine: the cache holds nothing of the files."""
    for path in (bench.sample(200), bench.safetensors_sample()):
        files = sorted(file for file in path.iterdir() if file.suffix == ".distcp") if path.is_dir() else [path]
        sides = {f"shardmesh::load, {bench.threads} threads": bench.ours("load_cold", path),
                 "plain pread past the cache, 32 at a time": bench.ours("direct_read", path)}
        if shutil.which("fio"):
            sides["fio, O_DIRECT, 64 requests of 1 MiB"] = fio(files)
        else:
            print("\n# fio is not installed: the package is called fio")
        ours, *peers = bench.compare(f"load of 1 GiB ({path.name}) that is not in the cache", path, sides)
        for name, peer in zip(list(sides)[1:], peers):
            print(f"  {peer / ours:.2f} of the throughput of {name}" + (" (aim: 0.9)" if name.startswith("fio") else ""))


def warm(bench):
    path = bench.safetensors_sample()
    ours, copied = bench.compare("load of a 1 GiB safetensors file that is in the cache", path, {
        f"shardmesh::load, {bench.threads} threads": bench.ours("load", path),
        f"memcpy of as many bytes, {bench.threads} threads": bench.ours("memcpy", path)})
    print(f"  of memcpy's throughput: {copied / ours:.2f} (aim: 0.8)")


def many_tensors(bench):
    folder = bench.moe_sample()
    for case, where in (("load", "in the cache"), ("load_cold", "on the disk")):
        ours, one = bench.compare(f"load of 1 GiB of safetensors {where}: a mixture-of-experts model's manifest", folder, {
            "shardmesh::load of 18,867 tensors": bench.ours(case, folder / "moe.safetensors"),
            "shardmesh::load of one tensor": bench.ours(case, folder / "one.safetensors")})
        print(f"  {(ours - one) / 18867 * 1e6:.2f} us for each tensor more (aim: 5); {ours / one:.2f} of one tensor's time (aim: 1.1)")


CASES = {"load_cold": cold, "load_warm": warm, "load_18867": many_tensors}
