# SPDX-License-Identifier: Apache-2.0
"""GGUF files that the Python package gguf writes have the same tensors, bit for bit, after a conversion; the package
reads what shardmesh writes: tensors, quantized blocks, and metadata with its types. Truncated files are refused."""
import json
import random
import struct

from common import Oracle, read_safetensors, skip, seed as common_seed

try:
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quants
    from make_gguf import DECODED, ENCODED, add_metadata, random_blocks, random_numbers
except Exception as error:
    skip(f"the packages gguf and numpy are needed ({type(error).__name__}: {error})")

PLAIN = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "I8": np.int8, "I16": np.int16, "I32": np.int32,
         "I64": np.int64}


def write_file(path, tensors, alignment=None):
    """`tensors`: (name, array, type of the package or None)."""
    writer = GGUFWriter(path, "llama")
    if alignment:
        writer.add_custom_alignment(alignment)
    add_metadata(writer)
    for name, data, kind in tensors:
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def stated(reader):
    """{key: (types, value)} of a file's metadata."""
    return {name: ([kind.name for kind in field.types], field.contents()) for name, field in reader.fields.items()
            if not name.startswith("GGUF.")}


def blocks_of_shape(kind, draw, shape):
    flat = random_blocks(kind, draw, rows=int(np.prod(shape[:-1])), columns=shape[-1])
    return flat.reshape(*shape[:-1], -1)


def check_reading(oracle, draw):
    tensors, expected = [], {}
    for name in DECODED:
        kind = GGMLQuantizationType[name]
        for shape in ((256,), (3, 512), (2, 3, 256), (2, 1, 5, 768)):
            key = f"{name.lower()}.{len(shape)}"
            blocks = blocks_of_shape(kind, draw, shape)
            tensors.append((key, blocks, kind))
            with np.errstate(all="ignore"):
                values = quants.dequantize(blocks, kind)
            expected[key] = ("F32", list(shape), values.astype("<f4").tobytes())
    for name, dtype in PLAIN.items():
        data = np.frombuffer(draw.bytes(24 * np.dtype(dtype).itemsize), dtype=dtype).reshape(2, 3, 4)
        tensors.append((f"plain.{name}", data, None))
        expected[f"plain.{name}"] = (name, [2, 3, 4], data.tobytes())
    half = np.frombuffer(draw.bytes(64), dtype=np.uint8).reshape(2, 32)
    tensors.append(("plain.BF16", half, GGMLQuantizationType.BF16))
    expected["plain.BF16"] = ("BF16", [2, 16], half.tobytes())
    for alignment in (None, 64):
        case = f"reading, alignment {alignment}"
        file, made = oracle.work / f"read_{alignment}.gguf", oracle.work / f"read_{alignment}.safetensors"
        write_file(file, tensors, alignment)
        if not oracle.succeeds(case, "convert", file, made):
            continue
        found, _ = read_safetensors(made)
        oracle.check(set(found) == set(expected), case, f"tensors {sorted(set(found) ^ set(expected))}")
        for key, wanted in expected.items():
            oracle.check(found.get(key) == wanted, case, f"{key} differs")
        oracle.succeeds(case, "verify", file)
    return oracle.work / "read_None.gguf", oracle.work / "read_64.gguf"


def check_inspect(oracle, file):
    out = oracle.succeeds("inspect", "inspect", file, "--json")
    if out:
        said = json.loads(out)
        oracle.check(said["format"] == "gguf" and said["version"] == "3", "inspect", f"{said['format']} {said['version']}")
        oracle.check(said["tensors"]["q4_k.2"].get("blocks") == "Q4_K", "inspect", "q4_k.2 has no blocks")
        oracle.check("blocks" not in said["tensors"]["plain.F32"], "inspect", "plain.F32 has blocks")
    text = oracle.succeeds("inspect", "inspect", file)
    oracle.check(text is not None and "float32 (Q4_K)" in text, "inspect", f"{text}")


