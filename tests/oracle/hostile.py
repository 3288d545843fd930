# SPDX-License-Identifier: Apache-2.0
"""Files made to exhaust their reader: each command on each of them ends in seconds, within 1 GiB of memory and a
stack of 256 KiB, with a defined status and at most a few lines. Prints a table of the worst run of each case. Without
--every-command, a file meets one reader or one writer, in turn, and further ones until one of them says what the case
expects. SHARDMESH_SEED repeats the turns of a run. Needs no package."""
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time

import hostile_stacks  # noqa: F401, I001  the modules add their cases in this order
import hostile_shares  # noqa: F401
import hostile_holes  # noqa: F401
import hostile_repeats  # noqa: F401
from common import Oracle
from hostile_files import CASES, pt, safetensors
from pickles import *  # noqa: F403

SECONDS, MEMORY = 5, 1 << 30


def commands(source, out, every, turn):
    """(label, arguments): readers and writers, from number `turn` on, with the writers first in every other pair of turns.
    `every`: more of both."""
    readers = [("inspect --json", ["inspect", "--json", source]),
               ("verify --strict --json", ["verify", "--strict", "--json", source])]
    if every:
        readers += [("inspect", ["inspect", source]), ("verify", ["verify", source]), ("diff", ["diff", source, source])]
    writers = []
    for to in ("safetensors", "dcp", "hf", "pt") if every else ("safetensors", "pt"):
        made = out / f"{to}.safetensors" if to == "safetensors" else out / to
        writers.append(("convert " + to, ["convert", source, made, "--to", to]))
    writers.append(("reshard", ["reshard", source, out / "resharded", "--mesh", "2", "--default", "R"]))
    readers, writers = (some[turn % len(some):] + some[:turn % len(some)] for some in (readers, writers))
    return writers + readers if turn // 2 % 2 else readers + writers


def sparse_settings(oracle):
    """Files that describe something else than a checkpoint are read whole, too: one that exceeds its limit, or has a
    hole, is refused. The input is at fault, so the status is 1."""
    folder = oracle.work / "sparse_settings"
    folder.mkdir()
    sparse, out = folder / "sparse", folder / "out"
    model = pt(folder, ("w", tensor("0", 1, [1], [1])), records=[("data/0", b"\0\0\0\0")])
    run_folder, hub, indexed = folder / "run", folder / "hub", folder / "indexed"
    for made in (run_folder, hub, indexed):
        made.mkdir()
    safetensors(hub, {"w": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}).rename(hub / "model.safetensors")
    cases = [("mapping", sparse, 900 << 20, ["convert", model, out, "--to", "dcp", "--map", sparse]),
             ("sizes", sparse, 900 << 20, ["convert", model, out, "--to", "dcp", "--map", "hf.llama:meta.llama", "--config", sparse]),
             ("config.json", hub / "config.json", 900 << 20, ["convert", hub, out, "--to", "dcp", "--map", "hf.llama:meta.llama"]),
             ("run", run_folder / ".shardmesh_run.json", 60 << 20, ["run", "list", run_folder, "--keep-best", "1"]),
             ("flat units", sparse, 900 << 20, ["convert", model, out, "--to", "dcp", "--flat-spec", sparse]),
             ("large flat units", sparse, 2 << 30, ["convert", model, out, "--to", "dcp", "--flat-spec", sparse]),
             ("shards", sparse, 3500 << 20, ["check-shards", sparse]),
             ("large shards", sparse, 5 << 30, ["check-shards", sparse]),
             ("index", indexed / "model.safetensors.index.json", 4 << 30, ["inspect", indexed])]
    for name, file, size, arguments in cases:
        file.write_text("{")
        os.truncate(file, size)
        status, seconds, memory, _, stderr = run(oracle, arguments)
        what = f"exits {status} after {seconds:.1f} s with {memory >> 20} MiB: {stderr[:300]}"
        oracle.check(status == 1 and seconds < 1 and memory < 128 << 20, f"sparse {name}", what)
        oracle.check(str(file) in stderr and ("is a sparse file" in stderr or "is too large" in stderr), f"sparse {name}", what)
        oracle.check(not out.exists(), f"sparse {name}", "something was written")
        file.unlink()
    shutil.rmtree(folder)


def limits():
    resource.setrlimit(resource.RLIMIT_STACK, (256 << 10, 256 << 10))
    resource.setrlimit(resource.RLIMIT_CPU, (2 * SECONDS, 2 * SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(oracle, arguments):
    """(status, seconds of CPU, memory, stdout, stderr)"""
    out, err = oracle.work / "stdout", oracle.work / "stderr"
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        begin = time.monotonic()
        process = subprocess.Popen([oracle.tool, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=stdout,
                                   stderr=stderr, preexec_fn=limits)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = min(time.monotonic() - begin, usage.ru_utime + usage.ru_stime)
    head = lambda file: open(file, errors="replace").read(1 << 16)  # noqa: E731
    return process.returncode, seconds, usage.ru_maxrss << 10, head(out), head(err)


def main():
    oracle = Oracle(__doc__, lambda parser: parser.add_argument("--every-command", action="store_true"))
    print(f"{'case':28} {'bytes':>12} {'seconds':>8} {'MiB':>6}  slowest command, refusal")
    first = int(os.environ.get("SHARDMESH_SEED", random.randrange(12)))
    print(f"SHARDMESH_SEED={first}")
    for number, (name, expected, build) in enumerate(CASES):
        if oracle.args.only not in name:
            continue
        folder = oracle.work / name
        folder.mkdir()
        source = build(folder)
        size = sum(f.stat().st_size for f in ([source] if source.is_file() else source.iterdir()))
        worst, peak, slowest, refused = 0.0, 0, "", ""
        out = folder / "out"
        out.mkdir()
        every = oracle.args.every_command
        for count, (label, arguments) in enumerate(commands(source, out, every, first + number)):
            if count and not every and (refused or not expected):
                break
            status, seconds, memory, stdout, stderr = run(oracle, arguments)
            lines = stderr.splitlines()
            what = f"`{label}` {status} {seconds:.1f} s {memory >> 20} MiB: {stderr[:300].strip()}"
            oracle.check(status in (0, 1, 2, 3), name, "crashed: " + what)
            oracle.check(seconds < SECONDS, name, "slow: " + what)
            oracle.check(memory < MEMORY, name, "large: " + what)
            oracle.check(len(lines) < 1200, name, f"{len(lines)} lines: " + what)
            if status != 0:
                oracle.check(lines, name, "says nothing: " + what)
            if "--json" in label:
                with open(oracle.work / "stdout", errors="replace") as file:
                    try:
                        json.load(file)
                        good = True
                    except (ValueError, RecursionError) as problem:
                        good = isinstance(problem, RecursionError)
                oracle.check(good, name, "no JSON: " + what)
            if expected and expected in stderr and not refused:
                refused = next(line for line in lines if expected in line)
                oracle.check(str(source) in refused, name, "names no file: " + refused)
            if seconds > worst:
                worst, slowest = seconds, label
            peak = max(peak, memory)
            shutil.rmtree(out)
            out.mkdir()
        if expected:
            oracle.check(refused, name, f"no command says \"{expected}\"")
        print(f"{name:28} {size:>12} {worst:>8.2f} {peak >> 20:>6}  {slowest}, "
              f"{refused.replace(str(oracle.work), '')[:160]}", flush=True)
        shutil.rmtree(folder)
    if oracle.args.only in "sparse_settings":
        sparse_settings(oracle)
    oracle.finish()


if __name__ == "__main__":
    sys.exit(main())
