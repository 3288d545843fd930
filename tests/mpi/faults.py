# SPDX-License-Identifier: Apache-2.0
"""A rank that is killed, stopped or leaves in the middle: every survivor gets an error that names it within the deadline and
a second, and lets go of MPI. Runs mpi_fault under mpirun; OpenMPI 4 is asked not to end the job itself. Needs no package."""
import argparse
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import threading
import time

RANKS = 3
DEADLINE = 1.5
GRACE = 1.0  # what the deadline of a call may be exceeded by
JOB_SECONDS = 40


class Job:
    """One run: `survivors` maps a rank to (seconds in its last call, text); `left` a rank to its seconds of letting go."""

    def __init__(self, options, phase, number, mode, recover):
        self.name = f"{signal.Signals(number).name} at {phase}, {mode}{', job goes on' if recover else ''}"
        line = [options.launcher, "--oversubscribe", "--allow-run-as-root", "-n", str(RANKS)]
        line += ["--enable-recovery"] if recover else []
        line += [options.program, phase, str(int(number)), str(DEADLINE), mode]
        self.processes, self.survivors, self.left, self.output = {}, {}, {}, []
        started = time.monotonic()
        # A group of its own, so that whatever is left can be ended by it.
        run = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        watchdog = threading.Timer(JOB_SECONDS, self.end, [run])
        watchdog.start()
        for text in run.stdout:
            self.read(text.rstrip())
            if len([rank for rank in self.left if rank != RANKS - 1]) == RANKS - 1 and number == signal.SIGSTOP:
                self.end_victim()
        self.status = run.wait()
        watchdog.cancel()
        self.end_victim()
        self.seconds = time.monotonic() - started

    def read(self, text):
        self.output.append(text)
        if found := re.fullmatch(r"process (\d+) (\d+)", text):
            self.processes[int(found[1])] = int(found[2])
        elif found := re.fullmatch(r"survivor (\d+) ([0-9.]+) (.*)", text):
            self.survivors[int(found[1])] = (float(found[2]), found[3])
        elif found := re.fullmatch(r"left (\d+) ([0-9.]+)", text):
            self.left[int(found[1])] = float(found[2])

    def end_victim(self):
        victim = self.processes.pop(RANKS - 1, None)
        if victim is None:
            return
        try:
            with open(f"/proc/{victim}/comm") as comm:  # not a process that took its number
                if comm.read().strip() == "mpi_fault":
                    os.kill(victim, signal.SIGKILL)
        except OSError:
            pass

    @staticmethod
    def end(run):
        try:
            os.killpg(run.pid, signal.SIGKILL)
        except OSError:
            pass

    def problems(self, recover):
        for rank in range(RANKS - 1):
            if rank not in self.survivors:
                if recover:
                    yield f"rank {rank} said nothing"
                continue
            seconds, text = self.survivors[rank]
            if seconds > DEADLINE + GRACE:
                yield f"rank {rank} returned after {seconds} s"
            if f"rank {RANKS - 1}" not in text and f"ranks {RANKS - 1}" not in text:
                yield f"rank {rank} does not name the lost one: {text}"
            if recover and self.left.get(rank, 99) > 2:
                yield f"rank {rank} did not let go of MPI"
        if not recover and self.status == 0:
            yield "mpirun says that all went well"
        if self.seconds > JOB_SECONDS - 5:
            yield f"the job took {self.seconds:.1f} s"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launcher", required=True)
    parser.add_argument("--program", required=True)
    options = parser.parse_args()
    version = subprocess.run([options.launcher, "--version"], capture_output=True, text=True).stdout
    can_recover = "(Open MPI) 4." in version
    if not can_recover:
        print("this launcher ends a job when a rank dies: only that is checked")
    kill, stop = signal.SIGKILL, signal.SIGSTOP
    cases = [("exchange", kill, "read", False), ("exchange", stop, "read", False)]
    if can_recover:
        cases += [(phase, number, mode, True) for mode in ("read", "staged") for number in (kill, stop)
                  for phase in ("gather", "exchange", "started", "moving")]
        cases += [("leaving", kill, mode, True) for mode in ("read", "staged")]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [(case, pool.submit(Job, options, *case)) for case in cases]
        for case, job in jobs:
            job = job.result()
            problems = list(job.problems(case[-1]))
            failed += bool(problems)
            print(f"{'FAILED' if problems else 'ok    '} {job.name}: {job.seconds:.1f} s")
            for problem in problems:
                print(f"    {problem}")
            if problems:
                print("\n".join("    | " + text for text in job.output))
    print(f"{len(cases) - failed} of {len(cases)} cases passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
