# SPDX-License-Identifier: Apache-2.0
"""Realistic state dicts on real ranks: golden checkpoints with their objects, ShardedTensors, and FSDP2 models with
and without tensor parallelism and their optimizers. Our load returns the same bits as PyTorch's."""
import copy
import random
import subprocess
import sys

import common

common.need_torch()
import torch  # noqa: E402
import torch.distributed.checkpoint as torch_checkpoint  # noqa: E402
from torch.distributed._shard.sharded_tensor import Shard as LocalShard  # noqa: E402
from torch.distributed._shard.sharded_tensor import ShardedTensor, init_from_local_shards  # noqa: E402
from torch.distributed._shard.metadata import ShardMetadata  # noqa: E402
from torch.distributed.checkpoint.state_dict import get_state_dict  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, distribute_tensor  # noqa: E402
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module  # noqa: E402

import shardmesh.dcp  # noqa: E402
from common import GOLDEN, raw  # noqa: E402
from rank_group import run_ranks  # noqa: E402
from rank_layouts import chunked, mesh_of, random_placements, wrapped  # noqa: E402

OBJECTS = {"epoch": 3, "name": "run", "schedule": {"lr": [0.1, 0.01], "betas": (0.9, 0.95)}, "nothing": None,
           "big": 1 << 80}
NO_OBJECTS = {"epoch": 0, "name": "", "schedule": {"lr": 0, "betas": 0}, "nothing": 0, "big": 0}


def flat(state):
    from torch.distributed.checkpoint._nested_dict import flatten_state_dict

    return flatten_state_dict(state)[0]


def held(value):
    """This rank's part of a value, comparable."""
    if isinstance(value, DTensor):
        return "dtensor", raw(value.to_local())
    if isinstance(value, ShardedTensor):
        return "sharded", [(tuple(s.metadata.shard_offsets), raw(s.tensor)) for s in value.local_shards()]
    if isinstance(value, torch.Tensor):
        return "tensor", raw(value)
    return "object", repr(value)


def all_held(state):
    return {key: held(value) for key, value in flat(state).items()}


def differing(state, expected):
    found = all_held(state)
    return sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))


# --- golden checkpoints in any layout on a rank, against PyTorch's own load -----------------------------------------
def golden_destination(path, world, seed):
    draw, made = random.Random(seed), {}
    checkpoint = shardmesh.open(path)
    for entry in checkpoint.tensors:
        mesh = mesh_of({2: (2,), 4: (2, 2)}[world])
        placements = random_placements(draw, len(entry.shape), mesh.ndim)
        local = chunked(torch.empty(entry.shape, device="meta"), mesh, placements)
        zeros = torch.zeros(local.shape, dtype=getattr(torch, entry.dtype))
        made[entry.key] = wrapped(zeros, mesh, placements, entry.shape)
    return {**made, **{entry.key: None for entry in checkpoint.objects}}


def load_golden(rank, world, paths):
    wrong, compared = {}, 0
    for seed, path in enumerate(paths):
        theirs, ours = golden_destination(path, world, seed), golden_destination(path, world, seed)
        torch_checkpoint.load(theirs, checkpoint_id=path)
        shardmesh.dcp.load(ours, checkpoint_id=path)
        compared += len(theirs)
        wrong[path] = differing(ours, all_held(theirs))
    return compared, wrong


def load_converted(rank, world, folder, converted):
    """DTensors from a safetensors file with PyTorch's load and our reader, compared with the original DCP folder."""
    mesh = mesh_of((world,))

    def into():
        made = {}
        for entry in shardmesh.open(converted).tensors:
            placements = random_placements(random.Random(entry.key), len(entry.shape), 1)
            local = chunked(torch.empty(entry.shape, device="meta"), mesh, placements)
            zeros = torch.zeros(local.shape, dtype=getattr(torch, entry.dtype))
            made[entry.key] = wrapped(zeros, mesh, placements, entry.shape)
        return made

    expected, loaded = into(), into()
    torch_checkpoint.load(expected, checkpoint_id=folder)
    torch_checkpoint.load(loaded, storage_reader=shardmesh.dcp.StorageReader(converted))
    return len(loaded), differing(loaded, all_held(expected))


def save_in_background(rank, world, path):
    state = {"w": torch.arange(6.0), **OBJECTS}
    torch_checkpoint.async_save(state, storage_writer=shardmesh.dcp.StorageWriter(path)).result()
    loaded = {"w": torch.zeros(6), **copy.deepcopy(NO_OBJECTS)}
    shardmesh.dcp.load(loaded, checkpoint_id=path)
    return differing(loaded, all_held(state))


