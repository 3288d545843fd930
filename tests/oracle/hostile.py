# SPDX-License-Identifier: Apache-2.0
"""Files made to exhaust their reader: each command on each of them ends in seconds, within 1 GiB of memory and a
stack of 256 KiB, with a defined status and at most a few lines. Prints a table of the worst run of each case. Readers
meet each file. Without --every-command, the writers in turn do, until one of them says what the case expects. Needs no
package."""
import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib

from common import Oracle
from pickles import *  # noqa: F403

SECONDS, MEMORY = 5, 1 << 30
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


# Stack.

@case()
def json_deep_in_header(path):
    return safetensors(path, b'{"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0],"x":' + b"[" * 300000 + b"]" * 300000 +
                       b"}}")


@case("not a string")
def json_deep_in_metadata(path):
    return safetensors(path, b'{"__metadata__":{"x":' + b'{"a":' * 300000 + b"1" + b"}" * 300002)


@case("1024 levels")
def json_deep_in_sharding_info(path):
    return safetensors(path, {"__metadata__": {"DCP_SHARDING_INFO": "[" * 300000 + "]" * 300000},
                              "w": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})


@case()
def json_deep_in_index(path):
    folder = path / "hf"
    folder.mkdir()
    shutil.move(safetensors(folder, {"w": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}),
                folder / "model.safetensors")
    (folder / "model.safetensors.index.json").write_text(
        '{"weight_map":{"w":"model.safetensors"},"metadata":{"x":' + "[" * 300000 + "]" * 300000 + "}}")
    return folder


def deep(opening, closing, inside=NONE, proto=PROTO2):
    data = nested(opening, closing, 300000, inside)
    return lambda path: archive(path / "m.pt", proto + dictionary(("a", data), ("w", tensor("0", 1, [1], [1]))) + STOP,
                                [("data/0", b"\0\0\0\0")])


for name, opening, closing in (("lists", EMPTY_LIST, APPEND), ("tuples", b"", TUPLE1),
                               ("dicts", EMPTY_DICT + text("k"), SETITEM), ("marked_tuples", MARK, TUPLE),
                               ("frozensets", MARK, FROZENSET),
                               ("calls", global_("collections", "OrderedDict"), TUPLE1 + REDUCE),
                               ("states", call(global_("argparse", "Namespace")), BUILD),
                               ("persistent_ids", b"", TUPLE1 + b"Q"),
                               ("parameters", global_("torch._utils", "_rebuild_parameter"), b"\x89" + TUPLE2 + REDUCE)):
    made = deep(opening, closing)
    made.__name__ = "deep_" + name
    case()(made)


@case()
def deep_object_item(path):
    return dcp_object(path, PROTO2 + nested(EMPTY_LIST, APPEND, 300000) + STOP)


@case()
def deep_metadata(path):
    folder = path / "dcp"
    metadata(folder, {}, extra="DEEP")
    data = (folder / ".metadata").read_bytes()
    short = b"\x8c\x04DEEP"
    assert data.count(short) == 1
    data = data.replace(short, nested(EMPTY_LIST, APPEND, 300000))
    frame = data.index(b"\x95")
    (folder / ".metadata").write_bytes(data[:frame] + data[frame + 9:])
    return folder


# Budgets: small files whose parts are shared.

@case("at most")
def nested_frozensets(path):
    # Level n is frozenset({n-1, (n-1,)}): 2^n elements when printed.
    data = MARK + FROZENSET + put(0) + b"0"
    for level in range(170):
        data += MARK + get(level) + get(level) + TUPLE1 + FROZENSET + put(level + 1) + b"0"
    return dcp_object(path, PROTO4 + data + get(170) + STOP)


def shared_list():
    data = EMPTY_LIST + MARK + b"".join(integer(i) for i in range(100)) + APPENDS + put(1000) + b"0"
    for level in range(8):
        data += EMPTY_LIST + MARK + get(1000 + level) * 8 + APPENDS + put(1001 + level) + b"0"
    return data


@case("at most")
def keys_that_share_a_list(path):
    return archive(path / "m.pt", PROTO2 + shared_list() + dictionary(*((f"k{i}", get(1008)) for i in range(200))) + STOP)


