# SPDX-License-Identifier: Apache-2.0
"""The peers' side of ./dev bench: one case with PyTorch or the safetensors package, timed N times in one process, as one line
of JSON; and the samples, written by PyTorch. Usage: torch_side.py CASE PATH [--repeat N] [--threads N] [--tensors N]"""
import argparse
import json
import os
import sys
import time
import warnings

warnings.filterwarnings("ignore")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint import metadata as m  # noqa: E402
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo  # noqa: E402
from torch.distributed.tensor import DTensor, Shard  # noqa: E402

RANKS = 8
SHAPES = {200: (1312, 1024), 16: (8192, 2048), 32: (8192, 2048)}  # float32: 1025, 1024 and 2048 MiB


def entries(path):
    return FileSystemReader(path).read_metadata().state_dict_metadata


def timed(act, repeat):
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        act()
        times.append(time.perf_counter() - begin)
    return times


def load_whole(path, repeat):
    """torch.distributed.checkpoint.load into preallocated plain tensors."""
    state = {k: torch.ones(e.size, dtype=e.properties.dtype) for k, e in entries(path).items()}
    size = sum(t.numel() * t.element_size() for t in state.values())
    return size, timed(lambda: dcp.load(state, checkpoint_id=path, no_dist=True), repeat)


def columns_alone(path, repeat):
    """Does the work of each of 8 ranks for S(0) -> S(1), one rank after another in this process. The fake process
    group claims to be rank r of 8 and moves nothing: loading needs no communication."""
    from torch.testing._internal.distributed.fake_pg import FakeStore
    total, times = 0, [0.0] * repeat
    for rank in range(RANKS):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=RANKS)
        mesh = dist.init_device_mesh("cpu", (RANKS,))
        state = column_state(path, mesh, rank)
        total += sum(t.to_local().numel() * t.to_local().element_size() for t in state.values())
        for run, seconds in enumerate(timed(lambda: dcp.load(state, checkpoint_id=path, no_dist=True), repeat)):
            times[run] += seconds
        dist.destroy_process_group()
    return total, times


