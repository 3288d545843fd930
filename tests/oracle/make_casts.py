#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/casts/casts.json: a hash of PyTorch's result of every conversion on a fixed set of bit patterns.

tests/unit/kernels/casts_test.cpp makes the same patterns and hashes shardmesh's results. The patterns of 8- and 16-bit
types are complete. Wider floats have every exponent (float64: around float32's range) with mantissas at and beside
halfway points of all narrower types, and pseudo-random bits. Wider integers have all magnitudes.

    python tests/oracle/make_casts.py tests/data/casts/casts.json
"""
import json
import sys

import numpy as np
import torch

DTYPES = """bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex32 complex64
complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu""".split()
U64 = np.uint64


def splitmix(x):
    z = x + U64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U64(27))) * U64(0x94D049BB133111EB)
    return z ^ (z >> U64(31))


def hash_words(words):
    """Sum over i of splitmix(word[i] ^ splitmix(i)), mod 2^64."""
    index = np.arange(len(words), dtype=U64)
    return int(np.add.reduce(splitmix(words.astype(U64) ^ splitmix(index)), dtype=U64))


def float_patterns(exponents, mantissa_bits, tails):
    mantissas = [0, (1 << mantissa_bits) - 1]
    mantissas += [hi << (mantissa_bits - 4) | tail for hi in range(16) for tail in tails]
    sign = mantissa_bits + (8 if mantissa_bits == 23 else 11)
    fixed = [s << sign | e << mantissa_bits | m for s in range(2) for e in exponents for m in mantissas]
    random = splitmix(np.arange(65536, dtype=U64))
    if mantissa_bits == 23:
        random &= U64(0xFFFFFFFF)
    return np.concatenate([np.array(fixed, dtype=U64), random])


def tails(mantissa_bits, kept):
    """Halfway points (and neighbours) after the mantissa bits that narrower types keep."""
    found = [0, 1, (1 << (mantissa_bits - 4)) - 1]
    for bits in kept:
        half = 1 << (mantissa_bits - bits - 1)
        found += [half - 1, half, half + 1, 3 * half, 2 * half]
    return [t & ((1 << (mantissa_bits - 4)) - 1) for t in found]


def patterns(dtype):
    """Bit patterns of elements; complex types have flattened pairs."""
    if dtype.is_complex:
        part = patterns({4: torch.float16, 8: torch.float32, 16: torch.float64}[dtype.itemsize])
        other = part[(np.arange(len(part), dtype=np.int64) * 7 + 3) % len(part)]
        return np.stack([part, other], axis=1).reshape(-1)
    if dtype == torch.bool:
        return np.array([0, 1], dtype=U64)
    if dtype.itemsize <= 2:
        return np.arange(1 << (8 * dtype.itemsize), dtype=U64)
    if dtype == torch.float32:
        return float_patterns(range(256), 23, tails(23, [4, 7, 10]))
    if dtype == torch.float64:
        return float_patterns([0, 1, *range(850, 1180), 2046, 2047], 52, tails(52, [7, 10, 23]))
    index = np.arange(65536, dtype=U64)
    words = splitmix(index) >> (index % U64(64))
    words = np.where(index % U64(2) == 1, ~words, words)
    return words & U64(0xFFFFFFFF) if dtype.itemsize == 4 else words


def part_bytes(dtype):
    return dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize


def to_tensor(words, dtype):
    raw = words.astype(f"<u{part_bytes(dtype)}").tobytes()
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(dtype)


def to_words(tensor):
    raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
    return np.frombuffer(raw, dtype=f"<u{part_bytes(tensor.dtype)}").astype(U64)


INTEGERS = [d for d in DTYPES if "int" in d]


def converted(tensor, target):
    """The result's words; 0 where PyTorch leaves it undefined: floats that do not fit into an integer type."""
    words = to_words(tensor.to(target))
    if target in [getattr(torch, d) for d in INTEGERS] and (tensor.is_floating_point() or tensor.is_complex()):
        info = torch.iinfo(target)
        value = torch.trunc((tensor.to(torch.complex128).real if tensor.is_complex() else tensor.to(torch.float64)))
        fits = (value >= float(info.min)) & (value < float(info.max + 1))
        words = np.where(fits.numpy(), words, U64(0))
    return words


def main(path):
    hashes = {}
    for source in DTYPES:
        tensor = to_tensor(patterns(getattr(torch, source)), getattr(torch, source))
        for target in DTYPES:
            hashes[f"{source} {target}"] = f"{hash_words(converted(tensor, getattr(torch, target))):016x}"
    with open(path, "w") as out:
        json.dump({"torch": torch.__version__, "hashes": hashes}, out, indent=0)
        out.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
