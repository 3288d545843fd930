# SPDX-License-Identifier: Apache-2.0
"""StorageWriter: several threads that use one at the same time, and planners whose data do not fit their plan."""
import copy
import dataclasses
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
from rank_group import run_ranks  # noqa: E402

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


STATE = {"w": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1, 2, 3]), "o": {"x": 5}}


class Casting(DefaultSavePlanner):
    def transform_object(self, write_item, object):
        return object.bfloat16() if write_item.index.fqn == "w" else super().transform_object(write_item, object)


class Turning(DefaultSavePlanner):
    def resolve_data(self, write_item):
        found = super().resolve_data(write_item)
        return found.t() if write_item.index.fqn == "w" else found


class Cutting(DefaultSavePlanner):
    def resolve_data(self, write_item):
        found = super().resolve_data(write_item)
        return found[:2] if write_item.index.fqn == "b" else found


class Naming(DefaultSavePlanner):
    def resolve_data(self, write_item):
        return "text" if write_item.index.fqn == "w" else super().resolve_data(write_item)


class Reading(DefaultSavePlanner):
    def resolve_data(self, write_item):
        return b"bytes" if write_item.index.fqn == "o.x" else super().resolve_data(write_item)


def losing(key):
    """A planner whose global plan lacks the items of the key, but whose description has it."""
    class Losing(DefaultSavePlanner):
        def create_global_plan(self, all_plans):
            plans, metadata = super().create_global_plan(all_plans)
            return [dataclasses.replace(plan, items=[item for item in plan.items if item.index.fqn != key])
                    for plan in plans], metadata

    return Losing


#: Planners, and the code, the key, and the message of the error.
OTHER_DATA = ((Casting, "dtype_mismatch", "w", "expected torch.float32, found torch.bfloat16"),
              (Turning, "shape_mismatch", "w", "expected [2, 3], found [3, 2]"),
              (Cutting, "shape_mismatch", "b", "expected [3], found [2]"),
              (Naming, "dtype_mismatch", "w", "expected torch.Tensor, found str"),
              (Reading, "dtype_mismatch", "o.x", "expected io.BytesIO, found bytes"),
              (losing("w"), "gap", "w", "none of its plans writes: expected [0:2, 0:3)"), (losing("b"), "gap", "b", "[0:3)"),
              (losing("o.x"), "gap", "o.x", "none of its plans writes"))


def other_data(rank, world, work):
    """Rank 1 writes other data than it planned. Returns the error of each rank."""
    class Wrong(DefaultSavePlanner):
        def resolve_data(self, write_item):
            return super().resolve_data(write_item).double() if rank == 1 else super().resolve_data(write_item)

    try:
        shardmesh.dcp.save({f"of{rank}": torch.ones(2)}, checkpoint_id=f"{work}/new/saved", planner=Wrong())
    except shardmesh.Error as problem:
        return problem.code, problem.key
    return None


class OtherDataTest(common.WorkTest):
    """A planner whose data are not those of its plan."""

    def test_data_that_do_not_fit_the_plan_are_named_and_nothing_is_left(self):
        for planner, code, key, message in OTHER_DATA:
            with self.subTest(planner=planner.__name__):
                with self.assertRaises(shardmesh.Error) as caught:
                    shardmesh.dcp.save(dict(STATE), checkpoint_id=self.work / "new" / "saved", planner=planner())
                self.assertEqual((caught.exception.code, caught.exception.key), (code, key))
                self.assertIn(message, str(caught.exception))
                self.assertEqual(self.left_in_work(), [])

    def test_other_data_of_one_rank_are_an_error_on_all_ranks(self):
        self.assertEqual(run_ranks(2, other_data, str(self.work)), [("dtype_mismatch", "of1")] * 2)
        self.assertEqual(self.left_in_work(), [])

    def test_a_planner_that_changes_plan_and_data_alike_saves(self):
        class Halving(DefaultSavePlanner):
            def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
                super().set_up_planner({**state_dict, "w": state_dict["w"].bfloat16()}, storage_meta, is_coordinator)

        shardmesh.dcp.save(dict(STATE), checkpoint_id=self.work / "saved", planner=Halving())
        self.assertTrue(shardmesh.verify(self.work / "saved").ok)
        self.assertEqual(shardmesh.load(self.work / "saved", "w").dtype, torch.bfloat16)


if __name__ == "__main__":
    common.main()
