# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/writers/checkpointable: a DCP folder of two PyTorch 2.15 ranks, whose CheckpointableTensors hold
several boxes each, and the saved values. Run by hand; its output is committed. Needs PyTorch 2.15 or later.

Usage: make_checkpointable.py FOLDER             writes the sample
       make_checkpointable.py FOLDER CHECKPOINT  has the ranks load a checkpoint, and compares it with the sample"""
import hashlib
import json
import os
import shutil
import sys
import warnings
from pathlib import Path

# Per tensor: its shape; per rank, boxes (offsets, sizes, offsets in the local tensor); and the local tensors' shapes.
TENSORS = {
    "rows": ((7, 3), [[((0, 0), (2, 3), (2, 0)), ((4, 0), (2, 3), (0, 0))], [((2, 0), (2, 3), (0, 0)), ((6, 0), (1, 3), (2, 0))]],
             [(4, 3), (3, 3)]),
    "columns": ((3, 7), [[((0, 0), (3, 2), (0, 1)), ((0, 5), (3, 2), (0, 4))], [((0, 2), (3, 3), (0, 0))]], [(3, 6), (3, 3)]),
    "blocks": ((4, 4), [[((0, 0), (2, 2), (0, 0)), ((2, 2), (2, 2), (0, 2))], [((0, 2), (2, 2), (0, 0)), ((2, 0), (2, 2), (2, 0))]],
               [(2, 4), (4, 2)]),
    "line": ((5,), [[((0,), (1,), (0,)), ((2,), (1,), (1,)), ((4,), (1,), (2,))], [((1,), (1,), (0,)), ((3,), (1,), (1,))]], [(3,), (2,)]),
}
DTYPES = {"rows": "float32", "columns": "bfloat16", "blocks": "int64", "line": "float64"}


def whole(name):
    import torch
    shape = TENSORS[name][0]
    return (torch.arange(torch.Size(shape).numel()) * 5 % 61).reshape(shape).to(getattr(torch, DTYPES[name]))


def part(name, rank, fill):
    """The rank's local tensor, with padding around its boxes."""
    import torch
    shape, boxes, local_shapes = TENSORS[name]
    local = torch.full(local_shapes[rank], 99, dtype=getattr(torch, DTYPES[name]))
    for offsets, sizes, at in boxes[rank]:
        if fill:
            local[tuple(slice(o, o + s) for o, s in zip(at, sizes))] = whole(name)[tuple(slice(o, o + s) for o, s in zip(offsets, sizes))]
    local.global_shape = shape
    local.global_offsets = tuple(offsets for offsets, _, _ in boxes[rank])
    local.local_sizes = tuple(sizes for _, sizes, _ in boxes[rank])
    local.local_offsets = tuple(at for _, _, at in boxes[rank])
    return local


def work(rank, out, checkpoint):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    warnings.simplefilter("ignore")
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank))
    dist.init_process_group("gloo", init_method=f"file://{out}/store", rank=rank, world_size=2)
    if checkpoint is None:
        dcp.save({**{name: part(name, rank, True) for name in TENSORS}, "step": 3}, checkpoint_id=out / "checkpoint")
    else:
        state = {name: part(name, rank, False) for name in TENSORS}
        dcp.load(state, checkpoint_id=checkpoint)
        for name, tensor in state.items():
            if not torch.equal(tensor, part(name, rank, True)):
                raise SystemExit(f"rank {rank} loads another {name}: {tensor}")
    dist.barrier()
    dist.destroy_process_group()


def main():
    import torch.multiprocessing as processes
    out, checkpoint = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else None
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    processes.spawn(work, args=(out, checkpoint), nprocs=2)
    (out / "store").unlink(missing_ok=True)
    if checkpoint is not None:
        return
    expected = {"tensors": {}, "objects": {"step": 3}}
    for name in TENSORS:
        import torch
        tensor = whole(name)
        data = bytes(tensor.reshape(-1).view(torch.uint8).tolist())
        expected["tensors"][name] = {"dtype": DTYPES[name], "shape": list(tensor.shape), "sha256": hashlib.sha256(data).hexdigest()}
    (out / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
