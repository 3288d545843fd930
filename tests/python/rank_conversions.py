# SPDX-License-Identifier: Apache-2.0
"""Conversions on real ranks, beside PyTorch's own answers: DTensors and ShardedTensors to shardmesh's boxes and
back, nested ShardedTensors, whole state dicts, FSDP1 over tensor parallelism with our extensions, and errors."""
import collections
import json
import os
import signal
import time
import unittest

import common

common.need_torch()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed._shard.sharded_tensor import ShardedTensor  # noqa: E402
from torch.distributed._shard.sharding_spec import ChunkShardingSpec  # noqa: E402
from torch.distributed.checkpoint._sharded_tensor_utils import _flatten_sharded_tensors  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, StateDictType  # noqa: E402
from torch.distributed.fsdp import ShardedStateDictConfig  # noqa: E402
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard  # noqa: E402
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module  # noqa: E402
from torch.distributed.tensor.parallel import fsdp as torch_fsdp  # noqa: E402
from torch.distributed.tensor.placement_types import _StridedShard  # noqa: E402

import shardmesh  # noqa: E402
import shardmesh.fsdp  # noqa: E402
from common import GOLDEN, raw  # noqa: E402
from rank_group import run_ranks  # noqa: E402
from rank_layouts import pattern, wrapped  # noqa: E402
from rank_redistribute import distributed, mesh_over, part  # noqa: E402


Pair = collections.namedtuple("Pair", "first second")


class Names(list):
    """A list whose constructor takes something else."""

    def __init__(self, *, of):
        super().__init__(of)


def error_of(call):
    try:
        call()
    except shardmesh.Error as problem:
        return problem.code, problem.ranks, str(problem)
    return "no error", (), ""


def there_and_back(rank, world):
    mesh = mesh_over(range(world), (world,))
    full = pattern((7, 3), torch.float32)
    tensor = distributed(full, mesh, [Shard(0)])
    shards = shardmesh.Shards.of(tensor)
    as_sharded = shards.sharded_tensor()
    back = shardmesh.Shards.of(as_sharded).dtensor(mesh, [Shard(0)])
    shared = all(one.data_ptr() == tensor.to_local().data_ptr() for one in
                 [as_sharded.local_shards()[0].tensor, back.to_local()]) if tensor.to_local().numel() else True
    boxes = [(holder, *box) for holder, box in shards.boxes]
    strided = shardmesh.Shards.of(distributed(full, mesh, [_StridedShard(0, split_factor=2)]))
    held = [raw(one) == raw(full[tuple(slice(o, o + s) for o, s in zip(*box))]) for box, one in strided.local]
    refused = [error_of(lambda: shards.dtensor(mesh, [Shard(1)])),
               error_of(lambda: shardmesh.Shards.of(distributed(full, mesh, [Replicate()])).sharded_tensor()),
               error_of(lambda: shardmesh.Shards.of(wrapped(full, mesh, [Partial()], full.shape)))]
    return (shared, isinstance(as_sharded, ShardedTensor), tuple(as_sharded.size()), tuple(back.placements), boxes, held,
            refused)


def refused_segments(rank, world):
    """The errors of calls that would make a DTensor of segments, which PyTorch has no placement for."""
    mesh = mesh_over(range(world), (world,))
    tensor = distributed(pattern((6,), torch.float32), mesh, [Shard(0)])
    shards = shardmesh.Shards.of(tensor)
    return [error_of(call) for call in (lambda: shardmesh.Layout.on(mesh, ["SG(0,4:2)"], (6,)),
                                        lambda: shardmesh.Layout.on(mesh, "SG(0,4:2)", (6,)),
                                        lambda: shardmesh.redistribute(tensor, mesh, ["SG(0,4:2)"]),
                                        lambda: shards.dtensor(mesh, ["SG(0,4:2)"]))]


