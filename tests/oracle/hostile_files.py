# SPDX-License-Identifier: Apache-2.0
"""The list of hostile files, and small files for its cases. Nothing here is ever unpickled."""
import json
import struct

from pickles import *  # noqa: F403

CASES = []


def case(expected=None):
    """`expected` is part of the line that refuses the file; None: commands may succeed."""
    def add(function):
        CASES.append((function.__name__, expected, function))
        return function
    return add


def pt(path, *pairs, records=(), **options):
    return archive(path / "m.pt", PROTO2 + dictionary(*pairs) + STOP, records, **options)


def dcp_object(path, data_pkl, names=("o",)):
    """A DCP folder whose objects are all in one item."""
    folder = path / "dcp"
    folder.mkdir()
    archive(folder / "__0_0.distcp", data_pkl)
    length = (folder / "__0_0.distcp").stat().st_size
    return metadata(folder, {name: make(BytesStorageMetadata) for name in names},
                    [place(name, "__0_0.distcp", 0, length) for name in names])


def safetensors(path, header):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    file = path / "m.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header)
    return file


def nested(opening, closing, depth, inside=NONE):
    return opening * depth + inside + closing * depth
