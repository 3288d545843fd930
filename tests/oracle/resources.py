# SPDX-License-Identifier: Apache-2.0
"""A command without memory, threads, or readable bytes ends with an error, never with a crash. Every command runs
with the n-th allocation, thread, or read failing (alone, or from then on), for n spread over all its calls.
Afterwards, the exit status is 3 (0 if the failure was harmless), stderr has one line or more with a given name,
--json is one valid document, and the destination is complete or absent. SHARDMESH_PROPERTY_RUNS=long tries every n.
Needs no package."""
import concurrent.futures
import errno
import json
import os
import resource
import shutil
import struct
import subprocess
from pathlib import Path

from common import Oracle, fingerprint

LONG = os.environ.get("SHARDMESH_PROPERTY_RUNS") == "long"
# name: (settings of the fault library, number of runs spread over its calls, accepted statuses)
FAULTS = {
    "no memory": ({"FAULT_KIND": "memory"}, 40, (0, 3)),
    "no more memory": ({"FAULT_KIND": "memory", "FAULT_STICKY": "1"}, 25, (0, 3)),
    "no more threads": ({"FAULT_KIND": "thread", "FAULT_STICKY": "1"}, 3, (0,)),
    "cannot read": ({"FAULT_KIND": "read", "FAULT_ERRNO": str(errno.EIO)}, 25, (0, 3)),
    "interrupted read": ({"FAULT_KIND": "read", "FAULT_ERRNO": str(errno.EINTR)}, 12, (0, 3)),
    "short read": ({"FAULT_KIND": "read", "FAULT_SHORT": "1"}, 12, (0,)),
}


class Command:
    """Arguments, with SRC for a folder of sources and DST for a scratch folder; `writes` names its output there."""

    def __init__(self, name, *arguments, writes=None):
        self.name, self.arguments, self.writes = name, arguments, writes

    def line(self, source, destination):
        return [a.replace("SRC", str(source)).replace("DST", str(destination)) for a in self.arguments]


COMMANDS = [
    Command("inspect", "inspect", "SRC/dcp", "--json"),
    Command("inspect .pt", "inspect", "SRC/state.pt", "--json"),
    Command("verify", "verify", "SRC/dcp", "--json"),
    Command("verify hf", "verify", "SRC/hf", "--json"),
    Command("verify zstd", "verify", "SRC/zstd", "--json"),
    Command("verify .nemo", "verify", "SRC/packed.nemo", "--json"),
    Command("diff", "diff", "SRC/dcp", "SRC/model.safetensors", "--json"),
    Command("convert to safetensors", "convert", "SRC/dcp", "DST/a.safetensors", "--json", writes="a.safetensors"),
    Command("convert to dcp", "convert", "SRC/model.safetensors", "DST/a", "--to", "dcp", "--json", writes="a"),
    Command("convert .pt to hf", "convert", "SRC/state.pt", "DST/a", "--to", "hf", "--only", "w|t|row|param|nested.a.*",
            "--json", writes="a"),
    Command("reshard", "reshard", "SRC/dcp", "DST/a", "--mesh", "3", "--place", ".*=S(0)", "--json", writes="a"),
    Command("layout", "layout", "--shape", "10,7", "--mesh", "2,3", "--place", "S(0),S(1)", "--json"),
    Command("layout --svg", "layout", "--shape", "10,7", "--mesh", "2,3", "--place", "S(0),S(1)", "--json", "--svg", "DST/a.svg",
            writes="a.svg"),
    Command("plan", "plan", "--shape", "10,7", "--from-mesh", "4", "--from", "S(0)", "--to-mesh", "2,2", "--to", "S(1),R", "--json"),
    Command("check-shards", "check-shards", "SRC/shards.json", "--json"),
    Command("clean", "clean", "DST", "--json"),
    Command("run list", "run", "list", "SRC/run", "--json"),
    Command("delta make", "delta", "make", "SRC/dcp", "SRC/dcp", "DST/a.delta", "--json", writes="a.delta"),
    Command("devices", "devices", "--json"),
]


def make_sources(oracle, folder):
    folder.mkdir()
    shutil.copytree(oracle.golden / "single_rank" / "checkpoint", folder / "dcp")
    shutil.copytree(oracle.golden / "hf_sharded" / "checkpoint", folder / "hf")
    shutil.copytree(oracle.golden / "single_rank" / "checkpoint", folder / "run" / "step-100")
    shutil.copytree(oracle.golden / "options_zstd" / "checkpoint", folder / "zstd")
    shutil.copy(oracle.data / "nemo" / "packed.nemo", folder / "packed.nemo")
    shutil.copy(oracle.data / "pickle" / "state.pt", folder / "state.pt")
    oracle.succeeds("sources", "convert", folder / "dcp", folder / "model.safetensors")
    (folder / "shards.json").write_text(json.dumps({"size": [4], "shards": [
        {"offsets": [0], "sizes": [2], "placement": "rank:0/cpu"}, {"offsets": [2], "sizes": [2], "placement": "rank:1/cpu"}]}))
    return folder