def nested(rank, world):
    """FSDP1 over tensor parallelism as PyTorch represented it: ShardedTensors within ShardedTensors."""
    tensor_parallel = [dist.new_group([first, first + 1]) for first in range(0, world, 2)][rank // 2]
    data_parallel = [dist.new_group(list(range(first, world, 2))) for first in range(2)][rank % 2]
    full = pattern((8, 6), torch.float32)
    outer_spec = ChunkShardingSpec(0, [f"rank:{one}/cpu" for one in dist.get_process_group_ranks(tensor_parallel)])
    from torch.distributed._shard import sharded_tensor

    outer = sharded_tensor.empty(outer_spec, 8, 6, process_group=tensor_parallel)
    mine = outer.local_shards()[0]
    mine.tensor.copy_(full[4 * (rank % 2):4 * (rank % 2) + 4])
    tensor = torch_fsdp._chunk_tensor(outer, dist.get_rank(data_parallel), world // 2, 1, data_parallel)
    state = {"weight": tensor, "inside": {"again": [tensor, 7]}, "plain": torch.ones(2), "pair": Pair(tensor, 1),
             "names": Names(of=[tensor]), "size": torch.Size((2, 3))}

    def described(found):
        return ([(tuple(s.metadata.shard_offsets), tuple(s.metadata.shard_sizes), raw(s.tensor))
                 for s in found.local_shards()],
                sorted((tuple(s.shard_offsets), tuple(s.shard_sizes)) for s in found.metadata().shards_metadata),
                tuple(found.size()))

    ours, theirs = shardmesh.flatten_sharded_tensors(state), _flatten_sharded_tensors(
        {key: state[key] for key in ("weight", "inside")})
    inner = tensor.local_shards()[0].tensor.local_shards()[0].tensor
    return (described(ours["weight"]) == described(theirs["weight"]),
            described(ours["inside"]["again"][0]) == described(theirs["inside"]["again"][0]),
            described(ours["weight"]) == described(ours["pair"].first) == described(ours["names"][0]),
            ours["inside"]["again"][1], ours["plain"] is state["plain"], type(ours["size"]) is torch.Size,
            ours["weight"].local_shards()[0].tensor.data_ptr() == inner.data_ptr())


def whole_states(rank, world):
    mesh, half = mesh_over(range(world), (world,)), mesh_over([0, world - 1], (2,))
    tensors = {"a": pattern((7, 3), torch.float32), "b": pattern((5,), torch.int64), "c": pattern((), torch.bfloat16)}
    state = {"a": distributed(tensors["a"], mesh, [Shard(0)]), "b": distributed(tensors["b"], half, [Shard(0)]),
             "c": distributed(tensors["c"], mesh, [Replicate()]), "epoch": 3,
             "s": shardmesh.Shards.of(distributed(tensors["a"], mesh, [Shard(1)])).sharded_tensor()}
    tensors["s"] = tensors["a"]
    state["nested"] = {"d": state["a"], "l": [state["b"], 7, (state["c"], "x")]}
    state["lists"] = collections.defaultdict(list, one=[state["a"]])
    state["pair"] = Pair(state["b"], collections.OrderedDict(c=state["c"]))
    wrong = []
    for wanted in (None, 0, world - 1):
        found = dict(shardmesh.full_state_dict(state, rank=wanted))
        if list(found) != list(state) or found["epoch"] != 3:
            wrong.append((wanted, list(found)))
        nested, lists, pair = found["nested"], found["lists"], found["pair"]
        types = [type(one) for one in (lists, pair, pair.second)]
        if types != [collections.defaultdict, Pair, collections.OrderedDict] or lists["absent"] != []:
            wrong.append((wanted, lists, pair))
        found.update(in_d=nested["d"], in_l=nested["l"][0], in_t=nested["l"][2][0], in_o=lists["one"][0],
                     in_p=pair.first, in_q=pair.second["c"])
        if nested["l"][1:2] != [7] or nested["l"][2][1:] != ("x",):
            wrong.append((wanted, nested))
        inside = {"in_d": "a", "in_l": "b", "in_t": "c", "in_o": "a", "in_p": "b", "in_q": "c"}
        for key, expected in (*tensors.items(), *((key, tensors[name]) for key, name in inside.items())):
            if wanted in (None, rank):
                if raw(found[key]) != raw(expected) or found[key].shape != expected.shape:
                    wrong.append((wanted, key))
            elif found[key] is not None:
                wrong.append((wanted, key, "is not None"))
    return wrong


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(6, 10), torch.nn.Linear(10, 6)
        self.norm = torch.nn.LayerNorm(6)

    def forward(self, x):
        return self.norm(self.down(torch.relu(self.up(x))))


def fsdp1_over_tensor_parallelism(rank, world):
    """Compares state dicts of FSDP1 with our extensions and with PyTorch's, and makes a round trip."""
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))

    def made(seed):
        torch.manual_seed(seed)
        model = parallelize_module(Model(), mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        return FullyShardedDataParallel(model, device_mesh=mesh["dp"], use_orig_params=True, device_id=torch.device("cpu"),
                                        sharding_strategy=ShardingStrategy.FULL_SHARD)

    def states(model):
        FullyShardedDataParallel.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT,
                                                     ShardedStateDictConfig(_use_dtensor=True))
        state = model.state_dict()
        return {key: (tuple(map(str, value.placements)), tuple(value.shape), raw(value.to_local()))
                for key, value in state.items()}, state

    theirs, _ = states(made(0))
    model = shardmesh.fsdp.use(made(0))
    is_ours = [type(one._fsdp_extension) for one in FullyShardedDataParallel.fsdp_modules(model)]
    ours, state = states(model)
    other = shardmesh.fsdp.use(made(1))
    before, _ = states(other)
    other.load_state_dict(state)
    loaded, _ = states(other)
    return (ours == theirs, loaded == theirs, before != theirs, set(is_ours) == {shardmesh.fsdp.DTensorExtensions},
            sorted(theirs))


