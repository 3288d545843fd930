# SPDX-License-Identifier: Apache-2.0
"""A rank is killed or stopped during a save. Every survivor gets an error within the deadline and a second, the
previous checkpoint verifies with all its values, and nothing is left beside it. The ordinary run draws half of the
cases. Runs mpi_save_fault under mpirun, with OpenMPI 4 set not to end the job itself. Needs no package."""
import concurrent.futures
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import job

RANKS = 3
DEADLINE = 1.5
GRACE = 1.0  # how far the deadline may be exceeded
JOB_SECONDS = 60
PHASES = ["describe", "stage", "write", "finish", "commit"]


class SaveFault(job.Job):
    """`seen` maps a rank to (entries of the folder, loaded value); `left` has the ranks that released MPI."""

    def __init__(self, options, phase, victim, number):
        super().__init__(options, RANKS, victim)
        self.name = f"{signal.Signals(number).name} of rank {victim} at {PHASES[phase]}"
        self.seen, self.left = {}, set()
        folder = Path(tempfile.mkdtemp(prefix="shardmesh-save-faults-"))
        self.run(["--enable-recovery", "--mca", "mpi_yield_when_idle", "1"],
                 [str(phase), str(victim), str(int(number)), str(DEADLINE), folder], JOB_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)

    def read(self, text):
        if found := re.fullmatch(r"seen (\d+) (\d+) (.*)", text):
            self.seen[int(found[1])] = (int(found[2]), found[3])
        elif found := re.fullmatch(r"left (\d+)", text):
            self.left.add(int(found[1]))

    def all_left(self):
        return len(self.left) == RANKS - 1

    def problems(self):
        for rank in self.others():
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
    options = job.parse_options()
    if not job.can_recover(options):
        print("skipped: this launcher ends a job when a rank dies")
        return 0
    last = RANKS - 1
    cases = [(phase, victim, signal.SIGKILL) for phase in range(len(PHASES)) for victim in (0, last)]
    cases.remove((4, last, signal.SIGKILL))  # only rank 0 commits
    cases += [(2, last, signal.SIGSTOP), (3, 0, signal.SIGSTOP), (4, 0, signal.SIGSTOP)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(SaveFault, options, *case) for case in job.share(cases)]
        return job.report(run.result() for run in runs)


if __name__ == "__main__":
    sys.exit(main())
