# SPDX-License-Identifier: Apache-2.0
"""Ceph's S3 gateway, which checks signatures strictly, on free ports of the loopback interface: a monitor, a daemon that
keeps the objects in memory, and the gateway. Debian has the programs in radosgw, ceph-osd, ceph-mon, and ceph-common."""
import http.client
import os
import shutil
import socket
import subprocess
import time
import uuid
from pathlib import Path

from s3_server import KEY, SECRET

PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
POOLS = (".rgw.root", "default.rgw.log", "default.rgw.control", "default.rgw.meta", "default.rgw.buckets.index",
         "default.rgw.buckets.data", "default.rgw.buckets.non-ec")

SETTINGS = """
[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{monitor}
public network = 127.0.0.0/8
ms bind ipv6 = false
ms bind msgr1 = false
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
mon allow pool size one = true
mon warn on pool no redundancy = false
osd crush chooseleaf type = 0
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
mon max pg per osd = 1000
run dir = {folder}/run
admin socket = {folder}/run/$name.asok
log file = {folder}/log/$name.log
mon data = {folder}/mon
mon data avail crit = 1
mon data avail warn = 1
paxos propose interval = 0.05
paxos min wait = 0.01
mon osd min up ratio = 0
[osd]
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 2147483648
osd class load list = *
osd class default list = *
osd journal size = 100
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:{gateway}
rgw enable apis = s3, sts, iam
rgw enable usage log = false
rgw enable gc threads = false
rgw enable lc threads = false
rgw run sync thread = false
rgw relaxed s3 bucket names = true
"""


def missing_programs():
    return [one for one in PROGRAMS if not shutil.which(one)]


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Radosgw:
    """A running gateway. Its data lies in `folder`, and in memory. The user of s3_server has all rights."""

    def __init__(self, folder):
        self.folder = Path(folder)
        for name in ("mon", "osd", "run", "log"):
            (self.folder / name).mkdir(parents=True)
        self.fsid = str(uuid.uuid4())
        self.monitor, self.port = free_ports(2)
        self.endpoint = f"http://127.0.0.1:{self.port}"
        settings = self.folder / "ceph.conf"
        settings.write_text(SETTINGS.format(fsid=self.fsid, folder=self.folder, monitor=self.monitor, gateway=self.port))
        self.env = {**os.environ, "CEPH_CONF": str(settings)}
        self.log = open(self.folder / "said", "ab")
        self.processes = []

    def call(self, *command, **how):
        return subprocess.run(list(map(str, command)), env=self.env, stdout=self.log, stderr=self.log, check=True, timeout=60, **how)

    def start(self, *command):
        self.processes.append(subprocess.Popen(list(map(str, command)), env=self.env, stdin=subprocess.DEVNULL, stdout=self.log,
                                               stderr=self.log))

    def __enter__(self):
        try:
            self.begin()
            return self
        except (subprocess.SubprocessError, OSError, RuntimeError) as problem:
            self.__exit__()
            said = (self.folder / "said").read_text(errors="replace")
            raise RuntimeError(f"radosgw did not start: {problem}: {said[-2000:]}") from problem

    def begin(self):
        monitors = self.folder / "monmap"
        self.call("monmaptool", "--create", "--clobber", "--fsid", self.fsid, "--addv", "a", f"[v2:127.0.0.1:{self.monitor}]", monitors)
        self.call("ceph-mon", "--mkfs", "-i", "a", "--monmap", monitors, "--no-mon-config")
        self.start("ceph-mon", "-i", "a", "--no-mon-config", "-f")
        self.call("ceph", "--connect-timeout", "30", "osd", "create")  # number 0
        self.call("ceph-osd", "-i", "0", "--mkfs", "--no-mon-config", "--osd-uuid", uuid.uuid4())
        self.call("ceph", input="\n".join(["osd crush add osd.0 1.0 host=h root=default"]).encode())
        self.start("ceph-osd", "-i", "0", "--no-mon-config", "-f")
        pools = [line for pool in POOLS
                 for line in (f"osd pool create {pool} 1 1", f"osd pool application enable {pool} rgw")]
        self.call("ceph", input="\n".join(["osd require-osd-release pacific --yes-i-really-mean-it", *pools]).encode())
        self.start("radosgw", "-n", "client.rgw", "--ms-mon-client-mode=crc", "--no-mon-config", "-f")
        self.wait()
        self.call("radosgw-admin", "user", "create", "--uid", "test", "--display-name", "test", "--access-key", KEY, "--secret-key",
                  SECRET)

    def wait(self):
        for _ in range(600):
            if any(one.poll() is not None for one in self.processes):
                raise RuntimeError("a daemon has ended")
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1)
                connection.request("GET", "/")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            finally:
                connection.close()
            time.sleep(0.1)
        raise RuntimeError("it does not answer")

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.kill()
            process.wait()
        self.log.close()
