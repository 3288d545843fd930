# SPDX-License-Identifier: Apache-2.0
"""Loads a folder with the package torch_checkpointing itself, into plain tensors (one rank) or randomly sharded
DTensors (more ranks), and compares every element with expected.json. Items that metadata.pkl does not describe are read
as they are. Run by checkpointing_folders.py in its full mode, and by hand. Needs PyTorch and torch_checkpointing.

Usage: load_torch_checkpointing.py FOLDER EXPECTED_JSON WORLD_SIZE [SEED]"""
import hashlib
import json
import os
import pickle
import random
import sys
import tempfile
import warnings
from pathlib import Path

from make_torch_checkpointing import nested


def raw(tensor):
    import torch
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def leaves(value, where=()):
    if isinstance(value, dict):
        return [leaf for key, below in value.items() for leaf in leaves(below, (*where, key))]
    if isinstance(value, list):
        return [leaf for i, below in enumerate(value) for leaf in leaves(below, (*where, i))]
    return [(where, value)]


def templates(described, mesh, world, dice):
    """Tensors of zeros that the package fills: for each path of each item."""
    import torch
    from torch.distributed.tensor import DTensor, Replicate, Shard
    made = {}
    for item, parts in described["metadata"].items():
        flat = {}
        for path, groups in parts["nested_path_to_metadata"].items():
            data = groups[0]["sharding_metadata"]["data"]
            shape, dtype = data["global_shape"], getattr(torch, data["dtype"][6:])
            dim = dice.choice([None, *range(len(shape))])
            local = torch.zeros(shape, dtype=torch.uint8).to(dtype)
            if world > 1 and 0 not in shape:
                placement = Replicate() if dim is None else Shard(dim)
                if dim is not None:
                    pieces = list(torch.chunk(torch.zeros(shape[dim]), world))
                    count = len(pieces[mesh.get_rank()]) if mesh.get_rank() < len(pieces) else 0
                    local = torch.zeros([*shape[:dim], count, *shape[dim + 1:]], dtype=torch.uint8).to(dtype)
                stride = torch.empty(shape, device="meta").stride()
                local = DTensor.from_local(local, mesh, [placement], run_check=False, shape=torch.Size(shape), stride=stride)
            flat[tuple(json.loads(path))] = local
        made[item] = nested(flat)
    return made


def part_of(value):
    """The global shape, the offsets, and this rank's elements."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
    if not isinstance(value, DTensor):
        return list(value.shape), [0] * value.dim(), value
    _, offsets = compute_local_shape_and_global_offset(value.shape, value.device_mesh, value.placements)
    return list(value.shape), list(offsets), value.to_local()


def work(rank, folder, expected, world, seed, store):
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch_checkpointing.checkpoint_manager import CheckpointManager
    from torch_checkpointing.config import SyncCheckpointSaverConfig
    from torch_checkpointing.default_resharder import DefaultResharder
    from torch_checkpointing.schema import ItemSpec
    from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig
    warnings.simplefilter("ignore")
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    described = pickle.loads((folder / "metadata.pkl").read_bytes())
    into = templates(described, mesh, world, random.Random(seed))
    manager = CheckpointManager(CheckpointManager.Config(
        items={item: ItemSpec(resharder=DefaultResharder()) for item in into}, save=SyncCheckpointSaverConfig(),
        storage_config=LocalFileSystemStorageConfig(use_direct_io=False)))
    loaded = manager.load(str(folder), into, strict=True)
    manager.close()
    mine = {".".join(map(str, where)): part_of(value) for where, value in leaves(dict(loaded))}
    everyone = [None] * world
    dist.all_gather_object(everyone, {key: (shape, offsets, list(part.shape), str(part.dtype)[6:], raw(part)) for key, (shape, offsets, part) in mine.items()})
    if rank == 0:
        wrong = []
        for key, tensor in expected["tensors"].items():
            if key not in mine:  # its item has no metadata
                continue
            whole = torch.zeros(tensor["shape"], dtype=torch.uint8).to(getattr(torch, tensor["dtype"]))
            for shape, offsets, sizes, dtype, elements in (one[key] for one in everyone):
                if elements:
                    part = torch.frombuffer(bytearray(elements), dtype=getattr(torch, dtype)).reshape(sizes)
                    whole[tuple(slice(o, o + s) for o, s in zip(offsets, sizes))] = part
            if hashlib.sha256(raw(whole)).hexdigest() != tensor["sha256"]:
                wrong.append(key)
        unknown = sorted(set(mine) - set(expected["tensors"]))
        print(json.dumps({"compared": len(set(mine) & set(expected["tensors"])), "wrong": wrong, "unknown": unknown}))
    dist.barrier()
    dist.destroy_process_group()


def main():
    import torch.multiprocessing as processes
    folder, expected, world = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()), int(sys.argv[3])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    with tempfile.TemporaryDirectory() as scratch:
        processes.spawn(work, args=(folder, expected, world, seed, Path(scratch) / "store"), nprocs=world)


if __name__ == "__main__":
    main()
