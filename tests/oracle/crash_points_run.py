# SPDX-License-Identifier: Apache-2.0
"""Every point at which `run flatten` and `run prune` can stop, by a kill or by a power cut (crash_model.py). In each
such state, the newest whole step is the expected one, every step that is left has its values, and the steps that the
command keeps are there. A prune of that state then succeeds and leaves nothing else. After a successful command, a power
cut loses nothing of the steps that stay. Needs no package."""
import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

from common import Oracle, fingerprint
from crash_model import Files, Replay, every, start_logged

TEMPORARY = "shardmesh-tmp"
RUN = "run"


def write_state(path, step):
    """"frozen" is the same in each step; "w" and "other" are not, and "other" differs only between steps 1 and 2."""
    values = {"frozen": [0.5] * 12, "w": [float(step)] * 8, "other": [float(min(step, 2))] * 4}
    header, data = {}, b""
    for name, numbers in values.items():
        header[name] = {"dtype": "F32", "shape": [len(numbers)], "data_offsets": [len(data), len(data) + 4 * len(numbers)]}
        data += struct.pack(f"<{len(numbers)}f", *numbers)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def number_of(folder):
    return int(folder.name.removeprefix("step-"))


class Checker:
    def __init__(self, oracle):
        self.oracle, self.shim, self.ranks = oracle, oracle.args.shim.resolve(), oracle.args.ranks.resolve()
        self.states = 0
        self.values = {}  # the steps of a run, with all bytes -> what is wrong with their values

    def source(self, step):
        return self.oracle.work / f"state-{step}.safetensors"

    def fill(self, run, steps):
        """Saves these steps; one with True refers to the chunks of the step before that have not changed."""
        run.mkdir()
        for step, refers in steps.items():
            write_state(self.source(step), step)
            previous = ["--previous", run / f"step-{step - 1}"] if refers else []
            subprocess.run([self.ranks, self.source(step), run / f"step-{step}", "2", *previous], check=True, capture_output=True)

    def problem_in(self, run, newest, kept):
        """What is wrong with the steps of a run, or nothing."""
        steps = sorted(run.glob("step-*"))
        if not kept <= {number_of(folder) for folder in steps}:
            return f"only {[folder.name for folder in steps]} are left"
        status, out, err = self.oracle.run("run", "latest", run, "--deep", "--json")
        if status != 0 or [step["step"] for step in json.loads(out)["steps"]] != [newest]:
            return f"run latest exits {status}: {out[:300]}{err[-300:]}"
        contents = tuple((folder.name, tuple(fingerprint(folder).items())) for folder in steps)
        if contents not in self.values:
            self.values[contents] = self.wrong_value(steps)
        return self.values[contents]

    def wrong_value(self, steps):
        for folder in steps:
            for arguments in (["verify", folder], ["diff", folder, self.source(number_of(folder))]):
                status, out, err = self.oracle.run(*arguments)
                if status != 0:
                    return f"{arguments[0]} of {folder.name} exits {status}: {out[:300]}{err[-300:]}"
        return ""

    def written(self, state):
        folder = self.oracle.work / "state"
        shutil.rmtree(folder, ignore_errors=True)
        state.write(folder)
        return folder / RUN

    def pruned(self, case, name, run, newest):
        """A prune of the state ends with the newest step and those to which it refers, and without a leftover."""
        status, _, err = self.oracle.run("run", "prune", run, "--keep-last", "1")
        names = sorted(entry.name for entry in run.iterdir())
        good = status == 0 and not any(TEMPORARY in one for one in names)
        self.oracle.check(good, case, f"{name}: prune exits {status} and leaves {names}: {err}")
        problem = self.problem_in(run, newest, {newest})
        self.oracle.check(not problem, case, f"{name}, then a prune: {problem}")

    def problems(self, replay, newest, kept, seen):
        """The states that were not seen before, and what is wrong with each."""
        for name, state in every(replay):
            digest = state.digest()
            if digest not in seen:
                seen.add(digest)
                run = self.written(state)
                yield name, run, self.problem_in(run, newest, kept)

    def rename_as_killed_prune(self, folder, log, step):
        """A prune that is killed after its first call: the new name of the step is not durable."""
        run = folder / RUN
        names = [run / f"step-{step}", run / f".step-{step}.{TEMPORARY}-999999999-0a0b0c0d"]
        line = [sys.executable, "-c", "import os, sys; os.rename(*sys.argv[1:])", *names]
        out, err = start_logged(self.shim, line, folder, log).communicate(timeout=120)
        self.oracle.check(names[1].exists() and log.exists(), "rename", f"step {step} keeps its name: {out}{err}")

    def scene(self, case, steps, lines, newest, kept, needs_sync, leftover=False):
        """Runs the command lines one after the other, and checks every state of their log."""
        folder, log = self.oracle.work / case.replace(" ", "_"), self.oracle.work / (case.replace(" ", "_") + ".log")
        folder.mkdir()
        self.fill(folder / RUN, steps)
        if leftover:
            left = folder / RUN / f".step-9.{TEMPORARY}-999999999-0a0b0c0d"
            left.mkdir()
            (left / "__0_0.distcp").write_bytes(b"half")
        old = Files(folder)
        for line in lines:
            if line[0] == "rename":
                self.rename_as_killed_prune(folder, log, *line[1:])
                continue
            running = start_logged(self.shim, [self.oracle.tool, "run", line[0], folder / RUN, *line[1:], "--threads", "1"], folder, log)
            err = running.communicate(timeout=120)[1]
            self.oracle.check(running.returncode == 0, case, f"{line[0]} exits {running.returncode}: {err}")
        replay, seen = Replay(old, log.read_text()), set()
        end = replay.at(len(replay.log))
        self.oracle.check(end.digest() == Files(folder).digest(), case, "the log does not lead to what the folder holds")
        self.oracle.check(end.digest() != old.digest(), case, "the commands change nothing")
        for name, run, problem in self.problems(replay, newest, kept, seen):
            if self.oracle.check(not problem, case, f"{name}: {problem}"):
                self.pruned(case, name, run, newest)
        for name, state in replay.power_cut(len(replay.log)):
            for step in kept:
                place = f"{RUN}/step-{step}"
                good = state.digest(state.at(place)) == end.digest(end.at(place))
                self.oracle.check(good, case, f"{name}: after success step {step} is not as the command left it")
        if needs_sync:  # without fsync, the same commands must fail this test
            unsynced = Replay(old, "".join(line + "\n" for line in log.read_text().splitlines() if not line.startswith("fsync")))
            noticed = any(problem for _, _, problem in self.problems(unsynced, newest, kept, set()))
            self.oracle.check(noticed, case, "lost bytes of files are not noticed")
        self.states += len(seen)
        print(f"{case}: {len(replay.log)} calls, {len(seen)} states", flush=True)

    def notices_lost_steps(self):
        """A step to which another refers is missed, and so is the newest one."""
        run = self.oracle.work / "lost"
        self.fill(run, {1: False, 2: True})
        shutil.move(run / "step-1", self.oracle.work / "lost-1")
        self.oracle.check(self.problem_in(run, 2, {2}), "lost", "the bytes of step 1 are not missed")
        shutil.move(self.oracle.work / "lost-1", run / "step-1")
        self.oracle.check(not self.problem_in(run, 2, {2}), "lost", "the whole run has a problem")
        shutil.rmtree(run / "step-2")
        self.oracle.check(self.problem_in(run, 2, {2}), "lost", "step 2 is not missed")


