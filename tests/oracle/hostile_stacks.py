# SPDX-License-Identifier: Apache-2.0
"""Hostile files that are nested deeper than a stack."""
import shutil

from hostile_files import case, dcp_object, nested, pt, safetensors
from pickles import *  # noqa: F403


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
