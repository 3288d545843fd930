# SPDX-License-Identifier: Apache-2.0
"""`plan_cache`: saves that repeat the one before use its plan, and write the same files as saves that plan."""
import filecmp
import os

import common

common.need_torch()
import torch  # noqa: E402
import torch.distributed.checkpoint as torch_checkpoint  # noqa: E402
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import Replicate, Shard, distribute_tensor  # noqa: E402

import shardmesh  # noqa: E402
import shardmesh.dcp  # noqa: E402
from rank_group import run_ranks  # noqa: E402

ROWS = torch.arange(42.0).reshape(7, 6)


def state_at(step, world, rank, rows=ROWS):
    """Rows and columns on uneven meshes, a replicated tensor, a plain one, and objects; `seed` is of one rank."""
    mesh = init_device_mesh("cpu", (world,))
    return {
        "rows": distribute_tensor(rows + step, mesh, [Shard(0)]),
        "nested": {"columns": distribute_tensor(rows * step, mesh, [Shard(1)]), "lr": 0.5},
        "copies": distribute_tensor(rows - step, mesh, [Replicate()]),
        "plain": torch.full((3,), float(step)),
        "step": step,
        "rank": rank,
        f"seed{rank}": 10 * rank + step,
    }


def loaded(path, world):
    """What PyTorch's own reader loads, whole."""
    into = {"rows": torch.zeros(7, 6), "nested": {"columns": torch.zeros(7, 6), "lr": 0.0},
            "copies": torch.zeros(7, 6), "plain": torch.zeros(3), "step": -1, "rank": -1,
            **{f"seed{rank}": -1 for rank in range(world)}}
    torch_checkpoint.load(into, checkpoint_id=path, no_dist=True)
    return into


def expected(step, world):
    return {"rows": ROWS + step, "nested": {"columns": ROWS * step, "lr": 0.5}, "copies": ROWS - step,
            "plain": torch.full((3,), float(step)), "step": step, "rank": 0,
            **{f"seed{rank}": 10 * rank + step for rank in range(world)}}


