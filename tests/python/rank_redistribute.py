# SPDX-License-Identifier: Apache-2.0
"""shardmesh.redistribute on real ranks: golden and random layouts (strided, uneven, and partial), within a mesh and
between meshes that share some ranks, all, or none. Compared with torch.chunk and, where PyTorch can, with
DTensor.redistribute; elsewhere, the test checks that PyTorch cannot."""
import random
import time

import common

common.need_torch()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed._shard.sharding_spec import ChunkShardingSpec, EnumerableShardingSpec, ShardMetadata  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard  # noqa: E402
from torch.distributed.tensor.placement_types import _StridedShard  # noqa: E402

import shardmesh  # noqa: E402
from common import raw  # noqa: E402
from rank_group import run_ranks  # noqa: E402
from rank_layouts import DTYPES, golden_layouts, golden_placement, pattern, wrapped  # noqa: E402

ROUNDS = 500 if common.long_runs() else 40
REDUCTIONS = {"sum": sum, "max": max, "min": min}


def mesh_over(ranks, sizes):
    # Without its own groups: shardmesh needs none.
    return DeviceMesh("cpu", torch.tensor(ranks).reshape(sizes), _init_backend=False)


def part(full, mesh, placements):
    """This rank's part of a tensor, one mesh dimension after the other; empty outside the mesh."""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return torch.empty(0, dtype=full.dtype)
    local = full
    for size, at, placement in zip(mesh.shape, coordinate, placements):
        if isinstance(placement, _StridedShard):
            pieces = torch.chunk(local, placement.split_factor, placement.dim)
            cut = [torch.chunk(piece, size, placement.dim) for piece in pieces]
            mine = [one[at] for one in cut if at < len(one)]
            local = torch.cat(mine, placement.dim) if mine else local.narrow(placement.dim, 0, 0)
        elif isinstance(placement, Shard):
            parts = torch.chunk(local, size, placement.dim)
            local = parts[at] if at < len(parts) else local.narrow(placement.dim, 0, 0)
    return local.contiguous()


