# SPDX-License-Identifier: Apache-2.0
"""Folders of the package torch_checkpointing that we write. PyTorch composes every tensor from metadata.pkl and the
ranks' files, the structure equals that of the package's own samples, and conversions from every format return the
same bits."""
import json
import pickle
import pickletools
import shutil

from common import Oracle, need_torch

need_torch()
import torch  # noqa: E402
import torch.distributed.checkpoint  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from torch.distributed.checkpoint._nested_dict import flatten_state_dict  # noqa: E402
from torch.distributed.tensor import Replicate, Shard  # noqa: E402
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset  # noqa: E402

GOLDEN = ["dtensor_2d_2x2", "dtensor_3d_2x2x2", "dtensor_shard0_4", "dtypes", "fsdp2_tp_2x2", "hsdp_2x2", "single_rank",
          "sharded_tensor_chunk", "fsdp1_tp_2d"]


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def boxes_of(group, rank):
    """Global offsets, local offsets, and sizes of a rank's boxes, by PyTorch's own rules."""
    kind, data = group["sharding_metadata"]["type"], group["sharding_metadata"]["data"]
    if kind == "default_tensor_v1":
        return list(zip(data["global_offsets"], data["local_offsets"], data["local_sizes"]))
    mesh = data["mesh_spec"]
    position = torch.tensor(mesh["mesh_data"]).reshape(mesh["mesh_shape"]).eq(rank).nonzero()[0].tolist()
    placements = [Replicate() if one["type"] == "Replicate" else Shard(one["dim"]) for one in data["placements"]]
    sizes, offsets = _compute_local_shape_and_global_offset(torch.Size(data["global_shape"]), mesh["mesh_shape"], position, placements)
    return [(offsets, [0] * len(sizes), sizes)]


def at(value, path):
    for step in path:
        value = value[step]
    return value


def read_folder(folder):
    """Every tensor of the folder, and the objects of each rank's files."""
    metadata = pickle.loads((folder / "metadata.pkl").read_bytes())
    tensors, objects, named = {}, [{} for _ in range(metadata["world_size"])], set()
    for item, parts in metadata["metadata"].items():
        files = []
        for rank in range(metadata["world_size"]):
            layout = parts["rank_to_layout_info"][rank] or {"file_path": f"{item}_{rank}.pt", "serialization_format": {"type": "TorchSerialization"}}
            named.add(layout["file_path"])
            if layout["serialization_format"]["type"] == "SafetensorsSerialization":
                flat = load_file(folder / layout["file_path"])
                files.append((lambda path, flat=flat: flat[".".join(map(str, path))], flat))
            else:
                state = torch.load(folder / layout["file_path"], weights_only=True)
                files.append((lambda path, state=state: at(state, path), None))
                collect(item, state, objects[rank])
        for text, groups in parts["nested_path_to_metadata"].items():
            data, path = groups[0]["sharding_metadata"]["data"], json.loads(text)
            whole = torch.empty(data["global_shape"], dtype=getattr(torch, data["dtype"][6:]))
            for group in groups:
                for rank in group["ranks"]:
                    local = files[rank][0](path)
                    assert type(local) is torch.Tensor and local.is_contiguous() and local.dtype == whole.dtype, (text, rank)
                    boxes = boxes_of(group, rank)
                    assert len(boxes) > 1 or list(local.shape) == list(boxes[0][2]), (text, rank)
                    if list(local.shape) == data["global_shape"]:
                        whole = local
                        continue
                    for offsets, inner, sizes in boxes:
                        box, part = ([slice(o, o + s) for o, s in zip(begin, sizes)] for begin in (offsets, inner))
                        whole[tuple(box)] = local[tuple(part)]
            tensors[".".join(map(str, [item, *path]))] = whole
    for file in sorted(folder.glob("*.pt")):
        if file.name not in named:
            item, rank = file.stem.rsplit("_", 1)
            collect(item, torch.load(file, weights_only=True), objects[int(rank)])
    return tensors, objects


def collect(item, state, into):
    flat, _ = flatten_state_dict({item: state})
    into.update({key: value for key, value in flat.items() if not isinstance(value, torch.Tensor)})


