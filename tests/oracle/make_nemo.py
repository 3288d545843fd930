#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/nemo with PyTorch and Python's tarfile: seeds for the fuzzer of .nemo files.

    python tests/oracle/make_nemo.py tests/data/nemo

- plain.nemo, packed.nemo: the same members, plain and compressed with gzip.
- long.nemo: members with long names, in the format of pax.
"""
import io
import sys
import tarfile
from pathlib import Path


def weights(state):
    import torch

    made = io.BytesIO()
    torch.save(state, made)
    return made.getvalue()


def write_nemo(path, members, mode="w", format=tarfile.GNU_FORMAT):
    """`members`: {name: bytes}."""
    with tarfile.open(path, mode, format=format) as out:
        root = tarfile.TarInfo("./")
        root.type = tarfile.DIRTYPE
        out.addfile(root)
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))


def main():
    import torch

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    state = {"encoder.w": torch.arange(6, dtype=torch.float32).reshape(2, 3), "step": 3}
    members = {"./model_config.yaml": b"name: small\n", "./model_weights.ckpt": weights(state)}
    write_nemo(folder / "plain.nemo", members)
    write_nemo(folder / "packed.nemo", members, "w:gz")
    write_nemo(folder / "long.nemo", {**members, "./" + "long/" * 30 + "name": b"1"}, format=tarfile.PAX_FORMAT)


if __name__ == "__main__":
    main()
