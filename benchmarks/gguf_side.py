# SPDX-License-Identifier: Apache-2.0
"""The side of the package gguf: reads the float32 tensors of a safetensors file, quantizes them with gguf.quants, and
writes the blocks to a file. Prints one line of JSON.

    gguf_side.py FILE OUT --repeat N
"""
import argparse
import json
import struct
import time
from pathlib import Path

import gguf
import numpy


def tensors_of(path):
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
        for name, entry in header.items():
            if name != "__metadata__":
                file.seek(8 + length + entry["data_offsets"][0])
                size = entry["data_offsets"][1] - entry["data_offsets"][0]
                yield numpy.frombuffer(file.read(size), numpy.float32).reshape(entry["shape"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    seconds = []
    for _ in range(given.repeat):
        begin = time.perf_counter()
        with open(given.out, "wb") as out:
            for tensor in tensors_of(given.file):
                out.write(gguf.quants.quantize(tensor, gguf.GGMLQuantizationType.Q8_0))
        seconds.append(time.perf_counter() - begin)
    given.out.unlink()
    print(json.dumps({"case": "gguf.quants", "bytes": given.file.stat().st_size, "seconds": seconds}))


if __name__ == "__main__":
    main()
