# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/writers/torch_checkpointing: folders that the package torch_checkpointing writes, and the saved
values in plain PyTorch. Run by hand; its output is committed. Needs PyTorch and torch_checkpointing.

Usage: make_torch_checkpointing.py FOLDER [SEED]: with a seed, random shapes and meshes instead of the samples."""
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64",
          "complex128", "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64"]


def raw(tensor):
    import torch
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return bytes(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""


def described(tensor):
    return {"dtype": str(tensor.dtype)[6:], "shape": list(tensor.shape), "sha256": hashlib.sha256(raw(tensor)).hexdigest()}


def numbers(*shape, dtype="float32", start=0):
    import torch
    count = 1
    for size in shape:
        count *= size
    made = (torch.arange(start, start + count, dtype=torch.int64) * 37 % 251).reshape(shape)
    return made.to(getattr(torch, dtype))


# Contents of each case: (world size, mesh, {item: {path: (tensor, placements or None)}}, other items per rank,
# options).
def cases():
    import torch
    from torch.distributed.tensor import Replicate, Shard
    all_types = {("types", name): (numbers(3, 2, dtype=name), None) for name in DTYPES}
    yield "one_rank", (1,), {
        "model": {**all_types, ("scalar",): (numbers(dtype="float64", start=5), None), ("empty",): (torch.zeros(0, 4), None),
                  ("layers", 0, "weight"): (numbers(5, 3), None), ("layers", 1, "weight"): (numbers(7), None),
                  ("a.dotted.name",): (numbers(2, 2), None), ("turned",): (numbers(4, 3).t(), None)},
        "optimizer": {("state", "0", "exp_avg"): (numbers(5, 3, start=9), None), ("state", "0", "step"): (numbers(start=3), None)},
    }, {"model": {("config",): {"hidden": 16, "act": "gelu"}, ("sizes",): (1, 2, 3)},
        "optimizer": {("param_groups",): [{"lr": 0.1, "params": [0]}]},
        "step": {(): 7}, "rng": {("cpu",): numbers(16, dtype="uint8")}}, {}
    yield "mesh_2x2", (2, 2), {
        "model": {("rows",): (numbers(7, 5), [Shard(0), Replicate()]), ("both",): (numbers(5, 7, dtype="bfloat16"), [Shard(0), Shard(1)]),
                  ("twice",): (numbers(11, 2, dtype="int32"), [Shard(0), Shard(0)]), ("few",): (numbers(3, 2), [Shard(0), Shard(0)]),
                  ("none",): (torch.zeros(0, 3), [Shard(0), Replicate()]),
                  ("plain",): (numbers(2, 3), None), ("scalar",): (numbers(start=4), [Replicate(), Replicate()])},
    }, {"rng": {("state",): "RANK", ("seed",): 99}}, {}
    yield "safetensors_3", (3,), {
        "model": {("blocks", "w"): (numbers(8, 3), [Shard(0)]), ("blocks", "b"): (numbers(5, dtype="float16"), [Replicate()]),
                  ("columns",): (numbers(2, 7, dtype="int64"), [Shard(1)])},
    }, {"epoch": {(): 3}}, {"safetensors": True}
    yield "boxes_2", (2,), {"model": {("w",): (numbers(4, 6), "BOXES"), ("b",): (numbers(5), "BOXES")}}, {}, {"boxes": True}


def random_case(seed):
    from torch.distributed.tensor import Replicate, Shard
    dice = random.Random(seed)
    mesh = dice.choice([(1,), (2,), (3,), (4,), (2, 2)])
    safetensors = dice.random() < 0.3
    types = [name for name in DTYPES if not safetensors or name != "complex128"]
    tensors = {}
    for i in range(8):
        shape = [dice.choice([0, 1, 2, 3, 5, 7, 11]) for _ in range(dice.randint(0, 3))]
        placements = [Shard(dice.randrange(len(shape))) if shape and dice.random() < 0.7 else Replicate() for _ in mesh]
        path = ("nest", f"t{i}") if dice.random() < 0.3 else (f"t{i}.weight",)
        tensors[path] = (numbers(*shape, dtype=dice.choice(types), start=i), placements if dice.random() < 0.8 else None)
    yield f"random_{seed}", mesh, {"model": tensors}, {"step": {(): seed}}, {"safetensors": safetensors}


def nested(flat):
    if set(flat) == {()}:
        return flat[()]
    made = {}
    for path, value in flat.items():
        at = made
        for i, step in enumerate(path[:-1]):
            below = [] if isinstance(path[i + 1], int) else {}
            if isinstance(at, list):
                while len(at) <= step:
                    at.append(type(below)())
                at = at[step]
            else:
                at = at.setdefault(step, below)
        if isinstance(at, list):
            at.append(value)
        else:
            at[path[-1]] = value
    return made


def boxes_of(tensor, rank):
    """Two row ranges of this rank, as two boxes of a local tensor that stores them in reverse order."""
    import torch
    size = tensor.shape[0] // 4 or 1
    parts = [(rank * size, size), ((rank + 2) * size, size)] if rank == 0 else [(rank * size, size), (
        (rank + 2) * size, tensor.shape[0] - (rank + 2) * size)]
    parts.reverse()
    rest = [0] * (tensor.dim() - 1)
    local = torch.cat([tensor[begin:begin + count] for begin, count in parts]).clone()
    at, local_offsets = 0, []
    for _, count in parts:
        local_offsets.append((at, *rest))
        at += count
    local.global_shape = tuple(tensor.shape)
    local.global_offsets = tuple((begin, *rest) for begin, _ in parts)
    local.local_offsets = tuple(local_offsets)
    local.local_sizes = tuple((count, *tensor.shape[1:]) for _, count in parts)
    return local


def saver(options, world):
    import torch.distributed as dist
    from torch_checkpointing.checkpoint_layout import LayoutInfo, SafetensorsSerialization
    from torch_checkpointing.checkpoint_manager import CheckpointManager
    from torch_checkpointing.config import SyncCheckpointSaverConfig
    from torch_checkpointing.default_metadata import DefaultShardingMetadata
    from torch_checkpointing.default_resharder import DefaultResharder
    from torch_checkpointing.metadata_manager import DefaultMetadataManager
    from torch_checkpointing.schema import ItemSpec
    from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig

    def gather(self, data, process_group=None):  # the package's own gathers on a GPU
        made = [None] * world
        dist.all_gather_object(made, data, group=process_group)
        return dict(enumerate(made))

    class Boxes(DefaultResharder):
        def extract_sharding_metadata(self, item_key, item_value):
            return {(name,): DefaultShardingMetadata.from_tensor(value) for name, value in item_value.items()}

    DefaultMetadataManager._all_gather_pickled_data = gather
    layout = LayoutInfo("rank_{rank}/model.safetensors", SafetensorsSerialization()) if options.get("safetensors") else None
    described = ItemSpec(resharder=Boxes() if options.get("boxes") else DefaultResharder(), layout=layout)
    return CheckpointManager(CheckpointManager.Config(
        items={"model": described, "optimizer": ItemSpec(resharder=DefaultResharder(), required=False)},
        save=SyncCheckpointSaverConfig(), storage_config=LocalFileSystemStorageConfig(use_direct_io=False)))


def work(rank, out, seed, number):
    import torch.distributed as dist
    warnings.simplefilter("ignore")
    name, mesh_shape, items, others, options = list(random_case(seed) if seed is not None else cases())[number]
    world = 1
    for size in mesh_shape:
        world *= size
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1")
    dist.init_process_group("gloo", init_method=f"file://{out}/{name}.store", rank=rank, world_size=world)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor
    mesh = init_device_mesh("cpu", mesh_shape, mesh_dim_names=tuple(f"d{i}" for i in range(len(mesh_shape))))
    state, expected = {}, {"world_size": world, "tensors": {}, "objects": {}}
    flat = {item: {} for item in [*items, *others]}
    for item, tensors in items.items():
        for path, (tensor, placements) in tensors.items():
            expected["tensors"][".".join(map(str, (item, *path)))] = described(tensor)
            flat[item][path] = (boxes_of(tensor, rank) if placements == "BOXES" else
                                tensor if placements is None else distribute_tensor(tensor, mesh, placements, src_data_rank=None))
    for item, values in others.items():
        for path, value in values.items():
            key = ".".join(map(str, (item, *path)))
            if isinstance(value, str) and value == "RANK":
                for r in range(world):
                    expected["tensors"][f"{key}.rank_{r}"] = described(numbers(6, dtype="uint8", start=r))
                value = numbers(6, dtype="uint8", start=rank)
            elif hasattr(value, "dtype"):
                expected["tensors"][key] = described(value)
            elif isinstance(value, dict):
                expected["objects"].update({f"{key}.{k}": v for k, v in value.items()})
            elif isinstance(value, list) and value and isinstance(value[0], dict):
                expected["objects"].update({f"{key}.{i}.{k}": v for i, one in enumerate(value) for k, v in one.items()})
            else:
                expected["objects"][key] = value
            flat[item][path] = value
    state = {item: nested(values) for item, values in flat.items()}
    manager = saver(options, world)
    manager.save(str(out / name / "checkpoint"), state)
    manager.close()
    dist.barrier()
    if rank == 0:
        (out / name / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
        (out / f"{name}.store").unlink()
    dist.destroy_process_group()


def main():
    import torch.multiprocessing as processes
    out, seed = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else None
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for number, (name, mesh, *_) in enumerate(list(random_case(seed) if seed is not None else cases())):
        world = 1
        for size in mesh:
            world *= size
        (out / name).mkdir()
        processes.spawn(work, args=(out, seed, number), nprocs=world)
        for file in (out / name).rglob("*"):
            file.chmod(0o755 if file.is_dir() else 0o644)


if __name__ == "__main__":
    main()
