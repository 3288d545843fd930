# SPDX-License-Identifier: Apache-2.0
"""Deltas of the command line, read by a decoder in Python (delta_format.py), have the elements of the new checkpoint, bit for
bit; `delta apply` writes them, whatever the layout of the base. Other bases and damaged deltas are refused by one line, and
nothing is written. Needs no package; without the libraries xxHash and zstd, only the tool reads the deltas."""
import json
import os
import random
import struct

import delta_format
from common import Oracle, fingerprint, read_safetensors, seed as common_seed

LONG = os.environ.get("SHARDMESH_PROPERTY_RUNS") == "long"
NAMES = {"U8": "uint8", "I8": "int8", "BF16": "bfloat16", "F16": "float16", "I32": "int32", "F32": "float32", "I64": "int64",
         "F64": "float64", "BOOL": "bool"}


def random_bytes(dice, count):
    return bytes(dice.getrandbits(8) for _ in range(count))


def random_tensor(dice):
    dtype = dice.choice([name for name in NAMES if name != "BOOL"])
    shape = [0 if dice.random() < 0.05 else dice.randrange(1, 13) for _ in range(dice.randrange(4))]
    return dtype, shape, random_bytes(dice, delta_format.product(shape) * delta_format.ITEM_BYTES[NAMES[dtype]])


def changed(dice, tensor):
    """The tensor as it is, with some other bytes, with other elements, or another tensor."""
    dtype, shape, data = tensor
    kind = dice.randrange(4)
    if kind == 1 and data:
        data = bytearray(data)
        for _ in range(dice.randrange(1, 6)):
            data[dice.randrange(len(data))] ^= dice.randrange(1, 256)
        return dtype, shape, bytes(data)
    if kind == 2:
        return dtype, shape, random_bytes(dice, len(data))
    return random_tensor(dice) if kind == 3 else tensor


