# SPDX-License-Identifier: Apache-2.0
"""Megatron's torch_dist folders against the results of Megatron's own load (tests/data/writers/megatron, made by
make_megatron.py), and flat optimizer shards against a model of their order."""
import json
import pickle
import random
import shutil
import sys
import tarfile
import types
import warnings
from pathlib import Path

from common import Oracle, fingerprint, need_torch, read_safetensors, seed as common_seed

need_torch()
warnings.filterwarnings("ignore")
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.filesystem import FileSystemReader  # noqa: E402

SAFETENSORS_NAMES = {"bfloat16": "BF16", "float32": "F32"}
OBJECTS = {
    "args": {"$other": "argparse.Namespace"},
    "checkpoint_version": {"$float": (3.0).hex()},
    "iteration": 10,
    "optimizer.optimizer.param_groups.0.betas": {"$tuple": [{"$float": (0.5).hex()}, {"$float": (0.25).hex()}]},
    "optimizer.optimizer.param_groups.0.lr": {"$float": (0.125).hex()},
    "rng_state/shard_0_2": [[{"$dict": [["seed", 7]]}]],
    "rng_state/shard_1_2": [[{"$dict": [["seed", 8]]}]],
}
COMMON = {"grad_scale", *(key for key in OBJECTS if not key.startswith("rng_state"))}


class Metadata(pickle.Unpickler):
    """Reads .metadata where Megatron is not installed: its classes are stand-ins that pickle under their own names."""

    def find_class(self, module, name):
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            parts = module.split(".")
            for i in range(1, len(parts) + 1):
                sys.modules.setdefault(".".join(parts[:i]), types.ModuleType(".".join(parts[:i])))
            made = type(name, (), {"__module__": module})
            setattr(sys.modules[module], name, made)
            return made


def edit_metadata(folder, edit):
    with open(folder / ".metadata", "rb") as file:
        metadata = Metadata(file).load()
    edit(metadata)
    with open(folder / ".metadata", "wb") as file:
        pickle.dump(metadata, file)


def hex_of(tensor):
    return bytes(tensor.contiguous().flatten().view(torch.uint8).tolist()).hex()


def described(tensors):
    """Describes tensors as in expected.json."""
    return {key: {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "hex": hex_of(tensor)}
            for key, tensor in tensors.items()}


def load_whole(folder):
    """All tensors of a DCP folder, as plain PyTorch loads them."""
    entries = FileSystemReader(folder).read_metadata().state_dict_metadata
    state = {key: torch.empty(entry.size, dtype=entry.properties.dtype) for key, entry in entries.items()
             if hasattr(entry, "size")}
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    return state


def refused(oracle, case, source, *names, seen=1):
    """verify and convert name the defect and write nothing; inspect, with status `seen`, shows the rest."""
    status, _, err = oracle.run("verify", source)
    oracle.check(status == 1 and all(name in err for name in names), case, f"verify exits {status}: {err}")
    for to in ("dcp", "safetensors", "pt"):
        out = oracle.work / "refused"
        status, _, err = oracle.run("convert", source, out, "--to", to)
        oracle.check(status == 1 and all(name in err for name in names) and not out.exists(), case,
                     f"convert to {to} exits {status}: {err}")
    status, out, _ = oracle.run("inspect", source)
    oracle.check(status == seen and "decoder.final_layernorm.weight" in out, case, f"inspect exits {status}: {out}")


