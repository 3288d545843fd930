# SPDX-License-Identifier: Apache-2.0
"""A failure on real ranks soon raises one shardmesh.Error with the same text on all ranks. A failed save leaves
nothing, and keeps the old checkpoint."""
import shutil

import common

common.need_torch()
import torch  # noqa: E402
import torch.distributed.checkpoint as torch_checkpoint  # noqa: E402

import shardmesh.dcp  # noqa: E402
from common import GOLDEN  # noqa: E402
from rank_group import run_ranks  # noqa: E402

RANKS = 2


def error_of(call):
    try:
        call()
    except shardmesh.Error as problem:
        return problem
    return None


def loading(rank, world, path, wanted):
    return error_of(lambda: shardmesh.dcp.load(wanted[rank], checkpoint_id=path))


def saving(rank, world, path, states):
    return error_of(lambda: shardmesh.dcp.save(states[rank], checkpoint_id=path))


def with_their_planner(rank, world, path, wanted):
    """PyTorch's load with our reader raises PyTorch's own exception, which names our error."""
    try:
        torch_checkpoint.load(wanted, storage_reader=shardmesh.dcp.StorageReader(path))
    except torch_checkpoint.api.CheckpointException as problem:
        return {rank: str(wrapped[0]) for rank, wrapped in problem.failures.items()}
    return {}


def raising(rank, world, path):
    """Exceptions that are neither ours nor PyTorch's propagate unchanged."""
    def enough(done, total):
        raise ArithmeticError("enough")

    said = []
    for call in (lambda: shardmesh.dcp.save({"a": torch.ones(5)}, checkpoint_id=path, progress=enough),
                 lambda: shardmesh.dcp.save({"a": lambda: 1}, checkpoint_id=path)):
        try:
            call()
        except Exception as problem:
            said.append(type(problem).__name__)
    return said


def wrong_arguments(rank, world, path, state):
    """Rank 1 alone passes something wrong."""
    def wrong(bad, good):
        return bad if rank == 1 else good

    planner = torch_checkpoint.DefaultLoadPlanner()
    return [error_of(call) for call in (
        lambda: shardmesh.dcp.save(state, checkpoint_id=wrong(3, path + "-new")),
        lambda: shardmesh.dcp.save(wrong([1], state), checkpoint_id=path + "-new"),
        lambda: shardmesh.dcp.save(wrong({1: 2}, state), checkpoint_id=path + "-new"),
        lambda: shardmesh.dcp.save(state, checkpoint_id=path + "-new", threads=wrong(-1, 0)),
        lambda: shardmesh.dcp.save(state, checkpoint_id=path + "-new", use_collectives=wrong(False, True)),
        lambda: shardmesh.dcp.async_save(state, checkpoint_id=path + "-new", memory_bytes=wrong("x", 0)).result(),
        lambda: shardmesh.dcp.async_save(wrong(3, state), checkpoint_id=path + "-new").result(),
        lambda: shardmesh.dcp.load(dict(state), checkpoint_id=wrong(path + "-none", path)),
        lambda: shardmesh.dcp.load(dict(state), checkpoint_id=path, threads=wrong(-1, 0)),
        lambda: shardmesh.dcp.load(wrong([1], dict(state)), checkpoint_id=path),
        lambda: shardmesh.dcp.load(dict(state), checkpoint_id=path, planner=planner, progress=wrong(5, False)))]


class Stubborn:
    """A Stateful value whose method raises on rank 1."""

    def __init__(self, rank, method):
        self.rank, self.method, self.inner = rank, method, {"w": torch.zeros(3)}

    def _called(self, method):
        if self.rank == 1 and method == self.method:
            raise LookupError("no luck")

    def state_dict(self):
        self._called("state_dict")
        return self.inner

    def load_state_dict(self, state):
        self._called("load_state_dict")


def stubborn(rank, world, path, method):
    """The errors of a load with our planner and with PyTorch's, and of a save."""
    def state():
        return {"model": Stubborn(rank, method)}

    planner = torch_checkpoint.DefaultLoadPlanner()
    return [error_of(call) for call in (
        lambda: shardmesh.dcp.load(state(), checkpoint_id=path),
        lambda: shardmesh.dcp.load(state(), checkpoint_id=path, planner=planner),
        lambda: shardmesh.dcp.save(state(), checkpoint_id=path + "-new"))]


