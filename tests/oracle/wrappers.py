# SPDX-License-Identifier: Apache-2.0
"""Sparse, nested, and torchao tensors become their component tensors, bit for bit, where a format has no place for
the wrapper, with an object beside them that describes how they belong together. Other wrappers are refused by name.
The way back is in wrappers_again.py."""
import json
import zipfile

from common import Oracle, read_safetensors, sha256

DTYPES = {"I64": "int64", "F32": "float32", "I8": "int8", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "I32": "int32"}
WRAPPERS = {
    "m.coo": {"type": "torch.sparse_coo", "size": {"$size": [4, 9]}, "is_coalesced": True, "components": ["indices", "values"]},
    "m.uncoalesced": {"type": "torch.sparse_coo", "size": {"$size": [3, 2]}, "is_coalesced": False,
                      "components": ["indices", "values"]},
    "m.empty": {"type": "torch.sparse_coo", "size": {"$size": [0, 5]}, "is_coalesced": True, "components": ["indices", "values"]},
    "m.csr": {"type": "torch.sparse_csr", "size": {"$size": [4, 9]}, "components": ["crow_indices", "col_indices", "values"]},
    "m.bsr": {"type": "torch.sparse_bsr", "size": {"$size": [4, 9]}, "components": ["crow_indices", "col_indices", "values"]},
    "m.csc": {"type": "torch.sparse_csc", "size": {"$size": [4, 9]}, "components": ["ccol_indices", "row_indices", "values"]},
    "m.bsc": {"type": "torch.sparse_bsc", "size": {"$size": [4, 9]}, "components": ["ccol_indices", "row_indices", "values"]},
    "m.nested": {"type": "torch.nested", "components": ["buffer", "sizes", "strides", "offsets"]},
    "m.parameter": {"type": "torch.sparse_coo", "size": {"$size": [4, 9]}, "is_coalesced": True, "parameter": True,
                    "requires_grad": True, "components": ["indices", "values"]}}

TORCHAO = {
    "m.int8": {"type": "torchao.quantization.Int8Tensor", "dtype": {"$dtype": "bfloat16"}, "size": {"$tuple": [5, 48]},
               "strides": {"$tuple": [48, 1]}, "state": ["qdata", "scale", "block_size", "zero_point", "act_quant_kwargs", "act_quant_scale",
                                                         "act_quant_zero_point", "act_pre_scale", "reduce_range"],
               "attributes": {"block_size": [1, 48], "act_quant_kwargs": None, "act_quant_scale": None, "act_quant_zero_point": None,
                              "act_pre_scale": None, "reduce_range": False}, "components": ["qdata", "scale", "zero_point"]},
    "m.float8": {"type": "torchao.quantization.Float8Tensor", "dtype": {"$dtype": "bfloat16"}, "size": {"$tuple": [5, 48]},
                 "strides": {"$tuple": [48, 1]}, "state": ["qdata", "scale", "block_size", "mm_config", "act_quant_kwargs",
                                                           "kernel_preference"],
                 "attributes": {"block_size": [1, 48], "mm_config": None, "act_quant_kwargs": None, "kernel_preference": {
                     "enum": "torchao.quantization.quantize_.common.kernel_preference.KernelPreference", "name": "AUTO"}},
                 "components": ["qdata", "scale"]}}