def random_mesh(draw, world):
    count = draw.randrange(1, world + 1)
    ranks = draw.sample(range(world), count)
    sizes = draw.choice([sizes for sizes in ((count,), (1, count), (2, count // 2), (count // 2, 2), (3, count // 3))
                         if torch.Size(sizes).numel() == count])
    return mesh_over(ranks, sizes)


def random_placements(draw, dimensions, mesh):
    kinds = [Replicate()] + 3 * [Shard(d) for d in range(dimensions)]
    kinds += [_StridedShard(d, split_factor=draw.choice((1, 2, 3))) for d in range(dimensions)]
    return [draw.choice(kinds) for _ in range(mesh.ndim)]


def distributed(full, mesh, placements):
    return wrapped(part(full, mesh, placements), mesh, placements, full.shape)


def differs(moved, full, mesh, placements):
    expected = part(full, mesh, placements)
    found = moved.to_local()
    if mesh.get_coordinate() is None and not full.ndim:
        return found.numel() > 0
    return (tuple(moved.shape), moved.dtype, tuple(found.shape), raw(found), tuple(moved.placements), moved.device_mesh) != (
        tuple(full.shape), full.dtype, tuple(expected.shape), raw(expected), tuple(placements), mesh)


def between_random_layouts(rank, world, seed):
    draw, wrong = random.Random(seed), []
    everybody = dist.group.WORLD
    for number in range(ROUNDS):
        source, target = random_mesh(draw, world), random_mesh(draw, world)
        # PyTorch does not tell a rank outside the mesh that a DTensor has no dimensions.
        least = 0 if source.size() == world else 1
        shape = tuple(draw.choice((0, 1, 2, 3, 5, 8, 13, 17)) for _ in range(draw.randrange(least, 4)))
        full = pattern(shape, draw.choice(DTYPES))
        before, after = (random_placements(draw, full.ndim, mesh) for mesh in (source, target))
        tensor = distributed(full, source, before)
        kept = raw(tensor.to_local())
        moved = shardmesh.redistribute(tensor, target, after, process_group=everybody,
                                       memory_bytes=draw.choice((0, 4096)))
        if differs(moved, full, target, after) or raw(tensor.to_local()) != kept:
            wrong.append((number, shape, full.dtype, source, before, target, after))
    return wrong


def between_golden_layouts(rank, world):
    """Each golden layout from the previous one."""
    wrong, tensor, before = [], None, None
    for case in golden_layouts(world):
        mesh = mesh_over(range(world), case["mesh"])
        placements = [golden_placement(one) for one in case["placements"]]
        full = pattern(case["shape"], torch.float32)
        held = case["ranks"][rank]
        for start in ([Replicate()] * mesh.ndim, before if before and len(before[1]) == mesh.ndim else None):
            if start is None:
                continue
            if isinstance(start, tuple):
                start = [p if getattr(p, "dim", -1) < full.ndim else Replicate() for p in start[1]]
            moved = shardmesh.redistribute(distributed(full, mesh, start), mesh, placements).to_local()
            expected = full
            for d, (begin, size) in enumerate(zip(held["offset"], held["shape"])):
                expected = expected.narrow(d, begin if size else 0, size)
            if raw(moved) != raw(expected) or list(moved.shape) != held["shape"]:
                wrong.append((case["mesh"], case["placements"], case["shape"], start))
        before = (mesh, placements)
    return wrong


def of_terms(rank, world):
    """Partials to everything, and everything to partials; sums of integers, which are exact."""
    wrong = []
    for sizes in ((world,), (2, world // 2)):
        mesh = mesh_over(range(world), sizes)
        for name, combine in REDUCTIONS.items():
            for dtype in (torch.float32, torch.bfloat16, torch.int64):
                terms = [(torch.arange(30) * (one + 1) % 11 - 4).reshape(5, 6).to(dtype) for one in range(world)]
                full = terms[0]
                for term in terms[1:]:
                    full = full + term if combine is sum else getattr(torch, name + "imum")(full, term)
                placements = [Partial(name)] * mesh.ndim
                tensor = wrapped(terms[rank], mesh, placements, (5, 6))
                for target in ([Replicate()] * mesh.ndim, [Shard(0)] + [Replicate()] * (mesh.ndim - 1),
                               [Shard(1)] * mesh.ndim):
                    if differs(shardmesh.redistribute(tensor, mesh, target), full, mesh, target):
                        wrong.append((sizes, name, dtype, target))
                again = shardmesh.redistribute(shardmesh.redistribute(distributed(full, mesh, [Shard(0)] * mesh.ndim),
                                                                      mesh, placements), mesh, [Shard(1)] * mesh.ndim)
                if differs(again, full, mesh, [Shard(1)] * mesh.ndim):
                    wrong.append((sizes, name, dtype, "to terms and back"))
    return wrong


def as_pytorch_does(rank, world, seed):
    """Where DTensor.redistribute works: the same local tensors, bit for bit."""
    draw, wrong = random.Random(seed), []
    for sizes in ((world,), (2, world // 2)):
        mesh = init_device_mesh("cpu", sizes)
        for number in range(ROUNDS // 2):
            shape = tuple(draw.choice((1, 2, 3, 5, 8, 13)) for _ in range(draw.randrange(1, 4)))
            full = torch.randn(shape, generator=torch.Generator().manual_seed(number))
            before, after = ([draw.choice([Replicate()] + 2 * [Shard(d) for d in range(len(shape))])
                              for _ in range(mesh.ndim)] for _ in range(2))
            tensor = distributed(full, mesh, before)
            theirs = tensor.redistribute(mesh, after).to_local()
            ours = shardmesh.redistribute(tensor, mesh, after).to_local()
            if raw(ours) != raw(theirs) or ours.shape != theirs.shape:
                wrong.append((number, shape, sizes, before, after))
    return wrong


def where_pytorch_cannot(rank, world):
    """PyTorch's error or result, and whether ours is right: another mesh, Partial as the target, strided shards."""
    whole, half = init_device_mesh("cpu", (world,)), mesh_over(range(world // 2), (world // 2,))
    square = init_device_mesh("cpu", (2, world // 2))
    full, said = pattern((7, 5), torch.float32), []
    cases = [(whole, [Shard(0)], half, [Shard(1)]), (whole, [Shard(0)], whole, [Partial()])]
    for before in ([_StridedShard(0, split_factor=3)], [_StridedShard(0, split_factor=2)], [Shard(0)]):
        for after in ([_StridedShard(0, split_factor=3)], [_StridedShard(0, split_factor=2)], [Shard(1)]):
            if before != after:
                cases.append((whole, before, whole, after))
                cases.append((square, before + [Shard(0)], square, after + [Shard(0)]))
    for source, before, target, after in cases:
        tensor = distributed(full, source, before)
        try:
            theirs = tensor.redistribute(target, after).to_local()
            answer = "right" if raw(theirs) == raw(part(full, target, after)) else "wrong"
        except Exception as problem:
            answer = type(problem).__name__
        moved = shardmesh.redistribute(tensor, target, after)
        if any(isinstance(one, Partial) for one in after):
            moved, after = shardmesh.redistribute(moved, target, [Replicate()]), [Replicate()]
        said.append((str((before, after)), answer, not differs(moved, full, target, after)))
    return said


def sharded_tensors(rank, world):
    wrong = []
    full = pattern((9, 4), torch.float64)
    mesh = mesh_over(range(world), (world,))
    rows = ChunkShardingSpec(0, [f"rank:{one}/cpu" for one in range(world)])
    uneven = EnumerableShardingSpec([ShardMetadata([0, 0], [9, 3], "rank:1/cpu"), ShardMetadata([0, 3], [4, 1], "rank:0/cpu"),
                                     ShardMetadata([4, 3], [5, 1], "rank:1/cpu")])
    tensor = distributed(full, mesh, [Shard(1)])
    for spec in (rows, uneven, rows):
        tensor = shardmesh.redistribute(tensor, sharding_spec=spec)
        for shard in tensor.local_shards():
            expected = full
            for d, (begin, size) in enumerate(zip(shard.metadata.shard_offsets, shard.metadata.shard_sizes)):
                expected = expected.narrow(d, begin, size)
            if raw(shard.tensor) != raw(expected):
                wrong.append((spec, shard.metadata))
        if differs(shardmesh.redistribute(tensor, mesh, [Shard(0)]), full, mesh, [Shard(0)]):
            wrong.append((spec, "to a DTensor"))
    return wrong


def gradients(rank, world):
    mesh = init_device_mesh("cpu", (world,))
    full = torch.arange(20.0).reshape(5, 4)
    tensor = distributed(full, mesh, [Shard(0)]).requires_grad_()
    moved = shardmesh.redistribute(tensor, mesh, [Shard(1)])
    weight = distributed(full * 3, mesh, [Shard(1)])
    (moved * weight).sum().full_tensor().backward()
    with torch.no_grad():
        silent = shardmesh.redistribute(tensor, mesh, [Shard(1)])
    return (raw(tensor.grad.to_local()) == raw(part(full * 3, mesh, [Shard(0)])), moved.requires_grad,
            silent.requires_grad, tuple(tensor.grad.placements) == (Shard(0),))


def special_values(rank, world):
    """A conjugated local tensor is read as its resolved values; strides do not matter."""
    mesh = mesh_over(range(world), (world,))
    full = torch.complex(torch.arange(24.0), -torch.arange(24.0)).reshape(6, 4)
    local = part(full.conj().resolve_conj(), mesh, [Shard(0)])
    lazy = wrapped(local.conj(), mesh, [Shard(0)], full.shape)
    strided = wrapped(part(full, mesh, [Shard(0)]).t().contiguous().t(), mesh, [Shard(0)], full.shape)
    return [differs(shardmesh.redistribute(one, mesh, [Shard(1)]), full, mesh, [Shard(1)]) for one in (lazy, strided)]


def between_machines(rank, world, seed):
    """As on several machines: through a gloo group that is made for it."""
    from shardmesh import _ranks

    _ranks._machine = lambda: str(rank // 2).encode()
    global ROUNDS
    ROUNDS = 20
    wrong = between_random_layouts(rank, world, seed)
    mesh = mesh_over([3, 1], (2,))
    tensor = distributed(pattern((5, 3), torch.float32), mesh, [Shard(0)])
    if rank in (1, 3):  # the other ranks do not take part
        moved = shardmesh.redistribute(tensor, mesh, [Shard(1)])
        if differs(moved, pattern((5, 3), torch.float32), mesh, [Shard(1)]):
            wrong.append("two ranks")
    return wrong


def without_plain_memory(rank, world):
    mesh = mesh_over(range(world), (world,))
    said = []
    for local in (torch.ones(2, 2).to_sparse(), torch.ones(2, 2, device="meta"),
                  torch.quantize_per_tensor(torch.ones(2, 2), 1.0, 0, torch.qint8)):
        tensor = wrapped(torch.ones(2, 2), mesh, [Shard(0)], (2 * world, 2))
        if rank == 0:  # only one rank's
            tensor._local_tensor = local
        try:
            shardmesh.redistribute(tensor, mesh, [Shard(1)], timeout=1)
            said.append("no error")
        except shardmesh.Error as problem:
            said.append((problem.code, str(problem)[:40]))
    return said


def told(call):
    try:
        call()
        return "no error"
    except shardmesh.Error as problem:
        return problem.code
    except ZeroDivisionError:
        return "ZeroDivisionError"


def after_calls_that_ended(rank, world):
    """Every rank gets an error, and the next call works."""
    mesh = mesh_over(range(world), (world,))
    full = pattern((5, 3), torch.float32)
    tensor = distributed(full, mesh, [Shard(0)])
    move = lambda **options: shardmesh.redistribute(tensor, mesh, [Shard(1)], **options)  # noqa: E731
    is_right = lambda: not differs(move(timeout=60), full, mesh, [Shard(1)])  # noqa: E731
    said = []

    def late(timeout):
        """The last rank calls after the others have given up."""
        if rank == world - 1:
            said.append(None)
            dist.barrier()
            return
        said.append(told(lambda: move(timeout=timeout)))
        dist.barrier()

    late(0.3)  # in the first call, before they have met
    late(0.3)
    said.append(is_right())
    late(0.3)  # after they have met
    if rank == world - 1:
        said.append(told(move))  # the outcome of the call that the others were in
    dist.barrier()
    said.append(is_right())

    def divide(done, total):
        if rank == 0:
            1 / 0

    said.append(told(lambda: move(progress=divide)))
    dist.barrier()
    said.append(is_right())
    said.append(is_right())
    return said


def while_others_wait(rank, world):
    """Rank 0 leaves and returns while rank 1 waits for the last rank: all three meet."""
    mesh = mesh_over(range(world), (world,))
    full = pattern((5, 3), torch.float32)
    tensor = distributed(full, mesh, [Shard(0)])
    said = []
    if rank == 0:
        said.append(told(lambda: shardmesh.redistribute(tensor, mesh, [Shard(1)], timeout=0.3)))
    time.sleep(0.3 * rank * (rank - 1))
    said.append(not differs(shardmesh.redistribute(tensor, mesh, [Shard(1)], timeout=60), full, mesh, [Shard(1)]))
    return said


def wrong_on_one_rank(rank, world):
    """Placements that do not fit, on rank 0 alone: all ranks get the error, and the next call works."""
    mesh = mesh_over(range(world), (world,))
    full = pattern((5, 3), torch.float32)
    tensor = distributed(full, mesh, [Shard(0)])
    said = []
    for _ in range(2):
        said.append(told(lambda: shardmesh.redistribute(tensor, mesh, [Shard(1 if rank else 3)], timeout=60)))
        said.append(not differs(shardmesh.redistribute(tensor, mesh, [Replicate()]), full, mesh, [Replicate()]))
    return said


def on_part_of_the_ranks(rank, world):
    """Scalars and gradients pass through a mesh that lacks ranks."""
    whole, part = mesh_over(range(world), (world,)), mesh_over([world - 1], (1,))
    scalar = distributed(torch.tensor(5.0), whole, [Replicate()])
    there = shardmesh.redistribute(scalar, part, [Replicate()])
    back = shardmesh.redistribute(there, whole, [Replicate()])
    said = [tuple(there.shape), tuple(back.shape), back.to_local().item()]
    tensor = distributed(pattern((5, 3), torch.float32), whole, [Shard(0)]).requires_grad_()
    shardmesh.redistribute(tensor, part, [Shard(1)]).to_local().sum().backward()
    return said + [bool((tensor.grad.to_local() == 1).all()), tuple(tensor.grad.to_local().shape) == tuple(tensor.to_local().shape)]


def with_a_rank_that_ends(rank, world):
    """The others are notified that the process has ended: in their current call, and in later ones."""
    mesh = mesh_over(range(world), (world,))
    tensor = distributed(pattern((5, 3), torch.float32), mesh, [Shard(0)])
    shardmesh.redistribute(tensor, mesh, [Shard(1)])
    said = []
    if rank == world - 1:
        return said
    for _ in range(3):
        try:
            shardmesh.redistribute(tensor, mesh, [Shard(1)])
        except shardmesh.Error as problem:
            said.append((problem.code, "has ended" in str(problem), problem.ranks))
    time.sleep(2) # the others also check for this one
    return said


class RedistributeTest(common.WorkTest):
    def none_wrong(self, world, function, *arguments):
        for wrong in run_ranks(world, function, *arguments):
            self.assertEqual(wrong, [])

    def test_random_layouts_on_meshes_of_any_of_the_ranks(self):
        for world in (2, 4, 6):
            seed = common.seed() + world
            with self.subTest(world=world, seed=seed):
                self.none_wrong(world, between_random_layouts, seed)

    def test_golden_layouts(self):
        for world in (2, 4, 6):
            self.none_wrong(world, between_golden_layouts)

    def test_terms(self):
        self.none_wrong(4, of_terms)

    def test_what_pytorch_does(self):
        self.none_wrong(4, as_pytorch_does, common.seed())

    def test_what_pytorch_does_not(self):
        for said in run_ranks(4, where_pytorch_cannot):
            self.assertEqual([case for case, _, right in said if not right], [])
            answers = [answer for _, answer, _ in said]
            # Refused: other meshes, Partial targets. Some strided shards are silently wrong.
            self.assertEqual(answers[:2], ["NotImplementedError", "RuntimeError"])
            self.assertIn("wrong", answers[2:])

    def test_sharded_tensors(self):
        for world in (2, 4):
            self.none_wrong(world, sharded_tensors)

    def test_between_machines(self):
        self.none_wrong(4, between_machines, common.seed())

    def test_ranks_meet_again_after_a_call_that_ended(self):
        for world in (2, 3):
            *first, last = run_ranks(world, after_calls_that_ended)
            ended = "deadline_exceeded"
            self.assertEqual(first[0].pop(5), "ZeroDivisionError")
            for said in (*first[1:], [last.pop(6)] * 6):  # a rank that had received everything gets no error
                self.assertIn(said.pop(5), ("cancelled", "no error"))
            for said in first:
                self.assertEqual(said, [ended, ended, True, ended, True, True, True])
            self.assertEqual(last, [None, None, True, None, ended, True, True, True])

    def test_a_rank_that_comes_again_while_others_wait(self):
        first, *others = run_ranks(3, while_others_wait)
        self.assertEqual(first, ["deadline_exceeded", True])
        self.assertEqual(others, [[True], [True]])

    def test_placements_that_do_not_fit_on_one_rank(self):
        for said in run_ranks(3, wrong_on_one_rank):
            self.assertEqual(said[1::2], [True, True])
            self.assertNotIn("no error", said)

    def test_meshes_without_all_of_the_ranks(self):
        for answer in run_ranks(3, on_part_of_the_ranks):
            self.assertEqual(answer, [(), (), 5.0, True, True])

    def test_a_rank_whose_process_ends(self):
        for world in (2, 3):
            *others, _ = run_ranks(world, with_a_rank_that_ends, end_alone=True)
            self.assertEqual(others, [[("communication", True, (world - 1,))] * 3] * (world - 1))

    def test_tensors_without_plain_memory(self):
        first, second = run_ranks(2, without_plain_memory)
        self.assertEqual([code for code, _ in first], ["unsupported"] * 3)
        # The other rank is notified at once.
        self.assertEqual([code for code, _ in second], ["unsupported"] * 3)

    def test_autograd(self):
        for answer in run_ranks(2, gradients):
            self.assertEqual(answer, (True, True, False, True))

    def test_special_values(self):
        for answer in run_ranks(2, special_values):
            self.assertEqual(answer, [False, False])


if __name__ == "__main__":
    common.main()
