# SPDX-License-Identifier: Apache-2.0
"""Compares a checkpoint's contents, according to its writer or plain PyTorch, with the tool's reading."""
from common import read_safetensors, sha256

DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
          "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "F8_E4M3": "float8_e4m3fn",
          "F8_E5M2": "float8_e5m2", "C64": "complex64"}


def described(tensor):
    """Dtype, shape, and SHA-256 of a PyTorch tensor."""
    import torch
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "sha256": sha256(data)}


def tensors_of(oracle, case, checkpoint, *options):
    """{KEY: the result of `described`} for every tensor that the tool reads."""
    oracle.made = getattr(oracle, "made", 0) + 1
    file = oracle.work / f"answer-{oracle.made}.safetensors"
    if oracle.succeeds(case, "convert", checkpoint, file, *options) is None:
        return {}
    return {key: {"dtype": DTYPES[dtype], "shape": shape, "sha256": sha256(data)}
            for key, (dtype, shape, data) in read_safetensors(file)[0].items()}


def same_tensors(oracle, case, checkpoint, expected, *options):
    """The tool reads exactly these: PyTorch tensors, or descriptions of them."""
    expected = {key: value if isinstance(value, dict) else described(value) for key, value in expected.items()}
    found = tensors_of(oracle, case, checkpoint, *options)
    for key in sorted(expected.keys() | found.keys()):
        oracle.check(expected.get(key) == found.get(key), case,
                     f"{key}: {found.get(key)}, expected {expected.get(key)}")


def refused(oracle, case, path, *parts):
    """verify and convert exit 1 with one line that has all parts; convert writes nothing."""
    for command in (["verify", path], ["convert", path, oracle.work / "never", "--to", "hf"]):
        status, out, err = oracle.run(*command)
        # The names in pickles are reported for each file, whether or not it can be read.
        line = "\n".join(text for text in (out + err).splitlines() if "its pickle names" not in text
                         and "the names in its pickles" not in text).strip()
        oracle.check(status == 1 and "\n" not in line and all(str(part) in line for part in parts), case,
                     f"{command[0]} exits {status}: {line}, expected one line with {parts}")
    oracle.check(not (oracle.work / "never").exists(), case, "something was written")
