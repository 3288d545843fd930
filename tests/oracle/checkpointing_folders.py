# SPDX-License-Identifier: Apache-2.0
"""Folders of the package torch_checkpointing. Every sample is read as it was saved and converted in every possible
direction; damaged and hostile folders are refused in one line that names file and key. With SHARDMESH_FULL_TESTS,
the package itself writes random folders. (A script with the package's name would hide the package.)"""
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

from common import Oracle, need_torch, sha256

need_torch()
import torch  # noqa: E402
from torch.distributed.checkpoint._nested_dict import flatten_state_dict  # noqa: E402


def raw(tensor):
    tensor = tensor.contiguous()
    return bytes(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""


def check_state(oracle, name, file, expected):
    """The .pt file holds the expected tensors and objects, and nothing else."""
    flat, _ = flatten_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    tensors = {key: {"dtype": str(value.dtype)[6:], "shape": list(value.shape), "sha256": sha256(raw(value))}
               for key, value in flat.items() if isinstance(value, torch.Tensor)}
    objects = {key: value for key, value in flat.items() if not isinstance(value, torch.Tensor)}
    oracle.check(tensors == expected["tensors"], name, f"tensors differ: {sorted(set(map(str, tensors.items())) ^ set(map(str, expected['tensors'].items())))[:4]}")
    oracle.check(json.loads(json.dumps(objects)) == expected["objects"], name, f"objects are {objects}, not {expected['objects']}")


def check_folder(oracle, name, folder):
    checkpoint, expected = folder / "checkpoint", json.loads((folder / "expected.json").read_text())
    out = oracle.succeeds(name, "inspect", checkpoint, "--json")
    if out is None:
        return
    seen = json.loads(out)
    oracle.check(seen["format"] == "torch-checkpointing" and seen["version"] == "2.0", name, f"is {seen['format']} {seen['version']}")
    oracle.check({k: (t["dtype"], t["shape"]) for k, t in seen["tensors"].items()} ==
                 {k: (t["dtype"], t["shape"]) for k, t in expected["tensors"].items()}, name, "inspect names other tensors")
    oracle.check(set(seen["objects"]) == set(expected["objects"]), name, f"inspect names the objects {sorted(seen['objects'])}")
    oracle.succeeds(name, "verify", checkpoint, "--strict")
    work = oracle.work / name
    work.mkdir()
    oracle.succeeds(name, "inspect", checkpoint / "metadata.pkl")
    for target in ("pt", "dcp"):
        oracle.succeeds(name, "convert", checkpoint, work / target, "--to", target)
        oracle.succeeds(name, "diff", checkpoint, work / target)
    oracle.succeeds(name, "convert", work / "dcp", work / "from_dcp", "--to", "pt")
    for file in ("pt", "from_dcp"):
        if (work / file).exists():
            check_state(oracle, name, work / file, expected)
    oracle.succeeds(name, "convert", checkpoint, work / "safetensors", "--to", "safetensors", "--skip-unsupported")
    oracle.succeeds(name, "verify", work / "safetensors")


class Executed:
    def __reduce__(self):
        return os.mkdir, ("executed",)


def sharding_of(metadata, path):
    return metadata["metadata"]["model"]["nested_path_to_metadata"][path][0]["sharding_metadata"]


def with_layout(metadata, rank, name):
    layout = {"file_path": name, "serialization_format": {"type": "TorchSerialization"}}
    metadata["metadata"]["model"]["rank_to_layout_info"][rank] = layout


def set_field(path, field, value):
    return lambda folder, metadata: sharding_of(metadata, path)["data"].update({field: value})


def put(key, value):
    """Replaces an entry of rank 0."""
    def harm(folder, metadata):
        state = torch.load(folder / "model_0.pt", weights_only=False)
        torch.save({**state, key: value}, folder / "model_0.pt")
    return harm


# Damage to the sample mesh_2x2, and the words that the single error line must contain.
DAMAGE = {
    "a rank's file is missing": (lambda folder, metadata: (folder / "model_3.pt").unlink(), ["model_3.pt", "model.twice", "missing"]),
    "a rank's file is cut": (lambda folder, metadata: os.truncate(folder / "model_1.pt", 900), ["model_1.pt", " model: "]),
    "a rank's file is another's": (lambda folder, metadata: shutil.copy(folder / "rng_0.pt", folder / "model_3.pt"), ["model_3.pt", "model.twice", "lacks"]),
    "an object in place of a tensor": (put("rows", 5), ["model_0.pt", "model.rows", "an object in place of a tensor", "expected float32 [7, 5], found int", "rank 0"]),
    "an object in place of a scalar": (put("scalar", {}), ["model_0.pt", "model.scalar", "an object in place of a tensor", "expected float32 [], found dict", "rank 0"]),
    "a rank's file is of another shape": (lambda folder, metadata: shutil.copy(folder / "model_0.pt", folder / "model_3.pt"), ["model_3.pt", "model.", "shape"]),
    "another dtype": (set_field('["rows"]', "dtype", "torch.int32"), ["model_0.pt", "model.rows", "dtype"]),
    "another shape": (set_field('["rows"]', "global_shape", [9, 5]), ["model_0.pt", "model.rows", "shape"]),
    "an unknown dtype": (set_field('["rows"]', "dtype", "torch.float3"), ["metadata.pkl", "model.rows", "torch.float3"]),
    "a size that lies": (set_field('["rows"]', "global_shape", [2**62, 2**62]), ["metadata.pkl", "model.rows", "global_shape"]),
    "a negative size": (set_field('["rows"]', "global_shape", [-7, 5]), ["metadata.pkl", "model.rows", "global_shape"]),
    "forty dimensions": (set_field('["rows"]', "global_shape", [1] * 40), ["metadata.pkl", "model.rows", "dimensions"]),
    "an unknown placement": (set_field('["rows"]', "placements", [{"type": "Ragged"}, {"type": "Replicate"}]), ["metadata.pkl", "model.rows", "Ragged"]),
    "a placement of no dimension": (set_field('["rows"]', "placements", [{"type": "Shard", "dim": 5}, {"type": "Replicate"}]), ["metadata.pkl", "model.rows"]),
    "one placement for two dimensions": (set_field('["rows"]', "placements", [{"type": "Replicate"}]), ["metadata.pkl", "model.rows", "placements"]),
    "a mesh of other ranks": (lambda folder, metadata: sharding_of(metadata, '["rows"]')["data"]["mesh_spec"].update(mesh_data=(0, 1, 2, 9)),
                              ["metadata.pkl", "mesh_data"]),
    "an unknown kind": (lambda folder, metadata: sharding_of(metadata, '["rows"]').update(type="ragged_v9"), ["metadata.pkl", "model.rows", "ragged_v9"]),
    "an unknown version": (lambda folder, metadata: metadata.update(version="3.0"), ["metadata.pkl", "3.0", "2.0"]),
    "no world": (lambda folder, metadata: metadata.update(world_size=-1), ["metadata.pkl", "world_size"]),
    "a world that lies": (lambda folder, metadata: metadata.update(world_size=2**31 - 1), ["metadata.pkl", "model", "2147483647"]),
    "a rank that is none": (lambda folder, metadata: metadata["metadata"]["model"]["nested_path_to_metadata"]['["rows"]'][0].update(ranks=(0, 7)),
                            ["metadata.pkl", "model.rows", "ranks"]),
    "a file outside": (lambda folder, metadata: with_layout(metadata, 1, "../model_1.pt"), ["metadata.pkl", "../model_1.pt"]),
    "an absolute file": (lambda folder, metadata: with_layout(metadata, 1, "/etc/passwd"), ["metadata.pkl", "/etc/passwd"]),
    "a file with a NUL": (lambda folder, metadata: with_layout(metadata, 1, "model_1.pt\0x"), ["metadata.pkl", "model_1.pt"]),
    "one file for two ranks": (lambda folder, metadata: with_layout(metadata, 1, "model_0.pt"), ["metadata.pkl", "model", "model_0.pt"]),
    "a path that is none": (lambda folder, metadata: metadata["metadata"]["model"]["nested_path_to_metadata"].update({"[" * 100000: []}), ["metadata.pkl", "model"]),
    "a path of lists": (lambda folder, metadata: metadata["metadata"]["model"]["nested_path_to_metadata"].update({'[["rows"]]': []}), ["metadata.pkl", "model"]),
    "no layouts": (lambda folder, metadata: metadata["metadata"]["model"].update(rank_to_layout_info={}), ["metadata.pkl", "model"]),
    "a list of items": (lambda folder, metadata: metadata.update(metadata=[1]), ["metadata.pkl"]),
    "a call": (lambda folder, metadata: metadata.update(world_size=Executed()), ["metadata.pkl", "world_size"]),
    "an unknown serialization": (lambda folder, metadata: metadata["metadata"]["model"]["rank_to_layout_info"].update(
        {0: {"file_path": "x.pt", "serialization_format": {"type": "Zarr"}}}), ["metadata.pkl", "model", "Zarr"]),
    "a link that leads out": (lambda folder, metadata: ((folder / "model_1.pt").rename(folder.parent / "outside.pt"),
                                                        (folder / "model_1.pt").symlink_to("../outside.pt")), ["model_1.pt", "link"]),
}


def check_damage(oracle, samples):
    for name, (harm, words) in DAMAGE.items():
        folder = oracle.work / name.replace(" ", "_") / "checkpoint"
        shutil.copytree(samples / "mesh_2x2" / "checkpoint", folder)
        metadata = pickle.loads((folder / "metadata.pkl").read_bytes())
        # Meshes share dicts.
        metadata = json_like(metadata)
        harm(folder, metadata)
        (folder / "metadata.pkl").write_bytes(pickle.dumps(metadata))
        destination = folder.parent / "out.pt"
        for command in (("verify", folder), ("convert", folder, destination, "--to", "pt")):
            status, _, err = oracle.run(*command)
            lines = [line for line in err.splitlines() if line and not line.startswith("note:")]
            oracle.check(status == 1 and lines and any(all(word in line for word in words) for line in lines), name,
                         f"{command[0]} exits {status}: {err.strip()[:400]}")
        oracle.check(not destination.exists(), name, "something was written")
    oracle.check(not Path("executed").exists(), "a call", "a pickle was executed")


def json_like(value):
    """A copy without shared parts."""
    if isinstance(value, dict):
        return {key: json_like(item) for key, item in value.items()}
    return type(value)(json_like(item) for item in value) if isinstance(value, (list, tuple)) else value


def check_version_1(oracle, samples):
    """Version 1.0 had one flat dict of paths; its first form stored no version."""
    for version in ({"version": "1.0"}, {}):
        name = f"version_1_{len(version)}"
        shutil.copytree(samples / "mesh_2x2", oracle.work / name / "sample")
        file = oracle.work / name / "sample" / "checkpoint" / "metadata.pkl"
        metadata = pickle.loads(file.read_bytes())
        flat = {json.dumps([item, *json.loads(path)]): groups for item, parts in metadata["metadata"].items()
                for path, groups in parts["nested_path_to_metadata"].items()}
        layouts = {str(rank): {"model": None} for rank in range(metadata["world_size"])}
        file.write_bytes(pickle.dumps({"metadata": flat, "rank_to_layout_info_mappings": layouts, "world_size": metadata["world_size"], **version}))
        expected = json.loads((oracle.work / name / "sample" / "expected.json").read_text())
        oracle.succeeds(name, "convert", file.parent, oracle.work / name / "pt", "--to", "pt")
        check_state(oracle, name, oracle.work / name / "pt", expected)


def check_replicas(oracle, samples):
    """Differing copies are reported; files with copies only may be missing; leftovers of other world sizes are
    named."""
    folder = oracle.work / "replicas"
    shutil.copytree(samples / "mesh_2x2" / "checkpoint", folder)
    state = torch.load(folder / "model_2.pt", weights_only=False)
    state["plain"] += 1
    torch.save(state, folder / "model_2.pt")
    shutil.copy(folder / "rng_0.pt", folder / "rng_7.pt")
    status, _, err = oracle.run("verify", folder)
    oracle.check(status == 0, "replicas", f"exits {status}: {err}")
    for words in (["model_2.pt", "model.plain", "differs"], ["rng_7.pt", "leftover"]):
        oracle.check(any(all(word in line for word in words) for line in err.splitlines()), "replicas", f"no line says {words}: {err}")
    oracle.check(oracle.run("verify", folder, "--strict")[0] == 1, "replicas", "--strict passes")


def check_checkpointable(oracle):
    """A DCP folder of PyTorch 2.15 whose ranks saved several boxes of a tensor."""
    name, folder = "checkpointable", oracle.data / "writers" / "checkpointable"
    expected = json.loads((folder / "expected.json").read_text())
    work = oracle.work / name
    work.mkdir()
    oracle.succeeds(name, "verify", folder / "checkpoint", "--strict")
    oracle.succeeds(name, "convert", folder / "checkpoint", work / "dcp", "--to", "dcp")
    oracle.succeeds(name, "reshard", folder / "checkpoint", work / "three", "--mesh", "3", "--default", "S(0)")
    for source in (folder / "checkpoint", work / "dcp", work / "three"):
        oracle.succeeds(name, "convert", source, work / f"{source.name}.pt", "--to", "pt")
        check_state(oracle, name, work / f"{source.name}.pt", expected)
    before, after = (json.loads(oracle.succeeds(name, "inspect", path, "--json"))["tensors"] for path in (folder / "checkpoint", work / "dcp"))
    boxes = {key: sorted((c["offsets"], c["sizes"]) for c in tensor["chunks"]) for key, tensor in before.items()}
    oracle.check({key: len(found) for key, found in boxes.items()} == {"rows": 4, "columns": 3, "blocks": 4, "line": 5}, name, f"boxes {boxes}")
    oracle.check(boxes == {key: sorted((c["offsets"], c["sizes"]) for c in tensor["chunks"]) for key, tensor in after.items()}, name,
                 "DCP to DCP changes the boxes")


def check_random(oracle):
    if not os.environ.get("SHARDMESH_FULL_TESTS"):
        print("note: random cases are written with SHARDMESH_FULL_TESTS=1")
        return
    venv = oracle.work / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    site = next(venv.glob("lib/python*/site-packages"))
    (site / "torch.pth").write_text(str(Path(torch.__file__).parent.parent) + "\n")
    subprocess.run([venv / "bin" / "pip", "install", "--quiet", "--no-deps", "torch-checkpointing==0.1.1"], check=True)
    for seed in range(int(os.environ.get("SHARDMESH_RANDOM_CASES", "12"))):
        made = oracle.work / f"made_{seed}"
        subprocess.run([venv / "bin" / "python", Path(__file__).with_name("make_torch_checkpointing.py"), made, str(seed)], check=True,
                       capture_output=True)
        folder = made / f"random_{seed}"
        check_folder(oracle, f"random_{seed}", folder)
        # The package itself loads our output.
        for kind, ranks in (("torch", seed % 3 + 1), ("safetensors", (seed + 1) % 3 + 1)):
            written = made / kind
            oracle.succeeds(f"random_{seed}", "convert", folder / "checkpoint", written, "--to", "torch-checkpointing", "--payload", kind)
            loaded = subprocess.run([venv / "bin" / "python", Path(__file__).with_name("load_torch_checkpointing.py"), written,
                                     folder / "expected.json", str(ranks), str(seed)], capture_output=True, text=True)
            said = json.loads(loaded.stdout.splitlines()[-1]) if loaded.returncode == 0 else {"wrong": loaded.stderr[-600:]}
            oracle.check(not said["wrong"] and said["compared"] >= 8 and not said["unknown"], f"random_{seed}", f"{kind}, {ranks} ranks: {said}")


def main():
    oracle = Oracle(__doc__, syncs=False)
    samples = oracle.data / "writers" / "torch_checkpointing"
    for folder in sorted(samples.iterdir()):
        if (folder / "expected.json").exists() and oracle.args.only in folder.name:
            check_folder(oracle, folder.name, folder)
    check_checkpointable(oracle)
    check_version_1(oracle, samples)
    check_replicas(oracle, samples)
    check_damage(oracle, samples)
    check_random(oracle)
    oracle.finish()


main()
