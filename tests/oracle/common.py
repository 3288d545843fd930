# SPDX-License-Identifier: Apache-2.0
"""Shared by the oracle scripts: runs the tool, collects failures, and reads expected data. Needs no package."""
import argparse
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

SKIPPED = 77
_seed = []


def seed():
    """The seed of random cases: SHARDMESH_SEED, or a random one for this run, which is printed."""
    if not _seed:
        _seed.append(int(os.environ.get("SHARDMESH_SEED") or int.from_bytes(os.urandom(4), "little")))
        print(f"SHARDMESH_SEED={_seed[0]}", flush=True)
    return _seed[0]


class Oracle:
    """Arguments, the tool, and the failures seen so far. Without `syncs`, `convert` and `reshard` do not wait for the
    disk, except in long runs: for scripts that write many checkpoints and test other things."""

    def __init__(self, description, extra=None, syncs=True):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--tool", type=Path, required=True, help="the shardmesh executable")
        parser.add_argument("--data", type=Path, required=True, help="tests/data")
        parser.add_argument("--work", type=Path, required=True, help="scratch folder, emptied first")
        parser.add_argument("--only", default="", help="run only cases whose name contains this")
        if extra:
            extra(parser)
        self.args = parser.parse_args()
        self.tool = self.args.tool.resolve()
        self.golden = self.args.data.resolve() / "golden"
        self.data = self.args.data.resolve()
        self.work = self.args.work.resolve()
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.failures = []
        self.checks = 0
        self.syncs = syncs or os.environ.get("SHARDMESH_PROPERTY_RUNS") == "long"

    def line(self, arguments):
        """The words of a command, without `syncs` with --no-sync."""
        if not self.syncs and arguments[0] in ("convert", "reshard"):
            arguments = (arguments[0], "--no-sync", *arguments[1:])
        return [str(word) for word in arguments]

    def run(self, *arguments, env=None, timeout=120):
        """The tool's (status, stdout, stderr); a signal is a negative status."""
        try:
            done = subprocess.run([self.tool, *self.line(arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                                  timeout=timeout, env=None if env is None else {**os.environ, **env})
            return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            return -1000, "", f"timed out after {timeout} s"

    def check(self, good, case, what):
        self.checks += 1
        if not good:
            self.failures.append((case, what))
            print(f"FAILED {case}: {what}", flush=True)
        return good

    def succeeds(self, case, *arguments, **options):
        """Runs the tool and expects status 0; returns stdout or None."""
        status, out, err = self.run(*arguments, **options)
        shown = " ".join(str(a).replace(str(self.work) + "/", "").replace(str(self.data) + "/", "") for a in arguments)
        good = self.check(status == 0, case, f"`shardmesh {shown}` exits {status}: {err.strip()[-600:]}")
        return out if good else None

    def marks_of(self, keys):
        """The names of dict keys that only Python can express. Needs PyTorch."""
        import torch

        made = []
        for number, key in enumerate(keys):
            file = self.work / f"mark_{number}.pt"
            torch.save({key: torch.ones(1)}, file)
            made += json.loads(self.run("inspect", file, "--json")[1])["tensors"]
            file.unlink()
        return made

    def cases(self):
        for folder in sorted(self.golden.iterdir()):
            if (folder / "expected.json").is_file() and self.args.only in folder.name:
                yield Case(folder)

    def finish(self):
        failed = sorted({case for case, _ in self.failures})
        print(f"{self.checks} checks, {len(self.failures)} failed" + (f", in: {', '.join(failed)}" if failed else ""))
        sys.exit(1 if self.failures or self.checks == 0 else 0)


class Case:
    """One golden folder."""

    def __init__(self, folder):
        self.folder = folder
        self.name = folder.name
        self.checkpoint = folder / "checkpoint"
        self.expected = json.loads((folder / "expected.json").read_text())
        self.tensors = self.expected["tensors"]
        objects = self.expected["objects"]
        # Old eras list only the names.
        self.objects = objects if isinstance(objects, dict) else {name: None for name in objects}
        file = folder / "metadata.json"
        self.metadata = json.loads(file.read_text()) if file.is_file() else None
        # A made-up stream transform: the tool must refuse it by name.
        self.unreadable = self.name == "options_xor"
        self.is_dcp = not self.name.startswith("hf_")


def rounds(ordinary, long):
    """The number of rounds of a random test: `long` with SHARDMESH_PROPERTY_RUNS=long."""
    return long if os.environ.get("SHARDMESH_PROPERTY_RUNS") == "long" else ordinary


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def need_torch():
    try:
        import torch  # noqa: F401
        import torch.distributed.checkpoint  # noqa: F401
    except Exception as error:  # a broken installation counts as missing
        skip(f"PyTorch cannot be imported ({type(error).__name__}: {error})")


def read_safetensors(path):
    """{name: (dtype, shape, bytes)} and the metadata of one file, without any package; checks that data has no gaps."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    tensors, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = entry["data_offsets"]
        if first != end:
            raise ValueError(f"{path}: {name} begins at {first}, expected {end}")
        end = last
        tensors[name] = (entry["dtype"], entry["shape"], data[8 + length + first:8 + length + last])
    if 8 + length + end != len(data):
        raise ValueError(f"{path}: {len(data)} bytes, the header says {8 + length + end}")
    return tensors, metadata


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def fingerprint(path):
    """Names and bytes of a file or folder, or None if it does not exist."""
    path = Path(path)
    if path.is_dir():
        return {str(p.relative_to(path)): sha256(p.read_bytes()) for p in sorted(path.rglob("*")) if p.is_file()}
    return sha256(path.read_bytes()) if path.exists() else None
