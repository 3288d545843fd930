# SPDX-License-Identifier: Apache-2.0
"""Every point at which a save can stop. Calls that change files are logged, of all processes in one order. Every
prefix of the log is replayed as if all processes were killed there, and as if the power was cut there. A power cut
loses bytes that no fsync reached, and changes of names that no fsync of their folder followed: the latest ones, or
all of one folder. In each such state the destination is absent, unchanged, or one of the new ones, complete. `clean`
then finds all leftovers, and does not touch the destination. After a successful command, a power cut loses nothing.
Needs no package."""
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from common import Oracle

TEMPORARY = "shardmesh-tmp"
DST = "DST"  # the name of every destination


class Impossible(Exception):
    pass


class Node:
    """A file or a folder. Bytes that an fsync reached survive a power cut."""

    def __init__(self, is_folder):
        self.is_folder, self.entries, self.bytes, self.synced = is_folder, {}, bytearray(), b""

    def copy(self, copies):
        """Copies a tree; hard links stay links."""
        if id(self) not in copies:
            made = copies[id(self)] = Node(self.is_folder)
            made.bytes, made.synced = bytearray(self.bytes), self.synced
            made.entries = {name: entry.copy(copies) for name, entry in self.entries.items()}
        return copies[id(self)]


class Files:
    """The contents of a folder, by relative names."""

    def __init__(self, folder=None):
        self.root = self.read(folder) if folder else Node(True)

    def read(self, path):
        node = Node(path.is_dir())
        if node.is_folder:
            node.entries = {entry.name: self.read(entry) for entry in path.iterdir()}
        else:
            node.bytes = bytearray(path.read_bytes())
            node.synced = bytes(node.bytes)
        return node

    def copy(self):
        made = Files()
        made.root = self.root.copy({})
        return made

    def place(self, name):
        *folders, last = name.split("/")
        node = self.root
        for folder in folders:
            node = node.entries[folder]
        return node.entries, last

    def at(self, name):
        if name == ".":
            return self.root
        entries, last = self.place(name)
        return entries[last]

    def apply(self, fields):
        what, name = fields[0], fields[1]
        if not name:  # the file lost its last name while it was written
            return
        if what == "fsync":
            node = self.at(name)
            node.synced = bytes(node.bytes)
            return
        if what == "write":
            at, data = int(fields[2]), bytes.fromhex(fields[3])
            held = self.at(name).bytes
            held.extend(bytes(max(0, at - len(held))))
            held[at:at + len(data)] = data
            return
        if what == "truncate":
            held, size = self.at(name).bytes, int(fields[2])
            held[:] = held[:size] + bytes(max(0, size - len(held)))
            return
        entries, last = self.place(name)
        if what in ("create", "mkdir"):
            entries[last] = Node(what == "mkdir")
        elif what in ("unlink", "rmdir"):
            if what == "rmdir" and entries[last].entries:
                raise Impossible(f"{name} is not empty")
            del entries[last]
        else:
            to_entries, to = self.place(fields[2])
            if what == "rename":
                to_entries[to] = entries.pop(last)
            elif what == "link":
                to_entries[to] = entries[last]
            else:
                assert what == "exchange", what
                entries[last], to_entries[to] = to_entries[to], entries[last]

    def lose_bytes(self):
        """Keeps only synced bytes."""
        def lose(node):
            node.bytes = bytearray(node.synced)
            for entry in node.entries.values():
                lose(entry)
        lose(self.root)

    def digest(self, node=None):
        """Names and bytes, as one text."""
        node = node or self.root
        if not node.is_folder:
            return hashlib.sha256(node.bytes).hexdigest()
        return "{" + ",".join(f"{name!r}:{self.digest(entry)}" for name, entry in sorted(node.entries.items())) + "}"

    def of(self, name):
        return self.digest(self.root.entries[name]) if name in self.root.entries else None

    def write(self, folder):
        def put(node, path):
            if node.is_folder:
                path.mkdir()
                for name, entry in node.entries.items():
                    put(entry, path / name)
            else:
                path.write_bytes(node.bytes)
        put(self.root, folder)


