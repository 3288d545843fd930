# SPDX-License-Identifier: Apache-2.0
"""DTensors of every golden layout and of random ones on real ranks: each library loads the other's checkpoints bit
for bit, and both write files with the same chunks. A rank's expected values are from the golden data, or from
torch.chunk."""
import json
import random

import common

common.need_torch()
import torch  # noqa: E402
import torch.distributed.checkpoint as torch_checkpoint  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard  # noqa: E402
from torch.distributed.tensor.placement_types import _StridedShard  # noqa: E402

import shardmesh.dcp  # noqa: E402
from common import GOLDEN, raw  # noqa: E402
from rank_group import run_ranks  # noqa: E402

DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool, torch.complex64,
          torch.float8_e4m3fn)
RANDOM_LAYOUTS = 150


def pattern(shape, dtype):
    """A tensor with distinct elements, of any dtype."""
    count = torch.Size(shape).numel()
    if dtype == torch.bool:
        return (torch.arange(count) % 3 == 0).reshape(shape)
    if dtype == torch.float8_e4m3fn:
        return (torch.arange(count) % 120).to(torch.uint8).view(dtype).reshape(shape)
    return torch.arange(count).to(dtype).reshape(shape)


def mesh_of(shape):
    # Without its own groups: no test communicates within a mesh.
    return DeviceMesh("cpu", torch.arange(torch.Size(shape).numel()).reshape(shape), _init_backend=False)


def wrapped(local, mesh, placements, shape):
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride)


def chunked(full, mesh, placements):
    """This rank's part, one mesh dimension after the other."""
    local, coordinate = full, mesh.get_coordinate()
    for size, at, placement in zip(mesh.shape, coordinate, placements):
        if isinstance(placement, Shard):
            parts = torch.chunk(local, size, placement.dim)
            empty = local.narrow(placement.dim, 0, 0)
            local = parts[at] if at < len(parts) else empty
    return local.contiguous()


def random_placements(draw, rank_of_tensor, mesh_rank):
    kinds = [Replicate()] + [Shard(d) for d in range(rank_of_tensor)] * 2
    return [draw.choice(kinds) for _ in range(mesh_rank)]


def random_case(draw, world):
    meshes = {2: [(2,), (1, 2), (2, 1)], 4: [(4,), (2, 2), (4, 1), (2, 1, 2)]}[world]
    shape = tuple(draw.choice((0, 1, 2, 3, 5, 8, 13)) for _ in range(draw.randrange(4)))
    mesh = draw.choice(meshes)
    return mesh, shape, random_placements(draw, len(shape), len(mesh)), draw.choice(DTYPES)


def golden_placement(described):
    if described["type"] == "Replicate":
        return Replicate()
    if described["type"] == "Shard":
        return Shard(described["dim"])
    return _StridedShard(described["dim"], split_factor=described["split_factor"])


def golden_layouts(world):
    """The layouts for this number of ranks that PyTorch itself saves and that hold boxes, with each rank's box."""
    for case in json.loads((GOLDEN / "layouts.json").read_text())["cases"]:
        if torch.Size(case["mesh"]).numel() == world and case["boxes_exact"] and not case["dcp"]["errors"]:
            yield case


def states(world, rank):
    """{key: (DTensor, its full values)} of the golden layouts and the random ones."""
    made = {}
    for i, case in enumerate(golden_layouts(world)):
        mesh, held = mesh_of(case["mesh"]), case["ranks"][rank]
        full = pattern(case["shape"], DTYPES[i % len(DTYPES)])
        local = full
        for d, (begin, size) in enumerate(zip(held["offset"], held["shape"])):
            local = local.narrow(d, begin if size else 0, size)
        placements = [golden_placement(one) for one in case["placements"]]
        made[f"golden.{i}"] = (wrapped(local.contiguous(), mesh, placements, case["shape"]), full)
    draw = random.Random(world)
    for i in range(RANDOM_LAYOUTS):
        shape_of_mesh, shape, placements, dtype = random_case(draw, world)
        mesh, full = mesh_of(shape_of_mesh), pattern(shape, dtype)
        made[f"random.{i}"] = (wrapped(chunked(full, mesh, placements), mesh, placements, shape), full)
    return made


def destinations(state, world, seed):
    """For every key, an empty DTensor of another layout, and its expected values on this rank."""
    draw, made = random.Random(seed), {}
    for key, (_, full) in state.items():
        mesh = mesh_of(draw.choice({2: [(2,), (2, 1)], 4: [(4,), (2, 2)]}[world]))
        placements = random_placements(draw, full.ndim, mesh.ndim)
        expected = chunked(full, mesh, placements)
        # Now and then memory with gaps: a rank's tensor need not be contiguous.
        local = torch.zeros((*expected.shape, 2), dtype=full.dtype)[..., 0] if draw.random() < 0.2 else torch.zeros_like(expected)
        made[key] = (wrapped(local, mesh, placements, full.shape), expected)
    return made


def wrong_keys(loaded):
    return [key for key, (tensor, expected) in loaded.items() if raw(tensor.to_local()) != raw(expected)]


def save_and_load(rank, world, work):
    state = states(world, rank)
    tensors = {key: tensor for key, (tensor, _) in state.items()}
    torch_checkpoint.save(dict(tensors), checkpoint_id=f"{work}/by_torch")
    shardmesh.dcp.save(dict(tensors), checkpoint_id=f"{work}/by_us")
    torch_checkpoint.save(dict(tensors), storage_writer=shardmesh.dcp.StorageWriter(f"{work}/by_our_writer"))
    wrong = {}
    for seed, (folder, load) in enumerate((
            ("by_torch", lambda into, path: shardmesh.dcp.load(into, checkpoint_id=path)),
            ("by_torch", lambda into, path: torch_checkpoint.load(into, storage_reader=shardmesh.dcp.StorageReader(path))),
            ("by_us", lambda into, path: torch_checkpoint.load(into, checkpoint_id=path)),
            ("by_our_writer", lambda into, path: torch_checkpoint.load(into, checkpoint_id=path)),
            ("by_us", lambda into, path: shardmesh.dcp.load(into, checkpoint_id=path)))):
        loaded = destinations(state, world, 100 * seed + world)
        load({key: tensor for key, (tensor, _) in loaded.items()}, f"{work}/{folder}")
        wrong[f"{seed}: {folder}"] = wrong_keys(loaded)
    return len(state), wrong


class LayoutTest(common.WorkTest):
    def check(self, world, least):
        for count, wrong in run_ranks(world, save_and_load, str(self.work)):
            self.assertGreaterEqual(count, least)
            self.assertEqual(wrong, {key: [] for key in wrong})
        theirs, ours = (shardmesh.open(self.work / name) for name in ("by_torch", "by_us"))
        self.assertEqual(set(ours), set(theirs))
        for key, entry in theirs.items():
            self.assertEqual([chunk.box for chunk in ours[key].chunks], [chunk.box for chunk in entry.chunks], key)
        for name in ("by_us", "by_our_writer"):
            report = shardmesh.verify(self.work / name)
            self.assertEqual((report.problems, report.unchecked_chunks), ([], 0))
        self.assertEqual(self.left_in_work(), ["by_our_writer", "by_torch", "by_us"])

    def test_two_ranks(self):
        self.check(2, 160)

    def test_four_ranks(self):
        self.check(4, 250)


if __name__ == "__main__":
    common.main()
