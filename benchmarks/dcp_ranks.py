# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint on four gloo processes, with PyTorch's own reader and writer and with shardmesh's, in
turns in one run: dcp_ranks.py CASE FOLDER --repeat N. Prints {"seconds": {side: [seconds]}, "bytes": n}: of each
repetition the slowest rank's."""
import argparse
import json
import multiprocessing
import os
import shutil
import tempfile
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.placement_types import _StridedShard

import shardmesh.dcp

RANKS = 4
LAYERS = 16
WIDTH = 512  # of a layer's square blocks: 4 of them up, 4 down, in float32


def mesh(*shape):
    return DeviceMesh("cpu", torch.arange(RANKS).reshape(shape), _init_backend=False)


def parameter(sizes, local, on, placements):
    return DTensor.from_local(torch.randn(local), on, placements, run_check=False, shape=torch.Size(sizes),
                              stride=(sizes[1], 1))


def fsdp2():
    """Every matrix is sharded by rows over all ranks."""
    on, state = mesh(RANKS), {}
    for layer in range(LAYERS):
        for name, rows, columns in (("up", 4 * WIDTH, WIDTH), ("down", WIDTH, 4 * WIDTH)):
            for part in ("weight", "exp_avg", "exp_avg_sq"):
                state[f"{layer}.{name}.{part}"] = parameter((rows, columns), (rows // RANKS, columns), on, [Shard(0)])
    return state


def fsdp2_tp():
    """The layout of fully_shard over parallelize_module: columnwise and rowwise layers on a mesh of 2 x 2."""
    on, state = mesh(2, 2), {}
    for layer in range(LAYERS):
        for name, rows, columns, placements in (
                ("up", 4 * WIDTH, WIDTH, [_StridedShard(0, split_factor=2), Shard(0)]),
                ("down", WIDTH, 4 * WIDTH, [Shard(0), Shard(1)])):
            local = (rows // 4, columns) if name == "up" else (rows // 2, columns // 2)
            for part in ("weight", "exp_avg", "exp_avg_sq"):
                state[f"{layer}.{name}.{part}"] = parameter((rows, columns), local, on, placements)
    return state


def slowest(call, before):
    before()
    dist.barrier()
    begin = time.perf_counter()
    call()
    mine = torch.tensor([time.perf_counter() - begin])
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    return mine.item()


def fresh(folder):
    def remove():
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(folder, ignore_errors=True)
    return remove


def sides_of(case, folder):
    """Returns each side's name, its action, and the preparation before each measurement."""
    if case == "save":
        state = fsdp2_tp()
        return state, {
            "shardmesh.dcp.save": (lambda: shardmesh.dcp.save(state, checkpoint_id=f"{folder}/ours"), fresh(f"{folder}/ours")),
            "PyTorch's dcp.save": (lambda: dcp.save(state, checkpoint_id=f"{folder}/theirs"), fresh(f"{folder}/theirs"))}
    state = {"load": fsdp2_tp, "load_same": fsdp2}[case]()
    calls = {
        "shardmesh.dcp.load": lambda: shardmesh.dcp.load(state, checkpoint_id=f"{folder}/rows"),
        "dcp.load, shardmesh's reader": lambda: dcp.load(state, storage_reader=shardmesh.dcp.StorageReader(f"{folder}/rows")),
        "PyTorch's dcp.load": lambda: dcp.load(state, checkpoint_id=f"{folder}/rows")}
    return state, {name: (call, lambda: None) for name, call in calls.items()}


def member(rank, case, folder, repeat, store, pipe):
    os.environ.update(LOCAL_WORLD_SIZE=str(RANKS), GLOO_SOCKET_IFNAME="lo")
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    if case != "save" and not os.path.exists(f"{folder}/rows/.metadata"):
        dcp.save(fsdp2(), checkpoint_id=f"{folder}/rows")
    state, sides = sides_of(case, folder)
    times = {name: [] for name in sides}
    for turn in range(repeat + 1):
        for name, side in sides.items():
            times[name].append(slowest(*side))
    if rank == 0:
        size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
        # the first run warms the cache
        pipe.send({"seconds": {name: of[1:] for name, of in times.items()}, "bytes": size})
    dist.barrier()
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=("load", "load_same", "save"))
    parser.add_argument("folder")
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    os.makedirs(given.folder, exist_ok=True)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as store:
        members = [context.Process(target=member, args=(rank, given.case, given.folder, given.repeat, f"{store}/store",
                                                        theirs)) for rank in range(RANKS)]
        for process in members:
            process.start()
        theirs.close()
        print(json.dumps(ours.recv()))
        for process in members:
            process.join()


if __name__ == "__main__":
    main()
