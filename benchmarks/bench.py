# SPDX-License-Identifier: Apache-2.0
"""./dev bench: shardmesh beside PyTorch, safetensors and plain file access, on the same files, in one run, warm cache.
Every number is a median with its spread (min..max) over at least five timed runs, taken in alternating blocks.
Nothing here imports PyTorch: the peers run in processes of their own (torch_side.py)."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import against
import baseline
import counts
import deepspeed_folders
import delta
import disk
import kernels
import mapping
import python_package
import ranks
import redistribute
import stage
import stores
import validate

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
# Cases of our programs that serve as the peers.
PEERS_OF_OURS = {"plain_read", "plain_write", "plain_copy", "plain_copy_cached", "direct_read", "memcpy", "sort"}
REPEAT_AT = {"shardmesh_rank_bench": 3, "shardmesh_stage_bench": 4, "shardmesh_delta_bench": 4}  # the position of the number of runs


class Bench:
    def __init__(self, build, work, runs, threads):
        self.build = build
        self.tool, self.program = build / "bin" / "shardmesh", build / "bin" / "shardmesh_bench"
        self.tree_program = build / "bin" / "shardmesh_tree_bench"
        self.work, self.runs, self.threads = work, runs, threads
        self.failed = []
        # For the baseline: each row's results, the commands of ours that it ran, and the cost of one more tensor.
        self.row, self.found, self.commands, self.slopes, self.only_counts = "", {}, {}, {}, False

    # --- data for the baseline ----------------------------------------------------------------------------------------
    def note_command(self, label, line):
        line = [str(word) for word in line]
        repeat = line.index("--repeat") + 1 if "--repeat" in line else REPEAT_AT.get(Path(line[0]).name)
        if repeat:
            line[repeat] = "1"
        self.commands.setdefault(self.row, {})[label] = line

    def note_ratio(self, label, ours, theirs):
        """Records the ratio of our times to theirs, of medians and of fastest runs, and how unsteady the two are."""
        if not self.only_counts:
            spread = max(statistics.median(side) / min(side) for side in (ours, theirs))
            self.note_ratios(label, statistics.median(ours) / statistics.median(theirs), min(ours) / min(theirs), spread)

    def note_ratios(self, label, median, least, spread=1.0):
        self.found.setdefault(self.row, {}).setdefault("ratios", {})[label] = (median, least, spread)

    # --- samples: written once, kept in build/bench -------------------------------------------------------------------
    def sample(self, tensors):
        folder = self.work / f"rows_{tensors}"
        if not (folder / ".metadata").exists():
            shutil.rmtree(folder, ignore_errors=True)
            note(f"writing {folder.name} with PyTorch (8 ranks)")
            self.torch("make", folder, "--count", tensors, capture=False)
        return folder

    def safetensors_sample(self):
        file = self.work / "model.safetensors"
        if not file.exists():
            self.shardmesh("convert", self.sample(200), file)
        return file

    def quantized_sample(self):
        folder = self.work / "quantized"
        if not (folder / "model.safetensors.index.json").exists():
            shutil.rmtree(folder, ignore_errors=True)
            note("writing a Hugging Face folder of FP8 blocks and MXFP4")
            self.torch("make_quantized", folder, capture=False)
        return folder

    def moe_sample(self):
        folder = self.work / "moe"
        if not (folder / "moe.safetensors").exists():
            shutil.rmtree(folder, ignore_errors=True)
            note("writing a mixture-of-experts model of 18,867 tensors, 1 GiB")
            self.torch("make_moe", folder, capture=False)
        return folder

    def chunk_sample(self, chunks):
        folder = self.work / f"chunks_{chunks}"
        if not (folder / ".metadata").exists():
            note(f"writing a .metadata of {chunks} chunks with PyTorch's classes")
            self.torch("make_chunks", folder, "--count", chunks, capture=False)
        return folder

    # --- sides --------------------------------------------------------------------------------------------------------
    def torch(self, case, path, *rest, capture=True):
        line = [sys.executable, HERE / "torch_side.py", case, path, *rest]
        return self.json_of(line) if capture else subprocess.run([str(a) for a in line], check=True)

    def json_of(self, line):
        program = Path(line[0])
        if program.parent == self.build / "bin" and str(line[1]) not in PEERS_OF_OURS:
            self.note_command(" ".join([program.name, *(Path(str(word)).name for word in line[1:3] if word != "--repeat")]), line)
        done = subprocess.run([str(a) for a in line], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(str(a) for a in line[-6:])}: {done.stderr.strip()[-500:]}")
        return json.loads(done.stdout.strip().splitlines()[-1])

    def shardmesh(self, *arguments, tool=None):
        """Returns (seconds, peak resident bytes) of one run of the command line."""
        self.note_command(f"shardmesh {arguments[0]} {Path(arguments[1]).name}", [tool or self.tool, *arguments])
        begin = time.perf_counter()
        process = subprocess.Popen([str(tool or self.tool), *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        message = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise RuntimeError(f"shardmesh {arguments[0]} exits {process.returncode}: {message.decode()[-500:]}")
        return time.perf_counter() - begin, usage.ru_maxrss * 1024

    def ours(self, case, path, *rest):
        return lambda repeat: self.json_of([self.program, case, path, "--repeat", repeat, "--threads", self.threads, *rest])

    def peer(self, case, path):
        return lambda repeat: self.torch(case, path, "--repeat", repeat, "--threads", self.threads)

    def compare_rounds(self, title, steps, sides, aim):
        """Times sides that do the same steps one after the other, in alternating blocks, and prints the sums and
        their ratios; the first side is ours. One process per block and step."""
        if self.only_counts:
            sides = dict(list(sides.items())[:1])
        times = {name: {step: [] for step in steps} for name in sides}
        for _ in range(3):
            for name, line in sides.items():
                for step in steps:
                    times[name][step] += self.json_of([*line, step, "--repeat", (self.runs + 1) // 2])["seconds"]
        print(f"\n{title} (aim: x{aim})")
        ours = times[next(iter(sides))]
        for name, of in times.items():
            sums = [sum(one) for one in zip(*of.values())]
            parts = ", ".join(f"{step.split('_')[1]} {statistics.median(of[step]) * 1e3:.1f} ms "
                              f"x{statistics.median(of[step]) / statistics.median(ours[step]):.1f}" for step in steps)
            if of is not ours:
                self.note_ratio(f"{title}: {name}", [sum(one) for one in zip(*ours.values())], sums)
            ratio = statistics.median(sums) / sum(statistics.median(ours[step]) for step in steps)
            print(f"  {name:<44} {statistics.median(sums) * 1e3:8.1f} ms ({min(sums) * 1e3:.1f}..{max(sums) * 1e3:.1f}, "
                  f"{len(sums)} runs)  x{ratio:.1f}   {parts}", flush=True)

    def compare(self, title, path, sides):
        """Times the sides in two alternating blocks and prints them; the first side is ours. Returns each side's
        median."""
        if self.only_counts:
            for name, side in sides.items():
                if name.startswith("shardmesh"):
                    side(1)
            return [1.0] * len(sides)
        warm(path)
        times, sizes = {name: [] for name in sides}, {}
        for _ in range(2):
            for name, side in sides.items():
                said = side((self.runs + 1) // 2)
                times[name] += said["seconds"]
                sizes[name] = said["bytes"]
        print(f"\n{title}")
        first = next(iter(sides))
        base = statistics.median(times[first])
        for name, seconds in times.items():
            if not name.startswith("shardmesh"):
                self.note_ratio(f"{title}: {name}", times[first], seconds)
            median = statistics.median(seconds)
            print(f"  {name:<44} {median:8.3f} s  ({min(seconds):.3f}..{max(seconds):.3f}, {len(seconds)} runs)"
                  f"  {sizes[name] / median / 1e9:7.2f} GB/s   x{median / base:.2f}", flush=True)
        return [statistics.median(seconds) for seconds in times.values()]


def note(text):
    print(f"# {text}", file=sys.stderr, flush=True)


def warm(path):
    for file in [path] if path.is_file() else path.rglob("*"):
        if file.is_file():
            with open(file, "rb", buffering=0) as opened:
                while opened.read(8 * MIB):
                    pass


def load(tensors):
    def case(bench):
        folder = bench.sample(tensors)
        bench.compare(f"load of 1 GiB in {tensors} tensors, S(0) on 8 ranks, into preallocated memory", folder, {
            f"shardmesh::load, {bench.threads} threads": bench.ours("load", folder),
            "torch.distributed.checkpoint.load": bench.peer("load_whole", folder),
            f"plain pread of all files, {bench.threads} threads": bench.ours("plain_read", folder)})
    return case


def columns(tensors):
    def case(bench):
        folder = bench.sample(tensors)
        bench.compare(f"S(0) -> S(1) of 1 GiB in {tensors} tensors: the loads of all 8 destination ranks", folder, {
            f"shardmesh::load, all 8 in one call, {bench.threads} threads": bench.ours("columns_at_once", folder),
            "shardmesh::load, 8 ranks (threads) together": bench.ours("columns_ranks", folder),
            f"shardmesh::load, rank after rank, {bench.threads} threads": bench.ours("columns", folder),
            "shardmesh::load, rank after rank, one reader, map_rows": bench.ours("columns_mapped", folder),
            "torch dcp.load, rank after rank in one process": bench.peer("columns_alone", folder),
            "torch dcp.load, 8 gloo processes": bench.peer("columns_group", folder),
            f"plain pread of all files once, {bench.threads} threads": bench.ours("plain_read", folder)})
    return case


def safetensors_load(bench):
    file = bench.safetensors_sample()
    bench.compare("load of a 1 GiB safetensors file into preallocated memory", file, {
        f"shardmesh::load, {bench.threads} threads": bench.ours("load", file),
        "safetensors safe_open, copied into tensors": bench.peer("safetensors_read", file),
        f"plain pread, {bench.threads} threads": bench.ours("plain_read", file)})


def map_tensor(bench):
    file = bench.safetensors_sample()
    bench.compare("all tensors of a 1 GiB safetensors file as views of it, no byte of them read", file, {
        "shardmesh::tensor_map": bench.ours("map", file),
        "safetensors safe_open, get_tensor": bench.peer("safetensors_map", file),
        f"shardmesh::load, {bench.threads} threads": bench.ours("load", file)})


def inspect_key(bench):
    """Measures one entry among 200,000 chunks."""
    folder = bench.chunk_sample(200_000)
    key = "model.layers.177.block.55.weight"
    peaks = []

    def ours(repeat):
        runs = [bench.shardmesh("inspect", folder, "--key", key) for _ in range(repeat)]
        peaks.extend(peak for _, peak in runs)
        return {"bytes": (folder / ".metadata").stat().st_size, "seconds": [seconds for seconds, _ in runs]}
    bench.compare("one key of a .metadata of 200,000 chunks", folder, {
        "shardmesh inspect --key (whole process)": ours,
        "PyTorch's read_metadata (pickle.load alone)": bench.peer("read_metadata", folder)})
    print(f"  peak resident memory of inspect --key: {max(peaks) / MIB:.0f} MiB for a .metadata of "
          f"{(folder / '.metadata').stat().st_size / MIB:.0f} MiB")


def safetensors_copy(bench):
    file = bench.safetensors_sample()
    target = bench.work / "copy.safetensors"

    def convert(repeat):
        times = [bench.shardmesh("convert", file, target, "--force", "--threads", bench.threads)[0] for _ in range(repeat)]
        return {"bytes": file.stat().st_size, "seconds": times}
    bench.compare("a 1 GiB safetensors file read and written again, durably", file, {
        "shardmesh convert (whole process, checksums)": convert,
        "safetensors load_file + save_file + fsync": bench.peer("safetensors_copy", file),
        f"plain pwrite + fsync, {bench.threads} threads": bench.ours("plain_write", file)})
    target.unlink(missing_ok=True)


def safetensors_copy_cached(bench):
    file = bench.safetensors_sample()
    bench.compare("a 1 GiB safetensors file read and written again, warm cache, without fsync", file, {
        f"shardmesh::convert, checksums, {bench.threads} threads": bench.ours("convert_cached", file),
        "safetensors load_file + save_file": bench.peer("safetensors_copy_cached", file),
        f"plain pread + pwrite, {bench.threads} threads": bench.ours("plain_copy_cached", file)})


def dequantize(bench):
    folder = bench.quantized_sample()
    bench.compare("FP8 blocks and MXFP4 as float32, 384 MiB in memory (aim: x5)", folder, {
        f"shardmesh::dequantized, load, {bench.threads} threads": bench.ours("dequantize", folder),
        "torch QuantizedHuggingFaceStorageReader": bench.peer("dequantize", folder)})


def torch_file(bench):
    folder = bench.sample(200)
    target = bench.work / "model.pt"

    def convert(repeat):
        times = [bench.shardmesh("convert", folder, target, "--force", "--threads", bench.threads)[0] for _ in range(repeat)]
        return {"bytes": target.stat().st_size, "seconds": times}
    bench.compare("a 1 GiB DCP folder of 8 ranks into one .pt file, durably", folder, {
        "shardmesh convert --to pt (whole process)": convert,
        "PyTorch's dcp_to_torch_save + fsync": bench.peer("to_torch_file", folder)})
    target.unlink(missing_ok=True)


def inspect(chunks):
    def case(bench):
        folder = bench.chunk_sample(chunks)
        peaks = []

        def ours(repeat):
            runs = [bench.shardmesh("inspect", folder, "--limit", 1) for _ in range(repeat)]
            peaks.extend(peak for _, peak in runs)
            return {"bytes": (folder / ".metadata").stat().st_size, "seconds": [seconds for seconds, _ in runs]}
        bench.compare(f"metadata of {chunks:,} chunks", folder, {
            "shardmesh inspect (whole process)": ours,
            "PyTorch's read_metadata (pickle.load alone)": bench.peer("read_metadata", folder)})
        print(f"  peak resident memory of inspect: {max(peaks) / MIB:.0f} MiB for a .metadata of "
              f"{(folder / '.metadata').stat().st_size / MIB:.0f} MiB")
    return case


def reshard_memory(bench):
    folder, limit = bench.sample(32), 128 * MIB
    print("\nreshard of 2 GiB under --memory 64MiB (must stay within 128 MiB resident)")
    there, back = bench.work / "columns_32", bench.work / "rows_again_32"
    for source, target, placement in ((folder, there, "S(1)"), (there, back, "S(0)")):
        shutil.rmtree(target, ignore_errors=True)
        seconds, peak = bench.shardmesh("reshard", source, target, "--mesh", "8", "--place", f".*={placement}",
                                        "--memory", "64MiB", "--threads", bench.threads)
        good = peak <= limit
        print(f"  to {placement} x 8: {seconds:.1f} s, peak {peak / MIB:.0f} MiB: {'ok' if good else 'TOO MUCH'}", flush=True)
        if not good:
            bench.failed.append("reshard_memory")
    seconds, _ = bench.shardmesh("diff", folder, back)
    print(f"  diff of the original and what came back: equal ({seconds:.1f} s)")
    for target in (there, back):
        shutil.rmtree(target)


def tree(bench):
    ours, peer = [bench.tree_program], [sys.executable, HERE / "tree_side.py"]
    bench.compare_rounds("a nested state dict of 100,000 entries: names and paths, and back from them", ("names_flatten",
                         "names_unflatten"), {"shardmesh::flatten, unflatten": ours,
                         "torch dcp flatten_state_dict, unflatten_..": peer}, aim=10)
    bench.compare_rounds("a nested state dict of 100,000 entries: leaves and shape, and back from them", ("leaves_flatten",
                         "leaves_unflatten"), {"shardmesh::flatten_tree, build": ours,
                         "optree tree_flatten, tree_unflatten": peer}, aim=1)


def slopes(bench):
    """Measures the cost of one more tensor and of one more move: see tests/oracle/counts.py."""
    counter, oracle = counts.Counter.of_build(bench.build), bench.build / "tests" / "oracle"
    work = counts.tool_work(bench.tool) | counts.program_work(bench.program, oracle / "rank_copy")
    bench.slopes = counts.slopes(counter, work, bench.tool)
    bench.slopes |= counts.message_slopes(counter, counts.message_work(bench.build / "bin" / "shardmesh_rank_bench"))
    print("\nwhat one more tensor or move costs: system calls and allocations")
    for name, costs in bench.slopes.items():
        print(f"  {name:<56} {costs['calls']:8.2f} {costs['allocations']:10.2f}")


CASES = {"tree": tree, "load_200": load(200), "load_16": load(16), "columns_200": columns(200), "columns_16": columns(16),
         "safetensors_load": safetensors_load, "map_tensor": map_tensor, "inspect_key": inspect_key,
         "safetensors_copy": safetensors_copy,
         "safetensors_copy_cached": safetensors_copy_cached, "torch_file": torch_file, "dequantize": dequantize,
         "inspect_200k": inspect(200_000), "inspect_2m": inspect(2_000_000), "reshard_memory": reshard_memory,
         **validate.CASES, **redistribute.CASES, **ranks.CASES, **kernels.CASES, **python_package.CASES,
         **disk.CASES, **deepspeed_folders.CASES, **stage.CASES, **mapping.CASES, **delta.CASES, **stores.CASES,
         "slopes": slopes}


def main():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("--build", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help="name the benchmarks")
    parser.add_argument("--runs", type=int, default=6, help="timed runs of each side (at least 5)")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--against", type=against.build_of, metavar="BUILD",
                        help="our own sides alone, beside those of another checkout's build folder: before and now")
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--baseline", action="store_true", help="write what is found into benchmarks/baseline.json")
    kept.add_argument("--check", action="store_true",
                      help="compare what is found with benchmarks/baseline.json, and print what is worse; exit 1 then")
    parser.add_argument("--counts", action="store_true",
                        help="with either: system calls, allocations and memory alone, which need no quiet machine")
    parser.add_argument("names", nargs="*", help="benchmarks to run (default: all); a prefix names several")
    given = parser.parse_args()
    if given.counts and not (given.baseline or given.check):
        parser.error("--counts goes with --baseline or --check")
    if given.list:
        print("\n".join(CASES))
        return
    chosen = [name for name in CASES if not given.names or any(name.startswith(n) for n in given.names)]
    if not chosen:
        parser.error(f"no benchmark is named like that; there are {', '.join(CASES)}")
    given.work.mkdir(parents=True, exist_ok=True)
    bench = Bench(given.build, given.work, max(5, given.runs), given.threads)
    print(f"{os.cpu_count()} cores, {given.threads} threads, warm cache; median (min..max); xN: time relative to shardmesh's")
    if given.against:
        against.against(bench, given.against, bench.runs)
        chosen = []
    bench.only_counts = given.counts
    for name in chosen:
        bench.row = name
        try:
            CASES[name](bench)
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            print(f"\n{name}: FAILED: {error}")
            bench.failed.append(name)
        if given.baseline:  # after each row, since all rows take an hour and a run may be interrupted
            baseline.write(bench)
    worse = 0
    if given.check:
        baseline.count_commands(bench, bench.found)
        worse = baseline.check(bench, bench.found, bench.slopes)
    if bench.failed:
        sys.exit(f"failed: {', '.join(bench.failed)}")
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
