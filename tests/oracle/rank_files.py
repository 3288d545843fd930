# SPDX-License-Identifier: Apache-2.0
"""Files that ranks saved with torch.save: DTensors and ShardedTensors become whole tensors bit for bit, and ranks
that do not belong together are refused in one line that names file and key.

The samples are PyTorch's (make_rank_files.py). With --full, fresh ones of other world sizes and seeds."""
import io
import json
import shutil
import tempfile
from pathlib import Path

import make_rank_files
from common import Oracle, need_torch
from writer_answers import refused, same_tensors, tensors_of

RNG = "rng_state"


def expected_of(folder):
    return json.loads((folder / "expected.json").read_text())


def same_as_expected(oracle, folder, case):
    """All tensors except the random states, which are each rank's own."""
    checkpoint = folder / "checkpoint"
    same_tensors(oracle, case, checkpoint, expected_of(folder), "--skip", RNG + r".*", "--allow-unused")
    oracle.succeeds(case, "verify", checkpoint)


def samples(oracle):
    for folder in sorted((oracle.data / "writers/torch_ranks").iterdir()):
        if folder.name == "partial_2":
            continue
        same_as_expected(oracle, folder, folder.name)
        for to in ("dcp", "pt", "hf"):
            made = oracle.work / f"{folder.name}.{to}"
            oracle.succeeds(folder.name, "convert", folder / "checkpoint", made, "--to", to)
            if to != "hf":
                oracle.succeeds(folder.name, "diff", folder / "checkpoint", made)


def copy_of(oracle, sample, name):
    folder = oracle.work / name
    shutil.copytree(oracle.data / "writers/torch_ranks" / sample / "checkpoint", folder)
    return folder


def objects(oracle):
    """A value that is the same everywhere occurs once, a random state once per rank."""
    folder = oracle.data / "writers/torch_ranks/dtensors_2/checkpoint"
    shown = json.loads(oracle.succeeds("objects", "inspect", folder, "--json") or "{}")
    oracle.check(shown.get("format") == "torch-files", "objects", f"the format is {shown.get('format')}")
    oracle.check({key: value["value"] for key, value in shown["objects"].items()} == {"step": 7}, "objects",
                 f"{shown['objects']}")
    states = sorted(key for key in shown["tensors"] if key.startswith(RNG))
    oracle.check(states == [RNG + ".rank_0", RNG + ".rank_1"], "objects", f"{states}")
    chunks = shown["tensors"]["model.rows"]["chunks"]
    oracle.check([(c["offsets"], c["sizes"], c["file"]) for c in chunks] ==
                 [([0, 0], [3, 3], "model_world_size_2_rank_0.pt"), ([3, 0], [2, 3], "model_world_size_2_rank_1.pt")],
                 "objects", f"the chunks of model.rows are {chunks}")


def one_file(oracle):
    """One rank's file opened alone reports what is missing; with a single rank, it is the checkpoint."""
    file = oracle.data / "writers/torch_ranks/dtensors_2/checkpoint/model_world_size_2_rank_1.pt"
    refused(oracle, "one of two", file, file.name, "model.rows", "one rank's part", "files of all ranks",
            "open the folder")
    shown = json.loads(oracle.run("inspect", file, "--json")[1])
    oracle.check(shown["tensors"]["model.rows"]["shape"] == [5, 3], "one of two", "the shape is not the whole one")


def missing(oracle):
    folder = copy_of(oracle, "dtensors_2", "missing")
    (folder / "model_world_size_2_rank_0.pt").unlink()
    refused(oracle, "rank 0 missing", folder, "rank 0 is missing", "model_world_size_2_rank_1.pt")
    folder = copy_of(oracle, "mesh_2x2", "last")
    (folder / "ep0-ba1-rank3.pt").unlink()
    refused(oracle, "the last rank missing", folder, "rank 3 is missing", "ep0-ba1-rank0.pt")
    folder = copy_of(oracle, "sharded_2", "sharded")
    (folder / "rank1.pt").unlink()
    refused(oracle, "a ShardedTensor's rank missing", folder, "rank 1 is missing", "rank0.pt")
    folder = copy_of(oracle, "sharded_2", "beyond")
    (folder / "rank1.pt").rename(folder / "model_world_size_1_rank_1.pt")
    (folder / "rank0.pt").rename(folder / "model_world_size_1_rank_0.pt")
    refused(oracle, "a rank that is none", folder, "model_world_size_1_rank_1.pt", "its rank is not one of 1 rank")
    folder = copy_of(oracle, "sharded_2", "twice")
    shutil.copy(folder / "rank1.pt", folder / "rank_01.pt")
    refused(oracle, "a rank twice", folder, "rank_01.pt", "rank 1")


def mixed(oracle):
    """Files of different saves."""
    folder = copy_of(oracle, "dtensors_2", "copied")
    shutil.copy(folder / "model_world_size_2_rank_0.pt", folder / "model_world_size_2_rank_1.pt")
    status, out, err = oracle.run("convert", folder, oracle.work / "never", "--to", "dcp")
    oracle.check(status == 1 and "model." in err, "one rank's file for another's", f"{status}: {out}{err}")
    folder = copy_of(oracle, "dtensors_2", "worlds")
    shutil.copy(oracle.data / "writers/torch_ranks/mesh_2x2/checkpoint/ep0-ba1-rank1.pt",
                folder / "model_world_size_2_rank_1.pt")
    refused(oracle, "another world size", folder, "model_world_size_2_rank_1.pt", "another save", "expected 2, found 4")
    folder = copy_of(oracle, "dtensors_2", "beside")
    for rank in (0, 1):
        shutil.copy(folder / f"model_world_size_2_rank_{rank}.pt", folder / f"optim_world_size_2_rank_{rank}.pt")
    refused(oracle, "two saves", folder, "model, optim", str(folder / "model"))
    oracle.succeeds("two saves", "diff", folder / "model", folder / "optim")
    shutil.copy(folder / "model_world_size_2_rank_0.pt", folder / "model_world_size_1_rank_0.pt")
    refused(oracle, "two world sizes", folder, "model_world_size_1, model_world_size_2")
    refused(oracle, "two world sizes by stem", folder / "model", "model_world_size_1, model_world_size_2")
    oracle.succeeds("two world sizes", "verify", folder / "model_world_size_2")


