# SPDX-License-Identifier: Apache-2.0
"""Models in torch.save files with an index (pytorch_model-0000N-of-0000M.bin): files of transformers are read bit
for bit, an index is checked against its files, and mismatches are refused in one line that names file and key."""
import json
import shutil

from common import Oracle, need_torch
from writer_answers import refused, same_tensors


def samples(oracle):
    for folder in sorted((oracle.data / "writers/transformers").iterdir()):
        case, checkpoint = folder.name, folder / "checkpoint"
        expected = json.loads((folder / "expected.json").read_text())
        oracle.succeeds(case, "verify", checkpoint, "--strict")
        same_tensors(oracle, case, checkpoint, expected)
        hf = oracle.work / f"{case}.hf"
        oracle.succeeds(case, "convert", checkpoint, hf, "--to", "hf")
        names = sorted(path.name for path in hf.iterdir() if not path.name.startswith("."))
        oracle.check(names == ["config.json", "model.safetensors"], case, f"the folder made of it has {names}")
        for to in ("dcp", "pt"):
            made = oracle.work / f"{case}.{to}"
            oracle.succeeds(case, "convert", checkpoint, made, "--to", to)
            oracle.succeeds(case, "diff", checkpoint, made)


def copy_of_sample(oracle, name, sample="sharded"):
    folder = oracle.work / name
    shutil.copytree(oracle.data / "writers/transformers" / sample / "checkpoint", folder)
    return folder, folder / "pytorch_model.bin.index.json"


def indices(oracle):
    """Every way in which an index and its files can disagree."""
    first, second = (f"pytorch_model-0000{i}-of-00002.bin" for i in (1, 2))

    def edited(name, edit):
        folder, index = copy_of_sample(oracle, name)
        content = json.loads(index.read_text())
        edit(content["weight_map"])
        index.write_text(json.dumps(content))
        return folder

    folder, index = copy_of_sample(oracle, "missing-file")
    (folder / second).unlink()
    in_second = next(key for key, file in json.loads(index.read_text())["weight_map"].items() if file == second)
    refused(oracle, "missing file", folder, second, in_second, "index")
    refused(oracle, "named twice", edited("wrong", lambda m: m.update({"lm_head.weight": first})), "lm_head.weight",
            "index.json", f"it is in {second}")
    refused(oracle, "no such key", edited("nokey", lambda m: m.update(ghost=first)), "ghost", "index.json", first)
    refused(oracle, "not named", edited("unnamed", lambda m: m.pop("lm_head.weight")), "lm_head.weight", second,
            "index.json")
    for bad in ("../x.bin", "/etc/passwd", "a/b.bin", "..", ""):
        refused(oracle, f"unsafe {bad}", edited("u" + bad.replace("/", "_"), lambda m: m.update(ghost=bad)), "ghost",
                "index.json")
    refused(oracle, "empty", edited("empty", lambda m: m.clear()), "index.json")
    folder, index = copy_of_sample(oracle, "not-json")
    index.write_text("{")
    refused(oracle, "not JSON", folder, "index.json", "JSON")
    # An index beside the whole model belongs to an earlier save, as in transformers, even if it cannot be read.
    folder, index = copy_of_sample(oracle, "earlier")
    shutil.copy(oracle.data / "writers/transformers/whole/checkpoint/pytorch_model.bin", folder)
    for content in (index.read_text(), "{"):
        index.write_text(content)
        oracle.succeeds("an index of an earlier save", "diff", folder, folder / "pytorch_model.bin")
        status, _, err = oracle.run("inspect", folder)
        oracle.check(status == 0 and index.name in err, "an index of an earlier save", f"{status}: {err}")
    # The unchanged sample has no such defect.
    folder, index = copy_of_sample(oracle, "untouched")
    oracle.succeeds("untouched", "verify", folder, "--strict")
    oracle.succeeds("index by name", "verify", index, "--strict")
    oracle.succeeds("index by name", "diff", index, folder)


def whole_safetensors(oracle):
    """`model.safetensors` beside an index: transformers takes the file, and so do we, naming both."""
    samples = oracle.data / "writers/transformers"
    whole, index = "model.safetensors", "model.safetensors.index.json"
    folder, other = oracle.work / "beside-index", oracle.work / "other.safetensors"
    oracle.succeeds("both", "convert", samples / "sharded/checkpoint", folder, "--to", "hf", "--max-shard-size", "200")
    (folder / ".shardmesh_checksums").unlink()
    shards = sorted(path.name for path in folder.glob("*.safetensors"))
    oracle.check(len(shards) > 1 and (folder / index).exists(), "both", f"{shards}")
    oracle.succeeds("both", "convert", samples / "whole/checkpoint", other)
    made = json.loads((folder / index).read_text())
    one = next(iter(made["weight_map"]))
    kept = {"weights": ["--skip", one.replace(".", r"\."), "--allow-unused"], "all": []}
    for case, options in kept.items():  # also if the file lacks a part's tensor
        oracle.succeeds(case, "convert", other, folder / whole, "--force", *options)
        for content in (json.dumps(made), "{"):
            (folder / index).write_text(content)
            oracle.succeeds(case, "diff", folder, folder / whole)
            status, out, err = oracle.run("verify", folder)
            line = "".join(text for text in (out + err).splitlines() if "which are not read" in text)
            oracle.check(status == 0 and all(name in line for name in (index, *shards)), case, f"{status}: {out}{err}")
    # An index that names only this file belongs to it.
    alone = oracle.work / "alone"
    alone.mkdir()
    shutil.copy(other, alone / whole)
    shown = json.loads(oracle.succeeds("alone", "inspect", "--json", other) or "{}")["tensors"]
    (alone / index).write_text(json.dumps({"metadata": {}, "weight_map": {name: whole for name in shown}}))
    oracle.succeeds("alone", "verify", "--strict", alone)
    oracle.succeeds("alone", "diff", alone, other)


