# SPDX-License-Identifier: Apache-2.0
"""save(previous=) and dcp.save(previous=): a checkpoint refers to the chunks of an earlier one that have not changed.
PyTorch loads each."""
import shutil

import common

common.need_torch()
import torch  # noqa: E402
import torch.distributed.checkpoint as torch_checkpoint  # noqa: E402
from torch.distributed.checkpoint import FileSystemReader  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import Shard, distribute_tensor  # noqa: E402

import shardmesh.dcp  # noqa: E402
from rank_group import run_ranks  # noqa: E402

RANKS = 2


def state_of(step):
    """Of the tensors, "head" changes in every step; "body" does not."""
    return {"body": torch.arange(4096.0).reshape(64, 64), "head": torch.full((16, 4), float(step)), "epoch": step}


def load(path):
    state = {"body": torch.zeros(64, 64), "head": torch.zeros(16, 4), "epoch": -1}
    torch_checkpoint.load(state, checkpoint_id=path, no_dist=True)
    return state


def references(path):
    stored = FileSystemReader(path).read_metadata().storage_data
    return {(index.fqn, info.relative_path) for index, info in stored.items() if "/" in info.relative_path}


def sharded(step):
    mesh = init_device_mesh("cpu", (RANKS,))
    state = state_of(step)
    return {**state, "body": distribute_tensor(state["body"], mesh, [Shard(0)])}


def saving_steps(rank, world, work):
    """Steps 0 and 1 with `save`, 2 with `async_save`. Returns the error of a step after one that does not exist."""
    shardmesh.dcp.save(sharded(0), checkpoint_id=f"{work}/step-0")
    shardmesh.dcp.save(sharded(1), checkpoint_id=f"{work}/step-1", previous=f"{work}/step-0")
    shardmesh.dcp.async_save(sharded(2), checkpoint_id=f"{work}/step-2", previous=f"{work}/step-1").result()
    try:
        shardmesh.dcp.save(sharded(3), checkpoint_id=f"{work}/step-3", previous=f"{work}/missing")
    except shardmesh.Error as problem:
        return problem.code, str(problem)
    return None


class IncrementalTest(common.WorkTest):
    def check(self, path, step):
        expected, loaded = state_of(step), load(path)
        for key, value in expected.items():
            same = torch.equal(loaded[key], value) if isinstance(value, torch.Tensor) else loaded[key] == value
            self.assertTrue(same, key)
        self.assertEqual(shardmesh.verify(path).problems, [])

    def test_unchanged_tensors_are_references_and_the_report_counts_them(self):
        whole = shardmesh.save(state_of(0), self.work / "step-0")
        self.assertEqual((whole.referred_bytes, whole.written_bytes), (0, whole.bytes))
        report = shardmesh.save(state_of(1), self.work / "step-1", previous=self.work / "step-0")
        self.assertEqual((report.bytes, report.referred_bytes, report.written_bytes), (whole.bytes, 64 * 64 * 4, 16 * 4 * 4))
        self.check(self.work / "step-1", 1)
        self.assertEqual(references(self.work / "step-1"), {("body", "../step-0/__0_0.distcp")})
        shardmesh.save(state_of(2), self.work / "step-2", previous=str(self.work / "step-1"))
        self.assertEqual(references(self.work / "step-2"), {("body", "../step-0/__0_0.distcp")})
        shutil.rmtree(self.work / "step-1")
        self.check(self.work / "step-2", 2)

    def test_a_previous_checkpoint_that_cannot_be_used_is_an_error(self):
        shardmesh.save(state_of(0), self.work / "step-0")
        for code, text, options in (
                ("invalid_argument", "is not a folder", {"previous": self.work / "missing"}),
                ("invalid_argument", "would be replaced", {"previous": self.work / "step-1", "overwrite": True}),
                ("invalid_argument", "only a DCP folder", {"previous": self.work / "step-0", "format": "hf"}),
                ("invalid_argument", "path", {"previous": 7})):
            (self.work / "step-1").mkdir(exist_ok=True)
            with self.subTest(text), self.assertRaises(shardmesh.Error) as raised:
                shardmesh.save(state_of(1), self.work / "step-1", **options)
            self.assertEqual(raised.exception.code, code)
            self.assertIn(text, str(raised.exception))

    def test_ranks_refer_to_each_others_files(self):
        for said in run_ranks(RANKS, saving_steps, str(self.work)):
            self.assertIsNotNone(said)
            self.assertEqual(said[0], "invalid_argument")
            self.assertIn("is not a folder", said[1])
        self.assertFalse((self.work / "step-3").exists())
        self.assertEqual(references(self.work / "step-0"), set())
        for step in (1, 2):
            with self.subTest(step):
                self.check(self.work / f"step-{step}", step)
                self.assertEqual(references(self.work / f"step-{step}"),
                                 {("body", f"../step-0/__{rank}_0.distcp") for rank in range(RANKS)})


if __name__ == "__main__":
    common.main()
