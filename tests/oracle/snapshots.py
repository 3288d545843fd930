# SPDX-License-Identifier: Apache-2.0
"""Snapshots of the package torchsnapshot are read, verified, compared, and converted. The committed ones (batched or
not, chunked, sharded over three ranks) equal PyTorch's data bit for bit; false manifests and missing files are
refused with one line. With --full, the package itself is installed and writes fresh ones, of other seeds and world
sizes."""
import functools
import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from common import Oracle, need_torch

need_torch()
import torch  # noqa: E402
from torch.distributed.checkpoint._nested_dict import flatten_state_dict  # noqa: E402

from make_torchsnapshot import described, one_process  # noqa: E402

WRITER = ["torchsnapshot==0.1.0", "psutil", "aiofiles", "nest-asyncio==1.5.8", "importlib-metadata==7.2.1", "zipp", "pyyaml",
          "typing-extensions"]
MANIFEST = ".snapshot_metadata"


def check(oracle, name, folder, expected, objects):
    out = oracle.succeeds(name, "inspect", folder, "--json")
    if out is None:
        return
    said = json.loads(out)
    oracle.check(said["format"] == "torchsnapshot", name, f"the format is {said['format']}")
    shown = {k: {"dtype": v["dtype"], "shape": v["shape"]} for k, v in said["tensors"].items()}
    oracle.check(shown == {k: {x: v[x] for x in ("dtype", "shape")} for k, v in expected.items()}, name, f"inspect says {shown}")
    oracle.check(set(said["objects"]) == set(objects), name, f"objects are {sorted(said['objects'])}")
    out = oracle.succeeds(name, "verify", folder)
    oracle.check(out is not None and "ok" in out, name, f"verify says {out}")
    for kind in ("pt", "dcp", "hf"):
        made = oracle.work / f"{name}.{kind}"
        options = ["--skip", ".*complex128"] if kind == "hf" else []
        if options and not any("complex128" in key for key in expected):
            options = []
        if oracle.succeeds(name, "convert", folder, made, "--to", kind, *options) is None:
            return
        if not options:
            oracle.succeeds(name, "diff", folder, made)
    whole = torch.load(oracle.work / f"{name}.pt", weights_only=False)
    loaded, _ = flatten_state_dict(whole)
    for key in (key for key, value in objects.items() if value == {}):  # PyTorch's flattening loses these
        loaded[key] = functools.reduce(lambda below, step: below[step], key.split("."), whole)
    read = described_all(loaded)
    oracle.check(read == expected, name, f"other tensors: {sorted(k for k in expected if read.get(k) != expected[k])}")
    kept = {k: v for k, v in loaded.items() if not isinstance(v, torch.Tensor)}
    oracle.check({k: repr(v) for k, v in kept.items()} == {k: repr(v) for k, v in objects.items()}, name, f"objects: {kept}")


def described_all(state):
    return {k: described(v) for k, v in state.items() if isinstance(v, torch.Tensor)}


def objects_of(name, seed, ranks):
    if name == "batched":
        return {"plain.epoch": 3}
    if name == "ranks":
        return {"replicated.step": 12, **{f"rank_{r}.own.rank": r for r in range(ranks)}}
    plain = {f"plain.{k}": v for k, v in one_process(seed)["plain"].items()}
    return {**plain, "nested.all.list.2": 5}


def check_all(oracle, title, folder, seed):
    for name, expected in json.loads((folder / "expected.json").read_text()).items():
        check(oracle, f"{title}_{name}", folder / name, expected["tensors"], objects_of(name, seed, expected["world_size"]))


def refused(oracle, name, folder, *says, lines=1):
    """Every command that writes refuses it; inspect shows the rest, if any."""
    target = oracle.work / "refused"
    for command in (["convert", folder, target, "--to", "dcp"], ["verify", folder]):
        status, _, err = oracle.run(*command)
        found = [line for line in err.splitlines() if not line.startswith(("note:", "warning:"))]
        oracle.check(status == 1 and len(found) == lines and all(word in err for word in says), name,
                     f"{command[0]} exits {status}: {err}")
    oracle.check(not target.exists(), name, "something was written")