@case("at most")
def items_that_share_a_list(path):
    return dcp_object(path, PROTO2 + shared_list() + get(1008) + STOP, [f"k{i}" for i in range(200)])


@case()
def dicts_that_share_dicts(path):
    data = EMPTY_DICT + put(0) + b"0"
    for level in range(60):
        data += EMPTY_DICT + MARK + text("a") + get(level) + text("b") + get(level) + SETITEMS + put(level + 1) + b"0"
    return archive(path / "m.pt", PROTO2 + data + dictionary(("x", get(60))) + STOP)


@case()
def long_keys_that_share(path):
    data = text("k" * 100000) + put(0) + b"0" + NONE + put(1) + b"0"
    for level in range(60):
        data += EMPTY_DICT + MARK + get(0) + get(1 + level) + SETITEMS + put(2 + level) + b"0"
    return archive(path / "m.pt", PROTO2 + data + dictionary(*((f"k{i}", get(61)) for i in range(2000))) + STOP)


@case()
def huge_integers(path):
    number = b"\x8b" + struct.pack("<I", 1 << 20) + b"\1" * (1 << 20)
    data = number + put(0) + b"0" + b"I" + b"7" * 4000 + b"\n" + put(1) + b"0"
    data += b"\x8b" + struct.pack("<I", 1780) + b"\1" * 1780 + put(2) + b"0"
    lists = (EMPTY_LIST + MARK + get(i) * 100000 + APPENDS for i in range(3))
    return archive(path / "m.pt", PROTO2 + data + dictionary(*zip("abc", lists)) + STOP)


@case()
def long_names_that_share(path):
    data = global_("m" * 4000, "n" * 4000) + put(0) + b"0"
    return archive(path / "m.pt", PROTO2 + data + dictionary(
        ("a", EMPTY_LIST + MARK + (get(0) + EMPTY_TUPLE + REDUCE) * 200000 + APPENDS)) + STOP)


@case()
def bytes_that_are_none(path):
    encode = call(global_("_codecs", "encode"), text("x" * 1000000 + "\u4e00"), text("latin1")) + put(0) + b"0"
    return archive(path / "m.pt", PROTO2 + encode + dictionary(
        ("a", EMPTY_LIST + MARK + get(0) * 200000 + APPENDS)) + STOP)


@case("at most")
def bytes_that_share(path):
    encode = call(global_("_codecs", "encode"), text("x" * 1000000), text("latin1")) + put(0) + b"0"
    return archive(path / "m.pt", PROTO2 + encode + dictionary(
        ("a", EMPTY_LIST + MARK + get(0) * 200000 + APPENDS)) + STOP)


@case("at most")
def expanded_tensor(path):
    return pt(path, ("w", tensor("0", 1, [1 << 38], [0])), records=[("data/0", b"\0\0\0\0")])


@case("at most")
def views_of_one_storage(path):
    size = 1 << 20
    return archive(path / "m.pt", PROTO2 + dictionary(
        *((f"w{i}", tensor("0", size, [size], [1])) for i in range(20000))) + STOP, [("data/0", b"\0" * 4 * size)])


@case("at most")
def expanded_item(path):
    folder = path / "dcp"
    folder.mkdir()
    archive(folder / "__0_0.distcp", PROTO2 + tensor("0", 1, [1 << 38], [0]) + STOP, [("data/0", b"\0\0\0\0")])
    length = (folder / "__0_0.distcp").stat().st_size
    return metadata(folder, {"w": tensor_metadata([1 << 38], [chunk([0], [1 << 38])])},
                    [place("w", "__0_0.distcp", 0, length, [0])])


@case("at most")
def many_tensors_of_one_item(path):
    folder = path / "dcp"
    folder.mkdir()
    size = 1 << 20
    archive(folder / "__0_0.distcp", PROTO2 + tensor("0", size, [size], [1]) + STOP, [("data/0", b"\0" * 4 * size)])
    length = (folder / "__0_0.distcp").stat().st_size
    names = [f"w{i}" for i in range(20000)]
    return metadata(folder, {name: tensor_metadata([size], [chunk([0], [size])]) for name in names},
                    [place(name, "__0_0.distcp", 0, length, [0]) for name in names])


# Budgets: metadata.

