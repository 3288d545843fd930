# SPDX-License-Identifier: Apache-2.0
"""Shared by faults.py and save_faults.py: one run of a program under mpirun in which one rank, the victim, is killed
or stopped; and the report of all runs. The scripts define the program's arguments and the expected outcome. Needs no
package."""
import argparse
import os
import random
import re
import signal
import subprocess
import threading
import time


def parse_options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launcher", required=True)
    parser.add_argument("--program", required=True)
    return parser.parse_args()


def share(cases):
    """All cases in long runs, else half of them: SHARDMESH_SEED, or chance, draws them."""
    if os.environ.get("SHARDMESH_PROPERTY_RUNS") == "long":
        return cases
    seed = os.environ.get("SHARDMESH_SEED") or str(random.randrange(1 << 32))
    print(f"SHARDMESH_SEED={seed}", flush=True)
    drawn = random.Random(seed).sample(range(len(cases)), (len(cases) + 1) // 2)
    return [cases[number] for number in sorted(drawn)]


def can_recover(options):
    """Whether the launcher can be set not to end a job when a rank dies."""
    version = subprocess.run([options.launcher, "--version"], capture_output=True, text=True).stdout
    return "(Open MPI) 4." in version


class Job:
    """One run. A case derives from it and has `name`, `read(text)` for its own output lines, `all_left()` (the
    victim is then ended), and `problems()`. `survivors` maps a rank to (seconds in its last call, text)."""

    def __init__(self, options, ranks, victim):
        self.program, self.ranks, self.victim, self.process = options.program, ranks, victim, None
        self.line = [options.launcher, "--oversubscribe", "--allow-run-as-root", "-n", str(ranks)]
        self.survivors, self.output = {}, []

    def run(self, launcher_options, arguments, seconds):
        """Runs to the end, for at most `seconds`. Stores `status` and `seconds`."""
        line = self.line + launcher_options + [self.program] + arguments
        started = time.monotonic()
        # A new process group, so that all remaining processes can be ended together.
        run = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        watchdog = threading.Timer(seconds, self.end, [run])
        watchdog.start()
        for text in run.stdout:
            self.read_line(text.rstrip())
            if self.all_left():
                self.end_victim()
        self.status = run.wait()
        watchdog.cancel()
        self.end_victim()
        self.seconds = time.monotonic() - started

    def others(self):
        """All ranks except the victim."""
        return set(range(self.ranks)) - {self.victim}

    def read_line(self, text):
        self.output.append(text)
        if found := re.fullmatch(r"process (\d+) (\d+)", text):
            if int(found[1]) == self.victim:
                self.process = int(found[2])
        elif found := re.fullmatch(r"survivor (\d+) ([0-9.]+) (.*)", text):
            self.survivors[int(found[1])] = (float(found[2]), found[3])
        else:
            self.read(text)

    def end_victim(self):
        process, self.process = self.process, None
        if process is None:
            return
        try:
            with open(f"/proc/{process}/comm") as comm:  # guards against a reused number; Linux keeps 15 characters
                if comm.read().strip() == os.path.basename(self.program)[:15]:
                    os.kill(process, signal.SIGKILL)
        except OSError:
            pass

    @staticmethod
    def end(run):
        try:
            os.killpg(run.pid, signal.SIGKILL)
        except OSError:
            pass


def report(jobs, detail=lambda job: ""):
    """Prints every run as it ends; returns the script's exit status."""
    count, failed = 0, 0
    for job in jobs:
        problems = list(job.problems())
        count += 1
        failed += bool(problems)
        print(f"{'FAILED' if problems else 'ok    '} {job.name}{detail(job)}", flush=True)
        for problem in problems:
            print(f"    {problem}")
        if problems:
            print("\n".join("    | " + text for text in job.output))
    print(f"{count - failed} of {count} cases passed")
    return 1 if failed else 0