class FailureTest(common.WorkTest):
    def test_what_a_callback_raises_comes_out(self):
        for said in run_ranks(RANKS, raising, str(self.work / "new")):
            self.assertEqual(said[:1], ["ArithmeticError"])
            self.assertEqual(len(said), 2)
            self.assertNotIn("CheckpointException", said)
        self.assertEqual(self.left_in_work(), [])

    def same_on_all(self, errors, code, key=""):
        for problem in errors:
            self.assertIsInstance(problem, shardmesh.Error)
            self.assertEqual((problem.code, problem.key), (code, key))
        self.assertEqual(len({str(problem) for problem in errors}), 1)
        return errors[0]

    def golden(self):
        shutil.copytree(GOLDEN / "dtensor_shard0_4" / "checkpoint", self.work / "stored")
        checkpoint = shardmesh.open(self.work / "stored")
        return {entry.key: torch.zeros(entry.shape, dtype=getattr(torch, entry.dtype)) for entry in checkpoint.tensors}

    def load(self, *wanted):
        return run_ranks(RANKS, loading, str(self.work / "stored"), wanted if len(wanted) > 1 else wanted * RANKS)

    def test_every_rank_gets_the_error_of_the_rank_whose_arguments_are_wrong(self):
        state = self.golden()
        answers = run_ranks(RANKS, wrong_arguments, str(self.work / "stored"), state)
        for number, errors in enumerate(zip(*answers)):
            with self.subTest(number):
                self.same_on_all(errors, errors[0].code, errors[0].key)
        self.assertEqual(sorted(path.name for path in self.work.iterdir()), ["stored"])

    def test_a_method_of_a_stateful_value_that_raises_on_one_rank_ends_the_call_on_all(self):
        shardmesh.save({"model": {"w": torch.ones(3)}}, self.work / "stored", format="dcp")
        for method, failing in {"state_dict": 3, "load_state_dict": 2}.items():
            answers = run_ranks(RANKS, stubborn, str(self.work / "stored"), method)
            for errors in list(zip(*answers))[:failing]:
                problem = self.same_on_all(errors, "invalid_argument", "model")
                self.assertIn(f"its method {method} raised LookupError: no luck", str(problem))

    def test_a_missing_key_is_named_with_the_nearest(self):
        key = next(iter(self.golden()))
        problem = self.same_on_all(self.load({key + "x": torch.zeros(2)}), "missing_key", key + "x")
        self.assertIn(key, problem.hint)

    def test_a_wrong_shape_is_named_with_both(self):
        state = self.golden()
        key, tensor = next((k, t) for k, t in state.items() if t.ndim == 2)
        state[key] = torch.zeros(tensor.shape[0] + 1, tensor.shape[1])
        problem = self.same_on_all(self.load(state), "shape_mismatch", key)
        self.assertIn(str(list(tensor.shape)), problem.expected + problem.found)
        self.assertIn(str([tensor.shape[0] + 1, tensor.shape[1]]), problem.expected + problem.found)

    def test_a_value_that_is_no_tensor_is_named(self):
        state = self.golden()
        key = next(iter(state))
        state[key] = 3
        problem = self.same_on_all(self.load(state), "dtype_mismatch", key)
        self.assertEqual((problem.expected, problem.found), ("a tensor", "int"))

    def test_a_file_cut_short_is_named(self):
        state = self.golden()
        file = self.work / "stored" / "__1_0.distcp"
        file.write_bytes(file.read_bytes()[:100])
        problems = self.load(state)
        problem = self.same_on_all(problems, problems[0].code, problems[0].key)
        self.assertIn("__1_0.distcp", str(problem))

    def test_a_metadata_file_that_is_damaged_or_missing_is_named(self):
        state = self.golden()
        file = self.work / "stored" / ".metadata"
        file.write_bytes(file.read_bytes()[:50])
        self.same_on_all(self.load(state), "bad_pickle")
        file.unlink()
        self.same_on_all(self.load(state), "incomplete_save")

    def test_what_one_rank_alone_meets_all_ranks_raise(self):
        state = self.golden()
        self.same_on_all(self.load(dict(state), {**state, "nowhere": torch.zeros(1)}), "missing_key", "nowhere")

    def test_pytorch_s_own_load_tells_every_rank_of_our_error(self):
        state = self.golden()
        file = self.work / "stored" / "__1_0.distcp"
        file.write_bytes(file.read_bytes()[:100])
        for failures in run_ranks(RANKS, with_their_planner, str(self.work / "stored"), state):
            self.assertEqual(set(failures), {0, 1})
            self.assertIn("__1_0.distcp", failures[0])

    def test_a_destination_that_is_there_stays(self):
        path = self.work / "there"
        shardmesh.save({"w": torch.ones(3)}, path)
        states = [{"w": torch.zeros(3)}] * RANKS
        self.same_on_all(run_ranks(RANKS, saving, str(path), states), "destination_exists")
        self.assertTrue(torch.equal(shardmesh.load(path, "w"), torch.ones(3)))
        self.assertEqual(self.left_in_work(), ["there"])

    def test_a_tensor_that_one_rank_cannot_save_is_named_and_nothing_is_left(self):
        states = [{"a": torch.ones(3)}, {"a": torch.ones(3), "b": torch.zeros(3).to_sparse()}]
        problem = self.same_on_all(run_ranks(RANKS, saving, str(self.work / "out"), states), "unsupported", "b")
        self.assertIn("sparse", str(problem))
        self.assertEqual(self.left_in_work(), [])

    def test_a_folder_that_cannot_be_made_is_an_error_on_all_ranks(self):
        (self.work / "file").write_bytes(b"")
        problems = run_ranks(RANKS, saving, str(self.work / "file" / "folder"), [{"w": torch.ones(1)}] * RANKS)
        self.assertIn(str(self.work / "file"), self.same_on_all(problems, problems[0].code).path)
        problems = run_ranks(RANKS, saving, str(self.work / "a" / "b"), [{"w": torch.ones(1)}, {"w": torch.ones(1), "b": lambda: 1}])
        self.assertEqual(self.left_in_work(), ["file"])  # parent folders that were made in vain are removed


if __name__ == "__main__":
    common.main()
