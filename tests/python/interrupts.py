# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C soon ends long calls with KeyboardInterrupt, and leaves nothing behind. A call is under way once it reports
progress."""
import subprocess
import sys

import common
import shardmesh

# 256 MiB of zeros without space on disk.
HEADER = b'{"w":{"dtype":"F32","shape":[67108864],"data_offsets":[0,268435456]}}'

CHILD = """
import os, signal, sys, shardmesh
state = {"begun": False}
def progress(done, total):
    if done > 0 and not state["begun"]:
        state["begun"] = True
        os.kill(os.getpid(), signal.SIGINT)
try:
    if sys.argv[2] == "diff":
        shardmesh.diff(sys.argv[1], sys.argv[1], threads=1, progress=progress)
    else:
        shardmesh.convert(sys.argv[1], sys.argv[2], "dcp", threads=1, memory_bytes=4 << 20, progress=progress)
    print("finished")
except KeyboardInterrupt:
    print("interrupted" if state["begun"] else "too early")
"""


# A rank that waits for one that never comes: in `join`, or in `refuse` after both have joined.
RANK = """
import os, signal, sys, threading, time
from shardmesh import _native
memory = _native.SharedMemory.make(2)
if sys.argv[1] == "refuse":
    other = threading.Thread(target=lambda: made.append(_native.Ranks.join(memory.token, 1, 60.0)))
    made = []
    other.start()
    rank = _native.Ranks.join(memory.token, 0, 60.0)
    other.join()
began = time.monotonic()
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    if sys.argv[1] == "refuse":
        rank.refuse("no luck")
    else:
        _native.Ranks.join(memory.token, 0, 60.0)
    print("finished")
except KeyboardInterrupt:
    print("interrupted" if time.monotonic() - began < 20 else "too late")
"""


class InterruptTest(common.WorkTest):
    def test_ctrl_c_ends_a_rank_that_waits_for_another(self):
        for call in ("join", "refuse"):
            with self.subTest(call):
                done = subprocess.run([sys.executable, "-c", RANK, call], capture_output=True, text=True, timeout=100)
                self.assertEqual(done.stdout.strip(), "interrupted", done.stderr)

    def interrupted(self, destination):
        source = self.work / "large.safetensors"
        with source.open("wb") as file:
            file.write(len(HEADER).to_bytes(8, "little") + HEADER)
            file.truncate(8 + len(HEADER) + (256 << 20))
        done = subprocess.run([sys.executable, "-c", CHILD, source, destination], capture_output=True, text=True,
                              timeout=100)
        self.assertEqual(done.stdout.strip(), "interrupted", done.stderr)
        self.assertEqual(self.left_in_work(), ["large.safetensors"])

    def test_ctrl_c_ends_a_conversion_and_takes_away_what_was_staged(self):
        self.interrupted(self.work / "out")

    def test_ctrl_c_ends_a_comparison(self):
        self.interrupted("diff")

    def test_another_thread_runs_while_bytes_move(self):
        import threading

        counted, stop = [0], threading.Event()

        def count():
            while not stop.is_set():
                counted[0] += 1

        thread = threading.Thread(target=count)
        thread.start()
        try:
            before = counted[0]
            shardmesh.convert(common.GOLDEN / "fsdp2_4" / "checkpoint", self.work / "out", "dcp")
            self.assertGreater(counted[0], before)
        finally:
            stop.set()
            thread.join()


if __name__ == "__main__":
    common.main()