def check_sample(oracle, archive):
    case = archive.name.removesuffix(".tar.xz")
    home = oracle.work / case
    with tarfile.open(archive) as stored:
        stored.extractall(home)
    source, expected = home / "checkpoint", json.loads((home / "expected.json").read_text())
    tensors = expected["tensors"]
    before = fingerprint(source)
    oracle.succeeds(case, "verify", source)

    oracle.succeeds(case, "convert", source, home / "all.safetensors")
    held, _ = read_safetensors(home / "all.safetensors")
    wanted = {key: (SAFETENSORS_NAMES[entry["dtype"]], entry["shape"], bytes.fromhex(entry["hex"]))
              for key, entry in tensors.items()}
    wanted["grad_scale"] = ("F32", [2], b"".join(bytes.fromhex(x) for x in ("00000040", "00008040")))
    oracle.check(held == wanted, case, "safetensors: other tensors than Megatron loads")
    objects = json.loads((home / "all.objects.json").read_text())["objects"]
    oracle.check({key: entry["value"] for key, entry in objects.items()} == OBJECTS, case, f"objects.json: {objects}")

    oracle.succeeds(case, "convert", source, home / "all.pt")
    loaded = torch.load(home / "all.pt", weights_only=False)
    oracle.check({key: repr(loaded[key]) for key in expected["common"]} == expected["common"], case,
                 f".pt: common entries {sorted(loaded)}")
    oracle.check(described({key: loaded[key] for key in tensors}) == tensors, case, ".pt: tensors differ")

    oracle.succeeds(case, "convert", source, home / "dcp", "--to", "dcp")
    oracle.succeeds(case, "verify", home / "dcp", "--strict")
    oracle.check(described(load_whole(home / "dcp")) == tensors, case, "DCP: tensors differ")
    for name in ("common.pt", "metadata.json"):
        oracle.check((home / "dcp" / name).read_bytes() == (source / name).read_bytes(), case, f"DCP: {name} differs")
    attributes = vars(FileSystemReader(home / "dcp").read_metadata())
    oracle.check("mcore_data" not in attributes, case, "DCP: mcore_data describes flat tensors that are whole")
    oracle.check(not COMMON & set(attributes["state_dict_metadata"]), case, "DCP: entries of common.pt are items, too")
    oracle.succeeds(case, "diff", source, home / "dcp")

    status, _, err = oracle.run("convert", source, home / "weights", "--to", "dcp", "--only", "decoder.*|iteration")
    oracle.check(status == 0 and "common.pt is copied as it is" in err and
                 (home / "weights" / "common.pt").read_bytes() == (source / "common.pt").read_bytes(), case, err)

    oracle.succeeds(case, "reshard", source, home / "mesh", "--mesh", "dp=2,tp=3", "--place",
                    r"decoder\.layers\..*=S(1),S(2)", "--place", "embedding.*=R,S(1)")
    oracle.check(described(load_whole(home / "mesh")) == tensors, case, "resharded tensors differ")
    cut = json.loads(oracle.succeeds(case, "inspect", home / "mesh", "--json"))["tensors"]
    for key in tensors:
        parameter = key.split(".", 3)[-1]
        if not key.startswith("optimizer.state."):
            continue
        boxes = [sorted((c["offsets"], c["sizes"]) for c in cut[k]["chunks"]) for k in (key, parameter)]
        oracle.check(boxes[0] == boxes[1] and (len(boxes[0]) > 1 or "layernorm" in key), case,
                     f"{key} does not follow its parameter: {boxes}")
    oracle.check(fingerprint(source) == before, case, "the source has changed")
    return source


def check_bad_common(oracle, source):
    cases = {
        "no torch.save": lambda path: path.write_bytes(b"hello"),
        "empty": lambda path: path.write_bytes(b""),
        "cut": lambda path: path.write_bytes(path.read_bytes()[:-40]),
        "a folder": lambda path: (path.unlink(), path.mkdir()),
        "a link that leads out": lambda path: (path.unlink(), path.symlink_to("/etc/hostname")),
        "a link to nothing": lambda path: (path.unlink(), path.symlink_to("nothing")),
        "a stored key": lambda path: torch.save({"rng_state/shard_0_2": 1}, path),
    }
    for case, damage in cases.items():
        folder = oracle.work / "common" / case.replace(" ", "_")
        shutil.copytree(source, folder)
        damage(folder / "common.pt")
        refused(oracle, f"common.pt: {case}", folder, "common.pt")
    folder = oracle.work / "flipped"
    shutil.copytree(source, folder)
    data = bytearray((folder / "common.pt").read_bytes())
    at = data.index(bytes.fromhex("0000004000008040"))
    data[at] ^= 1
    (folder / "common.pt").write_bytes(data)
    refused(oracle, "common.pt: a flipped bit", folder, "common.pt", "grad_scale", seen=0)


def check_disagreeing(oracle, source):
    key = "optimizer.state.exp_avg.embedding.word_embeddings.weight"
    field = "nd_reformulated_orig_global_shape"
    for case, shape in {"volume": (6, 6), "grid": (5, 6), "rank": (30,), "negative": (-6, -5), "text": "six",
                        "huge": (1 << 62, 1 << 62), "nothing": ()}.items():
        folder = oracle.work / "disagrees" / case
        shutil.copytree(source, folder)
        edit_metadata(folder, lambda metadata: metadata.mcore_data[key].update({field: shape}))
        refused(oracle, f"mcore_data: {case}", folder, ".metadata", key)