def plain(value):
    """Replaces dicts that JSON stores as pairs by dicts."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in (value["$dict"] if "$dict" in value else value.items())}
    return [plain(item) for item in value] if isinstance(value, list) else value


def check_components(oracle, case, made, expected):
    tensors, _ = read_safetensors(made)
    other = tensors.pop("plain")
    oracle.check(other[:2] == ("I64", [3]), case, f"plain is {other[:2]}")
    found = {key: {"dtype": DTYPES[dtype], "shape": shape, "sha256": sha256(data)} for key, (dtype, shape, data) in tensors.items()}
    wanted = {f"{key}.{part}": value for key, parts in expected.items() for part, value in parts.items()}
    oracle.check(found == wanted, case, f"{ {key for key in found.keys() | wanted if found.get(key) != wanted.get(key)} }")


def check_descriptions(oracle, case, made, expected):
    objects = json.loads(made.with_suffix(".objects.json").read_text())["objects"]
    found = {key.removesuffix(".wrapper"): plain(entry["value"]) for key, entry in objects.items()}
    oracle.check(found.keys() == set(expected), case, f"{sorted(objects)}")
    for key, value in found.items():
        wanted = {**WRAPPERS, **TORCHAO}[key]
        parts = {name: {what: expected[key][name][what] for what in ("dtype", "shape")} for name in wanted["components"]}
        oracle.check(list(value["components"]) == wanted["components"] and {**value, "components": None} == {**wanted, "components": None},
                     case, f"{key}: {value}")
        for name, part in value["components"].items():
            oracle.check(part.items() >= parts[name].items() and part.keys() <= {"dtype", "shape", "strides"}, case,
                         f"{key}.{name}: {part}")


def check_refusals(oracle, sample):
    out = oracle.work / "refused.safetensors"
    # A class, a state with a tensor, or a layout of a later version.
    for old, new, key in ((b"Int8Tensor", b"Int9Tensor", "m.int8"), (b"zero_point", b"zero_pOint", "m.int8"), (b"torch.sparse_bsr", b"torch.sparse_xsr", "m.bsr")):
        changed = oracle.work / "changed.pt"
        with zipfile.ZipFile(sample) as source, zipfile.ZipFile(changed, "w") as target:
            for record in source.infolist():
                target.writestr(record.filename, source.read(record).replace(old, new))
        status, _, err = oracle.run("convert", changed, out)
        lines = [line for line in err.splitlines() if not line.startswith("note: ")]
        oracle.check(status == 1 and len(lines) == 1 and key in lines[0] and "changed.pt" in lines[0] and not out.exists(),
                     "unknown version", f"{key} exits {status}: {err}")
    # A component's name is already used.
    try:
        import torch
    except Exception as error:
        print(f"without PyTorch no name was taken, and no tensor made again: {error}")
        return
    taken = oracle.work / "taken.pt"
    torch.save({"a": torch.eye(2).to_sparse(), "a.values": torch.ones(1)}, taken)
    status, _, err = oracle.run("convert", taken, out)
    oracle.check(status == 1 and "a.values" in err and not out.exists(), "taken", f"exits {status}: {err}")


def check_made_again(oracle, made):
    """PyTorch rebuilds the sparse tensors from the file and the description."""
    try:
        import warnings
        warnings.filterwarnings("ignore")
        import torch
        from safetensors.torch import load_file
    except Exception:
        return
    tensors = load_file(made)
    state = {}
    for key, one in WRAPPERS.items():
        parts = [tensors[f"{key}.{name}"] for name in one["components"]]
        if one["type"] == "torch.sparse_coo":
            state[key] = torch.sparse_coo_tensor(*parts, one["size"]["$size"], is_coalesced=one["is_coalesced"])
        elif one["type"] != "torch.nested":
            state[key] = torch.sparse_compressed_tensor(*parts, one["size"]["$size"],
                                                        layout=getattr(torch, one["type"].removeprefix("torch.")))
    empty = torch.sparse_coo_tensor(size=(0, 5))
    oracle.check(empty.is_coalesced() == WRAPPERS["m.empty"]["is_coalesced"], "made again", "m.empty")
    dense = state["m.coo"].to_dense()
    for key in ("m.csr", "m.bsr", "m.csc", "m.bsc", "m.parameter"):
        oracle.check(torch.equal(state[key].to_dense(), dense) and bool(dense.any()), "made again", key)


def main():
    oracle = Oracle(__doc__, syncs=False)
    sample = oracle.data / "writers" / "wrappers"
    expected = json.loads((sample / "expected.json").read_text())
    some = {key: expected[key] for key in ("m.int8", "m.float8")}
    for case, source, wanted in (("pt", sample / "wrappers.pt", expected), ("dcp", sample / "dcp", some)):
        made = oracle.work / f"{case}.safetensors"
        if oracle.succeeds(case, "convert", source, made):
            check_components(oracle, case, made, wanted)
            check_descriptions(oracle, case, made, wanted)
        folder = oracle.work / f"{case}_hf"
        if oracle.succeeds(case, "convert", source, folder, "--to", "hf"):
            oracle.succeeds(case, "verify", folder)
            check_components(oracle, case, folder / "model.safetensors", wanted)
        # Into a pickle and back: with --components the components stay; without it, they come from the wrapper again.
        for options in (("--components",), ()):
            back, again = oracle.work / f"{case}_back", oracle.work / f"{case}_again.safetensors"
            if oracle.succeeds(case, "convert", made, back, "--to", "dcp", "--force", *options) and oracle.succeeds(case, "convert", back, again, "--force"):
                check_components(oracle, f"{case} {options}", again, wanted)
    copy = oracle.work / "copy"
    oracle.succeeds("dcp to dcp", "convert", sample / "dcp", copy, "--to", "dcp")
    status, out, err = oracle.run("diff", sample / "dcp", copy)
    oracle.check(status == 0, "dcp to dcp", f"{out}{err}")
    status, _, err = oracle.run("convert", oracle.data / "unusual" / "dcp", oracle.work / "quantized.safetensors")
    oracle.check(status == 0 and "q (quantized tensor), qc (quantized tensor)" in err, "quantized", f"exits {status}: {err}")
    check_made_again(oracle, oracle.work / "pt.safetensors")
    check_refusals(oracle, sample / "wrappers.pt")
    oracle.finish()


if __name__ == "__main__":
    main()
