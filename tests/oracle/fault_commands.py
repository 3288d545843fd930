# SPDX-License-Identifier: Apache-2.0
"""The commands of remote_faults.py: each runs once through a proxy, and says what it found and what it left."""
import dataclasses
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import s3_server
from common import fingerprint, sha256
from fault_proxy import Proxy
from remote_s3 import BUCKET, environment

HUNG = -1000
DESCRIPTIONS = (".metadata", "model.safetensors.index.json")
SUMS = ".shardmesh_checksums"


@dataclasses.dataclass
class Answer:
    """`value` is compared with that of an undisturbed run. `left` says what is wrong with the remains of a failed one."""
    status: int
    value: object
    said: str
    left: str = ""


def printed(oracle, limit, arguments, env, place):
    status, out, said = oracle.run(*arguments, env=env, timeout=limit)
    return Answer(status, out.replace(place, "CHECKPOINT"), said)


class Reading:
    """`inspect` or `verify`. The value is the standard output."""

    def __init__(self, oracle, port, verb, path):
        self.oracle, self.port, self.verb, self.path, self.name = oracle, port, verb, path, f"{verb} {path.split('/')[0]}"

    def act(self, proxy, number, limit):
        place = url_of(self.path, proxy)
        line = [self.verb, place] + (["--json"] if self.verb == "inspect" else [])
        return printed(self.oracle, limit, line, environment(proxy.endpoint), place)


class ConvertingHere:
    """`convert` of a URL to the disk. The value is the fingerprint of the files; a failed run leaves none."""

    def __init__(self, oracle, port, path, to):
        self.oracle, self.port, self.path, self.to = oracle, port, path, to
        self.name = f"convert {path.split('/')[0]} to disk"

    def act(self, proxy, number, limit):
        place, folder = url_of(self.path, proxy), self.oracle.work / "made" / str(number)
        folder.mkdir(parents=True)
        made = folder / "made"
        answer = printed(self.oracle, limit, ["convert", place, made, "--to", self.to], environment(proxy.endpoint), place)
        answer.value = fingerprint(made)
        if answer.status != 0 and os.listdir(folder):
            answer.left = f"files are left: {fingerprint(folder)}"
        shutil.rmtree(folder)
        return answer


class Writing:
    """A checkpoint that is written into a bucket. The value is the objects; a failed run leaves the old checkpoint, the
    new one, or none, and names the objects that it leaves."""

    def __init__(self, oracle, weed, name, source, to, old=None):
        self.oracle, self.port, self.client, self.name = oracle, weed.port, s3_server.Client(weed.port), name
        self.source, self.to, self.old = source, to, old
        self.new = None  # known after the undisturbed run
        self.replaced = objects_of(old) if old else {}

    def send(self, proxy, url, limit):
        line = ["convert", self.source, url, "--to", self.to] + (["--force"] if self.old else [])
        return printed(self.oracle, limit, line, environment(proxy.endpoint), url)

    def act(self, proxy, number, limit):
        prefix = f"made/{self.name.replace(' ', '_')}/{number:06}"  # no number begins another
        key = prefix + (".safetensors" if self.to == "safetensors" else "")
        for name, data in (files_of(self.old) if self.old else {}).items():
            assert self.client.put(BUCKET, key + name, data)
        answer = self.send(proxy, f"s3://{BUCKET}/{key}", limit)
        found = {one[len(key):]: self.client.get(BUCKET, one) for one in self.client.keys(BUCKET, key)}
        # None: an attempt that the client has given up was still removing the object.
        found = {name: self.digest_of(name, data) for name, data in found.items() if data is not None}
        stale = {name for name in found if self.new and name not in self.new and name in self.replaced}
        if answer.status == 0 and all(Path(name).name in f"{answer.value}{answer.said}" for name in stale):
            answer.value = {name: digest for name, digest in found.items() if name not in stale}  # it says what is left
        else:
            answer.value = found
        self.new = self.new or found
        if answer.status not in (0, HUNG):
            answer.left = self.problem_of(found, answer.said)
            if "in parts" in self.name and self.client.unfinished(BUCKET, key) and "unfinished upload" not in answer.said:
                answer.left = answer.left or "an upload in parts is unfinished, and the error does not say so"
        for name in found:
            self.client.delete(BUCKET, key + name)
        return answer

    def digest_of(self, name, data):
        return sha256(data)

    def problem_of(self, found, said):
        """What is wrong with the objects after an error."""
        if any(found.get(name) not in (self.new.get(name), self.replaced.get(name)) for name in found):
            return f"an object is neither of the old nor of the new checkpoint: {found}"
        has_description = any(name.strip("/") in DESCRIPTIONS + ("",) for name in found)
        # The record of checksums is removed first. The error says so, and the old checkpoint is readable without it.
        is_told = "verify" in said and SUMS in said
        has_old, has_new = (all(found.get(name) == digest for name, digest in whole.items() if name != may_lack)
                            for whole, may_lack in ((self.replaced, f"/{SUMS}" if is_told else None), (self.new, None)))
        if has_description and not has_new and not (self.old and has_old):
            return f"a description is there, and its data is not: {sorted(found)}"
        if self.old and has_description:
            return ""
        if self.old and "previous checkpoint" not in said:
            return f"the error does not say that the previous checkpoint is gone: {sorted(found)}"
        unnamed = [name for name in found if name not in self.replaced and Path(name).name not in said
                   and "verify" not in said and name]
        return f"the error does not name {unnamed}" if unnamed else ""