# --- ShardedTensor ----------------------------------------------------------------------------------------------------
def grid(rank, world, rows, columns, values):
    """Blocks of rows and columns, distributed in turn: several uneven shards per rank."""
    shards, number, at = [], 0, 0
    full = torch.arange(sum(rows) * sum(columns), dtype=torch.float32).reshape(sum(rows), sum(columns))
    for row in rows:
        left = 0
        for column in columns:
            if number % world == rank:
                part = full[at:at + row, left:left + column].clone() if values else torch.zeros(row, column)
                shards.append(LocalShard(part, ShardMetadata([at, left], [row, column], f"rank:{rank}/cpu")))
            number, left = number + 1, left + column
        at += row
    return init_from_local_shards(shards, sum(rows), sum(columns))


def sharded_tensors(rank, world, work):
    state = {"a": grid(rank, world, (3, 1, 4, 2), (5, 2, 6), True), "b": grid(rank, world, (7, 2, 1), (3, 1), True), **OBJECTS}
    torch_checkpoint.save(dict(state), checkpoint_id=f"{work}/theirs")
    shardmesh.dcp.save(dict(state), checkpoint_id=f"{work}/ours")

    def into():
        return {"a": grid(rank, world, (5, 3, 2), (6, 7), False), "b": grid(rank, world, (1, 2, 7), (1, 3), False),
                **copy.deepcopy(NO_OBJECTS)}

    expected, loaded, back = into(), into(), into()
    torch_checkpoint.load(expected, checkpoint_id=f"{work}/theirs")
    shardmesh.dcp.load(loaded, checkpoint_id=f"{work}/theirs")
    torch_checkpoint.load(back, checkpoint_id=f"{work}/ours")
    same = into()
    same.update(a=grid(rank, world, (3, 1, 4, 2), (5, 2, 6), False), b=grid(rank, world, (7, 2, 1), (3, 1), False))
    shardmesh.dcp.load(same, checkpoint_id=f"{work}/ours")
    return differing(loaded, all_held(expected)), differing(back, all_held(expected)), differing(same, all_held(state))


def ranks_without_shards(rank, world, work):
    """Two shards over four ranks, and nested objects. PyTorch's planner forgets the keys of ranks without shards,
    mistakes the checkpoint for one of version 2.3, and fails. Returns whether it does, and the errors of our load."""
    state = {"few": grid(rank, world, (7, 3), (4,), True), **OBJECTS}
    shardmesh.dcp.save(dict(state), checkpoint_id=f"{work}/few")

    def into():
        return {"few": grid(rank, world, (5, 5), (4,), False), **copy.deepcopy(NO_OBJECTS)}

    try:
        torch_checkpoint.load(into(), checkpoint_id=f"{work}/few")
        pytorch_fails = False
    except torch_checkpoint.api.CheckpointException:
        pytorch_fails = True
    loaded = into()
    shardmesh.dcp.load(loaded, checkpoint_id=f"{work}/few")
    expected = {"few": grid(rank, world, (5, 5), (4,), True), **OBJECTS}
    return pytorch_fails, differing(loaded, all_held(expected))


# --- FSDP2 ------------------------------------------------------------------------------------------------------------
class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.second(torch.relu(self.first(x))) * self.scale


def trained(world, seed, tensor_parallel):
    """A model's and its optimizer's state dict after a step."""
    torch.manual_seed(seed)
    net = Net(6 if not tensor_parallel else 8)
    if tensor_parallel:
        mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(net, mesh["tp"], {"first": ColwiseParallel(), "second": RowwiseParallel()})
        net.scale = torch.nn.Parameter(distribute_tensor(net.scale.detach(), mesh["tp"]))
        net.scale.requires_grad_(False)
        sharding = mesh["dp"]
    else:
        sharding = init_device_mesh("cpu", (world,))
    fully_shard(net, mesh=sharding)
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=0.1)
    if not tensor_parallel:
        net(torch.randn(3, 6)).sum().backward()
    else:
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    model, optim = get_state_dict(net, optimizer)
    return {"model": model, "optim": optim, **OBJECTS}


def fsdp2(rank, world, work, tensor_parallel):
    state = trained(world, 1, tensor_parallel)
    expected = all_held(state)
    torch_checkpoint.save(dict(state), checkpoint_id=f"{work}/theirs")
    shardmesh.dcp.save(dict(state), checkpoint_id=f"{work}/ours")
    wrong = {}
    for name, load in (("ours of theirs", lambda s: shardmesh.dcp.load(s, checkpoint_id=f"{work}/theirs")),
                       ("theirs of ours", lambda s: torch_checkpoint.load(s, checkpoint_id=f"{work}/ours")),
                       ("ours of ours", lambda s: shardmesh.dcp.load(s, checkpoint_id=f"{work}/ours"))):
        other = trained(world, 2, tensor_parallel)
        assert differing(other, expected)
        load(other)
        wrong[name] = differing(other, expected)
    return len(expected), wrong


