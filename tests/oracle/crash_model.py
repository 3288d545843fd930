# SPDX-License-Identifier: Apache-2.0
"""Shared by crash_points.py and crash_points_run.py: a folder's files in memory, on which every prefix of a log of calls
is replayed as if all processes were killed there, or as if the power was cut there. A power cut loses bytes that no
fsync reached, and changes of names that no fsync of their folder followed: the latest ones, or all of one folder. Needs
no package."""
import hashlib
import os
import subprocess


class Node:
    """A file or a folder. Bytes that an fsync reached survive a power cut, and so do the names in `surviving`. A folder
    keeps its entries when a power cut loses its own name: a deleted entry is then missing under the folder's old name."""

    def __init__(self, is_folder):
        self.is_folder, self.entries, self.surviving, self.bytes, self.synced = is_folder, {}, {}, bytearray(), b""

    def copy(self, copies):
        """Copies a tree; hard links stay links."""
        if id(self) not in copies:
            made = copies[id(self)] = Node(self.is_folder)
            made.bytes, made.synced = bytearray(self.bytes), self.synced
            made.entries = {name: entry.copy(copies) for name, entry in self.entries.items()}
            made.surviving = dict(made.entries)
        return copies[id(self)]

    def change(self, name, entry, survives):
        """Gives a name in this folder to `entry`, or to nothing."""
        for entries in (self.entries, self.surviving) if survives else (self.entries,):
            if entry:
                entries[name] = entry
            else:
                entries.pop(name, None)


class Files:
    """The contents of a folder, by relative names."""

    def __init__(self, folder=None):
        self.root = self.read(folder) if folder else Node(True)

    def read(self, path):
        node = Node(path.is_dir())
        if node.is_folder:
            node.entries = {entry.name: self.read(entry) for entry in path.iterdir()}
            node.surviving = dict(node.entries)
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
        return node, last

    def at(self, name):
        if name == ".":
            return self.root
        folder, last = self.place(name)
        return folder.entries[last]

    def apply(self, fields, survives=True):
        """Makes a call. A change of names that does not survive is undone by `lose_names`."""
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
        folder, last = self.place(name)
        if what in ("create", "mkdir"):
            folder.change(last, Node(what == "mkdir"), survives)
            return
        node = folder.entries[last]
        if what in ("unlink", "rmdir"):
            assert not node.entries, f"{name} is not empty"
            folder.change(last, None, survives and not node.surviving)
            return
        to_folder, to = self.place(fields[2])
        assert what in ("rename", "link", "exchange"), what
        if what != "link":
            folder.change(last, to_folder.entries[to] if what == "exchange" else None, survives)
        to_folder.change(to, node, survives)

    def lose_names(self):
        """Keeps only the names that survive."""
        def lose(node):
            node.entries = dict(node.surviving)
            for entry in node.entries.values():
                lose(entry)
        lose(self.root)

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
        """The state after the first calls, without the lost changes of names."""
        state = self.before.copy()
        for number, fields in enumerate(self.log[:upto]):
            try:
                state.apply(fields, number not in lost)
            except (KeyError, AssertionError) as error:
                raise AssertionError(f"call {number} of the log cannot be replayed: {fields[:3]}: {error}") from error
        state.lose_names()
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


def every(replay):
    """All states of a log, with their names."""
    yield from replay.killed()
    for upto in range(len(replay.log) + 1):
        yield from replay.power_cut(upto)


def start_logged(shim, line, folder, log):
    """Starts a command whose changes below the folder are appended to the log."""
    environment = {**os.environ, "LD_PRELOAD": str(shim), "FILE_LOG_UNDER": str(folder), "FILE_LOG": str(log)}
    return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
