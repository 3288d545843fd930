# SPDX-License-Identifier: Apache-2.0
"""shardmesh.Run saves, lists, prunes, verifies, and resumes steps, in one process and on ranks of torch.distributed."""
import os
import pickle
import shutil
import subprocess
import sys
import threading
import types
import unittest.mock

import common

common.need_torch()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as torch_checkpoint  # noqa: E402
from torch.distributed.checkpoint import FileSystemReader  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import Shard, distribute_tensor  # noqa: E402

import shardmesh  # noqa: E402
from rank_group import run_ranks  # noqa: E402

WHOLE = torch.arange(24.0).reshape(12, 2)


def state_at(step):
    return {"frozen": WHOLE, "w": WHOLE + 100 * step, "step": step}


def empty():
    return {"frozen": torch.zeros_like(WHOLE), "w": torch.zeros_like(WHOLE), "step": -1}


def equal(state, step):
    expected = state_at(step)
    return all(torch.equal(state[key], expected[key]) for key in ("frozen", "w")) and state["step"] == step


def numbers(steps):
    return [one.step for one in steps]


def sharded(world, step):
    mesh = init_device_mesh("cpu", (world,))
    return {key: distribute_tensor(value, mesh, [Shard(0)]) if key != "step" else value
            for key, value in state_at(step).items()}


def whole(state):
    return {key: value.full_tensor() if key != "step" else value for key, value in state.items()}


def refusal(call):
    """(code, text) of the Error that the call raises."""
    try:
        call()
    except shardmesh.Error as problem:
        return problem.code, str(problem)
    return None


def references(path):
    stored = FileSystemReader(path).read_metadata().storage_data
    return {info.relative_path.split("/")[1] for info in stored.values() if info.relative_path.startswith("../")}


def save_on_ranks(rank, world, path):
    with shardmesh.Run(path, incremental=True, keep=shardmesh.KeepRules(last=2)) as run:
        for step in (1, 2, 3):
            run.save(step, sharded(world, step), metric=1 / step)
        return refusal(lambda: run.save(10 + rank, sharded(world, 4)))


def start_saves_on_ranks(rank, world, path):
    """Saves in the background; the state changes and the ranks talk meanwhile."""
    with shardmesh.Run(path, incremental=True, keep=shardmesh.KeepRules(last=2)) as run:
        started = []
        for step in (1, 2, 3):
            state = sharded(world, step)
            started.append(run.start_save(step, state, metric=step, rank_objects={"rank": rank}))
            state["w"].to_local().zero_()
            dist.all_reduce(torch.ones(1))
        folders = [os.path.basename(one.result()) for one in started]
        resumed = run.resume(state)
        return folders, numbers(run.steps()), resumed.rank_objects, equal(whole(state), 3)


def failing_start_saves_on_ranks(rank, world, path):
    """The error of a background save that nobody asks about; of one that somebody asks about; then good saves."""
    def unsaved(step):
        return {**sharded(world, step), "function": (lambda: 1) if rank == 1 else 0}

    def said(call):
        try:
            call()
        except Exception as problem:
            return type(problem).__name__
        return None

    with shardmesh.Run(path) as run:
        lost = run.start_save(1, unsaved(1))
        answers = [said(lambda: run.save(2, sharded(world, 2))), said(lost.result)]
        asked = run.start_save(3, unsaved(3))
        answers += [said(asked.result), said(lambda: run.save(4, sharded(world, 4)))]
        good = sharded(world, 5)
        refused = refusal(lambda: run.start_save(5, [1] if rank == 1 else good))
        run.start_save(6, sharded(world, 6))
    return answers, refused, numbers(run.steps())


class Raising:
    """Raises in the method that a save calls, if `raises`."""

    def __init__(self, raises):
        self.raises = raises

    def called(self, answer):
        if self.raises:
            raise ValueError("not today")
        return answer


class Unpickled(Raising):
    def __reduce__(self):
        return self.called((Unpickled, (False,)))

    def __deepcopy__(self, _):
        return self


class Uncopied(Raising):
    def __deepcopy__(self, _):
        return self.called(self)


class WithoutState(Raising):
    def state_dict(self):
        return self.called({"x": 1})

    def load_state_dict(self, _):
        pass


