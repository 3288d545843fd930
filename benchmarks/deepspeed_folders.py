# SPDX-License-Identifier: Apache-2.0
"""Converts a folder of ZeRO 3 into one file. As commands: `shardmesh convert`, which is durable, beside
zero_to_fp32.py, which DeepSpeed puts into every folder and which is not; then both into a file system in memory.
Both are whole processes, with their peak memory. As functions in a process, without imports: durably, beside plain
writes of as many bytes, which is the disk's time; and without an fsync on either side. Without DeepSpeed the case
reports that it is skipped. As a script: the peer, and the sample (both need PyTorch)."""
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MIB = 1 << 20
WORLD, COUNT = 8, 64


def make(folder, size):
    """Writes what 8 ranks of ZeRO 3 save of `size` bytes of weights, in the form of DeepSpeed 0.19."""
    import torch
    step = Path(folder) / "global_step1"
    step.mkdir(parents=True)
    rows = size // 4 // COUNT // 1024
    shapes = {f"layers.{i}.weight": torch.Size([rows, 1024]) for i in range(COUNT)}
    for rank in range(WORLD):
        generator = torch.Generator().manual_seed(rank)
        flat = [torch.rand(sum(-(-s.numel() // WORLD) for s in shapes.values()), generator=generator) for _ in range(3)]
        torch.save({"module": {name: torch.empty(0) for name in shapes}, "buffer_names": [], "param_shapes": [shapes],
                    "shared_params": {}, "frozen_param_shapes": None, "frozen_param_fragments": None, "ds_version": "0.19.8",
                    "global_steps": 1}, step / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
        torch.save({"optimizer_state_dict": {
            "zero_stage": 3, "partition_count": WORLD, "fp32_flat_groups": flat[:1],
            "optimizer_state_dict": {"state": {0: {"step": torch.tensor(1.0), "exp_avg": flat[1], "exp_avg_sq": flat[2]}},
                                     "param_groups": []}}}, step / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    (Path(folder) / "latest").write_text(step.name)


def merge(folder, target, durable):
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    from safetensors.torch import save_file
    begin = time.perf_counter()
    save_file(get_fp32_state_dict_from_zero_checkpoint(folder), target)
    if durable:
        with open(target, "rb") as file:
            os.fsync(file.fileno())
    print(time.perf_counter() - begin)


def run(line, counts_itself):
    """Returns (seconds, peak resident bytes) of a process, which may print its seconds last."""
    begin = time.perf_counter()
    process = subprocess.Popen([str(a) for a in line], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{line[0]} exits {process.returncode}")
    return float(printed.split()[-1]) if counts_itself else seconds, usage.ru_maxrss * 1024


def case(size):
    def zero3(bench):
        if subprocess.run([sys.executable, "-c", "import deepspeed.utils.zero_to_fp32"], capture_output=True).returncode != 0:
            print("\nskipped: DeepSpeed cannot be imported")
            return
        folder, target = bench.work / f"zero3_{size // MIB}", bench.work / "merged.safetensors"
        if not (folder / "latest").exists():
            subprocess.run([sys.executable, __file__, "make", folder, str(size)], check=True)
        whole = bench.work / "merged"
        peaks = {"ours": [], "command": [], "theirs": []}

        def side(name, line, written=target):
            def timed(repeat):
                runs = [run(line, name == "theirs") for _ in range(repeat)]
                peaks[name].extend(peak for _, peak in runs)
                return {"bytes": written.stat().st_size, "seconds": [seconds for seconds, _ in runs]}
            return timed
        title = f"ZeRO 3 of {WORLD} ranks, {size // MIB} MiB of weights, into one safetensors file"
        convert = [bench.tool, "convert", folder, target, "--no-optimizer", "--force", "--threads", bench.threads]
        bench.note_command("shardmesh convert --no-optimizer", convert)
        ours, _, _, plain = bench.compare(f"{title}, durably but for zero_to_fp32.py itself", folder, {
            "shardmesh convert --no-optimizer (whole process)": side("ours", convert),
            "zero_to_fp32.py (whole process)": side("command", [
                sys.executable, "-m", "deepspeed.utils.zero_to_fp32", folder, whole, "--safe_serialization",
                "--max_shard_size", "100GB"]),
            "its function + save_file + fsync (imports not counted)": side("theirs", [
                sys.executable, __file__, "merge", folder, target, "durable"]),
            f"plain pwrite of as many bytes + fsync, {bench.threads} threads": bench.ours("plain_write", target)})
        print(f"  {ours / plain:.2f} of the time of the plain writes")
        with tempfile.TemporaryDirectory(prefix="shardmesh-bench-", dir="/dev/shm") as memory:  # no disk to wait for
            merged = Path(memory) / "merged.safetensors"
            bench.compare(f"{title}, as commands, into a file system in memory", folder, {
                "shardmesh convert --no-optimizer --no-sync": side("ours", [
                    bench.tool, "convert", folder, merged, "--no-optimizer", "--force", "--no-sync", "--threads", bench.threads],
                    merged),
                "zero_to_fp32.py": side("command", [
                    sys.executable, "-m", "deepspeed.utils.zero_to_fp32", folder, Path(memory) / "theirs", "--safe_serialization",
                    "--max_shard_size", "100GB"])})
        print("  peak resident memory: " + ", ".join(f"{name} {max(of) / MIB:.0f} MiB" for name, of in peaks.items() if of))
        bench.compare(f"{title}, without fsync, imports not counted", folder, {
            "shardmesh::convert, checksums": bench.ours("convert_cached", folder),
            "zero_to_fp32.py's function + save_file": side("theirs", [sys.executable, __file__, "merge", folder, target, "cached"])})
        shutil.rmtree(whole, ignore_errors=True)
        target.unlink(missing_ok=True)
    return zero3


CASES = {"zero3_1g": case(1 << 30), "zero3_64m": case(1 << 26)}

if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]))
    else:
        merge(sys.argv[2], sys.argv[3], sys.argv[4] == "durable")