NAMES = ("create", "mkdir", "unlink", "rmdir", "rename", "link", "exchange")


def folders_of(fields):
    """The folders whose entries a call changes."""
    return {name.rpartition("/")[0] or "." for name in fields[1:] if fields[0] in NAMES}


class Replay:
    """The distinct states of one log."""

    def __init__(self, before, log):
        self.before, self.log = before, [line.split("\t") for line in log.splitlines()]

    def at(self, upto, lost=()):
        """The state after the first calls, without the lost changes of names and the later calls that depend on
        them."""
        state = self.before.copy()
        for number, fields in enumerate(self.log[:upto]):
            if number in lost:
                continue
            try:
                state.apply(fields)
            except (KeyError, Impossible):
                assert lost, f"call {number} of the log cannot be replayed: {fields[:3]}"
        return state

    def unsynced(self, upto):
        """Changes of names before call number `upto` that no fsync of their folder followed, by folder; and those
        that come after everything that such an fsync covered, in order."""
        waiting, covered = {}, -1
        for number, fields in enumerate(self.log[:upto]):
            if fields[0] == "fsync":
                covered = max([covered, *waiting.pop(fields[1], [])])
            for folder in folders_of(fields):
                waiting.setdefault(folder, []).append(number)
        latest = sorted({number for numbers in waiting.values() for number in numbers if number > covered})
        return waiting, latest

    def killed(self):
        for upto in range(len(self.log) + 1):
            yield f"killed before call {upto + 1} of {len(self.log)}", self.at(upto)

    def power_cut(self, upto):
        """The states after a power cut at call number `upto`. A file system that keeps the order loses the latest
        changes of names; another loses those of any one folder."""
        where = f"power cut before call {upto + 1} of {len(self.log)}"
        waiting, latest = self.unsynced(upto)
        losses = {f"names as before call {number + 1}": {n for n in latest if n >= number} for number in latest}
        losses |= {f"the names in {folder} are lost": set(numbers) for folder, numbers in waiting.items()}
        for what, lost in {"no name is lost": set(), **losses}.items():
            state = self.at(upto, lost)
            state.lose_bytes()
            yield f"{where}, {what}", state


class Checker:
    def __init__(self, oracle):
        self.oracle, self.shim, self.staged = oracle, oracle.args.shim.resolve(), oracle.args.staged.resolve()
        self.states = 0

    def start(self, line, folder, log):
        environment = {**os.environ, "LD_PRELOAD": str(self.shim), "FILE_LOG_UNDER": str(folder), "FILE_LOG": str(log)}
        return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

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
        running = [self.start([str(folder / DST) if part == DST else str(part) for part in line], folder, log) for line in lines]
        errors = [one.communicate(timeout=120)[1] for one in running]
        statuses = [one.returncode for one in running]
        self.oracle.check(0 in statuses and set(statuses) <= set(expected), case, f"exit {statuses}: {errors}")
        replay = Replay(old, log.read_text())
        end = replay.at(len(replay.log))
        self.oracle.check(end.digest() == Files(folder).digest(), case, "the log does not lead to what the folder holds")
        good, seen = {None: None not in self.required(old), old.of(DST): True}, set()
        for name, state in self.every(replay):
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
        self.oracle.check(end.of(DST) == old.of(DST) or any(not good.get(state.of(DST), False) for _, state in self.every(unsynced)),
                          case, "lost bytes of files are not noticed")
        self.states += len(seen)
        print(f"{case}: {len(replay.log)} calls, {len(seen)} states, {len(good) - 1} destinations, exit {statuses}", flush=True)

    @staticmethod
    def required(old):
        """Forbidden states: no destination, if there was one before."""
        return {None} if old.of(DST) is not None else set()

    @staticmethod
    def every(replay):
        yield from replay.killed()
        for upto in range(len(replay.log) + 1):
            yield from replay.power_cut(upto)


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
