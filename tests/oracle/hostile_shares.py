# SPDX-License-Identifier: Apache-2.0
"""Hostile files whose parts are shared: small files that mean much."""
import struct

from hostile_files import case, dcp_object, pt
from pickles import *  # noqa: F403


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
