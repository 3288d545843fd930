# SPDX-License-Identifier: Apache-2.0
"""Collective operations: redistribution and FSDP state dicts over four ranks (threads; MPI processes if MPI is
installed), beside PyTorch over four gloo processes. Each repetition counts its slowest rank. Both sides run in
separate processes. Also the plan of a save by up to 128 ranks, and by simulated ranks, for docs/scale.md."""
import shutil
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
RANKS = 4


def sides(bench, case, peers):
    ours = {f"shardmesh, {RANKS} threads": [bench.build / "bin" / "shardmesh_rank_bench", case]}
    program, launcher = bench.build / "bin" / "shardmesh_rank_mpi_bench", shutil.which("mpirun")
    if program.exists() and launcher and case != "fsdp":
        ours[f"shardmesh, {RANKS} MPI processes"] = [launcher, "--oversubscribe", "--allow-run-as-root", "-n", RANKS,
                                                     program, case]
    if case == "fsdp":
        ours["shardmesh, part by part to a visitor"] = [bench.build / "bin" / "shardmesh_rank_bench", "fsdp_stream"]
    return ours | {name: [sys.executable, HERE / "torch_ranks.py", peer] for name, peer in peers.items()}


def compare(bench, title, case, size, peers, blocks=2):
    lines = sides(bench, case, peers)
    if bench.only_counts:
        lines, blocks = {name: line for name, line in lines.items() if name.startswith("shardmesh") and "MPI" not in name}, 1
    found = {name: {"seconds": [], "first": [], "extra": []} for name in lines}
    for _ in range(blocks):
        for name, line in lines.items():
            said = bench.json_of([*line, size, max(3, (bench.runs + 1) // blocks)])
            found[name]["seconds"] += said["seconds"]
            found[name]["first"].append(said["first_seconds"])
            found[name]["extra"].append(said["extra_bytes"])
    print(f"\n{title}")
    base = statistics.median(next(iter(found.values()))["seconds"])
    for name, of in found.items():
        if not name.startswith("shardmesh"):
            bench.note_ratio(f"{title}: {name}", next(iter(found.values()))["seconds"], of["seconds"])
        median = statistics.median(of["seconds"])
        print(f"  {name:<44} {median * 1e3:9.3f} ms ({min(of['seconds']) * 1e3:.3f}..{max(of['seconds']) * 1e3:.3f}, "
              f"{len(of['seconds'])} runs)  x{median / base:.1f}   first call {min(of['first']) * 1e3:.1f} ms"
              + (f", {min(of['extra']) / MIB:.0f} MiB of memory" if case == "fsdp" else ""), flush=True)


def redistribute(case, text, size):
    def run(bench):
        compare(bench, f"{text} of {size // MIB} MiB float32, {RANKS} ranks" if size >= MIB else
                f"{text} of {size // 1024} KiB float32, {RANKS} ranks", case, size,
                {f"DTensor.redistribute, {RANKS} gloo processes": case})
    return run


def fsdp(bench):
    compare(bench, f"sharded state dict of an FSDP model of 1 GiB, {RANKS} ranks", "fsdp", 1024 * MIB,
            {f"FSDP1 SHARDED_STATE_DICT, {RANKS} gloo processes": "fsdp1",
             "FSDP2 get_model_state_dict (views, no new tensors)": "fsdp2"}, blocks=1)


def save_plan(bench):
    if bench.only_counts:  # the counts of a hundred threads vary
        return
    print("\nplan of a save of 1,000 tensors cut by rows; the ranks are threads of one process")
    for ranks in (16, 64, 128):
        said = bench.json_of([bench.build / "bin" / "shardmesh_rank_bench", "save_plan", 1000, 3, "--ranks", ranks])
        print(f"  {ranks:>4} ranks  {statistics.median(said['seconds']):9.3f} s   first call {said['first_seconds']:.3f} s, "
              f"{said['extra_bytes'] / MIB:.0f} MiB of memory in all", flush=True)


def simulated(bench):
    """Prints the rows of a table as docs/scale.md writes it."""
    if bench.only_counts:  # thousands of threads
        return
    print("\nplan of a DCP save of 1,000 tensors by simulated ranks; a tensor has at most 1,024 shards, and replicas")
    print("| ranks | shards | time here | memory of all ranks | critical path | messages | bytes | all_gathers | rank 0's bytes |")
    print("|---|---|---|---|---|---|---|---|---|")
    for ranks in (1024, 4096, 16384):
        shards = min(ranks, 1024)
        said = bench.json_of([bench.build / "bin" / "shardmesh_simulated_bench", ranks, 1000, shards])
        print(f"| {ranks:,} | {shards:,} | {said['seconds']:.1f} s | {said['memory_bytes'] / MIB:,.0f} MiB "
              f"| {said['critical_path_seconds']:.2f} s | {said['other_messages']} | {said['other_bytes'] / 1e3:.0f} kB "
              f"| {said['other_gathered_bytes'] / 1e6:.2f} MB | {said['root_bytes'] / 1e6:,.0f} MB |", flush=True)
    bench.commands.pop(bench.row, None)  # the system calls of thousands of threads are not counted


TEXTS = {"rows_to_columns": "S(0) -> S(1)", "grid_swap": "S(0),S(1) -> S(1),S(0) on 2x2", "rows_to_all": "S(0) -> R"}
CASES = {f"ranks_{case}_{label}": redistribute(case, text, size)
         for case, text in TEXTS.items() for label, size in (("64m", 64 * MIB), ("64k", 64 * 1024))}
CASES["ranks_fsdp"] = fsdp
CASES["ranks_save_plan"] = save_plan
CASES["ranks_simulated"] = simulated