def check_content(oracle, name, folder, whole):
    """PyTorch reads the same from the folder as from a .pt file of the same checkpoint."""
    flat, _ = flatten_state_dict(torch.load(whole, weights_only=True))
    expected = {key: value for key, value in flat.items() if isinstance(value, torch.Tensor)}
    tensors, objects = read_folder(folder)
    oracle.check(set(tensors) == set(expected), name, f"other tensors: {sorted(set(tensors) ^ set(expected))[:5]}")
    wrong = [key for key in set(tensors) & set(expected) if (tensors[key].dtype, tensors[key].shape, raw(tensors[key])) !=
             (expected[key].dtype, expected[key].shape, raw(expected[key]))]
    oracle.check(not wrong, name, f"tensors differ: {wrong[:5]}")
    plain = {key: value for key, value in flat.items() if key not in expected}
    for rank, found in enumerate(objects):
        # None in a list of tensors marks a place where this rank has no part.
        found = {key: value for key, value in found.items() if value is not None or key in plain}
        oracle.check(found == plain, name, f"objects of rank {rank} are {str(found)[:200]}, not {str(plain)[:200]}")


def boxes_in(oracle, name, path):
    tensors = json.loads(oracle.succeeds(name, "inspect", path, "--json") or '{"tensors": {}}')["tensors"]
    return {key: sorted((c["offsets"], c["sizes"]) for c in tensor["chunks"] if 0 not in c["sizes"]) for key, tensor in tensors.items()}


def check_round_trip(oracle, name, source, keeps_boxes=True):
    work = oracle.work / name
    work.mkdir(parents=True)
    oracle.succeeds(name, "convert", source, work / "whole.pt", "--to", "pt")
    for kind in ("torch", "safetensors"):
        folder, again, back = work / kind, work / f"{kind}_again", work / f"{kind}_dcp"
        oracle.succeeds(name, "convert", source, folder, "--to", "torch-checkpointing", "--payload", kind)
        oracle.succeeds(name, "verify", folder, "--strict")
        oracle.succeeds(name, "diff", source, folder)
        check_content(oracle, f"{name} ({kind})", folder, work / "whole.pt")
        before, after = boxes_in(oracle, name, source), boxes_in(oracle, name, folder)
        oracle.check(not keeps_boxes or before == after, name, f"{kind}: boxes {[(k, before[k], after.get(k)) for k in before if before[k] != after.get(k)][:2]}")
        oracle.succeeds(name, "convert", folder, back, "--to", "dcp")
        oracle.check(boxes_in(oracle, name, back) == after, name, f"{kind}: other boxes in DCP")
        for way in (folder, back):
            oracle.succeeds(name, "convert", way, again, "--to", "torch-checkpointing", "--payload", kind, "--force")
            files = {file.name: file.read_bytes() for file in folder.iterdir()}
            oracle.check(files == {file.name: file.read_bytes() for file in again.iterdir()}, name, f"{kind}: {way.name} writes other files")


def globals_in(file):
    """The names in the pickle of a torch.save file."""
    names = set()
    import zipfile
    with zipfile.ZipFile(file) as archive:
        pickled = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        names.update(argument for opcode, argument, _ in pickletools.genops(archive.read(pickled)) if opcode.name == "GLOBAL")
    return names


