# SPDX-License-Identifier: Apache-2.0
"""Hostile files that repeat the same bytes, plain and compressed, and files with very many entries."""
import struct
import zipfile
import zlib

from hostile_files import case, pt, safetensors
from pickles import *  # noqa: F403


@case("shares bytes")
def items_over_one_region(path):
    folder = path / "dcp"
    folder.mkdir()
    size = 16 << 20
    archive(folder / "__0_0.distcp", PROTO2 + tensor("0", size, [size], [1]) + STOP, [("data/0", b"\0" * 4 * size)])
    length = (folder / "__0_0.distcp").stat().st_size
    names = [f"w{i}" for i in range(400)]
    objects = [f"o{i}" for i in range(400)]
    return metadata(folder, {**{name: tensor_metadata([size], [chunk([0], [size])]) for name in names},
                             **{name: make(BytesStorageMetadata) for name in objects}},
                    [place(name, "__0_0.distcp", 0, length, [0]) for name in names] +
                    [place(name, "__0_0.distcp", 0, length) for name in objects])


@case("memory")
def stack_of_nothing(path):
    file = path / "m.pt"
    file.write_bytes(PROTO2 + EMPTY_DICT * 30000000 + b"0" * 29999999 + STOP)
    return file


@case()
def memo_of_nothing(path):
    return archive(path / "m.pt", PROTO2 + EMPTY_DICT + b"".join(put(1 << 24 | i * 97) for i in range(500000)) + STOP)


# Budgets: compression.

def zeros(amount):
    """A deflate stream that repeats one block of 16 MiB, flushed so that it is independent."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(b"\0" * (16 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * (amount >> 24) + b"\3\0"


def raw_zip(file, records):
    """Records with given deflated bytes: (name, packed, size, method); CRC-32 0, as if none was computed."""
    body, directory = b"", b""
    for name, packed, size, method in records:
        name = name.encode()
        fields = struct.pack("<HHHHHIIIHH", 20, 0, method, 0, 0, 0, len(packed), size, len(name), 0)
        directory += b"PK\1\2" + struct.pack("<H", 20) + fields + struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + name
        body += b"PK\3\4" + fields + name + packed
    end = struct.pack("<HHHHIIH", 0, 0, len(records), len(records), len(directory), len(body), 0)
    file.write_bytes(body + directory + b"PK\5\6" + end)
    return file


@case("at most")
def deflate_bomb(path):
    size = 3 << 30
    pkl = PROTO2 + dictionary(*((f"w{i}", tensor(str(i), size // 4, [size // 4], [1])) for i in range(3))) + STOP
    packed = zeros(size)
    return raw_zip(path / "m.pt", [("a/data.pkl", pkl, len(pkl), 0)] +
                   [(f"a/data/{i}", packed, size, 8) for i in range(3)])


@case("at most")
def deflated_pickle(path):
    return raw_zip(path / "m.pt", [("a/data.pkl", zeros(3 << 30), 3 << 30, 8)])


@case("at most")
def zstd_bomb(path):
    folder = path / "dcp"
    folder.mkdir()
    # A frame of RLE blocks: four bytes expand to 128 KiB each.
    frame = b"\x28\xb5\x2f\xfd" + bytes([0, 0x58])  # a window of 2 MiB
    block = struct.pack("<I", (128 << 10) << 3 | 1 << 1)[:3] + b"\0"
    last = struct.pack("<I", (128 << 10) << 3 | 1 << 1 | 1)[:3] + b"\0"
    data = frame + block * 200000 + last
    (folder / "__0_0.distcp").write_bytes(data)
    names = [f"w{i}" for i in range(8)]
    return metadata(folder, {name: tensor_metadata([8], [chunk([0], [8])]) for name in names},
                    [place(name, "__0_0.distcp", 0, len(data), [0], ["stream.zstd"]) for name in names])


@case()
def directory_of_many_records(path):
    pkl = PROTO2 + EMPTY_DICT + STOP
    with zipfile.ZipFile(path / "m.pt", "w") as out:
        out.writestr("a/data.pkl", pkl)
        for i in range(60000):
            out.writestr(f"a/data/{i}", b"")
    return path / "m.pt"


@case()
def header_of_many_entries(path):
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return safetensors(path, {f"w{i}": entry for i in range(50000)})
