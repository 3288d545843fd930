# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/delta: a base, and a delta that a writer in Python wrote, for the unit tests and as a seed of the
fuzzer.

    make_delta.py FOLDER
"""
import json
import struct
import sys
from pathlib import Path

import delta_format


def main(folder):
    if missing := delta_format.libraries():
        sys.exit(f"these libraries are missing: {', '.join(missing)}")
    kept, before = bytes(range(48)), bytes(range(100, 148))
    after = bytes(byte ^ 0x55 if 10 <= i < 20 else byte for i, byte in enumerate(before))
    header = json.dumps({"changed": {"dtype": "I16", "shape": [4, 6], "data_offsets": [0, 48]},
                         "kept": {"dtype": "U8", "shape": [48], "data_offsets": [48, 96]}}).encode()
    header += b" " * (-len(header) % 8)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "base.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + before + kept)
    added = struct.pack("<5f", 0, 1, 2, 3, 4)
    delta_format.write(folder / "next.delta", {"changed": ("int16", [4, 6], after, before), "kept": ("uint8", [48], kept, kept),
                                               "new": ("float32", [5], added, None), "none": ("int64", [0, 2], b"", None)}, 64)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
