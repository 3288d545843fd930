# SPDX-License-Identifier: Apache-2.0
"""Folders that PyTorch's ranks saved with use_collectives=False: each rank has its own values under the same keys. A
rank loads its own values. A process that is no rank gets a conflict that names the key and the ranks, or KEY@RANK of
each."""
import json
import os
import shutil
import subprocess
import unittest
import warnings
from pathlib import Path

import common

common.need_torch()
import torch  # noqa: E402
import torch.distributed.checkpoint as torch_checkpoint  # noqa: E402
from torch.distributed.checkpoint.planner import SavePlanner  # noqa: E402,F401
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor  # noqa: E402

import shardmesh  # noqa: E402
import shardmesh.dcp  # noqa: E402
from rank_group import run_ranks  # noqa: E402

warnings.filterwarnings("ignore")
RANKS = 3
TOOL = Path(shardmesh.__file__).parent / "bin" / "shardmesh"
FULL = torch.arange(21.0).reshape(7, 3)
BIG = 600_000  # elements; a tensor of this size is compared by its archive's directory


def state_of(rank, mesh):
    """Shards, replicas, and the rank's own values: tensors of equal and different shapes, objects, nested values."""
    return {"shards": distribute_tensor(FULL, mesh, [Shard(0)]), "replica": distribute_tensor(FULL + 1, mesh, [Replicate()]),
            "plain": torch.arange(4.0), "rng": torch.full((5,), float(rank)), "many": torch.full((rank + 1,), float(rank)),
            "big": torch.full((BIG,), float(rank)), "bigsame": torch.ones(BIG), "step": 7,
            "loader": {"position": 100 + rank, "epoch": 2, "items": [rank, 5]},
            "mixed": rank if rank == 1 else torch.full((2,), float(rank))}


def save(rank, world, path):
    mesh = init_device_mesh("cpu", (world,))
    torch_checkpoint.save(state_of(rank, mesh), checkpoint_id=path, use_collectives=False)


def empty_state(rank, mesh):
    return {"shards": distribute_tensor(torch.zeros(7, 3), mesh, [Shard(0)]), "replica": distribute_tensor(torch.zeros(7, 3), mesh, [Replicate()]),
            "plain": torch.zeros(4), "rng": torch.zeros(5), "many": torch.zeros(rank + 1), "big": torch.zeros(BIG),
            "bigsame": torch.zeros(BIG), "step": 0, "loader": {"position": 0, "epoch": 0, "items": [0, 0]},
            "mixed": 0 if rank == 1 else torch.zeros(2)}


def plain(value):
    if isinstance(value, DTensor):
        value = value.to_local()
    if isinstance(value, torch.Tensor):
        return value[:9].tolist()
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return value


def load(rank, world, path):
    """The errors of each way of loading."""
    mesh = init_device_mesh("cpu", (world,))
    expected = {key: plain(value) for key, value in state_of(rank, mesh).items()}
    wrong = []
    for name, call in {
            "dcp.load": lambda state: shardmesh.dcp.load(state, checkpoint_id=path),
            "PyTorch's planner": lambda state: shardmesh.dcp.load(state, checkpoint_id=path, planner=torch_checkpoint.DefaultLoadPlanner()),
            "PyTorch's load": lambda state: torch_checkpoint.load(state, storage_reader=shardmesh.dcp.StorageReader(path)),
            "PyTorch itself": lambda state: torch_checkpoint.load(state, checkpoint_id=path)}.items():
        state = empty_state(rank, mesh)
        call(state)
        found = {key: plain(value) for key, value in state.items()}
        wrong += [(name, key, found[key], expected[key]) for key in expected if found[key] != expected[key]]
    # Other ranks' shards, for another layout: PyTorch knows only the rank's own.
    other = {"shards": distribute_tensor(torch.zeros(7, 3), mesh, [Replicate()])}
    shardmesh.dcp.load(other, checkpoint_id=path)
    if not torch.equal(other["shards"].to_local(), FULL):
        wrong.append("shards were not merged")
    alone = {"rng": torch.zeros(5)}
    shardmesh.dcp.load(alone, checkpoint_id=path, rank=(rank + 1) % world)
    if alone["rng"].tolist() != [float((rank + 1) % world)] * 5:
        wrong.append("rank= was not heard")
    return wrong


