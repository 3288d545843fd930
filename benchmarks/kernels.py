# SPDX-License-Identifier: Apache-2.0
"""The benchmark kernels: batches on Kokkos and on the host's backend, beside a STREAM-like copy of as many bytes,
Kokkos::deep_copy (one process, the same buffers, alternating), and PyTorch (a separate process, the same sizes)."""
import statistics
import sys
from pathlib import Path

from redistribute import lines_of

HERE = Path(__file__).resolve().parent


def ratio(row, base, side):
    """Returns the speed relative to `base`, from the medians, with the spread over the runs."""
    each = sorted(b / s for b, s in zip(row[base], row[side]))
    return f"{statistics.median(row[base]) / statistics.median(row[side]):5.2f} ({each[0]:.2f}..{each[-1]:.2f})"


def kernels(bench):
    program = bench.build / "bin" / "shardmesh_kernels_bench"
    if not program.exists():
        print("\nkernels: skipped, this build has no Kokkos")
        return
    if bench.only_counts:
        return
    runs = max(9, bench.runs)
    ours = lines_of([program, "--threads", bench.threads, "--runs", runs])
    peer = {row["case"]: row for row in lines_of([sys.executable, HERE / "kernels_torch.py", "--threads", bench.threads,
                                                  "--runs", runs])}
    print(f"\nkernels on Kokkos's {ours[0]['space']}, {ours[0]['threads']} threads: times as fast as what stands above, median of "
          f"{runs} (least..most)\n  {'':<34}{'copy':>10}   {'kokkos: the copy':>18}   {'host: the copy':>18}"
          f"   {'kokkos: deep_copy':>18}   {'kokkos: PyTorch':>18}   {'host: PyTorch':>18}")
    for row in ours:
        if "call" in row:
            print(f"  a cached call, {row['call']}: {row['run_us']:.2f} us, {row['allocations']} allocations; memcpy of the same "
                  f"{row['memcpy_us']:.2f} us, an empty launch {row['launch_us']:.2f} us", flush=True)
        if "case" not in row:
            continue
        row["torch"] = peer.get(row["case"], {}).get("torch")
        for side, base in (("kokkos", "torch"), ("host", "torch"), ("kokkos", "stream"), ("host", "stream")):
            if row.get(base):
                bench.note_ratio(f"{row['case']}: {side} / {base}", row[side], row[base])
        fields = [ratio(row, "stream", "kokkos"), ratio(row, "stream", "host"),
                  ratio(row, "deep_copy", "kokkos") if "deep_copy" in row else "",
                  ratio(row, "torch", "kokkos") if row["torch"] else "", ratio(row, "torch", "host") if row["torch"] else ""]
        speed = row["moved"] / statistics.median(row["stream"]) / 1e9
        print(f"  {row['case']:<34}{speed:5.1f} GB/s" + "".join(f"   {field:>18}" for field in fields), flush=True)


CASES = {"kernels": kernels}