class Untold(Exception):
    """An exception that does not travel between processes."""

    def __reduce__(self):
        raise TypeError("stays here")


class WithUntoldProblem(WithoutState):
    def called(self, answer):
        if self.raises:
            raise Untold("not today")
        return answer


def raising_methods_on_ranks(rank, world, path):
    """A method of rank 1's state raises in each kind of save. Then a step of the same number is saved."""
    def start(*given):
        return run.start_save(*given).result(60)

    def stop(*_):
        raise ValueError("stop")

    said, left = [], []
    with shardmesh.Run(path, incremental=True) as run:
        cases = ((Unpickled, run.save), (Unpickled, start), (WithoutState, run.save), (WithoutState, start),
                 (WithUntoldProblem, run.save), (WithUntoldProblem, start), (Uncopied, start))
        for step, (kind, save) in enumerate(cases):
            said.append(refusal(lambda: save(step, {**sharded(world, step), "value": kind(rank == 1)})))
            dist.barrier()
            left.append(sorted(name for name in os.listdir(path) if not name.startswith(".shardmesh_run")))
            save(step, sharded(world, step))
        try:
            run.save(7, sharded(world, 7), progress=stop if rank == 1 else False)
        except ValueError as problem:
            said.append(str(problem))
        run.save(7, sharded(world, 7))
        pruned = run.prune(shardmesh.KeepRules(last=1), dry_run=True)
        return said, left, numbers(run.steps()), numbers(pruned.deleted), run.take_notes()


def resume_on_ranks(rank, world, path):
    with shardmesh.Run(path) as run:
        state = sharded(world, 0)
        found = run.resume(state)
        return found.step, equal(whole(state), found.step), [problem.path for problem in found.skipped]


def objects_on(rank):
    return {"rng": torch.tensor([7, rank], dtype=torch.uint8), "data.loader": {"position": 100 + rank}}


def same_objects(one, other):
    return torch.equal(one["rng"], other["rng"]) and {**one, "rng": 0} == {**other, "rng": 0}


def save_objects_on_ranks(rank, world, path):
    with shardmesh.Run(path) as run:
        run.save(1, sharded(world, 1), rank_objects=objects_on(rank))


def save_wrong_objects_on_ranks(rank, world, path):
    with shardmesh.Run(path) as run:
        wrong = {"": 1} if rank == 1 else objects_on(rank)
        return refusal(lambda: run.save(1, sharded(world, 1), rank_objects=wrong)), numbers(run.steps())


def resume_objects_on_ranks(rank, world, path):
    with shardmesh.Run(path) as run:
        found = run.resume(sharded(world, 0))
        return found.dropped == [] and same_objects(found.rank_objects, objects_on(rank))


def refuse_objects_on_ranks(rank, world, path):
    """Objects of rank 1 alone that no save takes, then a good save."""
    nameless = {"": 1} if rank == 1 else objects_on(rank)
    clash = {"rank_objects.rng.1": 3} if rank == 1 else {}
    with shardmesh.Run(path) as run:
        said = [refusal(lambda: run.save(1, sharded(world, 1), rank_objects=nameless)),
                refusal(lambda: run.save(1, {**sharded(world, 1), **clash}, rank_objects=objects_on(rank)))]
        run.save(1, sharded(world, 1), rank_objects=objects_on(rank))
        return said, numbers(run.steps())


def wrong_arguments_on_one_rank(rank, world, path):
    """Rank 1 alone passes something wrong to each collective call; then a save."""
    def wrong(bad, good):
        return bad if rank == 1 else good

    said = [refusal(lambda: shardmesh.Run(wrong(3, path))),
            refusal(lambda: shardmesh.Run(path, keep=wrong("last", shardmesh.KeepRules()))),
            refusal(lambda: shardmesh.Run(path, incremental=wrong(torch.ones(2), True)))]
    with shardmesh.Run(path) as run:
        said += [refusal(lambda: run.save(wrong("one", 1), sharded(world, 1))),
                 refusal(lambda: run.save(1, sharded(world, 1), metric=wrong("good", 1))),
                 refusal(lambda: run.save(1, sharded(world, 1), overwrite=wrong(torch.ones(2), True))),
                 refusal(lambda: run.save(1, sharded(world, 1), threads=wrong(-1, 0))),
                 refusal(lambda: run.save(1, wrong([1], sharded(world, 1)))),
                 refusal(lambda: run.resume(sharded(world, 1), deep=wrong(torch.ones(2), False))),
                 refusal(lambda: run.resume(sharded(world, 1), when_resized=wrong("keep", "drop"))),
                 refusal(lambda: run.prune(wrong("all", None)))]
        run.save(1, sharded(world, 1))
        said.append(refusal(lambda: run.resume(wrong(7, sharded(world, 1)))))
        return said, numbers(run.steps())


