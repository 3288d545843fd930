# SPDX-License-Identifier: Apache-2.0
"""`./dev bench --against BUILD`: runs the programs of two builds in alternation, to measure the cost of a change of
ours. It has rows of one kind each, and no peers. BUILD is the build folder of another checkout."""
import statistics
import sys
from pathlib import Path

import redistribute
import validate

RANKS = ("rows_to_columns", "grid_swap", "rows_to_all")


def seconds_of(said):
    return said["seconds"] if "seconds" in said else [one * 1e-6 for one in said["microseconds"]]


def rows(bench):
    """Returns two dicts from names to functions of a build. Functions of the first return a list of seconds; those of
    the second return the seconds of each case."""
    folder, file, chunks = bench.sample(200), bench.safetensors_sample(), bench.chunk_sample(200_000)
    threads = ["--threads", bench.threads]

    def program(name, *arguments):
        return lambda build: seconds_of(bench.json_of([build / "bin" / name, *arguments]))

    def lines(only, field, unit):
        def run(build):
            out = redistribute.lines_of([build / "bin" / "shardmesh_redistribute_bench", "--only", only, "--repeat", 5])
            return {row["case"] + (f", {row['bytes'] // 1024} KiB" if "bytes" in row else ""): row[field] * unit
                    for row in out if field in row}
        return run

    single = {f"tree: {step}": program("shardmesh_tree_bench", step, "--repeat", 3)
              for step in ("names_flatten", "names_unflatten", "leaves_flatten", "leaves_unflatten")}
    for case in ("load", "columns_at_once", "columns"):
        single[f"{case}, 1 GiB in 200 tensors"] = program("shardmesh_bench", case, folder, "--repeat", 2, *threads)
    for case in ("load", "convert_cached"):
        single[f"safetensors: {case}, 1 GiB"] = program("shardmesh_bench", case, file, "--repeat", 2, *threads)
    single["inspect, 200,000 chunks"] = lambda build: [
        bench.shardmesh("inspect", chunks, "--limit", 1, tool=build / "bin" / "shardmesh")[0]]
    for name in ("validate_grid", "validate_1m_rows", "validate_1m_cuts"):
        made = (validate.LAYOUTS | validate.MILLIONS)[name][1]
        path = validate.sample(bench, name, made)
        single[name] = program("shardmesh_validate_bench", "cover", path, "--repeat", 3)
    for case in RANKS:
        for size in (64 << 20, 64 << 10):
            single[f"ranks: {case}, {size >> 10} KiB"] = program("shardmesh_rank_bench", case, size, 5)
    many = {"plan, cold": lines("plan", "cold_ms", 1e-3), "plan from a cache": lines("plan", "cached_plan_ms", 1e-3),
            "redistribute": lines("run", "ours_ms", 1e-3)}
    return single, many


def against(bench, other, rounds=5):
    single, many = rows(bench)
    builds = {"before": other, "now": bench.build}
    print(f"\nbefore: the build given; {rounds} alternating rounds; medians")
    print(f"  {'':<62}{'before':>12}{'now':>12}   now / before (least / least)")

    def show(name, times):
        before, now = (statistics.median(times[side]) for side in builds)
        least = min(times["now"]) / min(times["before"])
        print(f"  {name:<62}{before * 1e3:9.3f} ms{now * 1e3:9.3f} ms   {now / before:.2f} ({least:.2f})", flush=True)

    for name, run in single.items():
        times = {side: [] for side in builds}
        try:
            for _ in range(rounds):
                for side, build in builds.items():
                    times[side] += run(build)
        except RuntimeError as problem:
            print(f"  {name}: FAILED: {problem}", file=sys.stderr)
            bench.failed.append(name)
            continue
        show(name, times)
    for name, run in many.items():
        times = {}
        for _ in range(rounds):
            for side, build in builds.items():
                for case, seconds in run(build).items():
                    times.setdefault(case, {one: [] for one in builds})[side].append(seconds)
        for case, of in times.items():
            if all(of.values()):
                show(f"{name}: {case}"[:61], of)


def build_of(text):
    build = Path(text).resolve()
    if not (build / "bin" / "shardmesh_bench").is_file():
        raise SystemExit(f"{build} has no bin/shardmesh_bench: run ./dev bench --list in that checkout")
    return build