def check_many_pieces(oracle):
    """A few numbers that claim millions of parts: refused before anything is built from them."""
    folder = oracle.work / "pieces"
    dcp.save({"w": torch.zeros(1)}, checkpoint_id=folder, no_dist=True)

    def claim(metadata):
        entry = metadata.state_dict_metadata["w"]
        entry.size = torch.Size((1 << 20, 1 << 20, 1))
        entry.chunks[0].offsets, entry.chunks[0].sizes = torch.Size((0, 0, 0)), entry.size
        metadata.storage_data = {type(index)(fqn="w", offset=torch.Size((0, 0, 0)), index=0): place
                                 for index, place in metadata.storage_data.items()}
        metadata.mcore_data = {"w": {"nd_reformulated_orig_global_shape": (1 << 20, 1 << 20)}}

    edit_metadata(folder, claim)
    status, _, err = oracle.run("verify", folder)
    oracle.check(status == 1 and "w: a tensor of Megatron's is cut into too many pieces" in err, "pieces", f"{status}: {err}")


def check_padded(oracle, source):
    """Tensors in the shapes of another checkpoint, as Megatron's allow_shape_mismatch loads them."""
    expected = json.loads((source.parent / "expected.json").read_text())["padded"]
    (key, wanted), = expected.items()
    for entry in wanted:
        shape = entry["shape"]
        home = oracle.work / "padded" / "x".join(map(str, shape))
        case = f"padded to {shape}"
        like = {key: torch.zeros(shape), "vocabulary": torch.zeros(shape)}
        dcp.save(like, checkpoint_id=home / "like", no_dist=True)
        for command in (["convert", source, home / "no", "--to", "hf", "--like", home / "like"],
                        ["reshard", source, home / "no", "--like", home / "like", "--only", "embedding.*"]):
            status, _, err = oracle.run(*command)
            oracle.check(status == 1 and key in err and str(shape) in err and "[6, 5]" in err and not (home / "no").exists() and
                         "--allow-shape-mismatch" in err, case, f"{command[0]} exits {status}: {err}")
        more = ["--like", home / "like", "--allow-shape-mismatch", "--only", "embedding.*"]
        status, _, err = oracle.run("convert", source, home / "out.safetensors", *more)
        said = f"note: {key}: [6, 5] becomes {shape}: "
        parts = [(f"dimension {d} is cut at {now}" if now < was else f"dimension {d} is filled with zeros from {was} on")
                 for d, (was, now) in enumerate(zip((6, 5), shape)) if was != now]
        oracle.check(status == 0 and said + ", ".join(parts) + "\n" in err, case, f"convert exits {status}: {err}")
        held, _ = read_safetensors(home / "out.safetensors")
        oracle.check(held == {key: ("BF16", shape, bytes.fromhex(entry["hex"]))}, case, f"safetensors: {held}")
        status, _, err = oracle.run("reshard", source, home / "dcp", *more)
        oracle.check(status == 0 and said in err, case, f"reshard exits {status}: {err}")
        oracle.check(described(load_whole(home / "dcp")) == {key: entry}, case, "DCP differs")
        oracle.succeeds(case, "verify", home / "dcp")
        oracle.succeeds(case, "reshard", source, home / "dry", *more, "--dry-run")
        # Under the new name.
        oracle.succeeds(case, "convert", source, home / "renamed.pt", *more, "--rename", "embedding.*=vocabulary")
        loaded = torch.load(home / "renamed.pt")
        oracle.check(described(loaded) == {"vocabulary": entry}, case, f"renamed: {sorted(loaded)}")
    home = oracle.work / "padded" / "rank"
    dcp.save({key: torch.zeros(30)}, checkpoint_id=home / "like", no_dist=True)
    status, _, err = oracle.run("convert", source, home / "no.pt", "--like", home / "like", "--allow-shape-mismatch")
    oracle.check(status == 1 and key in err and "number of dimensions" in err and not (home / "no.pt").exists(), "padded: rank",
                 f"exits {status}: {err}")


