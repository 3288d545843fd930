# SPDX-License-Identifier: Apache-2.0
"""Golden FSDP checkpoints go through our FSDP types and back to PyTorch. fsdp_rewrite loads each onto other meshes
than it was saved on, and saves full, sharded, dtensor, and local state dicts, and the flat shards in place.
torch.distributed.checkpoint must read the golden values from its output. The ordinary run takes a third of the meshes
for each form, which SHARDMESH_SEED chooses. Without PyTorch, only fsdp_rewrite's own comparison runs."""
import json
import os
import subprocess

from common import Oracle, read_safetensors, seed, sha256

CASES = ["fsdp1_sharded_4", "fsdp1_flat_sharded_4", "fsdp1_full_4", "fsdp1_tp_2d", "fsdp2_4", "fsdp2_tp_2x2", "hsdp_2x2"]
FORMS = ["full", "sharded", "dtensor", "held", "local"]
MESHES = [("4", 0), ("3", 0), ("2,2", 1), ("2,2", 0), ("3,2", 0), ("2,2,2", 1)]  # the last ones with tensor parallelism
FLAT = [("model.mlp", ["up.weight", "up.bias", "down.weight", "down.bias"]),
        ("model", ["norm.weight", "norm.bias", "head.weight"])]


def add_arguments(parser):
    parser.add_argument("--rewrite", required=True, help="the fsdp_rewrite executable")


def flat_parameters(oracle):
    """{key: bytes} of the parameters inside the flat tensors of fsdp1_local."""
    shapes = {case.name: case for case in oracle.cases()}["fsdp1_full_4"].tensors
    stored, _ = read_safetensors(oracle.golden / "fsdp1_local" / "expected.safetensors")
    found = {}
    for module, names in FLAT:
        data, at = stored[f"{module}._flat_param"][2], 0
        for name in names:
            size = 4
            for extent in shapes[f"{module}.{name}"]["shape"]:
                size *= extent
            found[f"{module}.{name}"] = data[at:at + size]
            at += size
        assert at == len(data)
    return found


def rewrite(oracle, case, form, mesh, fsdp_dim, like=None):
    name = f"{case}_{form}_{mesh.replace(',', 'x')}_{fsdp_dim}"
    destination = oracle.work / name
    arguments = [oracle.args.rewrite, oracle.golden / case / "checkpoint", destination, form, mesh, str(fsdp_dim)]
    if like:
        arguments.append(oracle.golden / like / "checkpoint")
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, timeout=120)
    good = oracle.check(done.returncode == 0, name, f"exits {done.returncode}: {done.stderr.strip()[-400:]}")
    return (name, destination) if good else None


def main():
    oracle = Oracle(__doc__, add_arguments)
    written = []
    is_long = os.environ.get("SHARDMESH_PROPERTY_RUNS") == "long"
    for turn, case in enumerate(CASES, seed()):
        expected = {key: tensor["sha256"] for key, tensor in
                    {c.name: c for c in oracle.cases()}[case].tensors.items()}
        for number, (mesh, fsdp_dim) in enumerate(MESHES):
            for at, form in enumerate(FORMS):
                if not is_long and (turn + number + at) % 3:
                    continue
                made = rewrite(oracle, case, form, mesh, fsdp_dim)
                if made:
                    written.append((*made, expected if form != "local" else None))
    flat = {key: sha256(data) for key, data in flat_parameters(oracle).items()}
    for mesh, fsdp_dim in [("4", 0), ("3", 0), ("2,2", 1)]:  # tensor parallelism makes other flat tensors
        for form in FORMS[:4]:
            made = rewrite(oracle, "fsdp1_local", form, mesh, fsdp_dim, like="fsdp1_full_4")
            if made:
                written.append((*made, flat))
    # The same without ranks: convert --flat-spec.
    shapes = {case.name: case for case in oracle.cases()}["fsdp1_full_4"].tensors
    spec = {"units": [{"key": f"{module}._flat_param",
                       "parameters": [{"name": name, "shape": shapes[f"{module}.{name}"]["shape"]} for name in names]}
                      for module, names in FLAT]}
    (oracle.work / "spec.json").write_text(json.dumps(spec))
    destination = oracle.work / "flat_spec"
    if oracle.succeeds("flat_spec", "convert", oracle.golden / "fsdp1_local" / "checkpoint", destination, "--to", "dcp",
                       "--flat-spec", oracle.work / "spec.json") is not None:
        written.append(("flat_spec", destination, flat))
    try:
        import torch
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.filesystem import FileSystemReader
    except ImportError:
        print("PyTorch is not installed: it read nothing")
        oracle.finish()
    import warnings
    warnings.filterwarnings("ignore")
    for name, folder, expected in written:
        entries = FileSystemReader(folder).read_metadata().state_dict_metadata
        wanted = {key: torch.empty(entry.size, dtype=entry.properties.dtype) for key, entry in entries.items()}
        dcp.load(wanted, checkpoint_id=folder, no_dist=True)
        if expected is None:
            oracle.check(any(key.endswith("_flat_param") for key in wanted), name, "no flat parameter")
            continue
        oracle.check(set(wanted) == set(expected), name, f"keys differ: {sorted(set(wanted) ^ set(expected))[:5]}")
        for key in set(wanted) & set(expected):
            data = wanted[key].contiguous().view(torch.uint8).numpy().tobytes() if wanted[key].dim() else \
                wanted[key].reshape(1).view(torch.uint8).numpy().tobytes()
            oracle.check(sha256(data) == expected[key], name, f"{key}: PyTorch reads other values")
    oracle.finish()


main()