@case("at most")
def tensors_that_share_chunks(path):
    chunks = [chunk([i], [1]) for i in range(100000)]
    return metadata(path / "dcp", {f"w{i}": tensor_metadata([100000], chunks) for i in range(1000)})


@case("at most")
def references_to_one_bad_chunk(path):
    bad = chunk([7], [9])
    return metadata(path / "dcp", {"w": tensor_metadata([8], [bad] * 1000000)})


@case("at most")
def references_to_one_good_chunk(path):
    good = chunk([0], [8])
    return metadata(path / "dcp", {f"w{i}": tensor_metadata([8], [good] * 1000000) for i in range(8)})


@case()
def places_of_one_missing_file(path):
    names = [f"w{i}" for i in range(50000)]
    return metadata(path / "dcp", {name: tensor_metadata([8], [chunk([0], [8])]) for name in names},
                    [place(name, "__0_0.distcp", 0, 999, [0]) for name in names])


@case("at most")
def paths_that_share(path):
    long = tuple(["k"] * 20000)
    return metadata(path / "dcp", {f"w{i}": make(BytesStorageMetadata) for i in range(20000)},
                    planner_data={f"w{i}": long for i in range(20000)})


@case("at most")
def transforms_that_share(path):
    names = [f"w{i}" for i in range(20000)]
    transforms = [f"t{i}" for i in range(20000)]
    return metadata(path / "dcp", {name: make(BytesStorageMetadata) for name in names},
                    [place(name, "__0_0.distcp", 0, 1, transforms=transforms) for name in names])


@case("at most")
def states_that_share(path):
    """Every chunk's attributes are one dict of 50,000 entries."""
    state = {f"x{i}": i for i in range(50000)}
    state.update(offsets=(0,), sizes=(1,))
    chunks = []
    for _ in range(50000):
        one = ChunkStorageMetadata()
        one.__dict__ = state
        chunks.append(one)
    return metadata(path / "dcp", {"w": tensor_metadata([50000], chunks)})


@case("at most")
def names_that_share(path):
    long = "k" * 1000000
    index = [place(long, long, 0, 1, [i]) for i in range(100000)]
    return metadata(path / "dcp", {long: tensor_metadata([100000], [])}, index)


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


# The same bytes again and again.

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


# Running.

def commands(source, out, every, turn):
    """(label, arguments, whether it reads): one command of each kind, writers from number `turn` on, or (`every`) all."""
    yield "inspect --json", ["inspect", "--json", source], True
    yield "verify --strict --json", ["verify", "--strict", "--json", source], True
    if every:
        yield "inspect", ["inspect", source], True
        yield "verify", ["verify", source], True
        yield "diff", ["diff", source, source], True
    writers = []
    for to in ("safetensors", "dcp", "hf", "pt") if every else ("safetensors", "pt"):
        made = out / f"{to}.safetensors" if to == "safetensors" else out / to
        writers.append(("convert " + to, ["convert", source, made, "--to", to], False))
    writers.append(("reshard", ["reshard", source, out / "resharded", "--mesh", "2", "--default", "R"], False))
    first = turn % len(writers)
    yield from writers[first:] + writers[:first]


def sparse_settings(oracle):
    """Files that describe something else than a checkpoint are read whole, too: a hole in one of them is refused."""
    folder = oracle.work / "sparse_settings"
    folder.mkdir()
    sparse, out = folder / "sparse", folder / "out"
    model = pt(folder, ("w", tensor("0", 1, [1], [1])), records=[("data/0", b"\0\0\0\0")])
    run_folder, hub = folder / "run", folder / "hub"
    run_folder.mkdir()
    hub.mkdir()
    safetensors(hub, {"w": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}).rename(hub / "model.safetensors")
    cases = [("mapping", sparse, 900 << 20, ["convert", model, out, "--to", "dcp", "--map", sparse]),
             ("sizes", sparse, 900 << 20, ["convert", model, out, "--to", "dcp", "--map", "hf.llama:meta.llama", "--config", sparse]),
             ("config.json", hub / "config.json", 900 << 20, ["convert", hub, out, "--to", "dcp", "--map", "hf.llama:meta.llama"]),
             ("run", run_folder / ".shardmesh_run.json", 60 << 20, ["run", "list", run_folder, "--keep-best", "1"]),
             ("flat units", sparse, 900 << 20, ["convert", model, out, "--to", "dcp", "--flat-spec", sparse]),
             ("shards", sparse, 3500 << 20, ["check-shards", sparse])]
    for name, file, size, arguments in cases:
        file.write_text("{")
        os.truncate(file, size)
        status, seconds, memory, _, stderr = run(oracle, arguments)
        what = f"exits {status} after {seconds:.1f} s with {memory >> 20} MiB: {stderr[:300]}"
        oracle.check(status in (1, 2, 3) and seconds < 1 and memory < 128 << 20, f"sparse {name}", what)
        oracle.check(str(file) in stderr and ("is a sparse file" in stderr or "is too large" in stderr), f"sparse {name}", what)
        oracle.check(not out.exists(), f"sparse {name}", "something was written")
        file.unlink()
    shutil.rmtree(folder)


