# SPDX-License-Identifier: Apache-2.0
"""A failed or killed command never damages existing data. Each writing command runs once for each call that changes
files (the preloaded library counts them), with one of these faults: that call fails, the disk is full from then on,
a write is cut short, a signal interrupts the call, or the process is killed. SHARDMESH_PROPERTY_RUNS=long tries each
of these, the ordinary run one in turn. Afterwards, the destination is exactly the old one (or absent) or
the complete new one. Errors that the system reports only at the end of writing (fsync, close of a descriptor that
was written through, bytes lost after a write) fail the command and keep the old destination. Needs no package."""
import concurrent.futures
import errno
import os
import shutil
import subprocess
from pathlib import Path

from common import Oracle, fingerprint

MODES = {
    "fail": {"FAULT_MODE": "fail", "FAULT_ERRNO": str(errno.EIO)},
    "full": {"FAULT_MODE": "fail", "FAULT_ERRNO": str(errno.ENOSPC), "FAULT_STICKY": "1"},
    "short": {"FAULT_MODE": "short"},
    "interrupt": {"FAULT_MODE": "interrupt"},
    "kill": {"FAULT_MODE": "kill"},
}
# Each such fault fails the command. If only the command's second file is lost, the error says so.
LATE = {
    "close": {"FAULT_MODE": "fail", "FAULT_KIND": "close", "FAULT_ERRNO": str(errno.EDQUOT)},
    "fsync": {"FAULT_MODE": "fail", "FAULT_KIND": "fsync"},
    "lost": {"FAULT_MODE": "lost", "FAULT_KIND": "write"},
}
SECOND_FILE = "the file itself was written"
TEMPORARY = "shardmesh-tmp"
LONG = os.environ.get("SHARDMESH_PROPERTY_RUNS") == "long"


class Command:
    """A command line with placeholders SRC and DST, and the source of an older run's output at DST (None: nothing)."""

    def __init__(self, name, source, arguments, destination, old=None, program=None):
        self.name, self.source, self.arguments, self.destination, self.old = name, source, arguments, destination, old
        self.program = program  # replaces the tool

    def line(self, folder, force):
        values = {"SRC": str(self.source), "DST": str(folder / self.destination)}
        return [values.get(a, a) for a in self.arguments] + (["--force"] if force else []) + ["--threads", "1"]


def commands(oracle):
    dcp, other = oracle.golden / "single_rank" / "checkpoint", oracle.golden / "hf_sharded" / "checkpoint"
    plain = oracle.golden / "hf_consolidated" / "expected.safetensors"
    mesh = ["--mesh", "3", "--place", ".*=S(0)"]
    for name, source, arguments, destination in (
            ("dcp to safetensors", dcp, ["convert", "SRC", "DST"], "model.safetensors"),
            ("dcp to safetensors without objects", dcp, ["convert", "SRC", "DST", "--skip-objects"], "plain.safetensors"),
            ("dcp to pt", dcp, ["convert", "SRC", "DST"], "model.pt"),
            ("dcp to dcp", dcp, ["reshard", "SRC", "DST", *mesh], "resharded"),
            ("safetensors to dcp", plain, ["convert", "SRC", "DST", "--to", "dcp"], "converted"),
            ("safetensors to hf", plain, ["convert", "SRC", "DST", "--to", "hf", "--max-shard-size", "1KiB"], "hf")):
        yield Command(name, source, arguments, destination)
        # --force replaces an older run of the same command on other data.
        yield Command(name + " --force", source, arguments, destination, other)
    # Ranks that save together; all of them are killed at once here (one rank alone: tests/mpi/save_faults.py).
    ranks = oracle.args.ranks.resolve()
    yield Command("ranks", dcp, ["SRC", "DST", "2"], "ranks", program=ranks)
    yield Command("ranks --force", dcp, ["SRC", "DST", "2"], "ranks", other, program=ranks)


def siblings(folder, destination):
    """Everything in `folder` that is not a temporary: the destination and the files that belong to it."""
    found = {}
    for entry in sorted(folder.iterdir()):
        if not (entry.name.startswith(".") and TEMPORARY in entry.name):
            found[entry.name] = fingerprint(entry)
    return found