def main():
    def more(parser):
        parser.add_argument("--shim", type=Path, required=True)
        parser.add_argument("--ranks", type=Path, required=True, help="rank_copy")

    oracle = Oracle(__doc__, more)
    checker = Checker(oracle)
    checker.notices_lost_steps()
    chain, prune = {1: False, 2: True, 3: True}, ["prune", "--keep-last", "1"]
    cases = [
        ("the newest step is flattened", chain, [["flatten", "3"]], 3, {1, 2, 3}, True),
        ("a step to which another refers is flattened", chain, [["flatten", "2"]], 3, {1, 2, 3}, True),
        ("steps that refer to each other are pruned", {**chain, 4: False}, [prune], 4, {4}, False),
        ("a prune keeps the steps to which the newest one refers", {1: False, 2: True, 3: False, 4: True}, [prune], 4, {3, 4}, False),
        ("a step is flattened and the others are pruned", chain, [["flatten", "3"], prune], 3, {3}, True),
        ("a step that a killed prune renamed is pruned", {1: False, 2: False}, [["rename", 1], prune], 2, {2}, False),
        ("a leftover is pruned", {1: False, 2: False}, [prune], 2, {2}, False),
    ]
    for case, *scene in cases:
        if oracle.args.only in case:
            checker.scene(case, *scene, leftover="leftover" in case)
    print(f"{checker.states} states")
    oracle.finish()


if __name__ == "__main__":
    main()
