# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/writers/torch_ranks: rank files that torch.save wrote, with DTensors, ShardedTensors, and FSDP1's
flat parameters; and their whole tensors, from plain PyTorch.

Usage: make_rank_files.py FOLDER [CASE] [SEED]. Each case is CASE/checkpoint/* and CASE/expected.json: {KEY:
{"dtype", "shape", "sha256"}}.
"""
import json
import os
import shutil
import socket
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

sys.path.insert(0, str(Path(__file__).parent))
from writer_answers import described  # noqa: E402


def dtensor_state(world, seed):
    """Uneven rows and columns, empty shards, a scalar, an empty tensor, several dtypes, replicas, nested keys."""
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))
    make = torch.Generator().manual_seed(seed)
    full = {"rows": torch.randn(2 * world + 1, 3, generator=make), "columns": torch.randn(2, world + 2, generator=make),
            "few": torch.randn(2, 3, generator=make).to(torch.bfloat16), "one": torch.randn(1, generator=make),
            "empty": torch.empty(0, 3), "scalar": torch.tensor(1.25, dtype=torch.float64),
            "whole": torch.arange(5, dtype=torch.int64), "mask": torch.tensor([True, False, True, True, False])}
    placement = {"rows": Shard(0), "columns": Shard(1), "few": Shard(0), "one": Shard(0), "empty": Shard(0),
                 "scalar": Replicate(), "whole": Replicate(), "mask": Shard(0)}
    held = {key: distribute_tensor(value, mesh, [placement[key]]) for key, value in full.items()}
    expected = {f"model.{key}": value for key, value in full.items()} | {"plain": torch.ones(3)}
    return {"model": held, "plain": torch.ones(3), "step": 7, "rng_state": torch.tensor([dist.get_rank()])}, expected


def mesh_state(world, seed):
    """Two mesh dimensions: FSDP over tensor parallelism (strided shards), HSDP, both on one dimension."""
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp", "tp"))
    from torch.distributed.tensor.placement_types import _StridedShard
    make = torch.Generator().manual_seed(seed)
    full = {"both": torch.randn(5, 7, generator=make), "hsdp": torch.randn(7, 2, generator=make),
            "nested": torch.randn(11, 2, generator=make), "strided": torch.randn(8 * (world // 2), 2, generator=make),
            "tp": torch.randn(3, 5, generator=make)}
    placements = {"both": [Shard(0), Shard(1)], "hsdp": [Replicate(), Shard(0)], "nested": [Shard(0), Shard(0)],
                  "strided": [_StridedShard(0, split_factor=world // 2), Shard(0)]}
    held = {key: distribute_tensor(full[key], mesh, value) for key, value in placements.items()}
    held["tp"] = distribute_tensor(full["tp"], mesh["tp"], [Shard(1)])
    return held, full


def partial_state(world, seed):
    mesh = init_device_mesh("cpu", (world,))
    return {"sum": DTensor.from_local(torch.ones(2) * dist.get_rank(), mesh, [Partial()]), "w": torch.ones(2)}, {}


def sharded_state(world, seed):
    """ShardedTensors of a chunk specification, and of shards that each rank supplied."""
    from torch.distributed._shard import sharded_tensor, sharding_spec
    places = [f"rank:{i}/cpu" for i in range(world)]
    make = torch.Generator().manual_seed(seed)
    rows, columns = torch.randn(2 * world - 1, 3, generator=make), torch.randn(2, world + 1, generator=make)
    held = {}
    for key, tensor, dim in (("rows", rows, 0), ("columns", columns, 1)):
        spec = sharding_spec.ChunkShardingSpec(dim=dim, placements=places)
        held[key] = sharded_tensor.empty(spec, *tensor.shape)
        for shard in held[key].local_shards():
            at = tuple(slice(o, o + s) for o, s in zip(shard.metadata.shard_offsets, shard.metadata.shard_sizes))
            shard.tensor.copy_(tensor[at])
    return held, {"rows": rows, "columns": columns}


def flat_state(world, seed):
    """FSDP1's LOCAL_STATE_DICT: one flat parameter, padded to the number of ranks."""
    from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType
    torch.manual_seed(seed)
    model = torch.nn.Linear(5, 3)
    flat = torch.cat([model.weight.detach().reshape(-1), model.bias.detach()])
    wrapped = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    with FullyShardedDataParallel.state_dict_type(wrapped, StateDictType.LOCAL_STATE_DICT):
        state = wrapped.state_dict()
    return dict(state), {key: flat for key in state}


CASES = {"dtensors_2": (2, dtensor_state, "model_world_size_2_rank_{}.pt"),
         "dtensors_3": (3, dtensor_state, "model_world_size_3_rank_{}.pt"),
         "dtensors_1": (1, dtensor_state, "model_world_size_1_rank_{}.pt"),
         "mesh_2x2": (4, mesh_state, "ep0-ba1-rank{}.pt"), "mesh_2x3": (6, mesh_state, "rank_{}.pt"),
         "sharded_2": (2, sharded_state, "rank{}.pt"), "sharded_3": (3, sharded_state, "rank{}.pt"),
         "flat_2": (2, flat_state, "pytorch_model_fsdp_rank{}.bin"),
         "partial_2": (2, partial_state, "rank_{}.pt")}
COMMITTED = ("dtensors_2", "mesh_2x2", "sharded_2", "partial_2")


def run(rank, world, port, folder, case, seed):
    dist.init_process_group("gloo", rank=rank, world_size=world, init_method=f"tcp://127.0.0.1:{port}")
    _, state, name = CASES[case]
    held, expected = state(world, seed)
    torch.save(held, folder / "checkpoint" / name.format(rank))
    if rank == 0:
        answers = {key: described(value) for key, value in expected.items()}
        (folder / "expected.json").write_text(json.dumps(answers, indent=1) + "\n")
    dist.barrier()
    dist.destroy_process_group()


def make_case(top, case, seed=5):
    folder = Path(top) / case
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "checkpoint").mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(run, (CASES[case][0], port, folder, case, seed), CASES[case][0])


def main():
    cases = sys.argv[2:3] or COMMITTED
    for case in cases:
        make_case(sys.argv[1], case, int(sys.argv[3]) if len(sys.argv) > 3 else 5)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()
