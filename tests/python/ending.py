# SPDX-License-Identifier: Apache-2.0
"""A program that ends while daemon threads are in our calls ends normally, as with a thread in torch.load. A program has
several such threads, because each program imports PyTorch; in long runs, it has one. The ordinary run draws one of the
four moments at which a program ends."""
import random
import shutil
import subprocess
import sys
import unittest

import common

common.need_torch()

# 2 GiB of zeros without space on disk: no call finishes before the program ends.
ROWS, COLUMNS = 1 << 15, 1 << 14
HEADER = b'{"w":{"dtype":"F32","shape":[%d,%d],"data_offsets":[0,%d]}}' % (ROWS, COLUMNS, 4 * ROWS * COLUMNS)

CHILD = """
import atexit, sys, threading, time
import torch, shardmesh, shardmesh.dcp
source, folder, calls = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
def zeros(): return {"w": torch.empty(%d, %d)}
# Each call has its thread, its own destination, and its own event, which it sets when it is under way.
def load_into(begun, out, state): shardmesh.open(source).load_into(state, threads=1, progress=begun)
def load_quietly(begun, out, state): begun(); shardmesh.open(source).load_into(state, threads=1)
def load(begun, out, state): begun(); shardmesh.open(source).load("w", threads=1)
def load_with_arrivals(begun, out, state):
    begun(); shardmesh.open(source).start_load(state, on_arrival=lambda key: None).wait()
def dcp_load(begun, out, state): shardmesh.dcp.load(state, checkpoint_id=source, threads=1, progress=begun)
def verify(begun, out, state): shardmesh.verify(source, threads=1, progress=begun)
def diff(begun, out, state): shardmesh.diff(source, source, threads=1, progress=begun)
def convert(begun, out, state): shardmesh.convert(source, out, "dcp", threads=1, memory_bytes=4 << 20, progress=begun)
def reshard(begun, out, state):
    shardmesh.reshard(source, out, 2, place="w=S(1)", threads=1, memory_bytes=4 << 20, progress=begun)
def save(begun, out, state): shardmesh.save(state, out, threads=1, memory_bytes=4 << 20, progress=begun)
def dcp_save(begun, out, state):
    shardmesh.dcp.save(state, checkpoint_id=out, threads=1, memory_bytes=4 << 20, progress=begun)
def delta_make(begun, out, state): shardmesh.save_delta(source, source, out, threads=1, progress=begun)
def run_save(begun, out, state):
    with shardmesh.Run(out) as run: begun(); run.save(1, state)
def again_and_again(what):
    def call(begun, out, state):
        begun()
        while True: what(out)
    return call
opening = again_and_again(lambda out: shardmesh.open(source))
mapping = again_and_again(lambda out: shardmesh.map_tensor(source, "w", allow_unaligned=True))
objects = again_and_again(lambda out: shardmesh.load(out, "epoch"))
run_steps = again_and_again(lambda out: shardmesh.Run(out).steps())
# Kept: a daemon thread that frees a tensor while the program ends aborts in PyTorch, with or without us.
kept = []
boxes = again_and_again(lambda out: kept.append(shardmesh.load(source, "w", ((5, 0), (3, 7)))))
def later(): assert shardmesh.load(source, "w", ((5, 0), (3, 7))).sum() == 0; print("later")
if "verify" in calls: atexit.register(later)
events = []
for call in calls:
    out = folder + "/" + call
    if call == "objects": shardmesh.save({"epoch": 3}, out)
    state = zeros() if "load" in call or "save" in call else None
    event = threading.Event()
    def thread(call=call, out=out, state=state, event=event):
        try:
            globals()[call](lambda *_: event.set(), out, state)
        except BaseException as problem:
            event.set()
            print("raised", call, problem)
    events.append(event)
    threading.Thread(target=thread, daemon=True).start()
for event in events: event.wait()
time.sleep(float(sys.argv[4]))
print("ends")
""" % (ROWS, COLUMNS)

# Rank 1 does not make the second call.
RANKS = """
import os, sys, threading, time
import torch, torch._dynamo, torch.distributed as dist, shardmesh
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
rank = 0 if os.fork() else 1
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=2)
rows = distribute_tensor(torch.arange(8.0).reshape(4, 2), init_device_mesh("cpu", (2,)), [Shard(0)])
shardmesh.redistribute(rows, placements=[Replicate()])
if rank == 1:
    time.sleep(4)
    os._exit(0)
threading.Thread(target=lambda: shardmesh.redistribute(rows, placements=[Replicate()]), daemon=True).start()
time.sleep(0.5)
print("ends", flush=True)
"""

CALLS = ("load_into", "load_quietly", "load", "dcp_load", "verify", "diff", "convert", "reshard", "save", "dcp_save",
         "opening", "mapping", "objects", "boxes", "load_with_arrivals", "delta_make", "run_save", "run_steps")
RUNS = ("run_save", "run_steps")
MADE = ("objects", *RUNS)  # these calls leave a folder
# At most three of these calls move bytes at the same time.
GROUPS = [CALLS[first::5] for first in range(5)]
MOMENTS = (0.0, 0.003, 0.01, 0.1)  # seconds after the calls are under way


class EndingTest(common.WorkTest):
    def ends(self, calls, after):
        source = self.work / "large.safetensors"
        if not source.exists():
            with source.open("wb") as file:
                file.write(len(HEADER).to_bytes(8, "little") + HEADER)
                file.truncate(8 + len(HEADER) + 4 * ROWS * COLUMNS)
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", CHILD, source, self.work, ",".join(calls), str(after)],
                              capture_output=True, text=True, timeout=100)
        expected = ["ends"] + ["later"] * ("verify" in calls)
        self.assertEqual((done.returncode, done.stdout.split("\n")[:-1], done.stderr), (0, expected, ""), calls)
        self.assertEqual(self.left_in_work(), ["large.safetensors", *sorted(set(calls) & set(MADE))], calls)
        for run in set(calls) & set(RUNS):  # it has neither a step nor a leftover of one
            self.assertEqual([path.name for path in (self.work / run).iterdir() if "step" in path.name], [], calls)

    def test_every_call_that_blocks(self):
        for calls in [[call] for call in CALLS] if common.long_runs() else GROUPS:
            with self.subTest(calls):
                self.ends(calls, 0.05)
                for folder in set(calls) & set(MADE):
                    shutil.rmtree(self.work / folder)

    def test_a_rank_that_waits_for_another(self):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", RANKS, self.work / "store"], capture_output=True,
                              text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, "ends\n"), done.stderr)
        self.assertNotIn("terminate", done.stderr)

    def test_at_any_moment(self):
        calls = ["load_into", "opening", "mapping"]
        moments = MOMENTS if common.long_runs() else random.Random(common.seed()).sample(MOMENTS, 1)
        for after in moments:
            for some in [[call] for call in calls] if common.long_runs() else [calls]:
                with self.subTest(f"{some} after {after} s, seed {common.seed()}"):
                    self.ends(some, after)


if __name__ == "__main__":
    common.main()
