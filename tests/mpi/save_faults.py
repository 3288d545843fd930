# SPDX-License-Identifier: Apache-2.0
"""A rank that is killed or stopped in the middle of a save: every survivor gets an error within the deadline and a second,
the previous checkpoint verifies with all its values, and nothing is left beside it. Runs mpi_save_fault under mpirun; OpenMPI
4 is asked not to end the job itself. Needs no package."""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

RANKS = 3
DEADLINE = 3.0
GRACE = 1.0  # what the deadline may be exceeded by
JOB_SECONDS = 60
PHASES = ["describe", "stage", "write", "finish", "commit"]


class Job:
    """One run: `survivors` maps a rank to (seconds, text), `seen` to (entries of the folder, what was loaded)."""

    def __init__(self, options, phase, victim, number):
        self.name, self.victim = f"{signal.Signals(number).name} of rank {victim} at {PHASES[phase]}", victim
        self.survivors, self.seen, self.left, self.output, self.process = {}, {}, set(), [], None
        folder = Path(tempfile.mkdtemp(prefix="shardmesh-save-faults-"))
        line = [options.launcher, "--oversubscribe", "--allow-run-as-root", "-n", str(RANKS), "--enable-recovery",
                "--mca", "mpi_yield_when_idle", "1", options.program, str(phase), str(victim), str(int(number)),
                str(DEADLINE), folder]
        # A group of its own, so that whatever is left can be ended by it.
        run = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        watchdog = threading.Timer(JOB_SECONDS, self.end, [run])
        watchdog.start()
        for text in run.stdout:
            self.read(text.rstrip())
            if len(self.left) == RANKS - 1:
                self.end_victim()
        run.wait()
        watchdog.cancel()
        self.end_victim()
        shutil.rmtree(folder, ignore_errors=True)

    def read(self, text):
        self.output.append(text)
        if found := re.fullmatch(r"process (\d+) (\d+)", text):
            if int(found[1]) == self.victim:
                self.process = int(found[2])
        elif found := re.fullmatch(r"survivor (\d+) ([0-9.]+) (.*)", text):
            self.survivors[int(found[1])] = (float(found[2]), found[3])
        elif found := re.fullmatch(r"seen (\d+) (\d+) (.*)", text):
            self.seen[int(found[1])] = (int(found[2]), found[3])
        elif found := re.fullmatch(r"left (\d+)", text):
            self.left.add(int(found[1]))

    def end_victim(self):
        process, self.process = self.process, None
        if process is None:
            return
        try:
            with open(f"/proc/{process}/comm") as comm:  # not a process that took its number
                if comm.read().strip() == "mpi_save_fault":
                    os.kill(process, signal.SIGKILL)
        except OSError:
            pass

    @staticmethod
    def end(run):
        try:
            os.killpg(run.pid, signal.SIGKILL)
        except OSError:
            pass

    def problems(self):
        for rank in set(range(RANKS)) - {self.victim}:
            if rank not in self.survivors:
                yield f"rank {rank} said nothing"
                continue
            seconds, text = self.survivors[rank]
            if seconds > DEADLINE + GRACE:
                yield f"rank {rank} returned after {seconds} s"
            if text == "no error":
                yield f"rank {rank} got no error"
            if f"rank {self.victim}" not in text and not re.search(rf"ranks [0-9, ]*\b{self.victim}\b", text):
                yield f"rank {rank} does not name the lost one: {text}"
            if self.seen.get(rank, (0, "nothing"))[1] != "old":
                yield f"rank {rank} finds on the disk: {self.seen.get(rank)}"
        if self.seen and min(entries for entries, _ in self.seen.values()) != 1:
            yield "something was left beside the checkpoint"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launcher", required=True)
    parser.add_argument("--program", required=True)
    options = parser.parse_args()
    version = subprocess.run([options.launcher, "--version"], capture_output=True, text=True).stdout
    if "(Open MPI) 4." not in version:
        print("skipped: this launcher ends a job when a rank dies")
        return 0
    last = RANKS - 1
    cases = [(phase, victim, signal.SIGKILL) for phase in range(len(PHASES)) for victim in (0, last)]
    cases.remove((4, last, signal.SIGKILL))  # only rank 0 commits
    cases += [(2, last, signal.SIGSTOP), (3, 0, signal.SIGSTOP), (4, 0, signal.SIGSTOP)]
    failed = 0
    for case in cases:
        job = Job(options, *case)
        problems = list(job.problems())
        failed += bool(problems)
        print(f"{'FAILED' if problems else 'ok    '} {job.name}", flush=True)
        for problem in problems:
            print(f"    {problem}")
        if problems:
            print("\n".join("    | " + text for text in job.output))
    print(f"{len(cases) - failed} of {len(cases)} cases passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
