# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C soon ends long calls with KeyboardInterrupt, and leaves nothing behind. A call is under way once it reports
progress, or once its server has stopped answering."""
import concurrent.futures
import http.server
import os
import subprocess
import sys
import threading

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
import shardmesh
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
        rank.refuse(shardmesh.Error("unsupported", "no luck"))
    else:
        _native.Ranks.join(memory.token, 0, 60.0)
    print("finished")
except KeyboardInterrupt:
    print("interrupted" if time.monotonic() - began < 20 else "too late")
"""


# A call whose server no longer answers.
WEB = """
import os, signal, sys, threading, time, urllib.request, shardmesh
url, call = sys.argv[1:]
if "load" in call: import torch  # before the signal
run = url + "/run"
try:
    checkpoint = shardmesh.open(run) if "checkpoint" in call else None
    urllib.request.urlopen(url + "/stall").read()
    began = time.monotonic()
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    eval(call)
    print("finished")
except KeyboardInterrupt:
    print("interrupted" if time.monotonic() - began < 20 else "too late")
except shardmesh.Error as error:
    print(error)
"""
WEB_CALLS = ("shardmesh.open(run)", "shardmesh.verify(run)", "shardmesh.open_delta(run, 'none')", "checkpoint['text'].type",
             "checkpoint['text'].json", "checkpoint.load_object('text')", "checkpoint.load('w')")


class Web(http.server.BaseHTTPRequestHandler):
    """Serves a folder by ranges. After a request for /stall, it answers nothing until `is_over`."""

    protocol_version = "HTTP/1.1"
    root, stalls, is_over = None, None, None

    def do_GET(self):
        if self.path == "/stall":
            self.stalls.set()
        elif self.stalls.is_set():
            self.is_over.wait()
            self.close_connection = True
            return
        file = self.root / self.path.strip("/")
        data = file.read_bytes() if file.is_file() else b""
        status, headers = (200 if file.is_file() or self.path == "/stall" else 404), {"ETag": '"1"'}
        if status == 200 and "Range" in self.headers:
            first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            status, headers["Content-Range"] = 206, f"bytes {first}-{last}/{len(data)}"
            data = data[first:last + 1]
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


class InterruptTest(common.WorkTest):
    def test_ctrl_c_ends_a_call_whose_server_no_longer_answers(self):
        try:
            import torch
        except ImportError as missing:
            print(f"skipped: {missing}")
            return
        shardmesh.save({"w": torch.ones(300_000), "text": "x" * 300_000}, self.work / "run")
        with concurrent.futures.ThreadPoolExecutor(3) as pool:  # the programs mostly wait
            answers = list(pool.map(self.said_of_stalled, WEB_CALLS))
        for call, said in zip(WEB_CALLS, answers):
            with self.subTest(call):
                if "no store knows the scheme" in said:
                    print("skipped: the package was built without the component remote")
                    return
                self.assertEqual(said, "interrupted")

    def said_of_stalled(self, call):
        served = type("Served", (Web,), {"root": self.work, "stalls": threading.Event(), "is_over": threading.Event()})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), served)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            done = subprocess.run(
                [sys.executable, "-c", WEB, f"http://127.0.0.1:{server.server_address[1]}", call], capture_output=True,
                text=True, timeout=30, env={**os.environ, "no_proxy": "127.0.0.1"})
            return done.stdout.strip() or done.stderr
        except subprocess.TimeoutExpired:
            return "the call goes on"
        finally:
            served.is_over.set()
            server.shutdown()
            server.server_close()

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