def check_run_folders(oracle, source):
    """A run's folder means its latest iteration; the older format's ranks are files."""
    run = oracle.work / "run"
    shutil.copytree(source, run / "iter_0000010")
    (run / "iter_0000005").mkdir()
    tracker = run / "latest_checkpointed_iteration.txt"
    whole = oracle.succeeds("run folder", "inspect", run / "iter_0000010", "--json")
    for text in ("10", "10\n", "0000010"):
        tracker.write_text(text)
        oracle.check(oracle.succeeds("run folder", "inspect", run, "--json") == whole, "run folder", "other entries")
    oracle.succeeds("run folder", "verify", run)
    oracle.succeeds("run folder", "convert", run, oracle.work / "run.safetensors")
    for text, said in (("11", "iter_0000005, iter_0000010"), ("", "does not name an iteration"), ("../etc", "does not name an iteration"),
                       ("-1", "does not name an iteration"), ("9" * 60, "does not name an iteration"), ("x" * 100_000, str(tracker)),
                       ("release", "iter_0000010"), ("5", "not a checkpoint")):
        tracker.write_text(text)
        status, _, err = oracle.run("verify", run)
        oracle.check(status == 1 and said in err, "run folder", f"{text[:20]!r} exits {status}: {err}")
    tracker.write_text("10")
    (run / "iter_0000010" / "again").symlink_to(run)
    oracle.succeeds("run folder", "verify", run)

    rank = run / "iter_0000007" / "mp_rank_00"
    rank.mkdir(parents=True)
    torch.save({"model": {"w": torch.arange(3.0)}, "iteration": 7}, rank / "model_optim_rng.pt")
    tracker.write_text("7")
    for path in (run, run / "iter_0000007", rank / "model_optim_rng.pt"):
        out = json.loads(oracle.succeeds("older format", "inspect", path, "--json"))
        oracle.check(out["format"] == "torch" and list(out["tensors"]) == ["model.w"] and list(out["objects"]) == ["iteration"],
                     "older format", f"{out}")
    shutil.copytree(rank, rank.parent / "mp_rank_01")  # megatron_rank_files.py tests several ranks
    out = json.loads(oracle.succeeds("older format", "inspect", run, "--json"))
    oracle.check(out["format"] == "torch-files" and list(out["tensors"]) == ["model.w"], "older format", f"{out}")
    zarr = run / "iter_0000009"
    zarr.mkdir()
    (zarr / "metadata.json").write_text('{"sharded_backend": "zarr", "sharded_backend_version": 1}')
    status, _, err = oracle.run("verify", zarr)
    oracle.check(status == 1 and "zarr" in err, "zarr", err)


def check_model(oracle, rounds):
    """Random grids of parts in random chunks: stored[fragment] holds the part's elements in row-major order."""
    dice = random.Random(common_seed())
    for number in range(rounds):
        rank = dice.randint(1, 4)
        grid = [dice.choice((1, 1, 2, 3)) for _ in range(rank)]
        part = [dice.choice((1, 2, 3, 5) if dice.random() < 0.95 else (0,)) for _ in range(rank)]
        shape = [g * p for g, p in zip(grid, part)]
        whole = torch.arange(torch.Size(shape).numel(), dtype=torch.int32).reshape(shape)
        stored = torch.empty(*grid, torch.Size(part).numel(), dtype=torch.int32)
        for place in torch.cartesian_prod(*map(torch.arange, grid)).reshape(-1, rank).tolist():
            box = tuple(slice(i * p, (i + 1) * p) for i, p in zip(place, part))
            stored[tuple(place)] = whole[box].flatten()
        home = oracle.work / "model" / str(number)
        case = f"model {number}: grid {grid}, part {part}"
        dcp.save({"w": stored, "plain": torch.ones(3)}, checkpoint_id=home / "one", no_dist=True)
        placements = ["S(%d)" % dice.randint(0, rank)] * 2
        oracle.succeeds(case, "reshard", home / "one", home / "cut", "--mesh",
                        f"a={dice.randint(1, 3)},b={dice.randint(1, 5)}", "--place", "w=" + ",".join(placements))
        edit_metadata(home / "cut", lambda metadata: setattr(
            metadata, "mcore_data", {"w": {"nd_reformulated_orig_global_shape": tuple(shape)}, "plain": {}}))
        (home / "cut" / ".shardmesh_checksums").unlink()
        oracle.succeeds(case, "verify", home / "cut")
        oracle.succeeds(case, "convert", home / "cut", home / "out.safetensors")
        held, _ = read_safetensors(home / "out.safetensors")
        oracle.check(held["w"] == ("I32", shape, bytes.fromhex(hex_of(whole))), case, "differs")


def main():
    oracle = Oracle(__doc__, lambda parser: parser.add_argument("--rounds", type=int, default=12), syncs=False)
    samples = sorted((oracle.data / "writers" / "megatron").glob("*.tar.xz"))
    oracle.check(len(samples) == 2, "samples", f"{samples}")
    sources = [check_sample(oracle, archive) for archive in samples]
    sums = [json.loads(oracle.succeeds("sums", "verify", source, "--json"))["checked_bytes"] for source in sources]
    oracle.check(sums[0] == sums[1] > 0, "sums", f"the same elements have checksums over {sums} bytes")
    check_bad_common(oracle, sources[0])
    check_disagreeing(oracle, next(source for source in sources if "0.13" in str(source)))
    check_many_pieces(oracle)
    check_padded(oracle, sources[-1])
    check_run_folders(oracle, sources[0])
    check_model(oracle, oracle.args.rounds)
    oracle.finish()


if __name__ == "__main__":
    main()
