# SPDX-License-Identifier: Apache-2.0
"""Hostile files that are mostly holes: long files that take no space."""
import os
import shutil
import struct
import tarfile
import zlib

from hostile_files import case, pt, safetensors
from pickles import *  # noqa: F403


@case("at most")
def sparse_metadata(path):
    folder = metadata(path / "dcp", {})
    os.truncate(folder / ".metadata", 15 << 30)
    return folder


@case()
def sparse_stream(path):
    file = path / "m.pt"
    file.write_bytes(PROTO2 + EMPTY_DICT)
    os.truncate(file, 15 << 30)
    return file


@case("at most")
def sparse_stream_of_bytes(path):
    file = path / "m.pt"
    file.write_bytes(PROTO4 + b"\x8e" + struct.pack("<Q", 14 << 30))
    os.truncate(file, 15 << 30)
    return file


@case()
def sparse_archive(path):
    file = pt(path, ("w", tensor("0", 1, [1], [1])), records=[("data/0", b"\0\0\0\0")])
    os.truncate(file, 15 << 30)
    return file


def sparse_zip(path, directory_bytes, records=1, entry=b""):
    """An archive whose end record (ZIP64) claims a directory as long as the sparse file."""
    file = pt(path, ("w", tensor("0", 1, [1], [1])), records=[("data/0", b"\0\0\0\0")])
    begin = file.stat().st_size
    with open(file, "r+b") as out:
        out.seek(begin)
        out.write(entry)
        out.seek(begin + directory_bytes)
        out.write(b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, records, records, directory_bytes, begin))
        out.write(b"PK\6\7" + struct.pack("<IQI", 0, begin + directory_bytes, 1))
        out.write(b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 0xffff, 0xffff, 0xffffffff, 0xffffffff, 0))
    return file


@case("directory")
def sparse_directory(path):
    return sparse_zip(path, 5 << 30)


@case("directory")
def sparse_directory_of_many(path):
    return sparse_zip(path, 15 << 30, records=100000000)


@case("directory")
def sparse_directory_of_comments(path):
    """Entries with comments of 64 KiB, which are holes, followed by bytes that are not an entry."""
    entries, step = 20000, 46 + 16 + 0xffff
    begin = pt(path, ("w", tensor("0", 1, [1], [1])), records=[("data/0", b"\0\0\0\0")]).stat().st_size
    file = sparse_zip(path, entries * step, records=entries)
    with open(file, "r+b") as out:
        for i in range(5000):
            label = b"archive/x%07d" % i
            fields = struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 0, 0, 0, 0, len(label), 0)
            out.seek(begin + i * step)
            out.write(b"PK\1\2" + struct.pack("<H", 20) + fields + struct.pack("<HHHII", 0xffff, 0, 0, 0, 0) + label)
    return file


def sparse_beside_a_model(path, name, text, size, model="model.safetensors"):
    """A Hugging Face folder in which the file `name` begins with `text` and is a hole up to `size` bytes."""
    folder = path / "hf"
    folder.mkdir()
    shutil.move(safetensors(folder, {"w": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}), folder / model)
    (folder / name).write_text(text)
    os.truncate(folder / name, size)
    return folder


@case("is a sparse file")
def sparse_objects(path):
    return sparse_beside_a_model(path, "objects.json", "{", 3500 << 20)


@case("is a sparse file")
def sparse_checksums(path):
    return sparse_beside_a_model(path, ".shardmesh_checksums", "shardmesh-checksums 1 xxh3-128\n", 3900 << 20)


@case("is a sparse file")
def sparse_index(path):
    return sparse_beside_a_model(path, "model.safetensors.index.json", '{"weight_map":{', 900 << 20, "part.safetensors")


@case("is a sparse file")
def sparse_header(path):
    file = path / "m.safetensors"
    file.write_bytes(struct.pack("<Q", 90 << 20) + b"{")
    os.truncate(file, 100 << 20)
    return file


def sparse_gguf(path, begin, size):
    """A GGUF file of version 3 without a tensor, whose one metadata value begins with `begin` and is a hole."""
    file = path / "m.gguf"
    file.write_bytes(b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + begin)
    os.truncate(file, size)
    return file


@case("is a sparse file")
def sparse_gguf_string(path):
    return sparse_gguf(path, struct.pack("<IQ", 8, 900 << 20), 901 << 20)


@case("is a sparse file")
def sparse_gguf_array(path):
    """Some 900 million numbers of 8 bits."""
    return sparse_gguf(path, struct.pack("<IIQ", 9, 0, 900 << 20), 901 << 20)