def hostile(oracle, samples):
    def changed(name, says, edit, source="one", lines=1):
        folder = oracle.work / "hostile"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(samples / source, folder)
        document = json.loads((folder / MANIFEST).read_text())
        text = edit(document, folder)
        (folder / MANIFEST).write_text(text if isinstance(text, str) else json.dumps(document))
        refused(oracle, name, folder, *says, lines=lines)

    def entry(key, **values):
        return lambda document, folder: document["manifest"][key].update(values)

    (oracle.work / "secret").write_bytes(bytes(60))
    key = "0/tensors/float32"
    changed("leaves", ["tensors.float32", "leaves"], entry(key, location="../secret"))
    changed("absolute", ["tensors.float32", "leaves"], entry(key, location=str(oracle.work / "secret")))
    changed("nul", ["tensors.float32", "leaves"], entry(key, location="0/tensors/float32\0x"))
    changed("linked", ["tensors.float32"], lambda d, f: ((f / key).unlink(), os.symlink(oracle.work / "secret", f / key)) and None)
    changed("missing", ["tensors.float32", "0/tensors/float32"], lambda d, f: (f / key).unlink())
    changed("cut", ["tensors.float32", "size of its elements"], lambda d, f: (f / key).write_bytes((f / key).read_bytes()[:-4]))
    changed("longer", ["tensors.float32", "size of its elements"], lambda d, f: (f / key).write_bytes(bytes(64)))
    changed("huge", ["tensors.float32"], entry(key, shape=[1 << 40, 1 << 40]))
    changed("large", ["tensors.float32", "size of its elements"], entry(key, shape=[1 << 40]))
    changed("negative", [key, "shape"], entry(key, shape=[-1]))
    changed("fraction", [key, "shape"], entry(key, shape=[1.5]))
    changed("dimensions", [key, "dimensions"], entry(key, shape=[1] * 200))
    changed("dtype", ["tensors.float32", "dtype"], entry(key, dtype="torch.float7"))
    changed("serializer", ["tensors.float32", "odd"], entry(key, serializer="odd"))
    changed("type", [key, "Strange"], entry(key, type="Strange"))
    changed("rank", ["9/x", "ranks"], lambda d, f: d["manifest"].update({"9/x": d["manifest"][key]}))
    changed("range", ["tensors.float32", "range"], entry("0/tensors/float32", byte_range=[0, 59]), "batched")
    changed("range_beyond", ["tensors.float32"], entry("0/tensors/float32", byte_range=[1 << 40, (1 << 40) + 60]), "batched")
    changed("range_order", [key, "byte_range"], entry("0/tensors/float32", byte_range=[60, 0]), "batched")
    changed("other_dtype", ["tensors.complex64", "dtype"], entry("0/tensors/complex64", dtype="torch.complex128"))
    changed("other_shape", ["tensors.complex64", "sizes"], entry("0/tensors/complex64", shape=[5, 3]))
    changed("number", ["0/plain/int"], entry("0/plain/int", serialized_value="three"))
    changed("truth", ["0/plain/bool"], entry("0/plain/bool", serialized_value="true"))
    changed("float", ["0/plain/float"], entry("0/plain/float", serialized_value="AAAA"))
    changed("twice", ["tensors.a.b"], lambda d, f: d["manifest"].update({"0/tensors/a.b": d["manifest"][key],
                                                                       "0/tensors/a/b": d["manifest"][key]}))
    changed("no_json", ["not JSON"], lambda d, f: "{")
    changed("yaml", ["YAML"], lambda d, f: "version: 0.1.0\nworld_size: 1\nmanifest: {}\n")
    changed("deep", ["nested"], lambda d, f: '{"manifest":' + "[" * 5000)
    changed("world_size", ["manifest"], lambda d, f: d.update(world_size=0))
    shard = "2/sharded/rows"
    changed("gap", ["sharded.rows"], lambda d, f: d["manifest"].pop("1/sharded/rows"), "ranks")
    changed("overlap", ["sharded.rows"], lambda d, f: d["manifest"][shard]["shards"][0].update(offsets=[5, 0]), "ranks")
    changed("shard_shape", ["sharded.rows", "the shape of a part"],
            lambda d, f: d["manifest"][shard]["shards"][0].update(sizes=[2, 3]), "ranks")
    changed("shard_rank", ["sharded.rows", "dimensions"],
            lambda d, f: d["manifest"][shard]["shards"][0].update(sizes=[3], offsets=[6]), "ranks")
    changed("shard_dtype", ["sharded.rows", "ranks describe it differently"],
            lambda d, f: d["manifest"][shard]["shards"][0]["tensor"].update(dtype="torch.int32"), "ranks")
    changed("shard_end", ["sharded.rows"],
            lambda d, f: d["manifest"][shard]["shards"][0].update(offsets=[(1 << 63) - 1, 0]), "ranks")


def install(oracle):
    named = os.environ.get("SHARDMESH_TORCHSNAPSHOT")
    if named:
        return named
    folder = oracle.work / "venv"
    venv.create(folder, with_pip=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "torch.pth").write_text("\n".join(p for p in sys.path if p.endswith("site-packages")) + "\n")
    python = folder / "bin" / "python"
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", *WRITER], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"skipped: torchsnapshot cannot be installed: {done.stderr.strip()[-300:]}")
        return None
    return python


def fresh(oracle):
    python = install(oracle)
    script = Path(__file__).with_name("make_torchsnapshot.py")
    for seed, ranks in ((11, 2), (12, 3)) if python else ():
        folder = oracle.work / f"fresh_{seed}"
        done = subprocess.run([python, script, folder, str(seed), str(ranks)], capture_output=True, text=True)
        if oracle.check(done.returncode == 0, f"fresh_{seed}", done.stderr[-600:]):
            check_all(oracle, f"fresh_{seed}", folder, seed)


oracle = Oracle(__doc__, lambda parser: parser.add_argument("--full", action="store_true"))
samples = oracle.data / "writers" / "torchsnapshot"
check_all(oracle, "sample", samples, 1)
hostile(oracle, samples)
if oracle.args.full:
    fresh(oracle)
oracle.finish()