def refusals(rank, world):
    mesh = mesh_over(range(world), (world,))
    tensor = distributed(pattern((4, 4), torch.float32), mesh, [Shard(0)])
    said = [error_of(lambda: shardmesh.redistribute(tensor, mesh, [Shard(2)])),
            error_of(lambda: shardmesh.redistribute(tensor, mesh, [Shard(0), Shard(0)])),
            error_of(lambda: shardmesh.redistribute(tensor, mesh, [Shard(0)], sharding_spec=object()))]
    # One rank requests another placement: all ranks raise the error.
    said.append(error_of(lambda: shardmesh.redistribute(tensor, mesh, [Shard(1 if rank else 0)])))
    fine = shardmesh.redistribute(tensor, mesh, [Shard(1)])
    return said, raw(fine.to_local()) == raw(part(pattern((4, 4), torch.float32), mesh, [Shard(1)]))


def somebody_is_missing(rank, world, is_first_call):
    mesh = mesh_over(range(world), (world,))
    tensor = distributed(pattern((4, 4), torch.float32), mesh, [Shard(0)])
    if not is_first_call:
        shardmesh.redistribute(tensor, mesh, [Shard(1)])
    dist.barrier()  # the ranks that wait call together: otherwise a busy machine makes one of them late
    if rank == world - 1:
        dist.barrier()
        return "", (), 0.0
    began = time.monotonic()
    code, ranks, text = error_of(lambda: shardmesh.redistribute(tensor, mesh, [Shard(1)], timeout=1.5))
    took = time.monotonic() - began
    dist.barrier()
    return code, ranks, took


def interrupted(rank, world, is_first_call):
    mesh = mesh_over(range(world), (world,))
    tensor = distributed(pattern((4, 4), torch.float32), mesh, [Shard(0)])
    if not is_first_call:
        shardmesh.redistribute(tensor, mesh, [Shard(1)])
    if rank == 0:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            shardmesh.redistribute(tensor, mesh, [Shard(1)])
            return "nothing"
        except KeyboardInterrupt:
            return "KeyboardInterrupt"
        finally:
            dist.barrier()
    dist.barrier()
    return error_of(lambda: shardmesh.redistribute(tensor, mesh, [Shard(1)], timeout=1))[0]


def progress_that_raises(rank, world):
    mesh = mesh_over(range(world), (world,))
    tensor = distributed(pattern((64, 64), torch.float32), mesh, [Shard(0)])
    said = []
    shardmesh.redistribute(tensor, mesh, [Shard(1)], progress=lambda done, total: said.append((done, total)))

    def enough(done, total):
        raise ArithmeticError("enough")

    try:
        shardmesh.redistribute(tensor, mesh, [Replicate()], progress=enough if rank == 0 else False, timeout=5)
        return said[-1], "nothing"
    except ArithmeticError as problem:
        return said[-1], repr(problem)
    except shardmesh.Error as problem:
        return said[-1], problem.code


