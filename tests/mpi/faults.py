# SPDX-License-Identifier: Apache-2.0
"""A rank is killed, is stopped, or leaves mid-run. Every survivor gets an error that names it, within the deadline
and a second, and releases MPI. The ordinary run draws half of the cases in which the job goes on. Runs mpi_fault under
mpirun, with OpenMPI 4 set not to end the job itself. Needs no package."""
import concurrent.futures
import re
import signal
import sys

import job

RANKS = 3
DEADLINE = 1.5
GRACE = 1.0  # how far a call may exceed its deadline
JOB_SECONDS = 40


class Fault(job.Job):
    """The last rank is the victim. `left` maps a rank to the seconds that it took to release MPI."""

    def __init__(self, options, phase, number, mode, recover):
        super().__init__(options, RANKS, RANKS - 1)
        self.name = f"{signal.Signals(number).name} at {phase}, {mode}{', job goes on' if recover else ''}"
        self.number, self.recover, self.left = number, recover, {}
        self.run(["--enable-recovery"] if recover else [], [phase, str(int(number)), str(DEADLINE), mode], JOB_SECONDS)

    def read(self, text):
        if found := re.fullmatch(r"left (\d+) ([0-9.]+)", text):
            self.left[int(found[1])] = float(found[2])

    def all_left(self):
        return self.number == signal.SIGSTOP and self.others() <= set(self.left)

    def problems(self):
        for rank in self.others():
            if rank not in self.survivors:
                if self.recover:
                    yield f"rank {rank} said nothing"
                continue
            seconds, text = self.survivors[rank]
            if seconds > DEADLINE + GRACE:
                yield f"rank {rank} returned after {seconds} s"
            if f"rank {self.victim}" not in text and f"ranks {self.victim}" not in text:
                yield f"rank {rank} does not name the lost one: {text}"
            if self.recover and self.left.get(rank, 99) > 2:
                yield f"rank {rank} did not let go of MPI"
        if not self.recover and self.status == 0:
            yield "mpirun says that all went well"
        if self.seconds > JOB_SECONDS - 5:
            yield f"the job took {self.seconds:.1f} s"


def main():
    options = job.parse_options()
    kill, stop = signal.SIGKILL, signal.SIGSTOP
    cases = [("exchange", kill, "read", False), ("exchange", stop, "read", False)]
    if job.can_recover(options):
        more = [(phase, number, mode, True) for mode in ("read", "staged") for number in (kill, stop)
                for phase in ("gather", "exchange", "started", "moving")]
        more += [("leaving", kill, mode, True) for mode in ("read", "staged")]
        cases += job.share(more)
    else:
        print("this launcher ends a job when a rank dies: only that is checked")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(Fault, options, *case) for case in cases]
        return job.report((run.result() for run in runs), lambda one: f": {one.seconds:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
