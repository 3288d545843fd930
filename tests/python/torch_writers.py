# SPDX-License-Identifier: Apache-2.0
"""One StorageWriter that several threads use at the same time."""
import copy
import os
import pickle
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import common

common.need_torch()
import torch  # noqa: E402
import torch.distributed.checkpoint as torch_checkpoint  # noqa: E402
from torch.distributed.checkpoint import DefaultSavePlanner  # noqa: E402

import shardmesh  # noqa: E402
import shardmesh.dcp  # noqa: E402

warnings.filterwarnings("ignore")


def tensor(value):
    return torch.full((6,), float(value))


def load_with(reader):
    state = {"w": torch.zeros(6), "epoch": 0}
    torch_checkpoint.load(state, storage_reader=reader)
    return state["w"][0].item(), state["epoch"]


class WriterTest(common.WorkTest):
    def saved(self, writer, values, **options):
        """Saves in the background, all at once, and returns the exceptions."""
        barrier = threading.Barrier(len(values))

        class Meeting(DefaultSavePlanner):
            def create_local_plan(self):
                barrier.wait(60)  # every save has begun
                return super().create_local_plan()

            def finish_plan(self, plan):
                barrier.wait(60)  # and none has written
                return super().finish_plan(plan)

        futures = [torch_checkpoint.async_save({"w": tensor(value), "epoch": value}, storage_writer=writer,
                                               checkpoint_id=self.work / "new" / f"step-{value}", planner=Meeting(), **options)
                   for value in values]
        return [future.exception(60) for future in futures]

    def test_saves_in_the_background_at_the_same_time(self):
        writer = shardmesh.dcp.StorageWriter(self.work / "first")
        self.assertEqual(self.saved(writer, range(3)), [None] * 3)
        for value in range(3):
            path = self.work / "new" / f"step-{value}"
            self.assertTrue(shardmesh.verify(path).ok)
            self.assertEqual(load_with(shardmesh.dcp.StorageReader(path)), (float(value), value))
            stored = pickle.loads((path / ".metadata").read_bytes()).storage_meta
            self.assertEqual(stored.checkpoint_id, str(path))
        self.assertEqual(sorted(os.listdir(self.work / "new")), ["step-0", "step-1", "step-2"])
        self.assertEqual(self.left_in_work(), ["new"])

    def test_a_save_that_fails_leaves_the_others_whole(self):
        (self.work / "new" / "step-1").mkdir(parents=True)
        (self.work / "new" / "step-1" / "file").write_bytes(b"x")
        barrier = threading.Barrier(2)

        class Meeting(DefaultSavePlanner):
            def create_local_plan(self):
                barrier.wait(60)
                return super().create_local_plan()

        writer = shardmesh.dcp.StorageWriter(self.work / "first")
        futures = [torch_checkpoint.async_save({"w": tensor(value), "epoch": value}, storage_writer=writer, planner=planner,
                                               checkpoint_id=self.work / "new" / f"step-{value}")
                   for value, planner in ((0, Meeting()), (1, None), (2, Meeting()))]
        problems = [future.exception(60) for future in futures]
        self.assertEqual((problems[0], problems[2]), (None, None))
        self.assertEqual(problems[1].failures[0][0].code, "destination_exists")
        for value in (0, 2):
            self.assertTrue(shardmesh.verify(self.work / "new" / f"step-{value}").ok)
        self.assertEqual(sorted(os.listdir(self.work / "new")), ["step-0", "step-1", "step-2"])

    def test_a_thread_saves_where_the_last_reset_says(self):
        writer = shardmesh.dcp.StorageWriter(self.work / "a")
        with ThreadPoolExecutor(1) as pool:
            def save(value):
                return torch_checkpoint.save({"w": tensor(value)}, storage_writer=writer)

            pool.submit(save, 1).result()
            writer.reset(self.work / "b")
            pool.submit(save, 2).result()
        self.assertEqual(self.left_in_work(), ["a", "b"])
        self.assertEqual(shardmesh.load(self.work / "b", "w")[0].item(), 2.0)

    def test_a_background_save_that_fails_leaves_nothing(self):
        writer = shardmesh.dcp.StorageWriter(self.work / "a" / "b")
        future = torch_checkpoint.async_save({"w": tensor(1), "f": lambda: 1}, storage_writer=writer)
        self.assertIsNotNone(future.exception(60))
        self.assertEqual(self.left_in_work(), [])

    def test_a_writer_that_is_copied_saves(self):
        for value, copied in enumerate((copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one)))):
            writer = copied(shardmesh.dcp.StorageWriter(self.work / f"s{value}"))
            torch_checkpoint.save({"w": tensor(value), "epoch": value}, storage_writer=writer)
            reader = copied(shardmesh.dcp.StorageReader(self.work / f"s{value}"))
            self.assertEqual(load_with(reader), (float(value), value))


if __name__ == "__main__":
    common.main()