class Checker:
    def __init__(self, oracle, shim):
        self.oracle, self.shim = oracle, shim

    def tool(self, arguments, environment=None, program=None):
        done = subprocess.run([program or self.oracle.tool, *arguments], capture_output=True, text=True, errors="replace", timeout=60,
                              env={**os.environ, **(environment or {})})
        return done.returncode, done.stderr

    def prepare(self, command, folder):
        """An empty folder, or one with the older state. Returns its contents."""
        shutil.rmtree(folder, ignore_errors=True)
        if command.old is None:
            folder.mkdir(parents=True)
        else:
            shutil.copytree(self.olds[command.name], folder, symlinks=True)
        return siblings(folder, command.destination)

    def make_old(self, command):
        folder = self.oracle.work / "old" / command.name.replace(" ", "_")
        folder.mkdir(parents=True)
        older = Command(command.name, command.old, command.arguments, command.destination)
        status, err = self.tool(older.line(folder, False), program=command.program)
        self.oracle.check(status == 0, command.name, f"cannot make the older state: {status} {err[-300:]}")
        return folder

    def environment(self, folder, at, mode):
        return {"LD_PRELOAD": str(self.shim), "FAULT_UNDER": str(folder), "FAULT_AT": str(at),
                "FAULT_COUNT_FILE": str(folder) + ".count", **(MODES | LATE)[mode]}

    def complete(self, command, folder):
        """The destination is a complete new one: it verifies and equals the source."""
        target = str(folder / command.destination)
        left_out = ["--only", "w|nested.b"] if "--skip-objects" in command.arguments else []
        for arguments in (["verify", target], ["diff", str(command.source), target, *left_out]):
            status, err = self.tool(arguments)
            if status != 0:
                return f"{arguments[0]} exits {status}: {err[-300:]}"
        return ""

    def one(self, command, at, mode, new):
        """One run with one fault; returns a problem, or ''."""
        folder = self.oracle.work / "runs" / f"{command.name.replace(' ', '_')}.{mode}.{at}"
        old = self.prepare(command, folder)
        status, err = self.tool(command.line(folder, command.old is not None), self.environment(folder, at, mode),
                                command.program)
        now = siblings(folder, command.destination)
        if mode == "kill" and status != -9:
            return f"was not killed but exits {status}: {err[-300:]}"
        if mode != "kill" and status not in (0, 3):
            return f"exits {status}, expected 0 or 3: {err[-300:]}"
        if mode in ("short", "interrupt") and status != 0:
            return f"a call cut short is no error, but exits {status}: {err[-300:]}"
        # Ranks first write a token, to check that they share a file system. It is removed, so losing it is harmless.
        is_token = command.program is not None and mode in ("close", "lost") and at == 1
        if mode in LATE and not is_token and SECOND_FILE not in err and (status != 3 or now != old):
            return f"exits {status}, expected 3 and the old destination: {err[-300:]}"
        if mode != "kill" and status == 3 and not err.strip():
            return "fails without a word"
        if now == old:
            if status == 0:
                return "exits 0 but the destination is the old one"
        else:
            # The copy of the objects beside a single file is renamed after the file, which is complete without it.
            copies = {name for name in new if name.endswith(".objects.json")}
            if set(now) - copies != set(new) - copies:
                return f"holds {sorted(now)}, neither the old {sorted(old)} nor the new {sorted(new)}"
            wrong = self.complete(command, folder)
            if wrong:
                return f"status {status}; the destination is neither old nor complete: {wrong}"
        # Leftovers do not stop the next run.
        status, err = self.tool(command.line(folder, True), program=command.program)
        wrong = self.complete(command, folder) if status == 0 else f"exits {status}: {err[-300:]}"
        if wrong:
            return f"the next run: {wrong}"
        shutil.rmtree(folder)
        return ""

    def plain_file_system(self, command):
        """Without the flags of renameat2, with and without hard links: everything works except replacing a folder."""
        for links in "01":
            case = f"{command.name} on a plain file system, links {links}"
            folder = self.oracle.work / "runs" / case.replace(" ", "_")
            old = self.prepare(command, folder)
            environment = {"LD_PRELOAD": str(self.shim), "FAULT_UNDER": str(folder), "FAULT_MODE": "plain", "FAULT_LINKS": links}
            status, err = self.tool(command.line(folder, command.old is not None), environment, command.program)
            if command.old is not None and not command.destination.endswith((".safetensors", ".pt")):
                self.oracle.check(status == 3 and "exchange" in err and siblings(folder, command.destination) == old, case,
                                  f"exits {status}: {err[-300:]}")
            else:
                wrong = self.complete(command, folder) if status == 0 else f"exits {status}: {err[-300:]}"
                self.oracle.check(not wrong, case, wrong)
            left = [entry.name for entry in folder.iterdir() if TEMPORARY in entry.name]
            self.oracle.check(not left, case, f"leaves {left}")
            if command.old is None and command.program is None:
                before = siblings(folder, command.destination)
                status, err = self.tool(command.line(folder, False), environment)
                self.oracle.check(status == 2 and siblings(folder, command.destination) == before, case, f"again: {status} {err[-300:]}")

    def run(self, command, pool, turn):
        folder = self.oracle.work / "runs" / command.name.replace(" ", "_")
        self.prepare(command, folder)
        status, err = self.tool(command.line(folder, command.old is not None), self.environment(folder, 0, "fail"),
                                command.program)
        if not self.oracle.check(status == 0, command.name, f"without a fault exits {status}: {err[-300:]}"):
            return
        wrong = self.complete(command, folder)
        self.oracle.check(not wrong, command.name, f"without a fault: {wrong}")
        new = siblings(folder, command.destination)
        calls = int(Path(str(folder) + ".count").read_text())
        self.oracle.check(calls > 3, command.name, f"only {calls} calls counted: is the shim loaded?")
        late = []
        for mode in LATE:
            self.prepare(command, folder)
            self.tool(command.line(folder, command.old is not None), self.environment(folder, 0, mode), command.program)
            count = int(Path(str(folder) + ".count").read_text())
            self.oracle.check(count > 0, command.name, f"no {mode} counted")
            late += [(at, mode) for at in range(1, count + 1)]
        faults = late + [(at, mode) for number, mode in enumerate(MODES) for at in range(1, calls + 1) if LONG or (turn + at + number) % len(MODES) == 0]
        runs = {pool.submit(self.one, command, at, mode, new): (at, mode) for at, mode in faults}
        for run in concurrent.futures.as_completed(runs):
            at, mode = runs[run]
            wrong = run.result()
            self.oracle.check(not wrong, command.name, f"{mode} at call {at} of {calls}: {wrong}")
        print(f"{command.name}: {calls} calls, {len(runs)} faults", flush=True)


def main():
    def more(parser):
        parser.add_argument("--shim", type=Path, required=True)
        parser.add_argument("--ranks", type=Path, required=True, help="rank_copy")

    oracle = Oracle(__doc__, more)
    checker = Checker(oracle, oracle.args.shim.resolve())
    checker.olds = {}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for turn, command in enumerate(commands(oracle)):
            if oracle.args.only in command.name:
                if command.old is not None:
                    checker.olds[command.name] = checker.make_old(command)
                checker.run(command, pool, turn)
                checker.plain_file_system(command)
    oracle.finish()


if __name__ == "__main__":
    main()
