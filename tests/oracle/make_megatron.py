# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/writers/megatron: checkpoints of megatron.core.dist_checkpointing (torch_dist), and the values that
its own load returns. Run once for each release, with that release importable:

    PYTHONPATH=... python make_megatron.py OUT.tar.xz
    PYTHONPATH=... python make_megatron.py --load FOLDER    # prints the expected.json of whole tensors

Releases before 0.16 store the shards of the distributed optimizer as flat ranges of a rank's part of a parameter;
later releases store whole tensors. The archive holds `checkpoint/` and `expected.json`: {"tensors": {KEY: {"dtype",
"shape", "hex"}}, "common": Python's repr of common.pt's values, "padded": the results of loading other shapes with
allow_shape_mismatch}.
"""

import argparse
import json
import os
import pathlib
import random
import sys
import tarfile
import tempfile
import warnings

import torch
import torch.distributed as dist

warnings.filterwarnings("ignore")
from megatron.core import dist_checkpointing as mcore  # noqa: E402
from megatron.core.dist_checkpointing.mapping import (  # noqa: E402
    LocalNonpersistentObject,
    ShardedObject,
    ShardedTensor,
)

TENSOR_PARALLEL, DATA_PARALLEL = 2, 2
# key: (global shape, the dimension that tensor parallelism splits or None, number of prepended axes)
PARAMETERS = {
    "embedding.word_embeddings.weight": ((6, 5), 0, 0),
    "decoder.layers.self_attention.linear_qkv.weight": ((2, 3, 4), 2, 1),
    "decoder.final_layernorm.weight": ((7,), None, 0),
}
# How data-parallel ranks split the flat elements of a tensor-parallel part: no row ends there.
CUTS = {
    "embedding.word_embeddings.weight": 7,
    "decoder.layers.self_attention.linear_qkv.weight": 5,
    "decoder.final_layernorm.weight": 3,
}
# For fresh cases: other sizes, ranks, and splits. Read from the environment, because every rank imports this file.
SEED = int(os.environ.get("MAKE_MEGATRON_SEED", "0"))
if SEED:
    dice = random.Random(SEED)
    DATA_PARALLEL = dice.randint(1, 3)
    sizes = [dice.randint(2, 7) for _ in range(6)]
    PARAMETERS = {
        "embedding.word_embeddings.weight": ((2 * sizes[0], sizes[1]), 0, 0),
        "decoder.layers.self_attention.linear_qkv.weight": ((dice.randint(1, 3), sizes[2], 2 * sizes[3]), 2, 1),
        "decoder.final_layernorm.weight": ((sizes[4] * sizes[5] + 1,), None, 0),
    }

BUCKET = "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_0.exp_avg"


def whole(key, salt, dtype):
    shape = PARAMETERS[key][0]
    generator = torch.Generator().manual_seed(salt + sum(key.encode()))
    return torch.randn(shape, generator=generator).to(dtype)


def part_of(tensor, key, tp):
    dim = PARAMETERS[key][1]
    return tensor if dim is None else tensor.chunk(TENSOR_PARALLEL, dim)[tp].contiguous()


def ranges_of(parameter, count):
    """The flat elements of each data-parallel rank, none of them empty."""
    cuts = [CUTS[parameter]]
    if SEED:
        cuts = sorted(random.Random(SEED + count).sample(range(1, count), DATA_PARALLEL - 1))
    return list(zip([0, *cuts], [*cuts, count]))


def sharded(key, parameter, part, layer, tp, dp, **more):
    _, dim, prepended = PARAMETERS[parameter]
    offsets = [] if dim is None else [(dim, tp, TENSOR_PARALLEL)]
    if prepended:
        offsets.append((0, layer, PARAMETERS[parameter][0][0]))
    replica = more.pop("replica_id", (0, 0 if dim is not None else tp, dp))
    return ShardedTensor.from_rank_offsets(
        key, part, *offsets, replica_id=replica, prepend_axis_num=prepended, **more)


def flat(key, parameter, part, layer, tp, dp, start, stop):
    _, dim, prepended = PARAMETERS[parameter]
    offsets = [] if dim is None else [(dim, tp, TENSOR_PARALLEL)]
    if prepended:
        offsets.append((0, layer, PARAMETERS[parameter][0][0]))
    return ShardedTensor.from_rank_offsets_flat(
        key, part.flatten()[start:stop].clone(), part.shape, *offsets, flattened_range=slice(start, stop),
        replica_id=(0, 0 if dim is not None else tp, 0), prepend_axis_num=prepended)


def state(tp, dp, flattened):
    made = {}
    for parameter, (shape, _, prepended) in PARAMETERS.items():
        for layer in range(shape[0] if prepended else 1):
            def piece(tensor):
                part = part_of(tensor, parameter, tp)
                return part[layer].contiguous() if prepended else part
            made[f"{parameter}.{layer}"] = sharded(
                parameter, parameter, piece(whole(parameter, 0, torch.bfloat16)), layer, tp, dp,
                allow_shape_mismatch=parameter.startswith("embedding"))
            for salt, name in enumerate(("exp_avg", "fp32_param"), 1):
                key = f"optimizer.state.{name}.{parameter}"
                part = piece(whole(parameter, salt, torch.float32))
                if flattened:
                    start, stop = ranges_of(parameter, part.numel())[dp]
                    made[f"{key}.{layer}"] = flat(key, parameter, part, layer, tp, dp, start, stop)
                else:
                    made[f"{key}.{layer}"] = sharded(key, parameter, part, layer, tp, dp)
    if tp == 0:  # a bucket: it does not say whose elements it has
        local = torch.arange(5, dtype=torch.float32) + 10 * dp
        more = {"flattened_range": slice(0, 5)} if flattened else {}
        made["bucket"] = ShardedTensor(
            BUCKET, local, local.dtype, (5,), (5 * DATA_PARALLEL,), (5 * dp,), (DATA_PARALLEL,),
            allow_shape_mismatch=flattened, **more)
    made["rng_state"] = ShardedObject("rng_state", [{"seed": 7 + tp}], (TENSOR_PARALLEL,), (tp,), replica_id=dp)
    made["optimizer"] = {
        "optimizer": {"param_groups": [{"lr": 0.125, "betas": (0.5, 0.25), "params": LocalNonpersistentObject([0, 1])}]},
    }
    made["args"] = argparse.Namespace(hidden_size=4, bf16=True, lr=1.5)
    made["checkpoint_version"] = 3.0
    made["iteration"] = 10
    made["grad_scale"] = torch.tensor([2.0, 4.0])
    return made


def without_gpu():
    """Megatron asks for a GPU's number and waits for the GPU, although CPU tensors suffice."""
    if not torch.cuda.is_available():
        torch.cuda.synchronize = lambda *_: None
        torch.cuda.current_device = lambda: torch.device("cpu")


