#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/npz with NumPy: seeds for the fuzzer of .npz archives and .npy files.

    python tests/oracle/make_npz.py tests/data/npz

- stored.npz, deflated.npz: the same arrays of several types, in both orders and byte orders, one of Python objects.
- array.npy: one array in Fortran order.
"""
import sys
from pathlib import Path

import numpy as np


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {"a/w": np.arange(6, dtype=">f4").reshape(2, 3), "fortran": np.asfortranarray(np.arange(6, dtype="<i2").reshape(3, 2)),
              "scalar": np.bool_(True), "none": np.zeros((0, 2), "<c16"), "texts": np.array(["a", "bc"]),
              "objects": np.array([None, 1], dtype=object)}
    np.savez(folder / "stored.npz", **arrays)
    np.savez_compressed(folder / "deflated.npz", **arrays)
    np.save(folder / "array.npy", arrays["fortran"])


if __name__ == "__main__":
    main()
