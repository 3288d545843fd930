# SPDX-License-Identifier: Apache-2.0
"""`--dequantize` gives the same bits as PyTorch's QuantizedHuggingFaceStorageReader, for a committed sample and, if
PyTorch is installed, for random shapes. Scales that do not fit give one line that names file and key."""
import json
import random
import shutil

from common import Oracle, fingerprint, read_safetensors, sha256, seed as common_seed

NAMES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


def problems_of(err):
    return [line for line in err.splitlines() if not line.startswith("note: ")]


def check_sample(oracle):
    folder = oracle.data / "writers" / "quantized_hf"
    expected = json.loads((folder / "expected.json").read_text())
    for dtype, wanted in expected.items():
        made = oracle.work / f"{dtype}.safetensors"
        case = f"sample as {dtype}"
        if not oracle.succeeds(case, "convert", folder / "checkpoint", made, "--dequantize", "--skip", "norm.*", "--dtype", dtype):
            continue
        tensors, _ = read_safetensors(made)
        found = {key: {"shape": shape, "sha256": sha256(data)} for key, (_, shape, data) in tensors.items()}
        oracle.check(found == wanted and {entry[0] for entry in tensors.values()} == {NAMES[dtype]}, case, f"{found}")
    # Other tensors stay unchanged, in every format.
    hf = oracle.work / "sample_hf"
    if oracle.succeeds("sample as hf", "convert", folder / "checkpoint", hf, "--to", "hf", "--dequantize"):
        tensors, _ = read_safetensors(hf / "model.safetensors")
        stored, _ = read_safetensors(folder / "checkpoint" / "model-00001-of-00002.safetensors")
        oracle.check(tensors["norm.weight"] == stored["norm.weight"] and len(tensors) == 4, "sample as hf", f"{list(tensors)}")
    dcp, cut = oracle.work / "sample_dcp", oracle.work / "sample_cut"
    # Goes through a DCP folder whose chunks cut blocks and rows of groups.
    oracle.succeeds("cut", "reshard", folder / "checkpoint", cut, "--mesh", "3,2", "--default", "S(0),S(1)", "--skip", "norm.*")
    whole = folder / "checkpoint"
    for source, extra in ((whole, ["--mesh", "2", "--default", "S(0)"]), (cut, ["--mesh", "3", "--default", "S(-1)"])):
        shutil.rmtree(dcp, ignore_errors=True)
        again = oracle.work / "again.safetensors"
        if oracle.succeeds("reshard", "reshard", source, dcp, "--dequantize", *extra) and oracle.succeeds(
                "reshard", "convert", dcp, again, "--force"):
            tensors, _ = read_safetensors(again)
            tensors.pop("norm.weight", None)
            found = {key: {"shape": shape, "sha256": sha256(data)} for key, (_, shape, data) in tensors.items()}
            oracle.check(found == expected["float32"], "reshard", f"{source.name}: {found}")


def damaged(oracle, case, change, lines):
    """The sample with one changed header entry; every line is (key, words)."""
    folder = oracle.work / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(oracle.data / "writers" / "quantized_hf" / "checkpoint", folder)
    change(folder)
    before = fingerprint(folder)
    out = oracle.work / "refused.safetensors"
    status, _, err = oracle.run("convert", folder, out, "--dequantize")
    found = problems_of(err)
    good = status == 1 and len(found) == len(lines) and all(
        all(word in line for word in (key, *words)) for line, (key, *words) in zip(found, lines))
    oracle.check(good and not out.exists() and fingerprint(folder) == before, case, f"exits {status}: {err}")


def edit(name, old, new):
    """Replaces text in a file, and pads the safetensors header to its old length."""
    def change(folder):
        data = (folder / name).read_bytes()
        assert data.count(old) == 1, (name, old)
        end = data.index(b"}}") + 2 if name.endswith(".safetensors") else len(data)
        header = data[:end].replace(old, new)
        length = end if name.endswith(".safetensors") else len(header)
        (folder / name).write_bytes(header.ljust(length) + data[end:])
    return change


