# SPDX-License-Identifier: Apache-2.0
"""dcp.load raises PyTorch's CheckpointException, as PyTorch's load does, and keeps the type of a planner's exception."""
import pickle
import warnings

import common

common.need_torch()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as torch_checkpoint  # noqa: E402
from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402

import shardmesh  # noqa: E402
import shardmesh.dcp  # noqa: E402
from rank_group import run_ranks  # noqa: E402

warnings.filterwarnings("ignore")


class Unready:
    """Raises an exception when it is unpickled."""

    def __init__(self, problem):
        self.problem = problem

    def __reduce__(self):
        return _raise, (self.problem,)


def _raise(problem):
    raise problem


class OwnError(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def planner_errors(rank, world, work):
    """Loads with PyTorch's planner, of which one rank fails. Returns what every rank catches."""
    if rank == 0:
        shardmesh.save({"w": torch.ones(3)}, f"{work}/ranks")
    dist.barrier()
    try:
        shardmesh.dcp.load({"w": torch.ones(4 if rank == 1 else 3)}, checkpoint_id=f"{work}/ranks",
                           planner=torch_checkpoint.DefaultLoadPlanner())
    except CheckpointException as problem:
        return isinstance(problem, ValueError), list(problem.failures), str(problem)
    return None


class ExceptionTest(common.WorkTest):
    def caught(self, call):
        with self.assertRaises(CheckpointException) as caught:
            call()
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((str(again), list(again.failures)), (str(caught.exception), [0]))
        self.assertIsInstance(again, CheckpointException)
        return caught.exception

    def test_an_object_that_cannot_be_unpickled_is_named(self):
        for problem, code in ((EOFError("no"), "bad_pickle"), (pickle.UnpicklingError("no"), "bad_pickle"),
                              (RuntimeError("no"), "bad_pickle"), (ImportError("no"), "unsupported"),
                              (AttributeError("no"), "unsupported"), (MemoryError("no"), "no_memory")):
            path = self.work / type(problem).__name__
            shardmesh.dcp.save({"n": {"x": Unready(problem)}}, checkpoint_id=path)
            for call in (lambda: shardmesh.dcp.load({"n": {"x": 0}}, checkpoint_id=path),
                         lambda: shardmesh.dcp.load({"n": {"x": 0}}, checkpoint_id=path, no_dist=True)):
                found = self.caught(call)
                self.assertEqual((found.code, found.key, found.path), (code, "n.x", str(path)))
                self.assertIn(f"{type(problem).__name__}: no", str(found))

    def test_another_shape_is_an_error_whose_remedy_dcp_load_does_not_have_itself(self):
        shardmesh.save({"w": torch.zeros(3, 4)}, self.work / "shapes")
        for shape in ((2, 4), (12,), ()):
            problem = self.caught(lambda: shardmesh.dcp.load({"w": torch.zeros(shape)},
                                                             checkpoint_id=self.work / "shapes"))
            self.assertEqual((problem.code, problem.key, problem.path, problem.expected, problem.found),
                             ("shape_mismatch", "w", str(self.work / "shapes"), "[3, 4]", str(list(shape))))
            self.assertIn("load_into of shardmesh.open", problem.hint)

    def test_exceptions_of_pytorchs_planner_keep_their_type(self):
        path = self.work / "saved"
        shardmesh.save({"w": torch.ones(3)}, path)
        for state, kind, said in (({"q": torch.ones(1)}, RuntimeError, "^Missing key in checkpoint state_dict: q"),
                                  ({"w": torch.ones(4)}, ValueError, "^Size mismatch between saved")):
            found = self.caught(lambda: shardmesh.dcp.load(state, checkpoint_id=path,
                                                           planner=torch_checkpoint.DefaultLoadPlanner()))
            self.assertIsInstance(found, kind)
            self.assertRegex(str(found), said)
            self.assertIsInstance(pickle.loads(pickle.dumps(found)), kind)

    def test_exceptions_of_the_callers_planner_keep_their_type_and_fields(self):
        path = self.work / "saved"
        shardmesh.save({"w": torch.ones(3)}, path)
        missing = ImportError("no", name="n")
        broken = UnicodeDecodeError("utf-8", b"ab", 0, 1, "why")
        for problem, fields in ((OSError(2, "no", "file"), ("errno", "strerror", "filename")), (missing, ("name", "msg")),
                                (broken, ("encoding", "object", "start", "end", "reason")), (KeyError("k"), ("args",)),
                                (ArithmeticError(), ())):
            class Raising(torch_checkpoint.DefaultLoadPlanner):
                def commit_tensor(self, read_item, tensor, problem=problem):
                    raise problem

            found = self.caught(lambda: shardmesh.dcp.load({"w": torch.zeros(3)}, checkpoint_id=path, planner=Raising()))
            self.assertIsInstance(found, type(problem))
            self.assertEqual((str(found), found.args), (str(problem), problem.args))
            self.assertEqual([getattr(found, name) for name in fields], [getattr(problem, name) for name in fields])

    def test_an_exception_that_cannot_be_rebuilt_is_in_pytorchs(self):
        shardmesh.save({"w": torch.ones(3)}, self.work / "saved")

        class Raising(torch_checkpoint.DefaultLoadPlanner):
            def commit_tensor(self, read_item, tensor):
                raise OwnError(1, 2)

        with self.assertRaises(CheckpointException) as caught:
            shardmesh.dcp.load({"w": torch.zeros(3)}, checkpoint_id=self.work / "saved", planner=Raising())
        self.assertIn("1 and 2", str(caught.exception))
        self.assertIsInstance(caught.exception.failures[0][0], OwnError)

    def test_an_exception_of_a_callback_is_the_same_object(self):
        shardmesh.save({"w": torch.ones(3)}, self.work / "saved")
        problem = ArithmeticError("enough")

        def progress(done, total):
            raise problem

        for call in (lambda: shardmesh.dcp.load({"w": torch.zeros(3)}, checkpoint_id=self.work / "saved", progress=progress),
                     lambda: shardmesh.dcp.save({"w": torch.zeros(3)}, checkpoint_id=self.work / "new", progress=progress)):
            with self.assertRaises(ArithmeticError) as caught:
                call()
            self.assertIs(caught.exception, problem)

    def test_ranks_get_the_exception_of_one_ranks_planner(self):
        answers = run_ranks(2, planner_errors, str(self.work))
        self.assertEqual(answers[0], answers[1])
        self.assertEqual(answers[0][:2], (True, [1]))
        self.assertIn("Size mismatch", answers[0][2])


if __name__ == "__main__":
    common.main()