def shape_of(value):
    """A value's structure: types, keys, and plain values."""
    if isinstance(value, dict):
        return {key: shape_of(below) for key, below in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(shape_of(below) for below in value)
    return (str(value.dtype), list(value.shape), raw(value)) if isinstance(value, torch.Tensor) else value


def check_structure(oracle, samples):
    """Rewriting the package's own folder of one rank yields the same folder: file names, metadata, values, types."""
    name, own = "one_rank", samples / "one_rank" / "checkpoint"
    ours = oracle.work / name / "torch"
    oracle.check({file.name for file in own.iterdir()} | {".shardmesh_checksums"} == {file.name for file in ours.iterdir()}, name, "other files")
    theirs, written = (pickle.loads((folder / "metadata.pkl").read_bytes()) for folder in (own, ours))
    # We write noncontiguous tensors contiguously, and also describe tensors of items without a resharder.
    theirs["metadata"]["model"]["nested_path_to_metadata"]['["turned"]'][0]["sharding_metadata"]["data"]["stride"] = [4, 1]
    rng = written["metadata"].pop("rng")
    oracle.check(written == theirs, name, f"metadata is {str(written)[:300]}")
    oracle.check(list(rng["nested_path_to_metadata"]) == ['["cpu"]'], name, f"rng is {rng}")
    for file in sorted(own.glob("*.pt")):
        values = [shape_of(torch.load(folder / file.name, weights_only=True)) for folder in (own, ours)]
        oracle.check(values[0] == values[1], name, f"{file.name} has other values or types")
        oracle.check(globals_in(ours / file.name) == globals_in(file), name, f"{file.name} has the names {globals_in(ours / file.name)}")
    for sample in ("mesh_2x2", "safetensors_3", "boxes_2"):
        theirs, written = (keys_of(pickle.loads((folder / "metadata.pkl").read_bytes())["metadata"]["model"])
                           for folder in (samples / sample / "checkpoint", oracle.work / sample / ("safetensors" if sample == "safetensors_3" else "torch")))
        oracle.check(written <= theirs | keys_of({"nested_path_to_metadata": DTENSOR}), sample, f"fields that the package has not: {written - theirs}")


DTENSOR = {"": [{"sharding_metadata": {"type": "", "data": {"global_shape": [], "dtype": "", "stride": [], "mesh_spec": {
    "device_type": "", "mesh_shape": (), "mesh_data": (), "mesh_dim_names": None}, "placements": [{"type": "", "dim": 0}]}}, "ranks": ()}]}


def keys_of(value, where=""):
    """The field names at each depth, without those of tensors and ranks."""
    if isinstance(value, dict):
        return {entry for key, below in value.items()
                for entry in [f"{where}/{key}" if str(key).isidentifier() else where, *keys_of(below, f"{where}/{key}" if str(key).isidentifier() else where)]}
    return {entry for below in value for entry in keys_of(below, where)} if isinstance(value, (list, tuple)) else set()


def check_lists(oracle):
    """A list that no rank holds completely: None marks an element that a rank lacks, and is not an entry."""
    from torch.distributed.checkpoint import FileSystemWriter, save
    name, work = "lists", oracle.work / "lists"
    work.mkdir()
    state = {"model": {"layers": [{"w": torch.arange(3.)}, {"w": torch.arange(8).reshape(4, 2)}, {"w": torch.ones(2)}], "tail": [torch.ones(2), torch.zeros(1)]}}
    save(state, storage_writer=FileSystemWriter(work / "dcp"), no_dist=True)
    oracle.succeeds(name, "reshard", work / "dcp", work / "cut", "--mesh", "2", "--place", "model.layers.1.*=S(0)", "--default", "R")
    check_round_trip(oracle, "lists_cut", work / "cut")
    loaded = [torch.load(oracle.work / "lists_cut" / "torch" / f"model_{rank}.pt", weights_only=True)["layers"] for rank in range(2)]
    oracle.check(sorted(layers[0] is None for layers in loaded) == [False, True], name, f"one rank lacks the first: {loaded}")


def check_objects(oracle):
    """Objects of any kind, also with tensors inside, equal those in a .pt file of the same checkpoint."""
    for name in ("nested_objects", "options_no_flatten"):
        work, source = oracle.work / f"objects_{name}", oracle.golden / name / "checkpoint"
        work.mkdir()
        oracle.succeeds(name, "convert", source, work / "whole.pt", "--to", "pt")
        oracle.succeeds(name, "convert", source, work / "items", "--to", "torch-checkpointing")
        oracle.succeeds(name, "convert", source, work / "below", "--to", "torch-checkpointing", "--item", "all")
        for folder in (work / "items", work / "below"):
            oracle.succeeds(name, "verify", folder, "--strict")
        whole, below = (json.loads(oracle.succeeds(name, "inspect", path, "--json")) for path in (work / "whole.pt", work / "below"))
        oracle.check({f"all.{key}": value["value"] for key, value in whole["objects"].items()} ==
                     {key: value["value"] for key, value in below["objects"].items()}, name, "other objects below an item")
        oracle.check({f"all.{key}": (value["dtype"], value["shape"]) for key, value in whole["tensors"].items()} ==
                     {key: (value["dtype"], value["shape"]) for key, value in below["tensors"].items()}, name, "other tensors below an item")


def check_items(oracle):
    """Flat names become separate items, or go below one item."""
    from safetensors.torch import save_file
    name, work = "items", oracle.work / "items"
    work.mkdir()
    save_file({f"layers.{i}.w": torch.full((2,), float(i)) for i in range(20)}, work / "a.safetensors")
    status, out, err = oracle.run("convert", work / "a.safetensors", work / "apart", "--to", "torch-checkpointing")
    oracle.check(status == 0 and "--item" in err + out and len(list(work.glob("apart/*.pt"))) == 20, name, f"{status}: {out} {err}")
    oracle.succeeds(name, "diff", work / "a.safetensors", work / "apart")
    oracle.succeeds(name, "convert", work / "a.safetensors", work / "model", "--to", "torch-checkpointing", "--item", "model")
    oracle.check(set(torch.load(work / "model" / "model_0.pt", weights_only=True)) == {f"layers.{i}.w" for i in range(20)}, name, "other names")
    oracle.succeeds(name, "convert", work / "model", work / "back.safetensors", "--strip-prefix", "model.")
    oracle.succeeds(name, "diff", work / "a.safetensors", work / "back.safetensors")
    # Names that cannot be file names.
    torch.save({"a/b": torch.ones(1), "..": torch.ones(2), ".hidden": torch.ones(3), "x" * 300: torch.ones(4), "": torch.ones(5), "note": {"../up": 3}}, work / "odd.pt")
    oracle.succeeds(name, "convert", work / "odd.pt", work / "odd", "--to", "torch-checkpointing")
    oracle.succeeds(name, "verify", work / "odd", "--strict")
    oracle.succeeds(name, "diff", work / "odd.pt", work / "odd")
    oracle.check(all(file.parent == work / "odd" and file.is_file() for file in (work / "odd").rglob("*")), name, "a file left the folder")


def check_empty_dicts(oracle):
    """An empty dict is kept. On a rank that lacks the contents that others have there, it is not an entry."""
    import collections
    name, work = "empty dicts", oracle.work / "empty_dicts"
    work.mkdir()
    state = {"m": {"empty": {}, "ordered": collections.OrderedDict(), "deep": {"er": {}}, "w": torch.ones(4)}, "alone": {}, "opt": {"lr": 1, "s": {"b": 2}}}
    torch.save(state, work / "a.pt")
    for source in ("a.pt", "dcp_2"):
        if source == "dcp_2":
            oracle.succeeds(name, "convert", work / "a.pt", work / "dcp_1", "--to", "dcp")
            oracle.succeeds(name, "reshard", work / "dcp_1", work / source, "--mesh", "2", "--place", "m.w=S(0)", "--default", "R")
        folder = work / f"{source}_ranks"
        oracle.succeeds(name, "convert", work / source, folder, "--to", "torch-checkpointing")
        if source == "dcp_2":
            oracle.check(len(list(folder.glob("opt_*.pt"))) == 2, name, f"files are {sorted(folder.iterdir())}")
            torch.save({"s": {}}, folder / "opt_1.pt")
            (folder / ".shardmesh_checksums").unlink()
        oracle.succeeds(name, "convert", folder, work / f"{source}_back.pt")
        back = torch.load(work / f"{source}_back.pt", weights_only=True)
        oracle.check(shape_of(back) == shape_of(state) and type(back["m"]["ordered"]) is collections.OrderedDict, name, f"{source} becomes {back}")


def said(err):
    """The lines that are not notes."""
    return [line for line in err.splitlines() if line and not line.startswith("note:")]


def check_refusals(oracle, samples):
    name, work, source = "refusals", oracle.work / "refusals", samples / "mesh_2x2" / "checkpoint"
    work.mkdir()
    oracle.succeeds(name, "convert", source, work / "out", "--to", "torch-checkpointing")
    before = {file.name: file.read_bytes() for file in (work / "out").iterdir()}

    def refused(words, *arguments):
        status, _, err = oracle.run(*arguments)
        lines = said(err)
        oracle.check(status == 2 and len(lines) == 1 and all(word in lines[0] for word in words), name, f"{arguments[2:]} exits {status}: {err[:400]}")

    refused(["out", "exists"], "convert", source, work / "out", "--to", "torch-checkpointing")
    (work / "out" / "mine.txt").write_text("mine")
    refused(["mine.txt"], "convert", source, work / "out", "--to", "torch-checkpointing", "--force")
    (work / "out" / "mine.txt").unlink()
    oracle.check(before == {file.name: file.read_bytes() for file in (work / "out").iterdir()}, name, "the destination changed")
    oracle.succeeds(name, "convert", source, work / "out", "--to", "torch-checkpointing", "--force")
    file = work / "out" / "model_2.pt"
    file.write_bytes(bytes(byte ^ (i == 700) for i, byte in enumerate(file.read_bytes())))
    status, _, err = oracle.run("verify", work / "out")
    oracle.check(status == 1 and "model_2.pt" in err, name, f"a flipped bit: {status} {err}")
    oracle.check(not list(work.glob(".*tmp*")), name, "something half-written stays")


def check_far_ranks(oracle):
    """A wrapper in a file of a rank beyond those that the format has files for is refused. The names of files that are
    read give the ranks."""
    state = {"q": torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)}
    for rank, expected in ((65536, "below 65536, found 65536"), (2147483646, "found 2147483646"),
                           (2147483647, "wrote"), (99999999999, "wrote")):
        folder, out = oracle.work / f"far_{rank}", oracle.work / f"far_{rank}_out"
        torch.distributed.checkpoint.save(state, checkpoint_id=folder, no_dist=True)
        metadata = pickle.loads((folder / ".metadata").read_bytes())
        for info in metadata.storage_data.values():
            info.relative_path = f"__{rank}_0.distcp"
        (folder / ".metadata").write_bytes(pickle.dumps(metadata))
        (folder / "__0_0.distcp").rename(folder / f"__{rank}_0.distcp")
        status, said, err = oracle.run("convert", folder, out, "--to", "torch-checkpointing")
        is_refused = expected != "wrote"
        oracle.check(status == (1 if is_refused else 0) and expected in said + err, f"a file of rank {rank}",
                     f"exits {status}: {said}{err}")
        oracle.check(out.exists() != is_refused, f"a file of rank {rank}", "the destination")