class Worker:
    """A process of Python with the package. Its requests to S3 go through one proxy."""

    def __init__(self, package, weed_port):
        self.package, self.weed_port = package, weed_port
        self.start()

    def start(self):
        self.proxy = Proxy(self.weed_port)
        self.process = subprocess.Popen(
            [sys.executable, "-B", Path(__file__).with_name("fault_worker.py")], stdin=subprocess.PIPE, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, **environment(self.proxy.endpoint), "PYTHONPATH": str(self.package), "OMP_NUM_THREADS": "1"})

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.proxy.__exit__()

    def ask(self, order, limit):
        watch = threading.Timer(limit, self.process.kill)
        watch.start()
        try:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError:
            line = ""
        watch.cancel()
        if line:
            answer = json.loads(line)
            return Answer(answer["status"], answer.get("value"), answer.get("said", ""))
        said = self.process.communicate()[1]
        status = self.process.returncode
        self.stop()
        self.start()
        return Answer(HUNG if status == -9 else status, None, said)


class Workers:
    def __init__(self, package, weed_port, count):
        self.all = [Worker(package, weed_port) for _ in range(count)]
        self.free = queue.SimpleQueue()
        for one in self.all:
            self.free.put(one)

    def ask(self, proxy, order, limit):
        """An answer. The requests to S3 follow the schedule of `proxy`, and are noted there."""
        worker = self.free.get()
        try:
            worker.proxy.begin(proxy.schedule)
            answer = worker.ask(order, limit)
            if order["url"].startswith("s3:"):
                proxy.seen = worker.proxy.seen
            return answer
        finally:
            self.free.put(worker)


class PythonLoading:
    """`shardmesh.open` and `load` of all keys. The value is a digest of all values."""

    def __init__(self, workers, port, path):
        self.workers, self.port, self.path, self.name = workers, port, path, f"load {path.split('/')[0]} in Python"

    def act(self, proxy, number, limit):
        return self.workers.ask(proxy, {"verb": "load", "url": url_of(self.path, proxy)}, limit)


class PythonSaving(Writing):
    """`shardmesh.save` into a bucket."""

    def __init__(self, oracle, weed, workers):
        super().__init__(oracle, weed, "save in Python", None, "dcp")
        self.workers = workers

    def send(self, proxy, url, limit):
        answer = self.workers.ask(proxy, {"verb": "save", "url": url}, limit)
        if answer.status == 0:
            status, _, said = self.oracle.run("verify", url, env=environment(f"http://127.0.0.1:{self.port}"))
            answer = answer if status == 0 else Answer(status, None, f"verify: {said}")
        return answer

    def digest_of(self, name, data):
        """PyTorch's description has a number of its own in each save. `verify` compares it with the data."""
        return sha256(data) if name.endswith(".distcp") else "there"


def url_of(path, proxy):
    """`path` is "s3/KEY", or "http/PATH"."""
    scheme, _, rest = path.partition("/")
    return f"s3://{BUCKET}/{rest}" if scheme == "s3" else f"{proxy.endpoint}/{rest}"


def files_of(path):
    """Names below a folder with a leading slash, or the empty name of a file; and their bytes."""
    path = Path(path)
    return {f"/{one.name}": one.read_bytes() for one in path.iterdir()} if path.is_dir() else {"": path.read_bytes()}


def objects_of(path):
    return {name: sha256(data) for name, data in files_of(path).items()}
