# SPDX-License-Identifier: Apache-2.0
"""The benchmarks redistribute_*: moving a tensor between 4 ranks beside a raw all-to-all-v of the same bytes, over
threads and over MPI; and planning for one of 1024 and one of 16,384 ranks."""
import json
import shutil
import statistics
import subprocess


def lines_of(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(str(word) for word in command[-4:])}: {done.stderr.strip()[-500:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def planning(bench):
    print("\nplanning for one rank: S(0) -> S(1), 1024 tensors (aims: of 1024 ranks cold 1 s, of 16,384 2 s; 256 MB, warm 1 ms)")
    line = [bench.build / "bin" / "shardmesh_redistribute_bench", "--only", "plan"]
    bench.note_command("shardmesh_redistribute_bench --only plan", line)
    for row in lines_of(line):
        if "pairs_ms" in row:  # one pass for all pairs should cost about as much as each rank's own list
            good = row["equal"] and row["pairs_ms"] <= 1.5 * row["sends_ms"]
            print(f"  {row['case']}: {row['pairs_ms']:.1f} ms, by every rank's list {row['sends_ms']:.1f} ms: "
                  f"{'ok' if good else 'MORE THAN THE AIM'}", flush=True)
            continue
        aim = 2000 if " 16384 " in row["case"] else 1000
        good = row["cold_ms"] <= aim and row["peak_mb"] <= 256 and row["warm_ms"] <= 1
        print(f"  {row['case']}: cold {row['cold_ms']:.1f} ms, {row['peak_mb']:.0f} MB; again {row['warm_ms']:.3f} ms; what it sends to each {row['sends_ms']:.1f} ms; "
              f"plan from a cache {row['cached_plan_ms']:.3f} ms: {'ok' if good else 'MORE THAN THE AIM'}", flush=True)


def threads(bench):
    print("\nredistribute over 4 threads beside an all-to-all-v of the same bytes (memcpy between barriers)")
    line = [bench.build / "bin" / "shardmesh_redistribute_bench", "--only", "run", "--repeat", bench.runs + 3]
    if bench.only_counts:
        return  # it counts its peer, too: the slopes have the cost of a move
    for row in lines_of(line):
        bench.note_ratios(f"{row['case']}, {row['bytes'] // 1024} KiB: raw all-to-all-v", row["ratio"], row["ratio_of_least"])
        print(f"  {row['case']}, {row['bytes'] / 1024:.0f} KiB: {row['ours_ms']:.3f} ms beside {row['plain_ms']:.3f} ms, "
              f"x{row['ratio']:.2f} (least of each: x{row['ratio_of_least']:.2f}; CPU time: x{row['cpu_ratio']:.2f})", flush=True)


def mpi(bench):
    program, launcher = bench.build / "bin" / "shardmesh_mpi_bench", shutil.which("mpirun")
    if bench.only_counts:
        return
    if not program.exists() or not launcher:
        print("\nredistribute over MPI: skipped, MPI is not here")
        return
    print("\nexchange over 4 MPI ranks beside MPI_Alltoallv, the same bytes (per pair of ranks)")
    for way in ("read", "staged"):
        for size in (4 << 10, 64 << 10, 1 << 20, 16 << 20):
            row = lines_of([launcher, "--oversubscribe", "--allow-run-as-root", "--mca", "mpi_yield_when_idle", "1", "-n", 4,
                            program, size, max(9, (64 << 20) // size // 4), way])[0]
            ours, theirs = statistics.median(row["exchange_ms"]), statistics.median(row["alltoallv_ms"])
            bench.note_ratio(f"{way}, {size >> 10} KiB: MPI_Alltoallv", row["exchange_ms"], row["alltoallv_ms"])
            print(f"  {way}, {size >> 10} KiB: {ours:.3f} ms beside {theirs:.3f} ms, x{ours / theirs:.2f} "
                  f"(least of each: x{min(row['exchange_ms']) / min(row['alltoallv_ms']):.2f})", flush=True)


CASES = {"redistribute_plan": planning, "redistribute_threads": threads, "redistribute_mpi": mpi}
