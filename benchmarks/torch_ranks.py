# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of benchmarks/ranks.py: N gloo processes redistribute a DTensor, or make the sharded state dict of an FSDP
model; one line of JSON. Usage: torch_ranks.py CASE BYTES REPEAT [--ranks N]"""
import argparse
import json
import tempfile
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as multiprocessing  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard  # noqa: E402

MOVES = {"rows_to_columns": ([Shard(0)], [Shard(1)]), "rows_to_all": ([Shard(0)], [Replicate()]),
         "grid_swap": ([Shard(0), Shard(1)], [Shard(1), Shard(0)])}


def resident(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return 1024 * int(line.split()[1])
    return 0


def redistribution(case, size, ranks):
    source, target = MOVES[case]
    side = 1
    while side * side * 4 < size:
        side *= 2
    shape = (size // 4 // side, side)
    mesh = dist.init_device_mesh("cpu", (ranks,) if len(source) == 1 else (2, ranks // 2))
    local = torch.ones(shape[0] // mesh.shape[0], shape[1] // (mesh.shape[1] if len(source) == 2 else 1))
    tensor = DTensor.from_local(local, mesh, source, run_check=False)
    return lambda: tensor.redistribute(mesh, target)


def layers(size):
    return torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(size // (64 << 20))])


def fsdp1(size, ranks):
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardedStateDictConfig, StateDictType
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    mesh = dist.init_device_mesh("cpu", (ranks,))
    model = FullyShardedDataParallel(layers(size), auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear}),
                                     device_id=torch.device("cpu"), device_mesh=mesh)
    FullyShardedDataParallel.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig())
    return model.state_dict


def fsdp2(size, ranks):
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.fsdp import fully_shard
    mesh = dist.init_device_mesh("cpu", (ranks,))
    model = layers(size)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return lambda: get_model_state_dict(model)


def slowest(act):
    dist.barrier()
    begin = time.perf_counter()
    kept = act()
    own = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
    del kept
    dist.all_reduce(own, op=dist.ReduceOp.MAX)
    return own.item()


def member(rank, case, size, repeat, ranks, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks)
    with torch.no_grad():
        act = {"fsdp1": fsdp1, "fsdp2": fsdp2}[case](size, ranks) if case.startswith("fsdp") else redistribution(case, size, ranks)
        Path("/proc/self/clear_refs").write_text("5")
        before = resident("VmRSS:")
        first = slowest(act)
        extra = torch.tensor([resident("VmHWM:") - before])
        dist.all_reduce(extra)
        seconds = [slowest(act) for _ in range(repeat)]
    if rank == 0:
        print(json.dumps({"seconds": seconds, "first_seconds": first, "extra_bytes": extra.item()}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=[*MOVES, "fsdp1", "fsdp2"])
    parser.add_argument("bytes", type=int)
    parser.add_argument("repeat", type=int)
    parser.add_argument("--ranks", type=int, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(member, (given.case, given.bytes, given.repeat, given.ranks, folder), nprocs=given.ranks)


if __name__ == "__main__":
    main()