def check_opaque(oracle, samples):
    """Tensors that are not read as elements do not stop others from being read; those of known classes are read as
    well."""
    for kind, odd in {"a sparse COO tensor": torch.eye(3).to_sparse(), "a meta tensor (it has no values)": torch.empty(2, 3, device="meta")}.items():
        name = f"opaque {kind.split()[1]}"
        folder = oracle.work / name.replace(" ", "_")
        shutil.copytree(samples / "mesh_2x2" / "checkpoint", folder / "checkpoint")
        for rank in range(4):
            state = torch.load(folder / "checkpoint" / f"model_{rank}.pt", weights_only=False)
            state["plain"] = odd
            torch.save(state, folder / "checkpoint" / f"model_{rank}.pt")
        status, out, err = oracle.run("inspect", folder / "checkpoint")
        oracle.check(status == 0 and "model.plain" in out and not said(err), name, f"inspect exits {status}: {err} {out}")
        if odd.is_sparse:
            oracle.succeeds(name, "convert", folder / "checkpoint", folder / "whole.pt")
            read = torch.load(folder / "whole.pt", weights_only=True)["model"]["plain"]
            oracle.check(read.is_sparse and torch.equal(read.to_dense(), torch.eye(3)), name, f"is read as {read}")
            state["plain"] = 2 * odd
            torch.save(state, folder / "checkpoint" / "model_3.pt")
            status, _, err = oracle.run("verify", folder / "checkpoint")
            oracle.check("model_3.pt: model.plain: differs from what model_0.pt holds" in err, name, f"verify of a copy that differs exits {status}: {err}")
            continue
        status, _, err = oracle.run("convert", folder / "checkpoint", folder / "out", "--to", "dcp")
        oracle.check(status == 1 and len(said(err)) == 1 and kind.split(" (")[0] in said(err)[0] and "model.plain" in said(err)[0], name, f"convert exits {status}: {err}")
        oracle.succeeds(name, "convert", folder / "checkpoint", folder / "out", "--to", "torch-checkpointing", "--skip-unsupported")
        rest, _ = read_folder(folder / "out")
        own, _ = flatten_state_dict({"model": torch.load(samples / "mesh_2x2" / "checkpoint" / "model_0.pt", weights_only=False)})
        oracle.check({key for key in own if key != "model.plain"} == {key for key in rest if key.startswith("model.")}, name, f"others are {sorted(rest)}")


def main():
    oracle = Oracle(__doc__, syncs=False)
    samples = oracle.data / "writers" / "torch_checkpointing"
    for folder in sorted(samples.iterdir()):
        if (folder / "expected.json").exists():
            check_round_trip(oracle, folder.name, folder / "checkpoint", keeps_boxes=folder.name != "boxes_2")
    for case in oracle.cases():
        if case.name in GOLDEN:
            check_round_trip(oracle, case.name, case.checkpoint, keeps_boxes=case.name != "sharded_tensor_chunk")
    check_structure(oracle, samples)
    check_lists(oracle)
    check_objects(oracle)
    check_items(oracle)
    check_empty_dicts(oracle)
    check_refusals(oracle, samples)
    check_opaque(oracle, samples)
    check_far_ranks(oracle)
    oracle.finish()


main()