def run(oracle, command, environment, source, destination, limits=None):
    destination.mkdir(parents=True, exist_ok=True)
    line = command.line(source, destination)
    done = subprocess.run([oracle.tool, *line, "--threads", "2"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                          env={**os.environ, **environment}, preexec_fn=limits)
    return done.returncode, done.stdout, done.stderr.decode("utf-8", "replace")


def document_of(out):
    """The single JSON document, or why there is none."""
    try:
        return json.loads(out.decode("utf-8", "surrogatepass")), ""
    except ValueError as cause:
        return None, f"--json is not one document ({cause}): {out[:200]!r}"


def judge(command, status, out, err, right, whole, destination, leaves_temporaries):
    """The problem of one run, or ''. `whole` has the destination's contents after a good run."""
    if status not in right:
        return f"exits {status}: {err[-300:]}"
    document, why = document_of(out)
    if document is None:
        return f"status {status}: {why}"
    if status == 0:
        return "" if fingerprint(destination) == whole else "exits 0, but the destination is not whole"
    if document.get("ok") is not False or not document["problems"]:
        return f"the document of a failure does not say so: {out[:200]!r}"
    lines = err.splitlines()
    if not lines or not any(name in err for name in ("SRC", "/sources", str(destination), "shardmesh:", "svg")):
        return f"stderr names nothing that was given: {err[-300:]!r}"
    left = {name for name in fingerprint(destination) if not (leaves_temporaries and (".tmp" in name or "shardmesh-tmp" in name))}
    # The copy of the objects beside a single file is renamed after the file, which is complete without it.
    copies = {name for name in {*left, *whole} if name.endswith(".objects.json")}
    if left - copies and left | copies != set(whole) | copies:
        return f"the destination holds {sorted(left)}, neither nothing nor {sorted(whole)}"
    return ""


def spread(calls, runs):
    if LONG or calls <= runs:
        return range(1, calls + 1)
    return sorted({1 + round(i * (calls - 1) / (runs - 1)) for i in range(runs)})


def check_command(oracle, command, source, shim, pool):
    work = oracle.work / command.name.replace(" ", "_").replace("/", "_")
    status, out, err = run(oracle, command, {}, source, work / "whole")
    if not oracle.check(status == 0, command.name, f"without a fault exits {status}: {err[-300:]}"):
        return
    whole = fingerprint(work / "whole")
    tried = 0
    for fault, (environment, runs, right) in FAULTS.items():
        base = {**environment, "LD_PRELOAD": str(shim), "FAULT_UNDER": str(source)}
        count_file = work / f"{fault}.count"
        # Threads come and go, so the number of allocations varies: an approximate one suffices.
        run(oracle, command, {**base, "FAULT_COUNT_FILE": str(count_file)}, source, work / "count")
        calls = int(count_file.read_text())
        if fault.startswith("no") and "threads" not in fault:
            oracle.check(calls > 100, command.name, f"{fault}: only {calls} allocations counted: is the shim loaded?")

        def one(at):
            destination = work / f"{fault}.{at}".replace(" ", "_")
            outcome = run(oracle, command, {**base, "FAULT_AT": str(at)}, source, destination)
            wrong = judge(command, *outcome, right, whole, destination, leaves_temporaries="memory" in fault)
            if not wrong:
                shutil.rmtree(destination)
            return at, wrong

        for at, wrong in pool.map(one, spread(calls, runs)):
            tried += 1
            oracle.check(not wrong, command.name, f"{fault} at {at} of {calls}: {wrong}")
    print(f"{command.name}: {tried} faults", flush=True)


def check_limits(oracle, source):
    """The kernel's own memory limit, instead of the fault library's: a big file in little memory."""
    big = oracle.work / "big.safetensors"
    size = 256 << 20
    header = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    with open(big, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)
    command = Command("limit", "convert", str(big), "DST/a.safetensors", "--json")
    for mib in (16, 32, 64, 128):
        limits = lambda: resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))  # noqa: B023, E731
        destination = oracle.work / f"limit.{mib}"
        status, out, err = run(oracle, command, {}, source, destination, limits)
        if status in (0, 3) and b"{" in out:
            document, why = document_of(out)
            oracle.check(document is not None, f"{mib} MiB", why)
            oracle.check(status == 0 or str(big) in err or "shardmesh" in err, f"{mib} MiB", f"stderr names no file: {err[-300:]}")
        elif status == 3:  # the libraries' initializers got no memory
            oracle.check(err == "shardmesh: not enough memory to begin\n" and not out, f"{mib} MiB", f"says {err[-300:]} {out}")
        else:  # the loader itself needs memory before any program could report it
            oracle.check(status == 127 and "shared libraries" in err, f"{mib} MiB", f"exits {status}: {err[-300:]}")
        shutil.rmtree(destination)
    big.unlink()


def main():
    # Libraries of others need not survive a lack of memory.
    os.environ.update(SHARDMESH_CUDART="/nowhere/cudart", SHARDMESH_NCCL="/nowhere/nccl", SHARDMESH_CUDA_KERNELS="none")
    oracle = Oracle(__doc__, lambda parser: parser.add_argument("--shim", type=Path, required=True, help="resource_preload"))
    source = make_sources(oracle, oracle.work / "sources")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for command in COMMANDS:
            if oracle.args.only in command.name:
                check_command(oracle, command, source, oracle.args.shim.resolve(), pool)
    check_limits(oracle, source)
    oracle.finish()


if __name__ == "__main__":
    main()