class StateTest(common.WorkTest):
    def test_golden_checkpoints_of_pytorch_on_two_ranks_and_four(self):
        names = ("dtensor_2d_2x2", "dtensor_3d_2x2x2", "dtensor_shard0_4", "fsdp1_sharded_4", "fsdp1_tp_2d", "fsdp2_4",
                 "fsdp2_tp_2x2", "hsdp_2x2", "nested_objects", "sharded_tensor_chunk",
                 "options_file_per_item", "options_no_flatten", "single_rank")
        paths = [str(GOLDEN / name / "checkpoint") for name in names]
        for world in (2, 4):
            for compared, wrong in run_ranks(world, load_golden, paths):
                self.assertGreater(compared, 300)
                self.assertEqual(wrong, {path: [] for path in paths})

    def test_sharded_tensors_with_several_uneven_shards_per_rank(self):
        for world in (2, 4):
            for wrong in run_ranks(world, sharded_tensors, str(self.work / str(world))):
                self.assertEqual(wrong, ([], [], []))

    def test_a_safetensors_file_loads_like_the_folder_that_it_was_made_of(self):
        folder, converted = str(GOLDEN / "fsdp2_tp_2x2" / "checkpoint"), str(self.work / "model.safetensors")
        make = [sys.executable, "-m", "shardmesh", "convert", folder, converted, "--skip-objects"]
        subprocess.run(make, check=True, capture_output=True)  # another process: ranks fork before threads exist
        for count, wrong in run_ranks(2, load_converted, folder, converted):
            self.assertEqual((count, wrong), (28, []))

    def test_pytorch_s_async_save_takes_our_writer(self):
        for wrong in run_ranks(2, save_in_background, str(self.work / "saved")):
            self.assertEqual(wrong, [])

    def test_ranks_without_shards_load_too_where_pytorch_fails(self):
        for answer in run_ranks(4, ranks_without_shards, str(self.work)):
            self.assertEqual(answer, (True, []))

    def check_fsdp2(self, world, tensor_parallel):
        for count, wrong in run_ranks(world, fsdp2, str(self.work), tensor_parallel):
            self.assertGreater(count, 15)
            self.assertEqual(wrong, {name: [] for name in wrong})

    def test_fsdp2_on_two_ranks(self):
        self.check_fsdp2(2, False)

    def test_fsdp2_on_four_ranks(self):
        self.check_fsdp2(4, False)

    def test_fsdp2_with_tensor_parallelism_on_four_ranks(self):
        self.check_fsdp2(4, True)


def lists_of_shards(rank, world, work):
    """Lists with ShardedTensors of which rank 1 has no shards, saved by PyTorch and by us, and loaded."""
    def sharded(fill):
        own = [LocalShard(torch.full((4,), fill), ShardMetadata([0], [4], "rank:0/cpu"))] if rank == 0 else []
        return init_from_local_shards(own, 4)

    def state(fill):
        return {"first": [sharded(fill), torch.full((2,), fill)], "last": [torch.full((3,), fill), sharded(fill)],
                "alone": [sharded(fill)], "mixed": [sharded(fill), int(fill)], "nested": {"a": [[sharded(fill)], int(fill)]}, "plain": {"x": {"y": int(fill)}}}

    def plain(value):
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items()}
        if isinstance(value, list):
            return [plain(one) for one in value]
        if isinstance(value, ShardedTensor):
            return [one.tensor.tolist() for one in value.local_shards()]
        return value.tolist() if isinstance(value, torch.Tensor) else value

    wrong = []
    for name, save in (("theirs", lambda path: torch_checkpoint.save(state(7.0), checkpoint_id=path)),
                       ("ours", lambda path: shardmesh.dcp.save(state(7.0), checkpoint_id=path))):
        save(f"{work}/{name}")
        found = state(0.0)
        shardmesh.dcp.load(found, checkpoint_id=f"{work}/{name}")
        if plain(found) != plain(state(7.0)):
            wrong.append((name, plain(found)))
    return wrong


class ListTest(common.WorkTest):
    def test_lists_with_tensors_of_which_a_rank_has_no_shards(self):
        self.assertEqual(run_ranks(2, lists_of_shards, str(self.work)), [[], []])


def outside(rank, world, work):
    """Rank 1 calls the functions of rank 0's group."""
    group = torch.distributed.new_group([0])
    said = []
    if rank == 1:
        for save in (shardmesh.dcp.save, shardmesh.dcp.async_save):
            try:
                save({"w": torch.ones(1)}, checkpoint_id=f"{work}/saved", process_group=group)
            except shardmesh.Error as problem:
                said.append((problem.code, "not a rank of the process group" in str(problem)))
    return said


class OutsideTest(common.WorkTest):
    def test_a_process_outside_the_group_is_told_so(self):
        self.assertEqual(run_ranks(2, outside, str(self.work)), [[], [("invalid_argument", True)] * 2])
        self.assertEqual(self.left_in_work(), [])


if __name__ == "__main__":
    common.main()