def save_replicas(rank, world, path):
    """Every rank saves the same; a small and a large tensor, and an object."""
    torch_checkpoint.save({"w": torch.arange(6.0), "bigsame": torch.ones(BIG), "step": 7}, checkpoint_id=path, use_collectives=False)


def save_drifted(rank, world, path):
    """Two groups of ranks have the same shards, except that rank 2's shard differs from rank 0's."""
    mesh = init_device_mesh("cpu", (2, world // 2))
    tensor = distribute_tensor(FULL, mesh, [Replicate(), Shard(0)])
    if rank == 2:
        tensor.to_local().add_(100)
    torch_checkpoint.save({"w": tensor}, checkpoint_id=path, use_collectives=False)


def save_lists(rank, world, path):
    """Lists are shorter on later ranks; the last one's is empty."""
    state = {"items": [torch.full((2,), float(rank)) for _ in range(world - 1 - rank)], "seen": {f"by{rank}": rank}}
    torch_checkpoint.save(state, checkpoint_id=path, use_collectives=False)


def subgroup(rank, world, path):
    """Ranks 1 and 2 save and load as a group of two."""
    group = torch.distributed.new_group([1, 2])
    if rank == 0:
        return 0.0
    torch_checkpoint.save({"rng": torch.full((2,), float(rank))}, checkpoint_id=path, use_collectives=False, process_group=group)
    found = []
    for call in (lambda state: shardmesh.dcp.load(state, checkpoint_id=path, process_group=group),
                 lambda state: torch_checkpoint.load(state, storage_reader=shardmesh.dcp.StorageReader(path), process_group=group)):
        state = {"rng": torch.zeros(2)}
        call(state)
        found.append(state["rng"][0].item())
    return found[0] if found[0] == found[1] else found


def alone(rank, world, path):
    """What each way of loading reads with no_dist=True."""
    found = []
    for call in (lambda state: shardmesh.dcp.load(state, checkpoint_id=path, no_dist=True),
                 lambda state: torch_checkpoint.load(state, storage_reader=shardmesh.dcp.StorageReader(path), no_dist=True),
                 lambda state: torch_checkpoint.load(state, storage_reader=shardmesh.dcp.StorageReader(path, rank=2), no_dist=True)):
        state = {"rng": torch.zeros(5)}
        call(state)
        found.append(state["rng"][0].item())
    return found


CONFLICTS = {"rng", "many", "big", "loader.position", "loader.items", "mixed"}
EQUAL = {"plain", "bigsame", "step", "loader.epoch", "shards", "replica"}


class RankValuesTest(common.WorkTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(common.tempfile.mkdtemp(prefix="shardmesh-ranks-")) / "saved"
        run_ranks(RANKS, save, str(cls.folder))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder.parent, ignore_errors=True)

    def run_tool(self, *arguments):
        done = subprocess.run([TOOL, *arguments], capture_output=True, text=True, timeout=100)
        return done.returncode, done.stdout + done.stderr

    def test_without_the_other_ranks_a_rank_reads_its_own_values_and_pytorchs_load_those_of_rank_0(self):
        self.assertEqual(run_ranks(RANKS, alone, str(self.folder)), [[float(rank), 0.0, 2.0] for rank in range(RANKS)])

    def test_each_rank_gets_its_own_values(self):
        self.assertEqual(run_ranks(RANKS, load, str(self.folder)), [[]] * RANKS)

    def test_ranks_of_a_group(self):
        self.assertEqual(run_ranks(RANKS, subgroup, str(self.work / "saved")), [0.0, 1.0, 2.0])

    def test_whoever_is_no_rank_gets_a_named_conflict(self):
        opened = shardmesh.open(self.folder)
        self.assertEqual(set(opened), CONFLICTS | EQUAL)
        for key in CONFLICTS:
            for call in (lambda: opened.load(key), lambda: shardmesh.load(self.folder, key)):
                with self.assertRaises(shardmesh.Error) as caught:
                    call()
                problem = caught.exception
                self.assertEqual((problem.code, problem.key, problem.ranks), ("disagreement", key, (0, 1, 2)), str(problem))
                self.assertIn("KEY@RANK", problem.hint)
        self.assertEqual({problem.key for problem in opened.warnings}, CONFLICTS)
        self.assertTrue(torch.equal(opened.load("shards"), FULL))
        self.assertTrue(torch.equal(opened.load("replica"), FULL + 1))
        self.assertEqual((opened.load("step"), opened.load("loader.epoch")), (7, 2))
        for state in ({"many": torch.zeros(3)}, {"mixed": torch.zeros(7)}):  # no rank's shape, or another's
            for call in (opened.load_into, lambda state: shardmesh.dcp.load(state, checkpoint_id=self.folder)):
                with self.assertRaises(shardmesh.Error) as caught:
                    call(dict(state))
                self.assertEqual((caught.exception.code, caught.exception.key), ("disagreement", *state))
        state = {"rng": torch.zeros(5)}
        for call in (lambda: shardmesh.dcp.load(state, checkpoint_id=self.folder),
                     lambda: torch_checkpoint.load(state, storage_reader=shardmesh.dcp.StorageReader(self.folder))):
            with self.assertRaises(BaseException) as caught:
                call()
            self.assertIn("the ranks saved different values", str(caught.exception))
            self.assertEqual(state["rng"].tolist(), [0.0] * 5)

    def test_one_rank_by_an_option(self):
        for rank in range(RANKS):
            opened = shardmesh.open(self.folder, rank=rank)
            self.assertEqual(set(opened), CONFLICTS | EQUAL)
            self.assertEqual(opened.load("rng").tolist(), [float(rank)] * 5)
            self.assertEqual(opened.load("many").tolist(), [float(rank)] * (rank + 1))
            self.assertEqual((opened.load("loader.position"), opened.load("loader.items")), (100 + rank, [rank, 5]))
            self.assertTrue(torch.equal(opened.load("shards"), FULL))
            self.assertEqual(shardmesh.load(self.folder, "rng", rank=rank).tolist(), [float(rank)] * 5)
            self.assertTrue(shardmesh.verify(self.folder, rank=rank).ok)
            mixed = opened.load("mixed")
            self.assertEqual(mixed if rank == 1 else mixed.tolist(), 1 if rank == 1 else [float(rank)] * 2)
        with self.assertRaises(shardmesh.Error):  # no such rank: treated as no rank
            shardmesh.load(self.folder, "rng", rank=9)

    def test_each_rank_s_value_under_a_key_of_its_own(self):
        opened = shardmesh.open(self.folder, keys_at_ranks=True)
        self.assertEqual(set(opened), EQUAL | {f"{key}@{rank}" for key in CONFLICTS for rank in range(RANKS)})
        for rank in range(RANKS):
            self.assertEqual(opened.load(f"rng@{rank}").tolist(), [float(rank)] * 5)
            self.assertEqual(opened.load(f"many@{rank}").tolist(), [float(rank)] * (rank + 1))
            self.assertEqual(opened.load(f"loader.position@{rank}"), 100 + rank)
            self.assertEqual(opened[f"loader.position@{rank}"].path, ("loader", f"position@{rank}"))
            self.assertEqual(shardmesh.load(self.folder, f"rng@{rank}", keys_at_ranks=True).tolist(), [float(rank)] * 5)
        report = shardmesh.verify(self.folder, keys_at_ranks=True)
        self.assertTrue(report.ok, report.problems)
        self.assertGreaterEqual(report.chunks, 3 * 3)
        shardmesh.convert(self.folder, self.work / "out", "dcp", keys_at_ranks=True)
        self.assertTrue(shardmesh.diff(self.folder, self.work / "out", keys_at_ranks=True).equal)
        self.assertEqual(shardmesh.load(self.work / "out", "rng@2").tolist(), [2.0] * 5)
        shardmesh.convert(self.folder, self.work / "of-1", "dcp", rank=1)
        self.assertEqual(shardmesh.load(self.work / "of-1", "rng").tolist(), [1.0] * 5)

    def test_verify_and_convert_say_so(self):
        report = shardmesh.verify(self.folder)
        self.assertFalse(report.ok)
        self.assertEqual({problem.key for problem in report.problems}, CONFLICTS)
        with self.assertRaises(shardmesh.Error) as caught:
            shardmesh.convert(self.folder, self.work / "out", "dcp")
        self.assertEqual(caught.exception.code, "disagreement")
        self.assertEqual(self.left_in_work(), [])
        skipped = shardmesh.Selection(skip=["rng", "many", "big", r"loader\..*", "mixed"])
        shardmesh.convert(self.folder, self.work / "out", "dcp", selection=skipped)
        self.assertTrue(torch.equal(shardmesh.load(self.work / "out", "shards"), FULL))

    def test_the_command_line(self):
        status, said = self.run_tool("verify", self.folder)
        self.assertEqual(status, 1, said)
        for key in CONFLICTS:
            self.assertIn(f"{key}: the ranks saved different", said)
        self.assertEqual(self.run_tool("verify", "--rank", "1", self.folder)[0], 0)
        self.assertEqual(self.run_tool("verify", "--keys-at-ranks", self.folder)[0], 0)
        self.assertEqual(self.run_tool("verify", "--keys-at-ranks", "--rank", "1", self.folder)[0], 2)
        status, said = self.run_tool("inspect", "--keys-at-ranks", self.folder)
        self.assertEqual(status, 0, said)
        for rank in range(RANKS):
            self.assertIn(f"rng@{rank}", said)
        status, said = self.run_tool("convert", "--rank", "2", self.folder, self.work / "out.pt")
        self.assertEqual(status, 0, said)
        self.assertEqual(torch.load(self.work / "out.pt")["rng"].tolist(), [2.0] * 5)
        status, said = self.run_tool("convert", self.folder, self.work / "out.safetensors")
        self.assertEqual(status, 1, said)
        self.assertFalse((self.work / "out.safetensors").exists())

    def test_a_rank_s_copy_that_is_missing_or_cut_is_a_problem(self):
        folder = self.work / "damaged"
        shutil.copytree(self.folder, folder)
        file = folder / "__1_0.distcp"
        file.write_bytes(file.read_bytes()[:1000])
        report = shardmesh.verify(folder, keys_at_ranks=True)
        self.assertFalse(report.ok)
        self.assertIn("__1_0.distcp", " ".join(str(problem) for problem in report.problems))
        file.unlink()
        self.assertIn("__1_0.distcp", " ".join(str(problem) for problem in shardmesh.verify(folder).problems))

    def test_verify_reads_the_replicas_of_every_rank(self):
        folder = self.work / "replicas"
        run_ranks(RANKS, save_replicas, str(folder))
        report = shardmesh.verify(folder)
        self.assertEqual((report.problems, report.warnings), ([], []))
        self.assertEqual((report.chunks, report.objects), (2 * RANKS, RANKS))
        self.assertEqual(self.run_tool("verify", "--strict", folder)[0], 0)
        file = folder / "__1_0.distcp"
        whole = file.read_bytes()
        for key, content in {"w": torch.arange(6.0), "bigsame": torch.ones(BIG)}.items():
            at = whole.find(content.numpy().tobytes()) + 5
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
            report = shardmesh.verify(folder)
            self.assertFalse(report.ok, key)
            self.assertIn(key, {problem.key for problem in report.problems})
            # As rank 0 the folder is whole: rank 1's copy is not read.
            self.assertTrue(shardmesh.verify(folder, rank=0).ok)
            self.assertFalse(shardmesh.verify(folder, rank=1).ok)
        file.write_bytes(whole[:-100])
        self.assertIn("__1_0.distcp", " ".join(str(problem) for problem in shardmesh.verify(folder).problems))
        file.unlink()
        self.assertIn("__1_0.distcp", " ".join(str(problem) for problem in shardmesh.verify(folder).problems))

    def test_entries_of_drifted_ranks_share_items_on_purpose(self):
        folder = self.work / "drifted"
        run_ranks(4, save_drifted, str(folder))
        opened = shardmesh.open(folder, keys_at_ranks=True)
        self.assertEqual(set(opened), {f"w@{rank}" for rank in range(4)})
        drifted = FULL.clone()
        drifted[:4] += 100
        for rank, expected in {0: FULL, 2: drifted}.items():
            self.assertTrue(torch.equal(opened.load(f"w@{rank}"), expected), rank)
        for quick in (False, True):
            report = shardmesh.verify(folder, keys_at_ranks=True, quick=quick)
            # Rows 0 to 3 as ranks 1 and 3 see them: ranks 0 and 2 have different values of them.
            self.assertEqual({(problem.code, problem.key) for problem in report.problems},
                             {("disagreement", "w@1"), ("disagreement", "w@3")}, report.problems)
        for rank, expected in {0: FULL, 2: drifted}.items():
            only = shardmesh.Selection(only=[f"w@{rank}"])
            shardmesh.convert(folder, self.work / f"of-{rank}", "dcp", selection=only, keys_at_ranks=True)
            self.assertTrue(torch.equal(shardmesh.load(self.work / f"of-{rank}", f"w@{rank}"), expected), rank)
        file = folder / "__1_0.distcp"
        whole = file.read_bytes()
        at = whole.find(FULL[4:].numpy().tobytes()) + 5
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
        # Rank 3's item now differs from it, so each rank has values of its own.
        report = shardmesh.verify(folder, keys_at_ranks=True)
        self.assertNotIn("overlap", {problem.code for problem in report.problems}, report.problems)
        self.assertIn(("checksum_mismatch", "w@1"), {(problem.code, problem.key) for problem in report.problems})

    def test_a_rank_s_lists_have_no_elements_of_other_ranks(self):
        folder = self.work / "lists"
        run_ranks(RANKS, save_lists, str(folder))
        for rank in range(RANKS):
            opened = shardmesh.open(folder, rank=rank)
            own = {f"items.{i}" for i in range(RANKS - 1 - rank)} or {"items"}
            self.assertEqual(set(opened), own | {f"seen.by{one}" for one in range(RANKS)})
            shardmesh.convert(folder, self.work / f"{rank}.pt", "pt", rank=rank)
            items = torch.load(self.work / f"{rank}.pt")["items"]
            self.assertEqual([item.tolist() for item in items], [[float(rank)] * 2] * (RANKS - 1 - rank))
            status, said = self.run_tool("inspect", "--rank", str(rank), folder)
            self.assertEqual(status, 0, said)
            self.assertIn("of other ranks in lists and values that rank", said)

    def test_golden_ranks_with_equal_values_have_no_conflict(self):
        folder = common.GOLDEN / "options_no_collectives" / "checkpoint"
        opened = shardmesh.open(folder)
        self.assertEqual((opened.warnings, opened.problems), ([], []))
        self.assertTrue(shardmesh.verify(folder).ok)
        self.assertEqual(set(shardmesh.open(folder, keys_at_ranks=True)), set(opened))
        expected = json.loads((folder.parent / "expected.json").read_text())
        self.assertEqual(len(opened), len(expected["tensors"]) + len(expected["objects"]))
        for rank in range(2):
            self.assertTrue(shardmesh.verify(folder, rank=rank).ok)


if __name__ == "__main__":
    common.main()