def edited(oracle):
    """Values and shapes that differ between ranks, written by PyTorch."""
    import torch

    def save(name, *states):
        folder = oracle.work / name
        folder.mkdir()
        for rank, state in enumerate(states):
            torch.save(state, folder / f"rank_{rank}.pt")
        return folder

    w = torch.arange(6.0).reshape(2, 3)
    refused(oracle, "values differ", save("values", {"w": w}, {"w": w + 1}), "rank_1.pt: w", "values differ",
            "rank_0.pt")
    refused(oracle, "shapes differ", save("shapes", {"w": w}, {"w": w[:, :2]}), "rank_1.pt: w", "shape")
    refused(oracle, "dtypes differ", save("dtypes", {"w": w}, {"w": w.double()}), "rank_1.pt: w", "float32", "float64")
    refused(oracle, "steps differ", save("steps", {"step": 1, "w": w}, {"step": 2, "w": w}), "rank_1.pt: step",
            "differs from that of rank_0.pt")
    refused(oracle, "a tensor and a number", save("kinds", {"w": w}, {"w": 1}), "rank_1.pt: w", "tensor")
    states = [{"w": w, "state": io.BytesIO(content)} for content in (b"a", b"a", b"b")]
    same_tensors(oracle, "equal objects", save("equal_objects", *states[:2]), {"w": w}, "--skip-objects")
    refused(oracle, "objects differ", save("objects", *states[1:]), "rank_1.pt: state", "differs from that of rank_0.pt")
    same_tensors(oracle, "other strides", save("strides", {"w": w}, {"w": w.t().contiguous().t()}), {"w": w})
    same_tensors(oracle, "stages of a pipeline", save("stages", {"a": w}, {"b": w + 1}), {"a": w, "b": w + 1})


def of_some_ranks(oracle):
    """A rank that holds no part of a shared tensor, such as a pipeline stage; files of a model beside ranks' files."""
    import torch
    folder = copy_of(oracle, "dtensors_2", "stage")
    for rank in (0, 1):
        (folder / f"model_world_size_2_rank_{rank}.pt").rename(folder / f"rank_{rank}.pt")
    torch.save({"stage": torch.arange(3.0)}, folder / "rank_2.pt")
    found = tensors_of(oracle, "a stage", folder)
    wanted = tensors_of(oracle, "a stage", oracle.data / "writers/torch_ranks/dtensors_2/checkpoint")
    oracle.check(set(found) == {*wanted, "stage"} and all(found[k] == v for k, v in wanted.items()), "a stage",
                 f"{sorted(found)}")
    torch.save({"w": torch.ones(2)}, folder / "pytorch_model.bin")
    (folder / "model").mkdir()
    torch.save({"w": torch.zeros(2)}, folder / "model" / "pytorch_model.bin")
    refused(oracle, "a model beside ranks", folder, "model_files, rank", str(folder / "model_files"))
    same_tensors(oracle, "a model beside ranks", folder / "model_files", {"w": torch.ones(2)})
    same_tensors(oracle, "a model beside ranks", folder / "model", {"w": torch.zeros(2)})
    shown = json.loads(oracle.run("inspect", folder, "--all", "--json")[1])["tensors"]
    heads = {key.split(".")[0] for key in shown}
    oracle.check(heads == {"model", "model_files", "rank"}, "a model beside ranks", f"{heads}")
    # Parts whose keys collide: one is left out and named.
    folder = oracle.work / "meeting"
    folder.mkdir()
    torch.save({"b": {"w": torch.ones(2)}}, folder / "c.pt")
    torch.save({"w": torch.ones(3)}, folder / "c.b.pt")
    status, out, err = oracle.run("inspect", folder, "--all")
    oracle.check(status == 1 and "c.b.w" in out and "two entries have the same name" in err and ".pt" in err, "keys that meet",
                 f"{status}: {out}{err}")


def partial(oracle):
    """A Partial's value is a sum over ranks: it is refused by name, and left out on request."""
    folder = oracle.data / "writers/torch_ranks/partial_2/checkpoint"
    made = oracle.work / "partial.safetensors"
    status, out, err = oracle.run("convert", folder, made)
    oracle.check(status == 1 and "sum" in err and "Partial" in err and not made.exists(), "partial",
                 f"{status}: {out}{err}")
    oracle.succeeds("partial", "convert", folder, made, "--skip-unsupported")


def fresh(oracle, seed):
    """Random cases of PyTorch itself."""
    with tempfile.TemporaryDirectory(dir=oracle.work) as top:
        for case in make_rank_files.CASES:
            if case == "partial_2":
                continue
            make_rank_files.make_case(top, case, seed)
            same_as_expected(oracle, Path(top) / case, f"{case}, seed {seed}")


def main():
    oracle = Oracle(__doc__, lambda parser: parser.add_argument("--full", action="store_true"), syncs=False)
    need_torch()
    samples(oracle)
    objects(oracle)
    one_file(oracle)
    missing(oracle)
    of_some_ranks(oracle)
    mixed(oracle)
    edited(oracle)
    partial(oracle)
    if oracle.args.full:
        fresh(oracle, 11)
        fresh(oracle, 12)
    oracle.finish()


if __name__ == "__main__":
    main()
