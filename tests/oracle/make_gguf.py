#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/gguf with the Python package gguf and a library of ggml: a file with a tensor of every block type
that can be decoded, and the float32 values of these tensors.

    python tests/oracle/make_gguf.py tests/data/gguf libggml-base.so

- blocks.gguf: metadata values of every type. Tensors `q4_0`, `q2_k`, ... of 2 x 256 elements hold random blocks. The
  tensor `numbers` of 8 x 256 elements holds float32 values, and `numbers.q8_0`, ... the same values as the package
  quantizes them; `numbers.q4_k` and `numbers.q6_k` as the functions quantize_row_*_ref of ggml do (0.13.1), since the
  package cannot. The tensor `opaque` is of a type that shardmesh lists and does not read.
- blocks.f32: the values of the tensors of random blocks, in the order of the file.

tests/unit/gguf reads both. The values have no NaN and no infinity.
"""
import ctypes
import sys
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType, GGUFWriter, quants

DECODED = """Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS TQ1_0 TQ2_0 MXFP4 NVFP4""".split()
ENCODED = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0".split()
BY_LIBRARY = "Q4_K Q6_K".split()
ROWS, COLUMNS, ROWS_OF_NUMBERS = 2, 256, 8


def random_blocks(kind, draw, rows=ROWS, columns=COLUMNS):
    """Random bytes of a type, row by row, whose values are finite."""
    elements, size = GGML_QUANT_SIZES[kind]
    count = rows * columns // elements
    made = np.frombuffer(draw.bytes(count * size), dtype=np.uint8).reshape(count, size).copy()
    while kind.name in DECODED:
        bad = ~np.isfinite(quants.dequantize(made, kind)).all(axis=1)
        if not bad.any():
            break
        made[bad] = np.frombuffer(draw.bytes(int(bad.sum()) * size), dtype=np.uint8).reshape(-1, size)
    return made.reshape(rows, -1)


def random_numbers(draw, rows=ROWS_OF_NUMBERS, columns=COLUMNS):
    """Values of several magnitudes below 65,504, with blocks that are zero, of equal magnitudes, positive, negative, and sparse."""
    made = (draw.standard_normal((rows, columns)) * 10.0 ** draw.integers(-4, 4, (rows, 1))).astype(np.float32)
    made[0] *= (10.0 ** draw.integers(-3, 2, columns)).astype(np.float32)
    made[1, :32] = 0
    made[1, 32:64] = np.where(draw.integers(0, 2, 32) == 0, np.float32(-1.5), np.float32(1.5))
    made[2] = np.abs(made[2])
    made[3, 32:128] = -np.abs(made[3, 32:128]) - np.float32(2)
    made[4, draw.integers(0, 2, columns) == 0] = 0
    made[5] = np.round(made[5] * 4) / np.float32(4) + np.float32(0)  # many ties, and no negative zeros
    made[6] = 0
    return made


def quantized_by(library, kind, numbers):
    """The blocks that a library of ggml makes of rows of whole blocks."""
    elements, size = GGML_QUANT_SIZES[kind]
    data = np.ascontiguousarray(numbers, dtype=np.float32)
    made = np.zeros(data.size // elements * size, dtype=np.uint8)
    function = getattr(library, f"quantize_row_{kind.name.lower().replace('_k', '_K')}_ref")
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64], None
    function(data.ctypes.data, made.ctypes.data, data.size)
    return made.reshape(data.shape[0], -1)


def add_metadata(writer):
    for name, value in {"uint8": 200, "int8": -100, "uint16": 60000, "int16": -30000, "uint32": 4000000000,
                        "int32": -2000000000, "uint64": 2**64 - 1, "int64": -(2**62), "float32": 0.1, "float64": 0.1,
                        "bool": True}.items():
        getattr(writer, f"add_{name}")(f"test.{name}", value)
    writer.add_string("test.string", "größer als \"10\"\n")  # codespell:ignore als
    writer.add_array("test.strings", ["<s>", "", "▁the", "\\"])
    writer.add_array("test.integers", [1, -2, 3])
    writer.add_array("test.floats", [0.5, -0.25])
    writer.add_array("test.booleans", [True, False])
    writer.add_key_value("test.bytes", [1, 2, 255], GGUFValueType.ARRAY, sub_type=GGUFValueType.UINT8)


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(20)
    writer = GGUFWriter(folder / "blocks.gguf", "llama")
    add_metadata(writer)
    with np.errstate(all="ignore"), open(folder / "blocks.f32", "wb") as values:
        for name in DECODED:
            kind = GGMLQuantizationType[name]
            blocks = random_blocks(kind, draw)
            writer.add_tensor(name.lower(), blocks, raw_dtype=kind)
            values.write(quants.dequantize(blocks, kind).astype("<f4").tobytes())
        numbers = random_numbers(draw)
        writer.add_tensor("numbers", numbers)
        for name in ENCODED:
            kind = GGMLQuantizationType[name]
            writer.add_tensor(f"numbers.{name.lower()}", quants.quantize(numbers, kind), raw_dtype=kind)
        library = ctypes.CDLL(sys.argv[2])
        for name in BY_LIBRARY:
            kind = GGMLQuantizationType[name]
            writer.add_tensor(f"numbers.{name.lower()}", quantized_by(library, kind, numbers), raw_dtype=kind)
        opaque = GGMLQuantizationType.IQ2_XXS
        writer.add_tensor("opaque", random_blocks(opaque, draw), raw_dtype=opaque)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