def check_damage(oracle):
    first, second, index = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"

    def in_both(old, new):
        def change(folder):
            edit(second, old, new)(folder)
            edit(index, old, new)(folder)
        return change

    damaged(oracle, "no scales of FP8", in_both(b'"b.weight_scale_inv"', b'"c.weight_scale"'),
            [("b.weight", first, "b.weight_scale_inv")])
    damaged(oracle, "no weight", in_both(b'"b.weight_scale_inv"', b'"c.weight_scale_inv"'),
            [("b.weight", first, "b.weight_scale_inv"), ("c.weight_scale_inv", second, "c.weight")])
    damaged(oracle, "no scales of MXFP4", in_both(b'"experts.up_scales"', b'"experts.xx_scales"'),
            [("experts.up_blocks", first, "experts.up_scales")])
    damaged(oracle, "shape of FP8 scales", edit(second, b'"shape":[2,2]', b'"shape":[4,1]'),
            [("a.weight_scale_inv", second, "[2, 2]", "[4, 1]")])
    damaged(oracle, "shape of MXFP4 scales", edit(second, b'"shape":[4,8,8]', b'"shape":[8,4,8]'),
            [("experts.up_scales", second, "[4, 8, 8]", "[8, 4, 8]")])
    damaged(oracle, "dtype of FP8 scales", edit(second, b'"dtype":"F32"', b'"dtype":"I32"'),
            [("a.weight_scale_inv", second, "int32")])
    damaged(oracle, "dtype of MXFP4 scales", edit(second, b'"dtype":"U8"', b'"dtype":"I8"'),
            [("experts.up_scales", second, "int8")])
    damaged(oracle, "dtype of the weight", edit(first, b'"dtype":"F8_E4M3"', b'"dtype":"I8"'), [("a.weight", first, "int8")])
    # A flipped bit in scales and in weights of our output.
    clean = oracle.work / "clean.safetensors"
    oracle.succeeds("flipped", "convert", oracle.data / "writers" / "quantized_hf" / "checkpoint", clean)
    data = clean.read_bytes()
    tensors, _ = read_safetensors(clean)
    for key in ("a.weight", "a.weight_scale_inv", "experts.up_blocks", "experts.up_scales"):
        flipped = bytearray(data)
        flipped[data.index(tensors[key][2]) + 5] ^= 1
        file, out = oracle.work / "flipped.safetensors", oracle.work / "refused.safetensors"
        file.write_bytes(flipped)
        status, _, err = oracle.run("convert", file, out, "--dequantize")
        oracle.check(status == 1 and key in err and len(problems_of(err)) == 1 and not out.exists(), "flipped",
                     f"{key}: exits {status}: {err}")


def check_random(oracle):
    try:
        import torch
        from make_quantized_hf import bytes_of, read_with_torch, write_folder
    except Exception as error:
        print(f"random shapes were not compared: {type(error).__name__}: {error}")
        return
    choose = random.Random(common_seed())
    seed = torch.Generator().manual_seed(common_seed())
    for number in range(8):
        rows, columns = (choose.choice([1, 7, 127, 128, 129, 255, 256, 257, 384, 601]) for _ in range(2))
        blocks = [choose.randint(1, 4), choose.randint(1, 9), choose.randint(1, 11), choose.choice([1, 3, 16])]
        scale_type = choose.choice([torch.float32, torch.bfloat16, torch.float16])
        weight = torch.randint(0, 256, (rows, columns), generator=seed, dtype=torch.int32).to(torch.uint8)
        tensors = {"w.weight": weight.view(choose.choice([torch.float8_e4m3fn, torch.float8_e5m2])),
                   "w.weight_scale_inv": torch.randn(-(-rows // 128), -(-columns // 128), generator=seed).to(scale_type),
                   "m_blocks": torch.randint(0, 256, blocks, generator=seed, dtype=torch.int32).to(torch.uint8),
                   "m_scales": torch.randint(0, 256, blocks[:-1], generator=seed, dtype=torch.int32).to(torch.uint8)}
        folder = oracle.work / f"random_{number}"
        write_folder(folder, {"model-00001-of-00001.safetensors": tensors})
        shapes = {"w.weight": (rows, columns), "m_blocks": (*blocks[:2], blocks[2] * blocks[3] * 2)}
        for target in (torch.float32, torch.bfloat16):
            dtype = str(target).removeprefix("torch.")
            case = f"random {number} {shapes} {dtype}"
            wanted = read_with_torch(folder, shapes, target)
            made = oracle.work / "random.safetensors"
            if oracle.succeeds(case, "convert", folder, made, "--dequantize", "--dtype", dtype, "--force"):
                found, _ = read_safetensors(made)
                oracle.check({key: (shape, data) for key, (_, shape, data) in found.items()} ==
                             {key: (list(tensor.shape), bytes_of(tensor)) for key, tensor in wanted.items()}, case, "differs")


def check_shared_bytes(oracle):
    """Two weights of a .pt file that share their bytes but not their scales are two tensors, even with --dedup."""
    try:
        import torch
    except Exception as error:
        print(f"shared bytes were not tried: {error}")
        return
    weight = torch.ones(4, 4).to(torch.float8_e4m3fn)
    source, made = oracle.work / "shared.pt", oracle.work / "shared.safetensors"
    torch.save({"a.weight": weight, "a.weight_scale_inv": torch.full((1, 1), 2.0),
                "b.weight": weight, "b.weight_scale_inv": torch.full((1, 1), 3.0)}, source)
    if oracle.succeeds("shared bytes", "convert", source, made, "--dequantize", "--dedup"):
        found, _ = read_safetensors(made)
        oracle.check({key: data for key, (_, _, data) in found.items()} == {
            "a.weight": b"\0\0\0\x40" * 16, "b.weight": b"\0\0\x40\x40" * 16}, "shared bytes", f"{found}")


def main():
    oracle = Oracle(__doc__, syncs=False)
    check_sample(oracle)
    check_damage(oracle)
    check_random(oracle)
    check_shared_bytes(oracle)
    oracle.finish()


if __name__ == "__main__":
    main()
