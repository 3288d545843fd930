# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own checkpoint tests with shardmesh's reader and writer in place of PyTorch's. The files are from
Debian's source package `pytorch` (2.6), or from the folder $SHARDMESH_PYTORCH_TESTS."""
import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

SKIPPED = 77
VERSION = "2.6.0+dfsg-7"
#: File, and the number of its tests that run on CPUs.
FILES = {"test_planner.py": 8, "test_file_system_checkpoint_cpu.py": 12}


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


def fetched(work):
    """The folder of the tests, from Debian's archive; apt checks the checksums."""
    folder = work / "pytorch-v2.6.0" / "test" / "distributed" / "checkpoint"
    if folder.exists():
        return folder
    for name in ("lists/partial", "cache/archives/partial"):
        (work / name).mkdir(parents=True, exist_ok=True)
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (work / "sources.list").write_text(f"deb-src [signed-by={keys}] http://deb.debian.org/debian trixie main\n")
    apt = ["-o", f"Dir::Etc::sourcelist={work}/sources.list", "-o", "Dir::Etc::sourceparts=-",
           "-o", f"Dir::State::lists={work}/lists", "-o", f"Dir::Cache={work}/cache"]
    for command in (["update"], ["source", "--download-only", f"pytorch={VERSION}"]):
        done = run("apt-get", *apt, *command, cwd=work)
        if done.returncode:
            skip(f"apt-get {command[0]}: {done.stderr.strip().splitlines()[-1:]}")
    (archive,) = work.glob("pytorch_*.orig.tar.xz")
    subprocess.run(["tar", "-xJf", archive, "-C", work, "--wildcards", "*/test/distributed/checkpoint/*"], check=True)
    return folder


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--package", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("files", nargs="*", default=list(FILES))
    for name in ("--tool", "--data"):  # every oracle gets these
        parser.add_argument(name)
    given = parser.parse_args()
    try:
        import torch  # noqa: F401
    except ImportError as missing:
        skip(missing)
    work = given.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    own = os.environ.get("SHARDMESH_PYTORCH_TESTS")
    folder = Path(own) if own else fetched(work)
    packages = work / "packages"
    if not packages.exists() and run(sys.executable, "-m", "pip", "install", "-q", "--target", packages, "expecttest").returncode:
        skip("pip cannot install expecttest, which PyTorch's tests need")
    uses = work / "uses"
    path = [str(Path(__file__).parent / "in_place"), str(given.package.absolute()), str(packages)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONWARNINGS": "ignore", "GLOO_SOCKET_IFNAME": "lo",
                   "CUDA_VISIBLE_DEVICES": "", "SHARDMESH_USES": str(uses)}
    failed = 0
    for name in given.files:
        uses.write_bytes(b"")
        done = run(sys.executable, "-W", "ignore", name, cwd=folder, env=environment)
        ran = re.search(r"^Ran (\d+) tests?", done.stderr, re.M)
        number, expected = int(ran[1]) if ran else 0, FILES.get(name, 1)
        good = done.returncode == 0 and number >= expected and (uses.stat().st_size > 0 or name == "test_planner.py")
        print(f"{name}: {number} of at least {expected} tests, {uses.stat().st_size} uses of ours: {'ok' if good else 'FAILED'}")
        if not good:
            failed += 1
            print(done.stderr[-4000:])
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