def equal(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


class Raising:
    """A value with the methods of PyTorch's Stateful."""

    def state_dict(self):
        raise ValueError("not today")

    def load_state_dict(self, state):
        pass


def repeated(rank, world, folder):
    plans, reuses, wrong = shardmesh.SavePlanCache(), [], []
    for step in (1, 2, 3):
        state = state_at(step, world, rank)
        kept, planned = f"{folder}/kept-{step}", f"{folder}/planned-{step}"
        metadata = shardmesh.dcp.save(state, checkpoint_id=kept, plan_cache=plans)
        shardmesh.dcp.save(state, checkpoint_id=planned, plan_cache=shardmesh.SavePlanCache())
        reuses.append(plans.reuses)
        if "nested.columns" not in metadata.state_dict_metadata:
            wrong.append((step, sorted(metadata.state_dict_metadata)))
        files = [name for name in os.listdir(planned) if name.endswith(".distcp")]
        same, different, missing = filecmp.cmpfiles(kept, planned, files, shallow=False)
        if different or missing or len(same) != world:
            wrong.append((step, different, missing))
        if not equal(loaded(kept, world), expected(step, world)):
            wrong.append((step, loaded(kept, world)))
    other = {"rows": state_at(4, world, rank)["rows"]}
    for number in (1, 2):
        shardmesh.dcp.save(other, checkpoint_id=f"{folder}/other-{number}", plan_cache=plans)
        reuses.append(plans.reuses)
    return reuses, wrong


def repeated_in_background(rank, world, folder):
    """Saves in the background and in the foreground share the plan; the state changes while it is saved."""
    plans, reuses, wrong, saving = shardmesh.SavePlanCache(), [], [], []
    for step in (1, 2, 3):
        state = state_at(step, world, rank)
        saving.append(shardmesh.dcp.async_save(state, checkpoint_id=f"{folder}/kept-{step}", plan_cache=plans))
        for value in (state["rows"], state["copies"], state["nested"]["columns"]):
            value.to_local().zero_()
        state["plain"].zero_()
        state["step"] = 0
    for step, one in enumerate(saving, 1):
        if "nested.columns" not in one.result().state_dict_metadata:
            wrong.append((step, sorted(one.result().state_dict_metadata)))
    reuses.append(plans.reuses)
    shardmesh.dcp.save(state_at(4, world, rank), checkpoint_id=f"{folder}/kept-4", plan_cache=plans)
    reuses.append(plans.reuses)
    for step in (1, 2, 3, 4):
        if not equal(loaded(f"{folder}/kept-{step}", world), expected(step, world)):
            wrong.append((step, loaded(f"{folder}/kept-{step}", world)))
    return reuses, wrong


def refused_in_background(rank, world, folder):
    """A state that one rank cannot save is every rank's error before the call returns, and a destination that is there
    is the error of the future. Later saves use the plan."""
    plans = shardmesh.SavePlanCache()

    def code(result=True, **options):
        state = options.pop("state", state_at(1, world, rank))
        try:
            begun = shardmesh.dcp.async_save(state, checkpoint_id=f"{folder}/run", plan_cache=plans, **options)
            if result:
                begun.result()
        except shardmesh.Error as problem:
            return problem.code
        return begun.exception().code

    bad = {**state_at(1, world, rank), "function": (lambda: 1) if rank == world - 1 else 0}
    shardmesh.dcp.async_save(state_at(1, world, rank), checkpoint_id=f"{folder}/run", plan_cache=plans).result()
    answers = [code(), code(result=False), code(state=bad), code(planner=torch_checkpoint.DefaultSavePlanner()),
               code(async_stager=DefaultStager(StagingOptions(False, False, False, False)))]
    shardmesh.dcp.async_save(state_at(2, world, rank), checkpoint_id=f"{folder}/run", plan_cache=plans,
                             overwrite=True).result()
    return answers, equal(loaded(f"{folder}/run", world), expected(2, world)), plans.reuses


def refused(rank, world, folder):
    """A rank that cannot make its part is every rank's error, and the next save uses the plan."""
    plans = shardmesh.SavePlanCache()

    def said(**more):
        state = {**state_at(1, world, rank), **more}
        try:
            shardmesh.dcp.save(state, checkpoint_id=f"{folder}/run", overwrite=True, plan_cache=plans)
        except shardmesh.Error as problem:
            return problem.code, str(problem)
        return None

    def code(**options):
        try:
            shardmesh.dcp.save(state_at(1, world, rank), checkpoint_id=f"{folder}/run", overwrite=True, **options)
        except shardmesh.Error as problem:
            return problem.code, str(problem)
        return None

    answers = [said(), said(function=(lambda: 1) if rank == world - 1 else 0),
               said(method=Raising() if rank == world - 1 else 0), said()]
    wrong = [code(plan_cache="x"), code(plan_cache=plans, planner=torch_checkpoint.DefaultSavePlanner())]
    return answers, wrong, plans.reuses


def steps_of_run(rank, world, folder):
    plans = shardmesh.SavePlanCache()
    with shardmesh.Run(f"{folder}/run", incremental=True, plan_cache=plans) as run:
        for step in (1, 2, 3):
            save = run.start_save if step == 2 else run.save
            save(step, state_at(step, world, rank), rank_objects={"seed": rank})
        state = state_at(0, world, rank)
        resumed = run.resume(state)
        return plans.reuses, resumed.step, resumed.rank_objects, state["step"], state["rows"].full_tensor().tolist()


class PlanCacheTest(common.WorkTest):
    def test_repeated_saves_use_the_plan_and_write_the_files_of_saves_that_plan(self):
        for world in (1, 2, 3):
            for reuses, wrong in run_ranks(world, repeated, str(self.work / str(world))):
                self.assertEqual((reuses, wrong), ([0, 1, 2, 2, 3], []), world)

    def test_saves_in_the_background_use_the_plan_and_write_the_values_of_the_call(self):
        for world in (1, 2, 3):
            for reuses, wrong in run_ranks(world, repeated_in_background, str(self.work / str(world))):
                self.assertEqual((reuses, wrong), ([2, 3], []), world)

    def test_errors_of_saves_in_the_background_reach_every_rank_and_the_plan_stays(self):
        for answers, is_equal, reuses in run_ranks(2, refused_in_background, str(self.work)):
            self.assertEqual(answers, ["destination_exists", "destination_exists", "unsupported", "invalid_argument",
                                       "invalid_argument"])
            self.assertTrue(is_equal)
            self.assertGreaterEqual(reuses, 1)

    def test_a_rank_that_cannot_save_is_every_ranks_error_and_the_plan_stays(self):
        for answers, wrong, reuses in run_ranks(2, refused, str(self.work)):
            self.assertEqual([one and one[0] for one in answers], [None, "unsupported", "invalid_argument", None])
            self.assertIn("pickled", answers[1][1])
            self.assertIn("its method state_dict raised ValueError: not today", answers[2][1])
            self.assertEqual(reuses, 1)
            self.assertEqual([one[0] for one in wrong], ["invalid_argument", "invalid_argument"])
            for (_, text), words in zip(wrong, ("plan_cache", "planner")):
                self.assertIn(words, text)

    def test_a_run_keeps_the_plan_from_step_to_step(self):
        for rank, answer in enumerate(run_ranks(2, steps_of_run, str(self.work))):
            self.assertEqual(answer, (2, 3, {"seed": rank}, 3, (ROWS + 3).tolist()))

    def test_a_process_alone_keeps_the_plan(self):
        plans = shardmesh.SavePlanCache()
        for step in (1, 2):
            shardmesh.dcp.save({"w": ROWS + step, "step": step}, checkpoint_id=self.work / "alone", overwrite=True,
                               plan_cache=plans)
        self.assertEqual(plans.reuses, 1)
        weight = ROWS + 2
        saving = shardmesh.dcp.async_save({"w": weight, "step": 2}, checkpoint_id=self.work / "alone", overwrite=True,
                                          plan_cache=plans)
        weight.zero_()
        saving.result()
        self.assertEqual(plans.reuses, 2)
        stored = shardmesh.open(self.work / "alone")
        self.assertTrue(torch.equal(stored.load("w"), ROWS + 2))
        self.assertEqual(stored.load("step"), 2)

    def test_a_cache_of_another_type_is_refused(self):
        for call in (lambda: shardmesh.Run(self.work / "run", plan_cache="x"),
                     lambda: shardmesh.dcp.save({"w": ROWS}, checkpoint_id=self.work / "out", plan_cache=[])):
            with self.assertRaises(shardmesh.Error) as caught:
                call()
            self.assertEqual(caught.exception.code, "invalid_argument")
            self.assertIn("plan_cache", str(caught.exception))
        self.assertEqual(self.left_in_work(), [])


if __name__ == "__main__":
    common.main()
