# SPDX-License-Identifier: Apache-2.0
"""Forked children: inherited handles that depend on threads raise an error, detected by process id; the rest still
works."""
import os
import pickle
import signal
import threading

import common

common.need_torch()
import torch  # noqa: E402

import shardmesh  # noqa: E402
import shardmesh.dcp  # noqa: E402
from rank_group import run_ranks  # noqa: E402

HANG = 30  # seconds


def in_child(call):
    """The call's return value, or the Error that it raises, in a forked child."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(HANG)
        try:
            answer = call()
        except BaseException as problem:
            answer = problem
        os.write(write, pickle.dumps(answer))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if not said:
        raise AssertionError(f"the child ended with {os.waitstatus_to_exitcode(status)} (it hung when that is -14)")
    answer = pickle.loads(said)
    return child, answer


def redistribute_in_a_child(rank, world):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    rows = distribute_tensor(torch.arange(8.0).reshape(4, 2), init_device_mesh("cpu", (world,)), [Shard(0)])
    shardmesh.redistribute(rows, placements=[Replicate()])
    child, problem = in_child(lambda: shardmesh.redistribute(rows, placements=[Shard(1)], timeout=5))
    after = shardmesh.redistribute(rows, placements=[Replicate()]).to_local()
    return problem.code, problem.expected == f"process {os.getpid()}", problem.found == f"process {child}", after.sum().item()


class ForkTest(common.WorkTest):
    def refused(self, call):
        child, problem = in_child(call)
        self.assertIsInstance(problem, shardmesh.Error)
        self.assertEqual((problem.code, problem.expected, problem.found),
                         ("unsupported", f"process {os.getpid()}", f"process {child}"), str(problem))

    def saved(self):
        shardmesh.save({"w": torch.arange(6.0), "v": torch.ones(3), "epoch": 3}, self.work / "saved")
        return shardmesh.open(self.work / "saved")

    def held_loading(self):
        """A load that pauses until the test continues it."""
        checkpoint, go_on, arrived = self.saved(), threading.Event(), threading.Event()

        def on_arrival(key):
            arrived.set()
            go_on.wait(HANG)

        loading = checkpoint.start_load({"w": torch.zeros(6), "v": torch.zeros(3)}, on_arrival=on_arrival)
        self.assertTrue(arrived.wait(HANG))
        self.addCleanup(loading.wait)
        self.addCleanup(go_on.set)
        return checkpoint, loading

    def test_a_child_cannot_wait_for_a_load_of_its_parent(self):
        _, loading = self.held_loading()
        iterator = iter(loading)

        def cancelled():
            loading.cancel()
            loading.wait()

        def left_by_an_exception():
            try:
                with loading:
                    raise ArithmeticError
            except ArithmeticError:
                return "left"

        def left():
            with loading:
                pass

        for call in (loading.wait, lambda: loading.wait(0.1), lambda: list(loading), loading.done, cancelled, left,
                     lambda: next(iterator)):
            self.refused(call)
        self.assertEqual(in_child(left_by_an_exception)[1], "left")

    def test_a_checkpoint_that_a_thread_was_reading_at_the_fork(self):
        checkpoint, _ = self.held_loading()
        self.refused(lambda: checkpoint.load("w"))
        self.refused(lambda: checkpoint.load("epoch"))
        self.refused(lambda: checkpoint.map_tensor("w"))
        self.refused(lambda: checkpoint["w"].chunks)

    def test_a_checkpoint_that_nobody_was_reading_goes_on_in_the_child(self):
        checkpoint = self.saved()
        checkpoint.load("w")
        loading = checkpoint.start_load({"v": torch.zeros(3)})
        loading.wait()

        def load():
            mapped = checkpoint.map_tensor("w", allow_unaligned=True)
            return checkpoint.load("w").tolist(), checkpoint.load("epoch"), mapped.numpy().tolist()

        self.assertEqual(in_child(load)[1], ([0, 1, 2, 3, 4, 5], 3, [0, 1, 2, 3, 4, 5]))

    def test_a_child_saves_what_it_likes_but_not_its_parents_save(self):
        from torch.distributed.checkpoint import DefaultSavePlanner

        writer, planner = shardmesh.dcp.StorageWriter(self.work / "out"), DefaultSavePlanner()
        planner.set_up_planner({"w": torch.arange(4.0)}, writer.storage_meta(), True)
        writer.set_up_storage_writer(True)
        plans, metadata = planner.create_global_plan([writer.prepare_local_plan(planner.create_local_plan())])
        (plan,) = writer.prepare_global_plan(plans)
        plan = planner.finish_plan(plan)
        self.refused(lambda: writer.write_data(plan, planner))
        self.refused(lambda: writer.finish(metadata, []))
        own = lambda: shardmesh.dcp.save({"w": torch.ones(2)}, checkpoint_id=self.work / "own").version  # noqa: E731
        self.assertEqual(in_child(own)[1], "1.0.0")
        writer.finish(metadata, [writer.write_data(plan, planner).wait()])
        self.assertEqual(shardmesh.load(self.work / "out", "w").tolist(), [0, 1, 2, 3])
        self.assertEqual(shardmesh.load(self.work / "own", "w").tolist(), [1, 1])

    def test_a_child_is_none_of_the_ranks(self):
        self.assertEqual(run_ranks(2, redistribute_in_a_child), [("unsupported", True, True, 28.0)] * 2)

    def test_a_child_cannot_wait_for_a_background_save_of_its_parent(self):
        class Slow(torch.distributed.checkpoint.DefaultSavePlanner):
            def resolve_data(self, item):
                go_on.wait(HANG)
                return super().resolve_data(item)

        go_on = threading.Event()
        saving = shardmesh.dcp.async_save({"w": torch.ones(2)}, checkpoint_id=self.work / "out", planner=Slow(),
                                          no_dist=True)
        try:
            self.refused(saving.result)
            self.refused(saving.exception)
        finally:
            go_on.set()
        self.assertEqual(saving.result(HANG).version, "1.0.0")
        self.assertEqual(shardmesh.load(self.work / "out", "w").tolist(), [1, 1])


if __name__ == "__main__":
    common.main()