def save(rank, folder, rendezvous, flattened):
    warnings.filterwarnings("ignore")
    without_gpu()
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank,
                            world_size=TENSOR_PARALLEL * DATA_PARALLEL)
    tp, dp = rank % TENSOR_PARALLEL, rank // TENSOR_PARALLEL
    mcore.save(state(tp, dp, flattened), str(folder), validate_access_integrity=False)
    dist.barrier()
    dist.destroy_process_group()


def described(tensor):
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
            "hex": bytes(tensor.contiguous().view(torch.uint8).flatten().tolist()).hex()}


def load(folder, rendezvous, flattened):
    """All tensors, whole, as Megatron's own load returns them to one rank."""
    without_gpu()
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=0, world_size=1)
    wanted = {}
    for parameter, (shape, _, prepended) in PARAMETERS.items():
        for name, dtype in (("", torch.bfloat16), ("exp_avg", torch.float32), ("fp32_param", torch.float32)):
            key = f"optimizer.state.{name}.{parameter}" if name else parameter
            empty = torch.zeros(shape, dtype=dtype)
            if name and flattened:
                # Requested as the flat range that covers all of it.
                wanted[key] = ShardedTensor.from_rank_offsets_flat(
                    key, empty.flatten(), empty.shape, flattened_range=slice(0, empty.numel()))
            else:
                wanted[key] = ShardedTensor.from_rank_offsets(key, empty)
    bucket = torch.zeros(5 * DATA_PARALLEL)
    if flattened:
        wanted[BUCKET] = ShardedTensor.from_rank_offsets_flat(
            BUCKET, bucket, bucket.shape, flattened_range=slice(0, len(bucket)), allow_shape_mismatch=True)
    else:
        wanted[BUCKET] = ShardedTensor.from_rank_offsets(BUCKET, bucket)
    shapes = {key: entry.global_shape for key, entry in wanted.items()}
    loaded = mcore.load(wanted, str(folder), validate_access_integrity=False)
    embedding = "embedding.word_embeddings.weight"
    padded = [mcore.load({embedding: ShardedTensor.from_rank_offsets(embedding, torch.ones(shape, dtype=torch.bfloat16),
                                                                     allow_shape_mismatch=True)},
                         str(folder), validate_access_integrity=False)[embedding]
              for shape in ((8, 5), (4, 5), (7, 3), (1, 6))]
    dist.destroy_process_group()
    made = {key: described(loaded[key].reshape(shape)) for key, shape in shapes.items()}
    common = {key: repr(value) for key, value in loaded.items() if key not in shapes}
    return {"tensors": made, "common": common, "padded": {embedding: [described(tensor) for tensor in padded]}}


def main():
    flattened = hasattr(ShardedTensor, "from_rank_offsets_flat")
    with tempfile.TemporaryDirectory() as scratch:
        if sys.argv[1] == "--load":
            print(json.dumps(load(sys.argv[2], os.path.join(scratch, "load"), False)))
            return
        checkpoint = pathlib.Path(scratch, "checkpoint")
        checkpoint.mkdir()
        torch.multiprocessing.spawn(save, (checkpoint, os.path.join(scratch, "save"), flattened),
                                    TENSOR_PARALLEL * DATA_PARALLEL)
        expected = load(checkpoint, os.path.join(scratch, "load"), flattened)
        pathlib.Path(scratch, "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
        with tarfile.open(sys.argv[1], "w:xz") as archive:
            for name in ("checkpoint", "expected.json"):
                archive.add(pathlib.Path(scratch, name), name)


if __name__ == "__main__":
    main()