def write_safetensors(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def named(tensors):
    return {key: (NAMES[dtype], shape, data) for key, (dtype, shape, data) in tensors.items()}


def check_round(oracle, dice, case, decodes):
    folder = oracle.work / case
    folder.mkdir()
    before = {f"t{i}": random_tensor(dice) for i in range(dice.randrange(1, 7))}
    after = {key: changed(dice, one) for key, one in before.items() if dice.random() < 0.9}
    after["new"] = random_tensor(dice)
    base, next_file, delta = folder / "base.safetensors", folder / "next.safetensors", folder / "d"
    write_safetensors(base, before)
    write_safetensors(next_file, after)
    level = dice.choice([-7, -1, 1, 3, 9])
    out = oracle.succeeds(case, "delta", "make", base, next_file, delta, "--level", level, "--json")
    if out is None:
        return
    report = json.loads(out)
    same = sum(before.get(key) == one for key, one in after.items())
    like = sum(key in before and before[key][:2] == one[:2] for key, one in after.items())
    expected = {"ok": True, "tensors": len(after), "objects": 0, "unchanged": same, "changed": like - same, "added": len(after) - like,
                "removed": len(before.keys() - after.keys()), "bytes": sum(len(one[2]) for one in after.values()),
                "delta_bytes": delta.stat().st_size}
    found = {key: report.get(key) for key in expected}
    oracle.check(found == expected, case, f"the report says {found}, expected {expected}")
    if decodes:
        try:
            tensors, objects = delta_format.read(delta, named(before))
            oracle.check(tensors == named(after) and objects == {}, case, "the decoder in Python gets other tensors")
        except (ValueError, KeyError) as error:
            oracle.check(False, case, f"the decoder in Python fails: {error}")
    oracle.succeeds(case, "convert", base, folder / "dcp", "--to", "dcp")
    places = [word for key, one in before.items() if one[1] for word in ("--place", f"{key}=S({len(one[1]) - 1})")]
    oracle.succeeds(case, "reshard", base, folder / "ranks", "--mesh", "3", "--default", "R", *places)
    for old in (base, folder / "dcp", folder / "ranks"):
        made = folder / f"of_{old.name}.safetensors"
        if oracle.succeeds(case, "delta", "apply", old, delta, made) is not None:
            oracle.check(read_safetensors(made)[0] == after, case, f"applied to {old.name}, it gives other tensors")
    if oracle.succeeds(case, "delta", "apply", base, delta, folder / "out", "--to", "dcp") is not None:
        oracle.succeeds(case, "diff", folder / "out", next_file)
        oracle.succeeds(case, "verify", folder / "out")


def check_golden(oracle):
    """A delta of a checkpoint to itself gives the same entries as a conversion."""
    for golden in oracle.cases():
        if not golden.is_dcp:
            continue
        folder = oracle.work / "golden" / golden.name
        folder.mkdir(parents=True)
        whole = oracle.run("convert", golden.checkpoint, folder / "converted", "--to", "dcp")[0] == 0
        if not whole or oracle.run("diff", golden.checkpoint, folder / "converted")[0] != 0:
            continue
        case = f"golden {golden.name}"
        if oracle.succeeds(case, "delta", "make", golden.checkpoint, golden.checkpoint, folder / "d") is None:
            continue
        oracle.succeeds(case, "delta", "apply", folder / "converted", folder / "d", folder / "applied", "--to", "dcp")
        oracle.succeeds(case, "diff", golden.checkpoint, folder / "applied")


def check_refusals(oracle):
    dice = random.Random(1)
    folder = oracle.work / "refusals"
    folder.mkdir()
    before = {"w": ("F32", [8, 8], random_bytes(dice, 256)), "v": ("I64", [3], random_bytes(dice, 24))}
    after = {**before, "w": ("F32", [8, 8], random_bytes(dice, 256))}
    other = {**before, "w": ("F32", [8, 8], random_bytes(dice, 256))}
    for name, tensors in (("base", before), ("next", after), ("other", other), ("less", {"v": before["v"]})):
        write_safetensors(folder / f"{name}.safetensors", tensors)
    base, made, delta = folder / "base.safetensors", folder / "out.safetensors", folder / "d"
    oracle.succeeds("refusals", "delta", "make", base, folder / "next.safetensors", delta)

    def refused(case, status, words, *arguments):
        found, out, err = oracle.run("delta", *arguments)
        good = found == status and out == "" and err.count("\n") == 1 and all(word in err for word in words)
        oracle.check(good and not made.exists(), case, f"exits {found}, expected {status} with {words}: {err[-300:]}")

    refused("another base", 1, ["w", "the base is not the checkpoint", "[checksum_mismatch]"], "apply", folder / "other.safetensors", delta, made)
    refused("a base with less", 1, ["w", "the base lacks a tensor", "[missing_key]"], "apply", folder / "less.safetensors", delta, made)
    refused("no delta", 1, ["not a delta", "[bad_format]"], "apply", base, folder / "next.safetensors", made)
    refused("no format", 2, ["--to"], "apply", base, delta, folder / "out")
    refused("an existing delta", 2, ["[destination_exists]", "--force"], "make", base, folder / "next.safetensors", delta)
    refused("the base as the output", 2, ["[invalid_argument]"], "make", base, folder / "next.safetensors", base, "--force")
    refused("the base as the destination", 2, ["[invalid_argument]"], "apply", base, delta, base, "--force")
    refused("--to of make", 2, ["--to"], "make", base, folder / "next.safetensors", folder / "e", "--to", "dcp")
    refused("--level of apply", 2, ["--level"], "apply", base, delta, made, "--level", "3")
    refused("a level", 2, ["20"], "make", base, folder / "next.safetensors", folder / "e", "--level", "20")
    before_force = fingerprint(delta)
    oracle.succeeds("--force", "delta", "make", base, folder / "next.safetensors", delta, "--force")
    oracle.check(fingerprint(delta) == before_force, "--force", "the same delta has other bytes")
    whole = delta.read_bytes()
    for length in range(0, len(whole), 16):
        (folder / "cut").write_bytes(whole[:length])
        refused(f"cut at {length}", 1, ["[bad_format]"], "apply", base, folder / "cut", made)
    for _ in range(40):
        at = dice.randrange(len(whole))
        (folder / "flipped").write_bytes(whole[:at] + bytes([whole[at] ^ 1 << dice.randrange(8)]) + whole[at + 1:])
        refused(f"flipped at {at}", 1, ["flipped"], "apply", base, folder / "flipped", made)


def main():
    oracle = Oracle(__doc__)
    missing = delta_format.libraries()
    if missing:
        print(f"skipped: the decoder in Python, because libraries are missing: {', '.join(missing)}")
    seed = common_seed()
    for number in range(60 if LONG else 12):
        check_round(oracle, random.Random(seed + number), f"SHARDMESH_SEED={seed + number}", not missing)
    check_golden(oracle)
    check_refusals(oracle)
    oracle.finish()


if __name__ == "__main__":
    main()