def without_index(oracle):
    folder, index = copy_of_sample(oracle, "series")
    index.unlink()
    oracle.succeeds("series", "diff", folder, oracle.data / "writers/transformers/sharded/checkpoint")
    (folder / "pytorch_model-00001-of-00002.bin").unlink()
    refused(oracle, "series with a hole", folder, "pytorch_model-00002-of-00002.bin", "part 00001 of 00002 is missing")
    folder, index = copy_of_sample(oracle, "doubled")
    index.unlink()
    shutil.copy(folder / "pytorch_model-00001-of-00002.bin", folder / "pytorch_model-00002-of-00002.bin")
    refused(oracle, "a part twice", folder, "pytorch_model-00002-of-00002.bin", "model.embed_tokens.weight",
            "is also in pytorch_model-00001-of-00002.bin")
    # Other files beside a model are not models: a variant is named, and the optimizer's file is not read.
    folder, _ = copy_of_sample(oracle, "variants", "whole")
    shutil.copy(folder / "pytorch_model.bin", folder / "pytorch_model.fp16.bin")
    (folder / "training_args.bin").write_bytes(b"not looked at")
    status, out, err = oracle.run("inspect", folder)
    oracle.check(status == 0 and "pytorch_model.fp16.bin" in out + err, "variants", f"{status}: {out}{err}")
    oracle.succeeds("variants", "diff", folder, folder / "pytorch_model.bin")
    shutil.copy(folder / "pytorch_model.bin", folder / "adapter_model.bin")
    refused(oracle, "two models", folder, "adapter_model.bin and pytorch_model.bin", "by its name")


def beside_safetensors(oracle):
    """The safetensors file wins, and a warning says so."""
    folder, _ = copy_of_sample(oracle, "both", "whole")
    oracle.succeeds("both", "convert", folder, oracle.work / "both.safetensors")
    shutil.move(oracle.work / "both.safetensors", folder / "model.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"damaged")
    status, out, err = oracle.run("verify", folder)
    oracle.check(status == 0 and "pytorch_model.bin" in err and "not read" in err, "both", f"{status}: {out}{err}")
    oracle.check(oracle.run("verify", folder, "--strict")[0] == 1, "both", "the warning is none")
    out = oracle.succeeds("both", "inspect", folder, "--json")
    oracle.check(json.loads(out)["format"] == "hf", "both", "is not hf")


def fresh(oracle):
    """Dtypes and shapes that no model of transformers has, in three files, by plain PyTorch."""
    import torch
    folder = oracle.work / "fresh"
    folder.mkdir()
    torch.manual_seed(3)
    state = {"scalar": torch.tensor(2.5, dtype=torch.float64), "none": torch.empty(0, 7),
             "prime": torch.randn(13, 11).t(), "bool": torch.tensor([True, False, True]),
             "fp8": torch.randn(5).to(torch.float8_e4m3fn), "i": torch.arange(7, dtype=torch.int16),
             "tied": torch.randn(3)}
    files = [f"diffusion_pytorch_model-0000{i}-of-00003.bin" for i in (1, 2, 3)]
    place = {key: files[i % 3] for i, key in enumerate(state)}
    state["tied.again"], place["tied.again"] = state["tied"], place["tied"]
    for file in files:
        torch.save({key: value for key, value in state.items() if place[key] == file}, folder / file)
    (folder / "diffusion_pytorch_model.bin.index.json").write_text(
        json.dumps({"metadata": {"total_size": 1 << 62}, "weight_map": place}))
    same_tensors(oracle, "fresh", folder, state)
    oracle.succeeds("fresh", "convert", folder, oracle.work / "fresh.hf", "--to", "hf")
    oracle.check((oracle.work / "fresh.hf/diffusion_pytorch_model.safetensors").is_file(), "fresh", "the stem is lost")


def main():
    oracle = Oracle(__doc__, syncs=False)
    need_torch()
    samples(oracle)
    indices(oracle)
    whole_safetensors(oracle)
    without_index(oracle)
    beside_safetensors(oracle)
    fresh(oracle)
    oracle.finish()


main()
