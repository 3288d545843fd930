# SPDX-License-Identifier: Apache-2.0
"""A program that ends while a daemon thread is in one of our calls ends normally, as with a thread in torch.load."""
import shutil
import subprocess
import sys

import common

common.need_torch()

# 2 GiB of zeros without space on disk: no call finishes before the program ends.
ROWS, COLUMNS = 1 << 15, 1 << 14
HEADER = b'{"w":{"dtype":"F32","shape":[%d,%d],"data_offsets":[0,%d]}}' % (ROWS, COLUMNS, 4 * ROWS * COLUMNS)

CHILD = """
import atexit, sys, threading, time
import torch, shardmesh, shardmesh.dcp
source, out, call = sys.argv[1:4]
begun = threading.Event()
def said(done, total):
    begun.set()
state = {"w": torch.empty(%d, %d)} if "load" in call or "save" in call else None
def load_into(): shardmesh.open(source).load_into(state, threads=1, progress=said)
def load_quietly(): begun.set(); shardmesh.open(source).load_into(state, threads=1)
def load(): begun.set(); shardmesh.open(source).load("w", threads=1)
def load_with_arrivals(): begun.set(); shardmesh.open(source).start_load(state, on_arrival=lambda key: None).wait()
def dcp_load(): shardmesh.dcp.load(state, checkpoint_id=source, threads=1, progress=said)
def verify(): shardmesh.verify(source, threads=1, progress=said)
def diff(): shardmesh.diff(source, source, threads=1, progress=said)
def convert(): shardmesh.convert(source, out, "dcp", threads=1, memory_bytes=4 << 20, progress=said)
def reshard(): shardmesh.reshard(source, out, 2, place="w=S(1)", threads=1, memory_bytes=4 << 20, progress=said)
def save(): shardmesh.save(state, out, threads=1, memory_bytes=4 << 20, progress=said)
def dcp_save(): shardmesh.dcp.save(state, checkpoint_id=out, threads=1, memory_bytes=4 << 20, progress=said)
def delta_make(): shardmesh.save_delta(source, source, out, threads=1, progress=said)
def run_save():
    with shardmesh.Run(out) as run: begun.set(); run.save(1, state)
def again_and_again(what):
    def call():
        begun.set()
        while True: what()
    return call
opening = again_and_again(lambda: shardmesh.open(source))
mapping = again_and_again(lambda: shardmesh.map_tensor(source, "w", allow_unaligned=True))
objects = again_and_again(lambda: shardmesh.load(out, "epoch"))
run_steps = again_and_again(lambda: shardmesh.Run(out).steps())
# Kept: a daemon thread that frees a tensor while the program ends aborts in PyTorch, with or without us.
kept = []
boxes = again_and_again(lambda: kept.append(shardmesh.load(source, "w", ((5, 0), (3, 7)))))
def later(): assert shardmesh.load(source, "w", ((5, 0), (3, 7))).sum() == 0; print("later")
if "objects" == call: shardmesh.save({"epoch": 3}, out)
if call == "verify": atexit.register(later)
def thread():
    try:
        globals()[call]()
    except BaseException as problem:
        begun.set()
        print("raised", problem)
threading.Thread(target=thread, daemon=True).start()
begun.wait()
time.sleep(float(sys.argv[4]))
print("ends")
""" % (ROWS, COLUMNS)

# Rank 1 does not make the second call.
RANKS = """
import os, sys, threading, time
import torch, torch.distributed as dist, shardmesh
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
MADE = ("objects", *RUNS)  # these calls leave `out`


class EndingTest(common.WorkTest):
    def ends(self, call, after):
        source = self.work / "large.safetensors"
        if not source.exists():
            with source.open("wb") as file:
                file.write(len(HEADER).to_bytes(8, "little") + HEADER)
                file.truncate(8 + len(HEADER) + 4 * ROWS * COLUMNS)
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", CHILD, source, self.work / "out", call, str(after)],
                              capture_output=True, text=True, timeout=100)
        expected = ["ends"] + ["later"] * (call == "verify")
        self.assertEqual((done.returncode, done.stdout.split("\n")[:-1], done.stderr), (0, expected, ""), call)
        left = ["large.safetensors"] + ["out"] * (call in MADE)
        self.assertEqual(self.left_in_work(), left, call)
        if call in RUNS:  # the folder of the run has neither a step nor a leftover of one
            self.assertEqual([path.name for path in (self.work / "out").iterdir() if "step" in path.name], [], call)

    def test_every_call_that_blocks(self):
        for call in CALLS:
            with self.subTest(call):
                self.ends(call, 0.05)
                if call in MADE:
                    shutil.rmtree(self.work / "out")

    def test_a_rank_that_waits_for_another(self):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", RANKS, self.work / "store"], capture_output=True,
                              text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, "ends\n"), done.stderr)
        self.assertNotIn("terminate", done.stderr)

    def test_at_any_moment(self):
        for after in (0.0, 0.003, 0.01, 0.1):
            for call in ("load_into", "opening", "mapping"):
                with self.subTest(f"{call} after {after} s"):
                    self.ends(call, after)


if __name__ == "__main__":
    common.main()