def limits():
    resource.setrlimit(resource.RLIMIT_STACK, (256 << 10, 256 << 10))
    resource.setrlimit(resource.RLIMIT_CPU, (2 * SECONDS, 2 * SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(oracle, arguments):
    """(status, seconds of CPU, memory, stdout, stderr)"""
    out, err = oracle.work / "stdout", oracle.work / "stderr"
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        begin = time.monotonic()
        process = subprocess.Popen([oracle.tool, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=stdout,
                                   stderr=stderr, preexec_fn=limits)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = min(time.monotonic() - begin, usage.ru_utime + usage.ru_stime)
    head = lambda file: open(file, errors="replace").read(1 << 16)  # noqa: E731
    return process.returncode, seconds, usage.ru_maxrss << 10, head(out), head(err)


def main():
    oracle = Oracle(__doc__, lambda parser: parser.add_argument("--every-command", action="store_true"))
    print(f"{'case':28} {'bytes':>12} {'seconds':>8} {'MiB':>6}  slowest command, refusal")
    first = int(os.environ.get("SHARDMESH_SEED", random.randrange(3)))
    print(f"SHARDMESH_SEED={first}")
    for number, (name, expected, build) in enumerate(CASES):
        if oracle.args.only not in name:
            continue
        folder = oracle.work / name
        folder.mkdir()
        source = build(folder)
        size = sum(f.stat().st_size for f in ([source] if source.is_file() else source.iterdir()))
        worst, peak, slowest, refused = 0.0, 0, "", ""
        out = folder / "out"
        out.mkdir()
        every, has_written = oracle.args.every_command, False
        for label, arguments, reads in commands(source, out, every, first + number):
            if has_written and not every and (refused or not expected):
                break
            has_written = has_written or not reads
            status, seconds, memory, stdout, stderr = run(oracle, arguments)
            lines = stderr.splitlines()
            what = f"`{label}` {status} {seconds:.1f} s {memory >> 20} MiB: {stderr[:300].strip()}"
            oracle.check(status in (0, 1, 2, 3), name, "crashed: " + what)
            oracle.check(seconds < SECONDS, name, "slow: " + what)
            oracle.check(memory < MEMORY, name, "large: " + what)
            oracle.check(len(lines) < 1200, name, f"{len(lines)} lines: " + what)
            if status != 0:
                oracle.check(lines, name, "says nothing: " + what)
            if "--json" in label:
                with open(oracle.work / "stdout", errors="replace") as file:
                    try:
                        json.load(file)
                        good = True
                    except (ValueError, RecursionError) as problem:
                        good = isinstance(problem, RecursionError)
                oracle.check(good, name, "no JSON: " + what)
            if expected and expected in stderr and not refused:
                refused = next(line for line in lines if expected in line)
                oracle.check(str(source) in refused, name, "names no file: " + refused)
            if seconds > worst:
                worst, slowest = seconds, label
            peak = max(peak, memory)
            shutil.rmtree(out)
            out.mkdir()
        if expected:
            oracle.check(refused, name, f"no command says \"{expected}\"")
        print(f"{name:28} {size:>12} {worst:>8.2f} {peak >> 20:>6}  {slowest}, "
              f"{refused.replace(str(oracle.work), '')[:160]}", flush=True)
        shutil.rmtree(folder)
    if oracle.args.only in "sparse_settings":
        sparse_settings(oracle)
    oracle.finish()


if __name__ == "__main__":
    sys.exit(main())
