# SPDX-License-Identifier: Apache-2.0
"""Every point at which a save can stop. Calls that change files are logged, of all processes in one order. Every
prefix of the log is replayed as if all processes were killed there, and as if the power was cut there. A power cut
loses bytes that no fsync reached, and changes of names that no fsync of their folder followed: the latest ones, or
all of one folder. In each such state the destination is absent, unchanged, or one of the new ones, complete. `clean`
then finds all leftovers, and does not touch the destination. After a successful command, a power cut loses nothing.
Needs no package."""
import shutil
import subprocess
from pathlib import Path

from common import Oracle
from crash_model import Files, Replay, every, start_logged

TEMPORARY = "shardmesh-tmp"
DST = "DST"  # the name of every destination


class Checker:
    def __init__(self, oracle):
        self.oracle, self.shim, self.staged = oracle, oracle.args.shim.resolve(), oracle.args.staged.resolve()
        self.states = 0

    def written(self, state):
        folder = self.oracle.work / "state"
        shutil.rmtree(folder, ignore_errors=True)
        state.write(folder)
        return folder

    def cleaned(self, case, name, state):
        """`clean` finds all leftovers, and the destination stays."""
        folder = self.written(state)
        done = subprocess.run([self.oracle.tool, "clean", folder / DST], capture_output=True, text=True)
        left = [entry.name for entry in folder.iterdir() if TEMPORARY in entry.name]
        self.oracle.check(not left, case, f"{name}: clean exits {done.returncode} and leaves {left}: {done.stderr[-300:]}")
        self.oracle.check(Files(folder).of(DST) == state.of(DST), case, f"{name}: clean changes the destination")

    def scene(self, case, lines, is_whole, before=None, expected=(0,)):
        """Runs the command lines together, with DST replaced, in a folder that `before` filled. Then checks every
        state of their log. `is_whole` tells whether a folder holds one of the new destinations."""
        folder, log = self.oracle.work / case.replace(" ", "_"), self.oracle.work / (case.replace(" ", "_") + ".log")
        folder.mkdir()
        if before:
            before(folder)
        old = Files(folder)
        running = [start_logged(self.shim, [str(folder / DST) if part == DST else str(part) for part in line], folder, log) for line in lines]
        errors = [one.communicate(timeout=120)[1] for one in running]
        statuses = [one.returncode for one in running]
        self.oracle.check(0 in statuses and set(statuses) <= set(expected), case, f"exit {statuses}: {errors}")
        replay = Replay(old, log.read_text())
        end = replay.at(len(replay.log))
        self.oracle.check(end.digest() == Files(folder).digest(), case, "the log does not lead to what the folder holds")
        good, seen = {None: None not in self.required(old), old.of(DST): True}, set()
        for name, state in every(replay):
            digest, now = state.digest(), state.of(DST)
            if digest in seen:
                continue
            seen.add(digest)
            if now not in good:
                good[now] = is_whole(self.written(state) / DST)
            if self.oracle.check(good[now], case, f"{name}: the destination is neither old nor new") and TEMPORARY in digest:
                self.cleaned(case, name, state)
        for name, state in replay.power_cut(len(replay.log)):
            self.oracle.check(state.of(DST) == end.of(DST), case, f"{name}: after success the new one is lost")
        # Without fsync of its files and folder, the same save must fail this test.
        unsynced = Replay(old, "".join(line + "\n" for line in log.read_text().splitlines()
                                       if not line.startswith("fsync") or line == "fsync\t."))
        self.oracle.check(end.of(DST) == old.of(DST) or any(not good.get(state.of(DST), False) for _, state in every(unsynced)),
                          case, "lost bytes of files are not noticed")
        self.states += len(seen)
        print(f"{case}: {len(replay.log)} calls, {len(seen)} states, {len(good) - 1} destinations, exit {statuses}", flush=True)

    @staticmethod
    def required(old):
        """Forbidden states: no destination, if there was one before."""
        return {None} if old.of(DST) is not None else set()