class ConversionTest(unittest.TestCase):
    def test_boxes_there_and_back(self):
        for shared, is_sharded, size, placements, boxes, held, refused in run_ranks(3, there_and_back):
            self.assertEqual((shared, is_sharded, size, placements), (True, True, (7, 3), (Shard(0),)))
            self.assertEqual(boxes, [(0, (0, 0), (3, 3)), (1, (3, 0), (3, 3)), (2, (6, 0), (1, 3))])
            self.assertTrue(all(held))
            (code, ranks, text), replicas, terms = refused
            self.assertEqual((code, ranks), ("shape_mismatch", (0,)))
            self.assertIn("expected [0:7, 0:1), found [0:3, 0:3)", text)
            self.assertEqual(replicas[0], "unsupported")
            self.assertEqual(terms[0], "unsupported")

    def test_a_dtensor_cannot_have_segments(self):
        for answers in run_ranks(2, refused_segments):
            self.assertEqual([code for code, _, _ in answers], ["unsupported"] * 4)
            for _, _, text in answers:
                self.assertIn("has no placement that cuts the segments of a dimension: expected Shard, Replicate, Partial, "
                              "found SG(0,4:2); use shardmesh.Layout", text)

    def test_nested_sharded_tensors(self):
        for answer in run_ranks(4, nested):
            self.assertEqual(answer, (True, True, True, 7, True, True, True))

    def test_whole_state_dicts(self):
        for wrong in run_ranks(3, whole_states):
            self.assertEqual(wrong, [])

    def test_fsdp1(self):
        for ours, loaded, differed, extensions, keys in run_ranks(4, fsdp1_over_tensor_parallelism):
            self.assertEqual((ours, loaded, differed, extensions), (True, True, True, True))
            self.assertEqual(keys, ["down.bias", "down.weight", "norm.bias", "norm.weight", "up.bias", "up.weight"])

    def test_refusals(self):
        for said, goes_on in run_ranks(3, refusals):
            self.assertEqual([code for code, _, _ in said],
                             ["out_of_bounds", "invalid_argument", "invalid_argument", "disagreement"])
            self.assertTrue(goes_on)

    def test_a_rank_that_does_not_come(self):
        for is_first_call in (False, True):
            *waiting, _ = run_ranks(3, somebody_is_missing, is_first_call)
            for code, ranks, took in waiting:
                self.assertEqual((code, ranks), ("deadline_exceeded", (2,)))
                self.assertLess(took, 5)

    def test_progress(self):
        total = 64 * 32 * 4
        first, second = run_ranks(2, progress_that_raises)
        self.assertEqual(first, ((total, total), "ArithmeticError('enough')"))
        # The other rank may already have received everything that it wanted.
        self.assertEqual(second[0], (total, total))
        self.assertIn(second[1], ("cancelled", "nothing"))

    def test_ctrl_c(self):
        self.assertEqual(run_ranks(2, interrupted, False), ["KeyboardInterrupt", "cancelled"])
        first, second = run_ranks(2, interrupted, True)
        self.assertEqual(first, "KeyboardInterrupt")
        self.assertNotEqual(second, "no error")


class LayoutTest(unittest.TestCase):
    """Layouts need no ranks."""

    def test_golden_boxes(self):
        count = 0
        for case in json.loads((GOLDEN / "layouts.json").read_text())["cases"]:
            if not case["boxes_exact"]:
                continue
            text = {"Replicate": lambda p: "R", "Shard": lambda p: f"S({p['dim']})",
                    "StridedShard": lambda p: f"SS({p['dim']},{p['split_factor']})"}
            placements = ", ".join(text[p["type"]](p) for p in case["placements"])
            size = torch.Size(case["mesh"]).numel()
            layout = shardmesh.Layout(tuple(case["shape"]), tuple(case["mesh"]), tuple(range(size)), placements)
            for rank, held in enumerate(case["ranks"]):
                self.assertEqual(list(layout.local_shape(rank)), held["shape"])
                boxes = layout.boxes(rank)
                if 0 in held["shape"]:
                    self.assertEqual(boxes, [])
                else:
                    box = shardmesh.Box(tuple(held["offset"]), tuple(held["shape"]))
                    self.assertEqual(boxes, [(box, (0,) * len(held["shape"]))])
            count += 1
        self.assertGreater(count, 100)

    def test_what_a_layout_cannot_be(self):
        bad = shardmesh.Layout((4,), (2,), (0, 1), "S(1)")
        self.assertEqual(error_of(lambda: bad.boxes(0))[0], "out_of_bounds")
        good = shardmesh.Layout((4,), (2,), (3, 5), "S(0)")
        self.assertEqual(str(good), "[4] on [2] as S(0)")
        self.assertEqual(good.boxes(0), [])
        self.assertEqual(good.boxes(9), [])
        code, ranks, _ = error_of(lambda: good.local_shape(0))
        self.assertEqual((code, ranks), ("invalid_argument", (0,)))

    def test_segments_of_a_fused_tensor(self):
        layout = shardmesh.Layout((96, 5), (8,), tuple(range(8)), "SG(0,64:16:16)")
        rows = torch.arange(96)
        for rank in range(8):
            expected = torch.cat([segment.chunk(8)[rank] for segment in rows.split([64, 16, 16])])
            held = [rows[box.offsets[0]:box.offsets[0] + box.sizes[0]] for box, _ in layout.boxes(rank)]
            self.assertEqual(torch.cat(held).tolist(), expected.tolist())
            self.assertEqual([placed.local_offsets for placed in layout.boxes(rank)], [(0, 0), (8, 0), (10, 0)])
            self.assertEqual(layout.local_shape(rank), (12, 5))
        wrong = shardmesh.Layout((96, 5), (8,), tuple(range(8)), "SG(0,64:16)")
        code, _, text = error_of(lambda: wrong.boxes(0))
        self.assertEqual(code, "invalid_argument")
        self.assertIn("SG(0,64:16) do not add up to the size of dimension 0: expected 96, found 80", text)


if __name__ == "__main__":
    os.environ.setdefault("TORCH_SHOW_CPP_STACKTRACES", "0")
    common.main()
