# SPDX-License-Identifier: Apache-2.0
"""shardmesh.redistribute beside DTensor.redistribute on gloo processes, in turns in one run:
redistribute_ranks.py RANKS --repeat N. A line of JSON for each case: {"case", "bytes", "ours": [seconds], "theirs": [...]}:
of each repetition the slowest rank's."""
import argparse
import json
import logging
import multiprocessing
import os
import tempfile
import time
import warnings

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh

import shardmesh

SIDES = (128, 512, 2048, 8192)  # of square matrices in float32: 64 KiB to 256 MiB


def once(call):
    dist.barrier()
    begin = time.perf_counter()
    call()
    mine = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    return mine.item()


def member(rank, ranks, store, repeat):
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    for side in SIDES:
        tensor = DTensor.from_local(torch.ones(side // ranks, side), mesh, [Shard(0)], run_check=False)
        for name, placements in (("rows to columns", [Shard(1)]), ("rows to all", [Replicate()])):
            sides = {"ours": lambda: shardmesh.redistribute(tensor, mesh, placements),
                     "theirs": lambda: tensor.redistribute(mesh, placements)}
            times = {key: [] for key in sides}
            for _ in range(2 + repeat * (5 if side <= 512 else 1)):
                for key, call in sides.items():
                    times[key].append(once(call))
            if rank == 0:
                print(json.dumps({"case": name, "bytes": 4 * side * side,
                                  **{key: all_times[2:] for key, all_times in times.items()}}), flush=True)
    dist.barrier()
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ranks", type=int)
    parser.add_argument("--repeat", type=int, default=7)
    given = parser.parse_args()
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        members = [context.Process(target=member, args=(rank, given.ranks, f"{folder}/store", given.repeat))
                   for rank in range(given.ranks)]
        for one in members:
            one.start()
        for one in members:
            one.join()
    raise SystemExit(max(abs(one.exitcode) for one in members))


if __name__ == "__main__":
    main()