def main():
    def more(parser):
        parser.add_argument("--shim", type=Path, required=True)
        parser.add_argument("--staged", type=Path, required=True, help="staged_processes")

    oracle = Oracle(__doc__, more)
    checker = Checker(oracle)
    dcp, other = oracle.golden / "single_rank" / "checkpoint", oracle.golden / "hf_sharded" / "checkpoint"
    tool, staged = oracle.tool, checker.staged

    def older(*line):
        return lambda folder: subprocess.run([str(folder / DST) if part == DST else str(part) for part in line], check=True,
                                             capture_output=True)

    def with_leftover(folder):
        older(*convert(other, "--to", "dcp"))(folder)
        left = folder / f".{DST}.shardmesh-tmp-999999999-0a0b0c0d"
        left.mkdir()
        (left / "__0_0.distcp").write_bytes(b"half")

    def convert(source, *more):
        return [tool, "convert", source, DST, "--threads", "1", *more]

    def converted(destination):
        """A whole destination verifies and equals one of the sources."""
        def passes(*line):
            return subprocess.run([tool, *line], capture_output=True).returncode == 0
        return passes("verify", destination) and any(passes("diff", source, destination) for source in (dcp, other))

    def delta(next_one, *more):
        return [tool, "delta", "make", dcp, next_one, DST, "--threads", "1", *more]

    def is_delta(destination):
        """A whole delta makes one of the sources of the other."""
        made = oracle.work / "applied.safetensors"
        done = subprocess.run([tool, "delta", "apply", dcp, destination, made, "--force"], capture_output=True)
        return done.returncode == 0 and any(subprocess.run([tool, "diff", source, made], capture_output=True).returncode == 0
                                            for source in (dcp, other))

    def made_by(processes):
        """The destination of `staged_processes`: one file per process."""
        wanted = {f"part{i}": f"new of {i}" for i in range(processes)}
        return lambda folder: {entry.name: entry.read_text() for entry in folder.iterdir()} == wanted

    old_folder, old_file = older(*convert(other, "--to", "dcp")), older(*convert(other, "--to", "safetensors"))
    old_ranks = older(staged, DST, "1", "commit", "old")
    new = ["--to", "dcp"]
    cases = [
        ("a new folder", [convert(dcp, *new)], converted, None, (0,)),
        ("a new file", [convert(dcp, "--to", "safetensors")], converted, None, (0,)),
        ("a folder is replaced", [convert(dcp, *new, "--force")], converted, old_folder, (0,)),
        ("a file is replaced", [convert(dcp, "--to", "safetensors", "--force")], converted, old_file, (0,)),
        ("a delta is made", [delta(other)], is_delta, None, (0,)),
        ("a delta is replaced", [delta(other, "--force")], is_delta, older(*delta(dcp)), (0,)),
        ("two make one folder", [convert(dcp, *new), convert(other, *new)], converted, None, (0, 2)),
        ("two replace one folder", [convert(dcp, *new, "--force")] * 2, converted, old_folder, (0, 2)),
        ("a leftover is removed twice", [convert(dcp, *new, "--force"), [tool, "clean", DST]], converted, with_leftover, (0, 1, 3)),
        ("ranks make a folder", [[staged, DST, "2", "commit", "new"]], made_by(3), None, (0,)),
        ("ranks replace a folder", [[staged, DST, "2", "commit", "new", "--force"]], made_by(3), old_ranks, (0,)),
        ("ranks are discarded", [[staged, DST, "3", "discard", "new"]], lambda folder: False, None, (0,)),
        ("ranks are discarded beside an old one", [[staged, DST, "2", "discard", "new", "--force"]], lambda folder: False,
         old_ranks, (0,)),
    ]
    for case, lines, is_whole, before, expected in cases:
        if oracle.args.only in case:
            checker.scene(case, lines, is_whole, before, expected)
    print(f"{checker.states} states")
    oracle.finish()


if __name__ == "__main__":
    main()