def converted(saved, rank, ranks):
    if [objects["data.loader"]["position"] for objects in saved] != [100, 101]:
        raise ValueError("other objects")
    return {"share": 10 * ranks + rank}


def failing(saved, rank, ranks):
    if rank == 1:
        raise OSError("no such shard")
    return {}


def resize_on_ranks(rank, world, path):
    with shardmesh.Run(path) as run:
        state = sharded(world, 0)
        refused = refusal(lambda: run.resume(state))
        failed = refusal(lambda: run.resume(state, when_resized=failing))
        untouched = bool((whole(state)["w"] == state_at(0)["w"]).all())
        dropped = run.resume(state, when_resized="drop")
        made = run.resume(state, when_resized=converted)
        return (refused, failed, untouched, dropped.dropped, dropped.rank_objects, made.rank_objects,
                equal(whole(state), 1))


def open_twice(rank, world, path):
    with shardmesh.Run(path):
        return refusal(lambda: shardmesh.Run(path))[0]


class RunTest(common.WorkTest):
    def setUp(self):
        super().setUp()
        self.path = self.work / "run"

    def saved(self, *steps, **options):
        with shardmesh.Run(self.path, **options) as run:
            for step in steps:
                run.save(step, state_at(step))
        return run

    def test_steps_are_saved_listed_and_resumed(self):
        with shardmesh.Run(self.path) as run:
            state = empty()
            self.assertEqual(run.resume(state), shardmesh.ResumedRun(None))
            self.assertEqual(state["step"], -1)
            self.assertIsNone(run.latest())
            self.assertEqual(run.save(10, state_at(10), metric=5), str(self.path / "step-10"))
            run.save(20, state_at(20), metric=torch.tensor(0.25))
            steps = run.steps()
            self.assertEqual([(one.step, one.path, one.metric, one.pinned) for one in steps],
                             [(10, str(self.path / "step-10"), 5.0, False),
                              (20, str(self.path / "step-20"), 0.25, False)])
            self.assertLess(abs(steps[1].saved - os.stat(steps[1].path).st_mtime), 60)
            self.assertEqual(run.latest(deep=True).path, steps[1].path)
            self.assertEqual(run.resume(state), shardmesh.ResumedRun(20, steps[1].path))
            self.assertTrue(equal(state, 20))
            self.assertEqual(run.verify(), {})
            self.assertEqual(run.take_notes(), [])

    def test_pytorch_reads_each_step_and_the_names_are_those_of_the_convention(self):
        for names, folder in (("checkpoint", "checkpoint-5"), ("iter", "iter_0000005")):
            self.path = self.work / names
            self.saved(5, names=names)
            state = empty()
            torch_checkpoint.load(state, checkpoint_id=str(self.path / folder), no_dist=True)
            self.assertTrue(equal(state, 5))
        self.assertEqual((self.path / "latest_checkpointed_iteration.txt").read_text(), "5\n")
        self.assertEqual(numbers(shardmesh.Run(self.path, names="iter", read_only=True).steps()), [5])

    def test_an_incremental_run_refers_to_the_newest_step(self):
        self.saved(1, 2, 3, incremental=True)
        self.assertEqual([references(self.path / f"step-{step}") for step in (1, 2, 3)],
                         [set(), {"step-1"}, {"step-1"}])
        state = empty()
        self.assertEqual(shardmesh.Run(self.path, read_only=True).resume(state).step, 3)
        self.assertTrue(equal(state, 3))

    def test_pytorch_reads_a_flattened_step_without_the_others(self):
        self.saved(1, 2, incremental=True)
        command = [sys.executable, "-m", "shardmesh", "run", "flatten", str(self.path), "2"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("of step-1 copied", done.stdout)
        self.assertEqual(references(self.path / "step-2"), set())
        shutil.rmtree(self.path / "step-1")
        state = empty()
        torch_checkpoint.load(state, checkpoint_id=str(self.path / "step-2"), no_dist=True)
        self.assertTrue(equal(state, 2))
        self.assertEqual(shardmesh.Run(self.path, read_only=True).verify(), {})

    def test_rules_delete_steps_in_the_background_and_on_demand(self):
        for step in range(1, 7):
            self.saved(step, keep=shardmesh.KeepRules(last=1, every=2))  # waits for the prune
        with shardmesh.Run(self.path) as run:
            self.assertEqual(numbers(run.steps()), [2, 4, 6])
            planned = run.prune(shardmesh.KeepRules(every=4), dry_run=True)
            self.assertEqual(numbers(run.steps()), [2, 4, 6])
            done = run.prune(shardmesh.KeepRules(every=4))
            self.assertEqual(done, planned)
            self.assertEqual([(step.step, reasons) for step, reasons in done.kept],
                             [(4, ["every 4"]), (6, ["newest good step"])])
            self.assertEqual(numbers(done.deleted), [2])
            self.assertEqual((done.leftovers, done.problems, done.notes), (0, [], []))
            self.assertGreater(done.bytes, 2 * WHOLE.nbytes)
            self.assertEqual(numbers(run.steps()), [4, 6])
            self.assertEqual(run.prune().deleted, [])
            since = run.prune(shardmesh.KeepRules(since=0.0), dry_run=True)
            self.assertEqual(since.deleted, [])
            self.assertEqual(numbers(run.prune(shardmesh.KeepRules(since=float("inf"))).deleted), [4])

    def test_a_pinned_step_stays_until_it_is_unpinned(self):
        self.saved(1, 2, 3)
        shardmesh.Run(self.path, read_only=True).pin(1)
        with shardmesh.Run(self.path) as run:
            self.assertEqual([one.pinned for one in run.steps()], [True, False, False])
            self.assertEqual(numbers(run.prune(shardmesh.KeepRules(last=1)).deleted), [2])
            run.unpin(1)
            self.assertEqual(numbers(run.prune(shardmesh.KeepRules(last=1)).deleted), [1])
            code, said = refusal(lambda: run.pin(1))
            self.assertEqual(code, "invalid_argument")
            self.assertIn("no step 1", said)

    def test_the_best_steps_stay(self):
        with shardmesh.Run(self.path) as run:
            for step, metric in ((1, 0.5), (2, 0.1), (3, 0.9), (4, float("nan"))):
                run.save(step, state_at(step), metric=metric)
            self.assertIn("step 4 has no metric", run.take_notes()[0])
            highest = shardmesh.KeepRules(best=1, highest_is_best=True)
            self.assertEqual(numbers(run.prune(highest, dry_run=True).deleted), [1, 2])
            self.assertEqual(numbers(run.prune(shardmesh.KeepRules(best=1)).deleted), [1, 3])

    def test_a_damaged_step_is_skipped_with_its_reason_and_replaced_with_a_note(self):
        self.saved(1, 2)
        os.remove(self.path / "step-2" / ".metadata")
        with shardmesh.Run(self.path) as run:
            state = empty()
            found = run.resume(state)
            self.assertEqual((found.step, [problem.path for problem in found.skipped]),
                             (1, [str(self.path / "step-2")]))
            self.assertTrue(equal(state, 1))
            self.assertEqual(list(run.verify()), [2])
            run.save(2, state_at(2))
            self.assertEqual(run.latest().step, 2)
            self.assertIn("step-2: the damaged step is replaced", run.take_notes()[0])
            self.assertEqual(refusal(lambda: run.save(2, state_at(2)))[0], "destination_exists")
            run.save(2, state_at(7), overwrite=True)
            run.resume(state)
            self.assertEqual(state["step"], 7)

    def flip_bit(self, step):
        """Changes an element of "w"."""
        file = self.path / f"step-{step}" / "__0_0.distcp"
        content = file.read_bytes()
        at = content.index((WHOLE + 100 * step).numpy().tobytes())
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1:])

    def test_a_step_that_failed_to_load_counts_as_good_no_more(self):
        self.saved(10, 20)
        self.flip_bit(20)
        with shardmesh.Run(self.path, keep=shardmesh.KeepRules(last=1)) as run:
            self.assertEqual(run.resume(empty(), deep=True).step, 10)
            run.save(15, state_at(15))
            run.prune()
            self.assertEqual(numbers(run.steps()), [15, 20])
            self.assertEqual(run.take_notes(), [])
        with shardmesh.Run(self.path, incremental=True) as run:
            self.assertEqual(run.resume(empty(), deep=True).step, 15)
            run.save(17, state_at(17))
            self.assertEqual(references(self.path / "step-17"), {"step-15"})
            run.save(20, state_at(20))
            self.assertIn("the damaged step is replaced", run.take_notes()[0])
            self.assertEqual(run.verify(), {})

    def test_a_run_with_steps_of_other_names_does_not_resume_as_a_new_one(self):
        self.saved(5, names="iter")
        for read_only in (False, True):
            with shardmesh.Run(self.path, read_only=read_only) as run:
                code, text = refusal(lambda: run.resume(empty()))
                self.assertEqual(code, "invalid_argument")
                self.assertIn("iter_0000005", text)
                self.assertIsNone(run.latest())

    def test_a_step_that_is_pruned_while_the_steps_are_verified_is_not_damaged(self):
        self.saved(1, 2, 3)
        run = shardmesh.Run(self.path, read_only=True)
        listed = run.steps()
        shutil.rmtree(self.path / "step-1")
        os.remove(self.path / "step-2" / ".metadata")
        with unittest.mock.patch.object(run, "steps", lambda: listed):
            self.assertEqual(list(run.verify()), [2])

    def test_a_flipped_bit_is_found_by_deep_checks(self):
        self.saved(1, 2)
        self.flip_bit(2)
        run = shardmesh.Run(self.path, read_only=True)
        self.assertEqual((run.latest().step, run.latest(deep=True).step), (2, 1))
        self.assertEqual({step: problem.code for step, problem in run.verify().items()}, {2: "checksum_mismatch"})
        found = run.resume(empty(), deep=True)
        self.assertEqual((found.step, [problem.code for problem in found.skipped]), (1, ["checksum_mismatch"]))

    def with_class_that_is_gone(self, save):
        """Calls save with an object whose class cannot be imported afterwards."""
        module = types.ModuleType("shardmesh_gone")
        module.Gone = type("Gone", (), {"__module__": "shardmesh_gone"})
        with unittest.mock.patch.dict(sys.modules, shardmesh_gone=module):
            save(module.Gone())

    def test_a_class_that_cannot_be_imported_is_no_damage_to_the_step(self):
        with shardmesh.Run(self.path) as run:
            run.save(1, {**state_at(1), "o": None})
            for options in (lambda gone: {"state_dict": {**state_at(2), "o": gone}},
                            lambda gone: {"state_dict": {**state_at(2), "o": None}, "rank_objects": {"a": gone}}):
                self.with_class_that_is_gone(lambda gone: run.save(2, overwrite=True, **options(gone)))
                said = refusal(lambda: run.resume({**empty(), "o": None}))
                self.assertEqual(said[0], "unsupported")
                self.assertIn("No module named 'shardmesh_gone'; import or install", said[1])

    def test_a_damaged_object_is_damage_to_the_step(self):
        key = "rank_objects_world_size"
        with shardmesh.Run(self.path) as run:
            for damaged in ("step", key):
                run.save(1, state_at(1), rank_objects={"a": 1}, overwrite=True)
                run.save(2, state_at(2), rank_objects={"a": 2}, overwrite=True)
                places = pickle.loads((self.path / "step-2" / ".metadata").read_bytes()).storage_data
                at, length = next((one.offset, one.length) for index, one in places.items() if index.fqn == damaged)
                file = self.path / "step-2" / "__0_0.distcp"
                content = bytearray(file.read_bytes())
                content[content.index(b"PK\x06\x07", at, at + length) + 16] ^= 1  # of the archive's end: no checksum
                file.write_bytes(content)
                state = empty()
                found = run.resume(state)
                self.assertEqual((found.step, found.rank_objects, len(found.skipped)), (1, {"a": 1}, 1))
                self.assertIn(found.skipped[0].code, ("bad_pickle", "bad_format"))
                self.assertIn(damaged, str(found.skipped[0]))
                self.assertTrue(equal(state, 1))

    def test_steps_of_which_none_is_good_are_an_error_that_names_all(self):
        self.saved(1, 2)
        for step in (1, 2):
            os.remove(self.path / f"step-{step}" / ".metadata")
        with self.assertRaises(shardmesh.Error) as raised:
            shardmesh.Run(self.path, read_only=True).resume(empty())
        self.assertEqual([problem.path for problem in (raised.exception, *raised.exception.others)],
                         [str(self.path / f"step-{step}") for step in (2, 1)])

    def test_a_state_that_does_not_fit_is_an_error_and_no_older_step_is_loaded(self):
        with shardmesh.Run(self.path) as run:
            run.save(1, {"v": torch.zeros(3)})
            run.save(2, state_at(2))
            self.assertEqual(refusal(lambda: run.resume({"v": torch.zeros(3)}))[0], "missing_key")

    def test_wrong_arguments_and_a_second_run_are_errors(self):
        for name, value in {"last": -1, "every": "x", "best": 1.5, "since": -1}.items():
            with self.subTest(name):
                code, said = refusal(lambda: shardmesh.Run(self.path, keep=shardmesh.KeepRules(**{name: value})))
                self.assertEqual(code, "invalid_argument")
                self.assertIn(name, said)
        self.assertIn("step, checkpoint, or iter", refusal(lambda: shardmesh.Run(self.path, names="epoch"))[1])
        with shardmesh.Run(self.path) as run:
            self.assertEqual(refusal(lambda: run.save(-1, state_at(1)))[0], "invalid_argument")
            self.assertIn("metric", refusal(lambda: run.save(1, state_at(1), metric="good"))[1])
            code, said = refusal(lambda: shardmesh.Run(self.path))
            self.assertEqual(code, "destination_exists")
            self.assertIn(f"process {os.getpid()} on host", said)
            self.assertEqual(refusal(lambda: run.save(3, {"w": torch.zeros(2, device="meta")}))[0], "unsupported")
            self.assertEqual(shardmesh.Run(self.path, read_only=True).steps(), [])
        for call in (lambda: run.save(1, state_at(1)), run.prune):
            self.assertIn("is closed", refusal(call)[1])
        self.assertEqual(refusal(shardmesh.Run(self.work / "none", read_only=True).steps)[0], "io")
        self.assertFalse((self.work / "none").exists())

    def test_ranks_save_together_and_another_number_of_ranks_resumes(self):
        for code, said in run_ranks(3, save_on_ranks, str(self.path)):
            self.assertEqual(code, "disagreement")
            self.assertIn("Run.save", said)
        self.assertEqual(numbers(shardmesh.Run(self.path, read_only=True).steps()), [1, 2, 3])  # 3 refers to 1
        self.assertEqual(references(self.path / "step-3"), {"step-1"})
        self.assertEqual(run_ranks(2, resume_on_ranks, str(self.path)), [(3, True, [])] * 2)
        os.remove(self.path / "step-3" / ".metadata")
        self.assertEqual(run_ranks(2, resume_on_ranks, str(self.path)), [(2, True, [str(self.path / "step-3")])] * 2)

    def test_ranks_save_in_the_background_while_the_state_changes(self):
        for rank, said in enumerate(run_ranks(2, start_saves_on_ranks, str(self.path))):
            folders, steps, objects, is_equal = said
            self.assertEqual(folders, ["step-1", "step-2", "step-3"])
            self.assertEqual(steps, [1, 2, 3])  # 3 refers to 1
            self.assertEqual((objects, is_equal), ({"rank": rank}, True))
        self.assertEqual(references(self.path / "step-3"), {"step-1"})
        self.assertEqual([one.metric for one in shardmesh.Run(self.path, read_only=True).steps()], [1, 2, 3])

    def test_every_rank_gets_the_error_of_a_background_save_once(self):
        answers = run_ranks(2, failing_start_saves_on_ranks, str(self.path))
        self.assertEqual(answers[0], answers[1])
        (at_the_next_save, at_the_future, asked, after), refused, steps = answers[0]
        self.assertIsNotNone(at_the_next_save)
        self.assertEqual(at_the_next_save, at_the_future)
        self.assertEqual(asked, at_the_future)
        self.assertIsNone(after)
        self.assertEqual(refused[0], "invalid_argument")
        self.assertEqual(steps, [4, 6])

    def test_every_rank_gets_the_error_of_a_method_that_raises_and_the_step_can_be_saved_afterwards(self):
        answers = run_ranks(2, raising_methods_on_ranks, str(self.path))
        self.assertEqual(answers[0], answers[1])
        said, left, steps, deleted, notes = answers[0]
        pickled = ("unsupported", "value: cannot be pickled: ValueError: not today [unsupported]")
        stated = [("invalid_argument", f"value: its method state_dict raised {kind}: not today [invalid_argument]")
                  for kind in ("ValueError", "Untold")]
        copied = ("unsupported", "the state dict cannot be copied: ValueError: not today; save it with save, or correct "
                                 "the method that copies the object [unsupported]")
        self.assertEqual(said, [pickled, pickled, stated[0], stated[0], stated[1], stated[1], copied, "stop"])
        self.assertEqual(left, [[f"step-{step}" for step in range(number)] for number in range(7)])
        self.assertEqual((steps, deleted, notes), (list(range(8)), [1, 2, 3, 4, 5, 6], []))  # 7 refers to 0

    def test_a_method_that_raises_in_one_process_leaves_the_run_usable(self):
        with shardmesh.Run(self.path) as run:
            for kind, save in ((Unpickled, run.save), (WithoutState, run.save), (WithoutState, run.start_save),
                               (Uncopied, run.start_save)):
                code, said = refusal(lambda: save(1, {**state_at(1), "value": kind(True)}))
                self.assertIn("ValueError: not today", said)
                self.assertEqual((code in ("unsupported", "invalid_argument"), numbers(run.steps())), (True, []))
                self.assertEqual(sorted(os.listdir(self.path)), [".shardmesh_run.json", ".shardmesh_run.lock"])
            run.save(1, state_at(1), metric=0.5)
            for options in ({"state_dict": state_at(2)},
                            {"state_dict": {**state_at(2), "value": Unpickled(True)}, "overwrite": True}):
                self.assertIsNotNone(refusal(lambda: run.save(1, metric=9, **options)))
            self.assertEqual([(one.step, one.metric) for one in run.steps()], [(1, 0.5)])

    def test_one_process_saves_in_the_background(self):
        with shardmesh.Run(self.path) as run:
            state = state_at(1)
            saving = run.start_save(1, state, metric=0.5)
            state["w"] += 1
            self.assertEqual(saving.result(timeout=60), str(self.path / "step-1"))
            self.assertIsNone(saving.exception())
            run.start_save(2, state_at(2))  # waited for at the end of the block
        self.assertEqual(numbers(run.steps()), [1, 2])
        state = empty()
        torch_checkpoint.load(state, checkpoint_id=str(self.path / "step-1"), no_dist=True)
        self.assertTrue(equal(state, 1))
        self.assertIn("is closed", refusal(lambda: run.start_save(3, state_at(3)))[1])
        run = shardmesh.Run(self.path)
        run.start_save(3, {"function": lambda: 1})
        with self.assertRaises(Exception) as raised:
            run.close()
        self.assertIn("lambda", str(raised.exception))
        self.assertEqual(numbers(run.steps()), [1, 2])
        shardmesh.Run(self.path).close()  # the lock is free

    def test_each_rank_gets_its_own_objects_back(self):
        run_ranks(2, save_objects_on_ranks, str(self.path))
        self.assertEqual(run_ranks(2, resume_objects_on_ranks, str(self.path)), [True, True])

    def test_every_rank_gets_the_error_of_a_rank_whose_objects_cannot_be_saved(self):
        for refused, steps in run_ranks(2, save_wrong_objects_on_ranks, str(self.path)):
            self.assertEqual(refused[0], "invalid_argument")
            self.assertIn("the argument rank_objects is invalid", refused[1])
            self.assertEqual(steps, [])

    def test_every_rank_gets_the_error_of_the_rank_whose_arguments_are_wrong(self):
        answers = run_ranks(2, wrong_arguments_on_one_rank, str(self.path))
        self.assertEqual(answers[0], answers[1])
        said, steps = answers[0]
        words = ["path", "keep", "incremental", "step", "metric", "overwrite", "threads", "must be a dict", "deep",
                 "when_resized", "keep", "must be a dict"]
        self.assertEqual(len(said), len(words))
        for (code, text), word in zip(said, words):
            self.assertEqual(code, "invalid_argument", text)
            self.assertIn(word, text)
        self.assertEqual(steps, [1])

    def test_another_number_of_ranks_refuses_drops_or_converts_their_objects(self):
        run_ranks(2, save_objects_on_ranks, str(self.path))
        keys = sorted(f"rank_objects.{name}.{rank}" for name in ("data.loader", "rng") for rank in (0, 1))
        for rank, said in enumerate(run_ranks(3, resize_on_ranks, str(self.path))):
            refused, failed, untouched, dropped, none, made, is_loaded = said
            self.assertEqual(refused[0], "invalid_argument")
            for word in ("rank_objects.data.loader.0", "expected 2 ranks", "found 3 ranks", "when_resized"):
                self.assertIn(word, refused[1])
            self.assertEqual(failed[0], "invalid_argument")
            self.assertIn("no such shard", failed[1])
            self.assertEqual((untouched, dropped, none, made, is_loaded), (True, keys, {}, {"share": 30 + rank}, True))

    def test_every_rank_gets_the_error_of_one_ranks_objects_and_later_saves_work(self):
        answers = run_ranks(2, refuse_objects_on_ranks, str(self.path))
        self.assertEqual(answers[0], answers[1])
        (nameless, clash), steps = answers[0]
        self.assertEqual((nameless[0], clash[0], steps), ("invalid_argument", "duplicate_key", [1]))
        self.assertIn("rank_objects", nameless[1])
        self.assertIn("rank_objects.rng.1", clash[1])

    def test_objects_of_one_process(self):
        with shardmesh.Run(self.path) as run:
            run.save(1, state_at(1), rank_objects=objects_on(0))
            run.save(2, state_at(2))
            found = run.resume(empty())
            self.assertEqual((found.step, found.rank_objects, found.dropped), (2, {}, []))
            self.assertIn("rank_objects", refusal(lambda: run.save(3, state_at(3), rank_objects={"": 1}))[1])
            twice = refusal(lambda: run.save(3, {"rank_objects": 1}, rank_objects={"a": 1}))
            self.assertEqual(twice[0], "duplicate_key")
            for key in ("rank_objects", "rank_objects.a.0", "rank_objects_world_size"):  # also without objects
                for save in (run.save, run.start_save):
                    self.assertEqual(refusal(lambda: save(3, {**state_at(3), key: 5}))[0], "duplicate_key")
            self.assertEqual(numbers(run.steps()), [1, 2])
            self.assertIn("when_resized", refusal(lambda: run.resume(empty(), when_resized="keep"))[1])

    def test_threads_may_save_and_prune_at_the_same_time(self):
        with shardmesh.Run(self.path, keep=shardmesh.KeepRules(last=1)) as run:
            is_saved = threading.Event()

            def prune():
                while not is_saved.is_set():
                    run.prune()

            pruning = [threading.Thread(target=prune) for _ in range(2)]
            for thread in pruning:
                thread.start()
            try:
                for step in range(20):
                    run.save(step, state_at(step))
            finally:
                is_saved.set()
                for thread in pruning:
                    thread.join()
            run.prune()
            self.assertEqual(numbers(run.steps()), [19])

    def test_every_rank_gets_the_error_of_a_second_run(self):
        self.assertEqual(run_ranks(2, open_twice, str(self.path)), ["destination_exists"] * 2)


if __name__ == "__main__":
    common.main()