def check_copy(oracle, file):
    """GGUF to GGUF keeps blocks, plain bytes, metadata, and its types; also by way of the other formats."""
    original = GGUFReader(file)
    copy = oracle.work / f"copy_{file.name}"
    if oracle.succeeds("copy", "convert", file, copy):
        made = GGUFReader(copy)
        oracle.check(made.alignment == original.alignment, "copy", f"alignment {made.alignment}")
        found = {one.name: one for one in made.tensors}
        for one in original.tensors:
            other = found.get(one.name)
            good = other is not None and other.tensor_type == one.tensor_type and list(other.shape) == list(one.shape)
            oracle.check(good and other.data.tobytes() == one.data.tobytes(), "copy", f"{one.name} differs")
        wanted = stated(original)
        wanted.setdefault("general.quantization_version", (["UINT32"], 2))
        oracle.check(stated(made) == wanted, "copy", f"metadata {stated(made)}")
    for to, suffix in (("safetensors", ".safetensors"), ("dcp", "")):
        middle, last = oracle.work / f"{file.stem}_{to}{suffix}", oracle.work / f"{file.stem}_{to}.gguf"
        if oracle.succeeds(to, "convert", file, middle, "--to", to) and oracle.succeeds(to, "convert", middle, last):
            oracle.check(stated(GGUFReader(last)) == stated(original), to, "metadata differs")


def check_quantizing(oracle, draw):
    rows, columns = 37, 1024
    numbers = random_numbers(draw, rows, columns)
    numbers[5] = np.float32(0)
    source = oracle.work / "numbers.gguf"
    bias = draw.standard_normal(64).astype(np.float32)
    write_file(source, [("w.weight", numbers, None), ("w.bias", bias, None)])
    for name in ENCODED:
        kind, made = GGMLQuantizationType[name], oracle.work / f"numbers_{name}.gguf"
        if not oracle.succeeds(name, "convert", source, made, "--quantize", name):
            continue
        tensors = {one.name: one for one in GGUFReader(made).tensors}
        oracle.check(tensors["w.bias"].data.tobytes() == bias.tobytes(), name, "the bias differs")
        weight = tensors["w.weight"]
        oracle.check(weight.tensor_type == kind, name, f"is {weight.tensor_type.name}")
        oracle.check(weight.data.tobytes() == quants.quantize(numbers, kind).tobytes(), name, "the blocks differ")
    made = oracle.work / "by_key.gguf"
    if oracle.succeeds("by key", "convert", source, made, "--quantize", "w.bias=Q8_0"):
        kinds = {one.name: one.tensor_type.name for one in GGUFReader(made).tensors}
        oracle.check(kinds == {"w.weight": "F32", "w.bias": "Q8_0"}, "by key", f"{kinds}")
    for rule in ("Q5_K", "w.weight=Q2_K", "Q9"):
        status, _, err = oracle.run("convert", source, oracle.work / "refused.gguf", "--quantize", rule)
        oracle.check(status == 2 and rule.split("=")[-1] in err, "refused", f"{rule}: exits {status}: {err}")
    oracle.check(not (oracle.work / "refused.gguf").exists(), "refused", "a file was written")


def check_casts(oracle):
    """A cast of a safetensors file is in the file of GGUF."""
    data = struct.pack("<6f", 1, -2, 3.5, 0, 65504, 1e-3)
    header = json.dumps({"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    (oracle.work / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    values = np.frombuffer(data, dtype=np.float32).reshape(2, 3)
    for dtype, kind in (("float16", "F16"), ("bfloat16", "BF16")):
        made = oracle.work / f"{dtype}.gguf"
        if oracle.succeeds(dtype, "convert", oracle.work / "a.safetensors", made, "--dtype", dtype):
            (tensor,) = GGUFReader(made).tensors
            wanted = quants.quantize(values, GGMLQuantizationType[kind]).tobytes()
            oracle.check(tensor.tensor_type.name == kind and tensor.data.tobytes() == wanted, dtype, "differs")


def check_truncated(oracle, file):
    data, choose = file.read_bytes(), random.Random(common_seed())
    description = GGUFReader(file).data_offset
    cut = oracle.work / "cut.gguf"
    for length in sorted({0, 3, 4, 23, 24, *(choose.randrange(description) for _ in range(40))}):
        cut.write_bytes(data[:length])
        status, _, err = oracle.run("inspect", cut)
        oracle.check(status == 1 and len(err.splitlines()) == 1, "truncated", f"{length} bytes: exits {status}: {err}")


def main():
    oracle = Oracle(__doc__, syncs=False)
    draw = np.random.default_rng(common_seed())
    plain, aligned = check_reading(oracle, draw)
    check_inspect(oracle, plain)
    check_copy(oracle, plain)
    check_copy(oracle, aligned)
    check_quantizing(oracle, draw)
    check_casts(oracle)
    check_truncated(oracle, plain)
    oracle.finish()


if __name__ == "__main__":
    main()
