# SPDX-License-Identifier: Apache-2.0
"""The safetensors package reads the output of `convert`, as one file and as a Hugging Face folder: names, shapes,
and bytes are the golden ones, and objects are beside them in objects.json. It reads the same from output that four
ranks wrote together."""
import json
import subprocess
from pathlib import Path

from common import Oracle, read_safetensors, sha256, skip

try:
    import torch
    from safetensors import safe_open
except Exception as error:
    skip(f"torch and safetensors are needed ({type(error).__name__}: {error})")


def raw(tensor):
    length = tensor.numel() * tensor.element_size()
    if length == 0:
        return b""
    tensor = tensor.contiguous()
    view = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage(),
                                                 tensor.storage_offset() * tensor.element_size(), (length,), (1,))
    return bytes(view.numpy())


def read_with_package(oracle, name, file):
    """{key: tensor}; a dtype that the package cannot give to PyTorch is left out (its bytes are checked without it)."""
    tensors = {}
    try:
        with safe_open(file, framework="pt") as opened:
            for key in opened.keys():
                try:
                    tensors[key] = opened.get_tensor(key)
                except Exception as error:
                    print(f"note {name}: the package gives no tensor for {key}: {error}")
    except Exception as error:
        oracle.check(False, name, f"safetensors refuses {file.name}: {type(error).__name__}: {error}")
    return tensors


def check_tensors(oracle, name, case, found, bytes_found):
    for key, expected in case.tensors.items():
        if not expected["in_safetensors"]:
            continue
        if not oracle.check(key in bytes_found, name, f"{key} is missing"):
            continue
        oracle.check(sha256(bytes_found[key]) == expected["sha256"], name, f"{key}: the bytes in the file differ")
        if key in found:
            oracle.check(list(found[key].shape) == expected["shape"], name, f"{key}: shape {list(found[key].shape)}")
            oracle.check(sha256(raw(found[key])) == expected["sha256"], name, f"{key}: the package reads other bytes")


def check_objects(oracle, name, case, file):
    if not case.objects:
        oracle.check(not file.exists(), name, f"{file.name} exists although there are no objects")
        return
    if oracle.check(file.is_file(), name, f"{file.name} is missing"):
        said = json.loads(file.read_text())
        # Objects that hold tensors are split: golden.py checks the results.
        plain = {key for key, value in case.objects.items() if '"$tensor"' not in json.dumps(value)}
        lacking = sorted(plain - set(said["objects"]))
        oracle.check(not lacking, name, f"{file.name} lacks {lacking[:5]}")


def check_ranks(oracle, case, expected):
    """The output of four ranks for the case, in both formats: the tensors of `expected`, except those that the ranks
    report as left out and those inside objects."""
    for to in ("safetensors", "hf"):
        name = f"{case.name} -> {to} by 4 ranks"
        folder = oracle.work / f"{case.name}.ranks"
        destination = folder / to if to == "hf" else folder / "model.safetensors"
        folder.mkdir(exist_ok=True)
        run = subprocess.run([oracle.args.ranks.resolve(), case.checkpoint, destination, "4", "--to", to, "--max-shard-bytes", "1000"],
                             capture_output=True, text=True)
        if not oracle.check(run.returncode == 0, name, run.stderr.strip()):
            continue
        found, contents = {}, {}
        for part in sorted(destination.glob("*.safetensors")) if to == "hf" else [destination]:
            contents.update(read_safetensors(part)[0])
            found.update(read_with_package(oracle, name, part))
        missing = set(expected) - set(contents) - set(run.stdout.split("\n"))
        plain = set(case.tensors)
        oracle.check(not missing & plain, name, f"lacks {sorted(missing & plain)[:5]}")
        oracle.check(not set(contents) - set(expected), name, f"invents {sorted(set(contents) - set(expected))[:5]}")
        for key in set(contents) & set(expected):
            oracle.check(contents[key] == expected[key], name, f"{key} differs")
        for key, tensor in found.items():
            oracle.check(raw(tensor) == expected[key][2], name, f"the package gives other bytes for {key}")


def main():
    oracle = Oracle(__doc__, lambda parser: parser.add_argument("--ranks", type=Path, required=True, help="rank_copy"), syncs=False)
    for case in oracle.cases():
        if case.unreadable:
            continue
        dropped = ["--skip-unsupported"] if any(not t["in_safetensors"] for t in case.tensors.values()) else []

        name, folder = f"{case.name} -> safetensors", oracle.work / f"{case.name}.single"
        folder.mkdir()
        file = folder / "model.safetensors"
        if oracle.succeeds(name, "convert", case.checkpoint, file, *dropped) is not None:
            contents, _ = read_safetensors(file)
            check_tensors(oracle, name, case, read_with_package(oracle, name, file), {k: v[2] for k, v in contents.items()})
            objects = [p for p in folder.iterdir() if p.name.endswith("objects.json")]
            check_objects(oracle, name, case, objects[0] if objects else folder / "objects.json")
            check_ranks(oracle, case, contents)

        name, folder = f"{case.name} -> hf", oracle.work / f"{case.name}.hf"
        if oracle.succeeds(name, "convert", case.checkpoint, folder, "--to", "hf", "--max-shard-size", "1KiB", *dropped) is None:
            continue
        contents, found, held = {}, {}, {}
        for part in sorted(folder.glob("*.safetensors")):
            tensors, _ = read_safetensors(part)
            for key, value in tensors.items():
                oracle.check(key not in held, name, f"{key} is in {held.get(key)} and in {part.name}")
                held[key] = part.name
                contents[key] = value[2]
            found.update(read_with_package(oracle, name, part))
        check_tensors(oracle, name, case, found, contents)
        index = folder / "model.safetensors.index.json"
        if len(set(held.values())) > 1 and oracle.check(index.is_file(), name, "the index is missing"):
            said = json.loads(index.read_text())
            oracle.check(said["weight_map"] == held, name, "weight_map is not where the tensors are")
            total = sum(len(data) for data in contents.values())
            oracle.check(said["metadata"]["total_size"] == total, name, f"total_size is not {total}")
    oracle.finish()


if __name__ == "__main__":
    main()