def column_state(path, mesh, rank):
    state = {}
    for key, entry in entries(path).items():
        width = -(-entry.size[1] // RANKS)
        width = max(0, min(width, entry.size[1] - rank * width))
        local = torch.ones((entry.size[0], width), dtype=entry.properties.dtype)
        state[key] = DTensor.from_local(local, mesh, [Shard(1)], run_check=False, shape=entry.size,
                                        stride=(entry.size[1], 1))
    return state


def columns_member(rank, path, repeat, rendezvous, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    state = column_state(path, dist.init_device_mesh("cpu", (RANKS,)), rank)
    size = sum(t.to_local().numel() * t.to_local().element_size() for t in state.values())
    times = []
    for _ in range(repeat):
        dist.barrier()
        begin = time.perf_counter()
        dcp.load(state, checkpoint_id=path)
        dist.barrier()
        times.append(time.perf_counter() - begin)
    results[rank] = (size, times)
    dist.barrier()
    dist.destroy_process_group()


def columns_group(path, repeat):
    """The same with 8 gloo processes, as in a job; from the first's start to the last's end."""
    import torch.multiprocessing as multiprocessing
    with multiprocessing.Manager() as manager:
        results = manager.dict()
        rendezvous = path + ".rendezvous"
        if os.path.exists(rendezvous):
            os.unlink(rendezvous)
        multiprocessing.spawn(columns_member, (path, repeat, rendezvous, results), nprocs=RANKS)
        found = dict(results)
    return sum(size for size, _ in found.values()), [max(t[i] for _, t in found.values()) for i in range(repeat)]


def safetensors_read(path, repeat):
    """safetensors.torch.load_file: it makes new tensors on every call, because the package has no other way. They
    are copied, because they may be views of the mapped file."""
    from safetensors import safe_open
    with safe_open(path, framework="pt") as file:
        state = {key: torch.ones(file.get_slice(key).get_shape(), dtype=torch.float32) for key in file.keys()}

    def act():
        with safe_open(path, framework="pt") as file:
            for key, target in state.items():
                target.copy_(file.get_tensor(key))
    return sum(t.numel() * t.element_size() for t in state.values()), timed(act, repeat)


def safetensors_map(path, repeat):
    """Every tensor from safe_open: a view of the mapped file."""
    from safetensors import safe_open

    def act():
        with safe_open(path, framework="pt") as file:
            return [file.get_tensor(key) for key in file.keys()]
    return sum(t.numel() * t.element_size() for t in act()), timed(act, repeat)


def safetensors_copy(path, repeat, durable=True):
    """load_file, save_file, and an fsync: the equivalent of `shardmesh convert` from safetensors to safetensors."""
    from safetensors.torch import load_file, save_file
    target = path + ".copy"

    def act():
        save_file(load_file(path), target)
        if durable:
            with open(target, "rb") as file:
                os.fsync(file.fileno())
    times = timed(act, repeat)
    os.unlink(target)
    return os.path.getsize(path), times


def safetensors_copy_cached(path, repeat):
    return safetensors_copy(path, repeat, durable=False)


def to_torch_file(path, repeat):
    """dcp_to_torch_save and an fsync: the equivalent of `shardmesh convert --to pt`."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    target = path + ".theirs.pt"

    def act():
        dcp_to_torch_save(path, target)
        with open(target, "rb") as file:
            os.fsync(file.fileno())
    times = timed(act, repeat)
    size = os.path.getsize(target)
    os.unlink(target)
    return size, times


QUANTIZED = {**{f"layers.{i}.weight": (2048, 4096) for i in range(8)}, "experts_blocks": (4, 2048, 4096)}


def dequantize(path, repeat):
    """QuantizedHuggingFaceStorageReader into preallocated plain tensors."""
    from torch.distributed.checkpoint.quantized_hf_storage import QuantizedHuggingFaceStorageReader
    state = {key: torch.ones(shape) for key, shape in QUANTIZED.items()}

    def act():
        dcp.load(state, storage_reader=QuantizedHuggingFaceStorageReader(path), no_dist=True)
    return sum(t.numel() * t.element_size() for t in state.values()), timed(act, repeat)


def moe_shapes():
    """Names and shapes of a mixture-of-experts model's 18,867 tensors (48 layers of 128 experts), scaled down to 1
    GiB."""
    shapes = {"model.embed_tokens.weight": (1024, 128), "model.norm.weight": (128,), "lm_head.weight": (1024, 128)}
    for layer in range(48):
        at = f"model.layers.{layer}"
        for name in ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm"):
            shapes[f"{at}.{name}.weight"] = (128,)
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate"):
            shapes[f"{at}.{name}.weight"] = (128, 128)
        for expert in range(128):
            for name in ("gate_proj", "up_proj", "down_proj"):
                shapes[f"{at}.mlp.experts.{expert}.{name}.weight"] = (128, 224)
    return shapes


def make_moe(path, _):
    """Writes a safetensors file of such a model in bfloat16, and one with a single tensor of as many bytes."""
    from safetensors.torch import save_file
    os.makedirs(path, exist_ok=True)
    shapes = moe_shapes()
    elements = sum(torch.Size(shape).numel() for shape in shapes.values())
    values = torch.arange(elements, dtype=torch.int32).to(torch.bfloat16)
    save_file({"weight": values}, os.path.join(path, "one.safetensors"))
    parts = values.split([torch.Size(shape).numel() for shape in shapes.values()])
    save_file({name: part.view(shape).clone() for (name, shape), part in zip(shapes.items(), parts)},
              os.path.join(path, "moe.safetensors"))


def make_quantized(path, _):
    """Writes a Hugging Face folder of one file: FP8 weights with block scales, and MXFP4."""
    from safetensors.torch import save_file
    os.makedirs(path)
    generator, tensors = torch.Generator().manual_seed(0), {}
    for key, shape in QUANTIZED.items():
        if key.endswith("_blocks"):
            groups = (*shape[:2], shape[2] // 32)
            tensors[key] = torch.randint(0, 256, (*groups, 16), generator=generator, dtype=torch.uint8)
            tensors[key.replace("_blocks", "_scales")] = torch.randint(110, 130, groups, generator=generator, dtype=torch.uint8)
        else:
            tensors[key] = torch.randn(shape, generator=generator).to(torch.float8_e4m3fn)
            tensors[key + "_scale_inv"] = torch.rand(shape[0] // 128, shape[1] // 128, generator=generator)
    save_file(tensors, os.path.join(path, "model-00001-of-00001.safetensors"))
    with open(os.path.join(path, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {}, "weight_map": dict.fromkeys(tensors, "model-00001-of-00001.safetensors")}, file)


def make_member(rank, path, count, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    mesh = dist.init_device_mesh("cpu", (RANKS,))
    rows, columns = SHAPES[count]
    generator = torch.Generator().manual_seed(rank)
    state = {f"layers.{i}.weight": DTensor.from_local(torch.rand(rows // RANKS, columns, generator=generator), mesh, [Shard(0)],
                                                      run_check=False) for i in range(count)}
    dcp.save(state, checkpoint_id=path)
    dist.barrier()
    dist.destroy_process_group()


def make(path, count):
    """Writes 1 GiB in `count` tensors, S(0) over 8 ranks."""
    import torch.multiprocessing as multiprocessing
    multiprocessing.spawn(make_member, (path, count, path + ".rendezvous"), nprocs=RANKS)


def make_chunks(path, count):
    """Writes a .metadata of `count` chunks: tensors of 8 chunks each. It has no items, because it is only inspected."""
    os.makedirs(path, exist_ok=True)
    properties = m.TensorProperties(dtype=torch.float32)
    tensors, storage = {}, {}
    for t in range(count // RANKS):
        key = f"model.layers.{t // 100}.block.{t % 100}.weight"
        chunks = [m.ChunkStorageMetadata(torch.Size((4 * r, 0)), torch.Size((4, 16))) for r in range(RANKS)]
        tensors[key] = m.TensorStorageMetadata(properties, torch.Size((4 * RANKS, 16)), chunks)
        for r, chunk in enumerate(chunks):
            storage[m.MetadataIndex(key, chunk.offsets, r)] = _StorageInfo(f"__{r}_0.distcp", t * 1500, 1500)
    import pickle
    planner = {key: tuple(key.split(".")) for key in tensors}
    with open(os.path.join(path, ".metadata"), "wb") as file:
        pickle.dump(m.Metadata(tensors, planner, storage), file)


def read_metadata(path, repeat):
    return os.path.getsize(os.path.join(path, ".metadata")), timed(lambda: FileSystemReader(path).read_metadata(), repeat)


def shards_of(path):
    """Returns the shape, and every shard's offsets and sizes, from a file that benchmarks/validate.py wrote."""
    import array
    numbers = array.array("q")
    with open(path, "rb") as file:
        numbers.frombytes(file.read())
    rank, count = numbers[:2]
    shape, rest = list(numbers[2:2 + rank]), numbers[2 + rank:].tolist()
    boxes = [(rest[i:i + rank], rest[i + rank:i + 2 * rank]) for i in range(0, 2 * rank * count, 2 * rank)]
    return shape, boxes


def timed_briefly(act, repeat, limit=4.0):
    """As `timed`, but stops after enough time: some of these are quadratic."""
    times = []
    while len(times) < repeat and (not times or sum(times) + times[-1] < limit):
        times += timed(act, 1)
    return times


def validate_shards(path, repeat):
    """The checks of ShardedTensor on its metadata."""
    from torch.distributed._shard.metadata import ShardMetadata
    from torch.distributed._shard.sharding_spec._internals import validate_non_overlapping_shards_metadata
    _, boxes = shards_of(path)
    shards = [ShardMetadata(o, s, f"rank:{i}/cpu") for i, (o, s) in enumerate(boxes)]
    return len(boxes), timed_briefly(lambda: validate_non_overlapping_shards_metadata(shards), repeat)


def validate_plan(path, repeat):
    """DCP's checks before it saves: bounds, overlaps, and the total volume."""
    from torch.distributed.checkpoint.default_planner import _validate_global_plan
    from torch.distributed.checkpoint.planner import SavePlan
    shape, boxes = shards_of(path)
    chunks = [m.ChunkStorageMetadata(torch.Size(o), torch.Size(s)) for o, s in boxes]
    entry = m.TensorStorageMetadata(m.TensorProperties(dtype=torch.float32), torch.Size(shape), chunks)
    metadata, plans = m.Metadata({"weight": entry}), [SavePlan([]), SavePlan([])]

    def act():
        if _validate_global_plan(plans, metadata):
            raise RuntimeError("PyTorch refuses these shards")
    return len(boxes), timed_briefly(act, repeat)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case")
    parser.add_argument("path", type=os.path.abspath)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--count", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.case in ("make", "make_chunks", "make_quantized", "make_moe"):
        globals()[given.case](given.path, given.count)
        return
    size, seconds = globals()[given.case](given.path, given.repeat)
    if given.case.startswith("validate"):
        print(json.dumps({"case": given.case, "shards": size, "microseconds": [1e6 * s for s in seconds]}))
        return
    print(json.dumps({"case": given.case, "bytes": size, "threads": given.threads, "seconds": seconds}))


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    main()