@case("is a sparse file")
def sparse_gguf_strings(path):
    """Some 100 million empty strings."""
    return sparse_gguf(path, struct.pack("<IIQ", 9, 8, 110 << 20), 901 << 20)


@case("at most")
def sparse_gguf_value(path):
    return sparse_gguf(path, struct.pack("<IQ", 8, 14 << 30), 15 << 30)


@case("1048576")
def sparse_npy_header(path):
    """NumPy's header of version 2.0 states its length with four bytes."""
    file = path / "m.npy"
    file.write_bytes(b"\x93NUMPY\2\0" + struct.pack("<I", 900 << 20) + b"{")
    os.truncate(file, 901 << 20)
    return file


@case("is a sparse file")
def sparse_objects_of_npz(path):
    """The record of objects that shardmesh writes into such an archive; its CRC-32 is that of the hole."""
    file, size, name = path / "m.npz", 900 << 20, b"shardmesh.objects.json"
    sum_ = 0
    for _ in range(900):
        sum_ = zlib.crc32(bytes(1 << 20), sum_)
    fields = struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 0x21, sum_, size, size, len(name), 0)
    with open(file, "wb") as out:
        out.write(b"PK\3\4" + fields + name)
        begin = out.tell() + size
        out.truncate(begin)
        out.seek(begin)
        directory = b"PK\1\2" + struct.pack("<H", 20) + fields + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
        out.write(directory + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(directory), begin, 0))
    return file


def sparse_nemo(path, member, kind=b"0", size=900 << 20):
    """A tar archive with a model's weights and the member, which is a hole."""
    weights = pt(path, ("w", tensor("0", 1, [1], [1])), records=[("data/0", b"\0\0\0\0")])
    file = path / "m.nemo"
    with tarfile.open(file, "w", format=tarfile.USTAR_FORMAT) as out:
        out.add(weights, "model_weights.ckpt")
        end = out.offset
    weights.unlink()
    with open(file, "r+b") as out:
        out.truncate(end)
        info = tarfile.TarInfo(member)
        info.size, info.type = size, kind
        out.seek(end)
        out.write(info.tobuf(tarfile.GNU_FORMAT))
        out.truncate(end + 512 + size + 1024)
    return file


@case("16777216")
def sparse_settings_of_nemo(path):
    return sparse_nemo(path, "model_config.yaml")


@case("1048576")
def sparse_long_name_in_nemo(path):
    return sparse_nemo(path, "././@LongLink", kind=b"L")


@case("1048576")
def sparse_params(path):
    """Meta's folder: the sizes that the cuts of its files follow from."""
    for number in range(2):
        file = archive(path / f"consolidated.{number:02}.pth", PROTO2 + dictionary(("norm.weight", tensor("0", 1, [1], [1]))) + STOP,
                       [("data/0", b"\0\0\0\0")])
        assert file.is_file()
    (path / "params.json").write_text("{")
    os.truncate(path / "params.json", 900 << 20)
    return path


@case("is a sparse file")
def sparse_pickle_record(path):
    """A stored data.pkl that is a hole: its bytes are read at once."""
    file = path / "m.pt"
    size = 900 << 20
    name = b"archive/data.pkl"
    fields = struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 0, 0, size, size, len(name), 0)
    with open(file, "wb") as out:
        out.write(b"PK\3\4" + fields + name)
        out.seek(size, 1)
        begin = out.tell()
        out.write(b"PK\1\2" + struct.pack("<H", 20) + fields + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name)
        end = out.tell()
        out.write(b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, end - begin, begin, 0))
    return file


@case("is a sparse file")
def sparse_object(path):
    """A DCP object whose archive is mostly a hole: a copy would hold all of it."""
    folder = path / "dcp"
    folder.mkdir()
    size = 1 << 28
    pkl = PROTO2 + dictionary(("t", tensor("0", size // 4, [size // 4], [1]))) + STOP
    out = open(folder / "__0_0.distcp", "wb")
    directory, count = b"", 0
    for name, data, length in ((b"a/data.pkl", pkl, len(pkl)), (b"a/byteorder", b"little", 6), (b"a/data/0", b"", size)):
        begin = out.tell()
        fields = struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 0, zlib.crc32(data) if data else 0, length, length, len(name), 0)
        out.write(b"PK\3\4" + fields + name + data)
        out.seek(length - len(data), 1)
        directory += b"PK\1\2" + struct.pack("<H", 20) + fields + struct.pack("<HHHII", 0, 0, 0, 0, begin) + name
        count += 1
    begin = out.tell()
    out.write(directory + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, count, count, len(directory), begin, 0))
    length = out.tell()
    out.close()
    return metadata(folder, {"o": make(BytesStorageMetadata)}, [place("o", "__0_0.distcp", 0, length)])
