# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/writers/torchsnapshot with the package torchsnapshot (0.1.0): snapshots of one process and of
three, each with PyTorch's reading of its tensors in expected.json. Besides PyTorch, needs the packages torchsnapshot,
psutil, aiofiles, nest-asyncio 1.5, and importlib-metadata 7.

    make_torchsnapshot.py OUT [SEED [RANKS]]
"""
import json
import os
import shutil
import sys
import warnings
from collections import OrderedDict
from pathlib import Path

warnings.filterwarnings("ignore")
import torch
import torch.distributed as dist
import torch.multiprocessing as mp



def hexed(tensor):
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy()).hex() if tensor.numel() else ""


def described(tensor):
    return {"dtype": str(tensor.dtype)[6:], "shape": list(tensor.shape), "bytes": hexed(tensor)}


def one_process(seed):
    torch.manual_seed(seed)
    dtypes = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
              torch.uint8, torch.complex64, torch.complex128]
    tensors = {str(t)[6:]: (100 * torch.randn(3, 5)).to(t) for t in dtypes}
    tensors["bfloat16"] = torch.randn(4, 6).to(torch.bfloat16)  # for an odd element count, two bytes are not written
    tensors["bool"] = torch.randn(7) > 0
    tensors["scalar"] = torch.tensor(2.5)
    tensors["transposed"] = torch.randn(4, 6).t()
    tensors["a/b%c.d"] = torch.arange(3)
    tensors["large"] = torch.randn(13, 11)  # larger than a chunk
    return {"tensors": tensors,
            "nested": {"list": [torch.ones(2), {"x": torch.zeros(1)}, 5], 3: OrderedDict(k=torch.full((2,), 7.0))},
            "plain": {"int": -3, "big": 1 << 80, "float": 0.1, "nan": float("nan"), "str": "gr\u00fc\u00dfe/%", "bool": True,
                      "bytes": b"\x00\xff", "none": None, "tuple": (1, "a"), "empty_dict": {}, "empty_list": []},
            "tied": {"a": tensors["float32"], "b": tensors["float32"]}}


def expected_of(state):
    found = {}

    def walk(path, value):
        if isinstance(value, torch.Tensor):
            found[".".join(path)] = described(value)
        elif isinstance(value, dict):
            for key, part in value.items():
                walk(path + [str(key)], part)
        elif isinstance(value, list):
            for i, part in enumerate(value):
                walk(path + [str(i)], part)
    for key, value in state.items():
        walk([key], value)
    return found


def write_one(out, batched, seed):
    from torchsnapshot import Snapshot, StateDict
    from torchsnapshot.knobs import override_is_batching_disabled, override_max_chunk_size_bytes
    state = one_process(seed)
    if batched:
        state = {"tensors": {k: state["tensors"][k] for k in ("float32", "bfloat16", "int64", "scalar")}, "plain": {"epoch": 3}}
    with override_is_batching_disabled(not batched), override_max_chunk_size_bytes(300):
        Snapshot.take(str(out), {key: StateDict(**{str(k): v for k, v in value.items()}) if key != "nested" else
                                 StateDict(all=value) for key, value in state.items()})
    if "nested" in state:
        state["nested"] = {"all": state["nested"]}
    return {"world_size": 1, "tensors": expected_of(state)}


def rank_state(rank, seed, world):
    """Replicated values, each rank's shards, and values of one rank only."""
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec
    torch.manual_seed(seed)
    whole = {"rows": torch.randn(7, 3), "columns": torch.randn(2, 8).to(torch.bfloat16), "short": torch.arange(5.0)}
    dims = {"rows": 0, "columns": 1, "short": 0}
    sharded = {}
    for name, tensor in whole.items():
        spec = ChunkShardingSpec(dim=dims[name], placements=[f"rank:{r}/cpu" for r in range(world)])
        made = sharded_tensor.zeros(spec, *tensor.shape, dtype=tensor.dtype)
        for shard in made.local_shards():
            box = tuple(slice(o, o + s) for o, s in zip(shard.metadata.shard_offsets, shard.metadata.shard_sizes))
            shard.tensor.copy_(tensor[box])
        sharded[name] = made
    return whole, sharded, {"same": torch.arange(6).reshape(2, 3), "step": 12}, {"own": torch.full((2, rank + 1), float(rank)),
                                                                                "rank": rank}


def write_rank(rank, out, port, seed, world):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    from torchsnapshot import Snapshot, StateDict
    whole, sharded, replicated, own = rank_state(rank, seed, world)
    Snapshot.take(str(out), {"sharded": StateDict(**sharded), "replicated": StateDict(**replicated), "own": StateDict(**own)},
                  replicated=["replicated/**"])
    dist.barrier()
    if rank == 0:
        expected = {"sharded." + k: described(v) for k, v in whole.items()}
        expected["replicated.same"] = described(replicated["same"])
        for r in range(world):
            expected[f"rank_{r}.own.own"] = described(torch.full((2, r + 1), float(r)))
        Path(str(out) + ".json").write_text(json.dumps({"world_size": world, "tensors": expected}))
    dist.destroy_process_group()


def main():
    out = Path(sys.argv[1])
    seed, world = (int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((2, 1), (3, 3)))
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    everything = {}
    for name in ("one", "batched"):
        everything[name] = write_one(out / name, name == "batched", seed)
    mp.spawn(write_rank, args=(out / "ranks", 29731, seed, world), nprocs=world)
    answers = out / "ranks.json"
    everything["ranks"] = json.loads(answers.read_text())
    answers.unlink()
    (out / "expected.json").write_text(json.dumps(everything, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
