# SPDX-License-Identifier: Apache-2.0
"""`within`: calls end at their time limit with one Error, whatever a server does, and leave nothing behind."""
import os
import shutil
import socket
import time
import unittest.mock

import common

common.need_torch()
import torch  # noqa: E402

import shardmesh  # noqa: E402
import shardmesh.dcp  # noqa: E402

FOLDER = common.GOLDEN / "single_rank" / "checkpoint"


class TimeLimitTest(common.WorkTest):
    def setUp(self):
        super().setUp()
        self.delta = str(self.work / "delta")
        shardmesh.save_delta(FOLDER, FOLDER, self.delta)

    def calls(self, place, within):
        """Every call with a time limit, by name. None of them succeeds under a limit that has passed."""
        opened = shardmesh.open(FOLDER)
        key = opened.tensors[0].key
        to, other, how = self.work / "out", self.work / "out.delta", {"within": within}
        into = {key: torch.empty(opened[key].shape)}
        calls = {
            "open": lambda: shardmesh.open(place, **how),
            "inspect": lambda: shardmesh.inspect(place, **how),
            "open all parts": lambda: shardmesh.open(place, all_parts=True, **how),
            "load": lambda: shardmesh.load(place, key, **how),
            "map_tensor": lambda: shardmesh.map_tensor(place, key, allow_unaligned=True, **how),
            "verify": lambda: shardmesh.verify(place, **how),
            "diff": lambda: shardmesh.diff(place, FOLDER, **how),
            "diff, right": lambda: shardmesh.diff(FOLDER, place, **how),
            "convert": lambda: shardmesh.convert(place, to, "dcp", **how),
            "convert, like": lambda: shardmesh.convert(FOLDER, to, "dcp", like=place, **how),
            "reshard": lambda: shardmesh.reshard(place, to, "2", **how),
            "save_delta": lambda: shardmesh.save_delta(place, FOLDER, other, **how),
            "save_delta, new": lambda: shardmesh.save_delta(FOLDER, place, other, overwrite=True, **how),
            "open_delta": lambda: shardmesh.open_delta(place, self.delta, **how),
            "dcp.load": lambda: shardmesh.dcp.load(into, checkpoint_id=place, **how),
        }
        if place == FOLDER:
            calls |= {
                "Checkpoint.load": lambda: opened.load(key, **how),
                "Checkpoint.load_object": lambda: opened.load_object("n", **how),
                "Checkpoint.object_bytes": lambda: opened.object_bytes("n", **how),
                "TensorEntry.load": lambda: opened[key].load(**how),
                "ObjectEntry.load": lambda: opened["n"].load(**how),
                "Checkpoint.load_into": lambda: opened.load_into(into, **how),
                "Checkpoint.start_load": lambda: opened.start_load(into, **how).wait(),
                "save": lambda: shardmesh.save({"w": torch.zeros(4)}, to, **how),
                "dcp.save": lambda: shardmesh.dcp.save({"w": torch.zeros(4)}, checkpoint_id=to, no_dist=True, **how),
                "dcp.save, objects": lambda: shardmesh.dcp.save({"step": 4}, checkpoint_id=to, no_dist=True,
                                                                overwrite=True, **how),
                "dcp.async_save": lambda: shardmesh.dcp.async_save({"w": torch.zeros(4)}, checkpoint_id=to, no_dist=True,
                                                                   overwrite=True, **how).result(),
            }
        return calls

    def calls_of_run(self, run, within):
        """Every call of a run with a time limit, by name. The run has step 1."""
        state, how = {"w": torch.zeros(4), "step": 0}, {"within": within}
        return {
            "Run.save": lambda: run.save(2, state, overwrite=True, **how),
            "Run.start_save": lambda: run.start_save(2, state, overwrite=True, **how).result(),
            "Run.latest": lambda: run.latest(**how),
            "Run.latest, deep": lambda: run.latest(deep=True, **how),
            "Run.verify": lambda: run.verify(**how),
            "Run.resume": lambda: run.resume(state, **how),
            "Run.resume, deep": lambda: run.resume(state, deep=True, **how),
        }

    def ends(self, name, call):
        with self.assertRaises(shardmesh.Error, msg=name) as caught:
            call()
        self.assertEqual(caught.exception.code, "deadline_exceeded", (name, str(caught.exception)))
        self.assertIn("deadline has passed", str(caught.exception), name)

    def test_a_limit_that_has_passed_ends_every_call(self):
        for name, call in self.calls(FOLDER, 0).items():
            self.ends(name, call)
        self.assertEqual(self.left_in_work(), ["delta"])

    def test_no_limit_and_a_long_one_end_no_call(self):
        for within in (None, 600, 600.5, float("inf")):
            for call in self.calls(FOLDER, within).values():
                call()
                shutil.rmtree(self.work / "out", ignore_errors=True)
            (self.work / "out.delta").unlink()

    def test_a_limit_that_has_passed_ends_every_call_of_a_run_and_skips_no_step(self):
        with shardmesh.Run(self.work / "run") as run:
            run.save(1, {"w": torch.ones(4), "step": 1}, rank_objects={"seed": 7})
            for name, call in self.calls_of_run(run, 0).items():
                self.ends(name, call)
            self.assertEqual([one.step for one in run.steps()], [1])
            state = {"w": torch.zeros(4), "step": 0}
            resumed = run.resume(state)
            self.assertEqual((resumed.step, resumed.skipped, resumed.rank_objects), (1, [], {"seed": 7}))
            self.assertEqual((state["step"], state["w"].tolist()), (1, [1.0] * 4))
        self.assertEqual(sorted(self.left_in_work()), ["delta", "run"])

    def test_no_limit_and_a_long_one_end_no_call_of_a_run(self):
        with shardmesh.Run(self.work / "run") as run:
            run.save(1, {"w": torch.ones(4), "step": 1})
            for within in (None, 600, float("inf")):
                for call in self.calls_of_run(run, within).values():
                    call()

    def test_limits_that_are_no_numbers_are_refused_by_a_run(self):
        with shardmesh.Run(self.work / "run") as run:
            run.save(1, {"w": torch.ones(4), "step": 1})
            for within in (-1, float("nan"), "1", [1]):
                for name, call in self.calls_of_run(run, within).items():
                    with self.assertRaises(shardmesh.Error, msg=name) as caught:
                        call()
                    self.assertEqual(caught.exception.code, "invalid_argument", name)
                    self.assertIn("the argument within is invalid", str(caught.exception), name)
            self.assertEqual([one.step for one in run.steps()], [1])

    def test_a_call_ends_within_a_second_of_its_limit_when_a_server_does_not_answer(self):
        # The system accepts connections to the listener, and nobody answers.
        with socket.create_server(("127.0.0.1", 0)) as listener, \
                unittest.mock.patch.dict(os.environ, no_proxy="127.0.0.1"):
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/run"
            try:
                shardmesh.open(url, within=0.1)
            except shardmesh.Error as problem:
                if problem.code == "unsupported":
                    print(f"not tested: {problem}")
                    self.skipTest(str(problem))
            for name, call in self.calls(url, 0.3).items():
                began = time.monotonic()
                self.ends(name, call)
                self.assertLess(time.monotonic() - began, 1.3, name)
        self.assertEqual(self.left_in_work(), ["delta"])

    def test_limits_that_are_no_numbers_are_refused(self):
        for within in (-1, float("nan"), "1", [1]):
            for name, call in self.calls(FOLDER, within).items():
                with self.assertRaises(shardmesh.Error, msg=name) as caught:
                    call()
                self.assertEqual(caught.exception.code, "invalid_argument", name)
                self.assertIn("the argument within is invalid", str(caught.exception), name)
        self.assertEqual(self.left_in_work(), ["delta"])


if __name__ == "__main__":
    common.main()
