# SPDX-License-Identifier: Apache-2.0
"""Pickles and archives built opcode by opcode, for the hostile cases. Nothing here is ever unpickled."""
import pickle
import struct
import sys
import types
import zipfile

PROTO2, PROTO4 = b"\x80\x02", b"\x80\x04"
STOP, MARK, NONE, EMPTY_LIST, EMPTY_DICT, EMPTY_TUPLE = b".", b"(", b"N", b"]", b"}", b")"
APPEND, APPENDS, SETITEM, SETITEMS, REDUCE, BUILD = b"a", b"e", b"s", b"u", b"R", b"b"
TUPLE, TUPLE1, TUPLE2, FROZENSET, MEMOIZE, STACK_GLOBAL = b"t", b"\x85", b"\x86", b"\x91", b"\x94", b"\x93"


def text(value):
    value = value.encode() if isinstance(value, str) else value
    return b"X" + struct.pack("<I", len(value)) + value


def integer(value):
    return b"K" + bytes([value]) if 0 <= value < 256 else b"\x8a\x08" + struct.pack("<q", value)


def put(index):
    return b"r" + struct.pack("<I", index)


def get(index):
    return b"j" + struct.pack("<I", index)


def global_(module, name):
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def stack_global(module, name):
    return text(module) + text(name) + STACK_GLOBAL


def call(function, *arguments):
    return function + MARK + b"".join(arguments) + TUPLE + REDUCE


def dictionary(*pairs):
    return EMPTY_DICT + MARK + b"".join(text(key) + value for key, value in pairs) + SETITEMS


def tensor(key, count, size, stride, kind="FloatStorage", offset=0):
    """A tensor with its own storage; sizes and strides are lists."""
    storage = MARK + text("storage") + global_("torch", kind) + text(key) + text("cpu") + integer(count) + TUPLE + b"Q"
    numbers = lambda items: MARK + b"".join(map(integer, items)) + TUPLE  # noqa: E731
    return call(global_("torch._utils", "_rebuild_tensor_v2"), storage, integer(offset), numbers(size), numbers(stride),
                b"\x89", call(global_("collections", "OrderedDict")))


def archive(path, data_pkl, records=(), method=zipfile.ZIP_STORED, folder="archive"):
    """An archive as torch.save would write it; `records` are (name, bytes)."""
    with zipfile.ZipFile(path, "w", method) as out:
        out.writestr(f"{folder}/data.pkl", data_pkl)
        out.writestr(f"{folder}/byteorder", "little")
        for name, data in records:
            out.writestr(f"{folder}/{name}", data)
        out.writestr(f"{folder}/version", "3\n")
    return path


def fake(module, name):
    """A class that pickles under this name, whether or not the module exists."""
    parts = module.split(".")
    for i in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:i]), types.ModuleType(".".join(parts[:i])))
    made = type(name, (), {"__module__": module})
    setattr(sys.modules[module], name, made)
    return made


METADATA = "torch.distributed.checkpoint.metadata"
Metadata, TensorStorageMetadata, BytesStorageMetadata, ChunkStorageMetadata, MetadataIndex, TensorProperties = (
    fake(METADATA, name) for name in ("Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata",
                                      "MetadataIndex", "TensorProperties"))
StorageInfo = fake("torch.distributed.checkpoint.filesystem", "_StorageInfo")
float32 = fake("torch", "float32")  # a class replaces the dtype: both pickle as a global


def make(kind, **attributes):
    made = kind()
    made.__dict__.update(attributes)
    return made


def chunk(offsets, sizes):
    return make(ChunkStorageMetadata, offsets=tuple(offsets), sizes=tuple(sizes))


def tensor_metadata(size, chunks):
    return make(TensorStorageMetadata, properties=make(TensorProperties, dtype=float32), size=tuple(size), chunks=chunks)


def place(fqn, file, offset, length, at=None, transforms=None):
    """An entry of storage_data."""
    info = make(StorageInfo, relative_path=file, offset=offset, length=length)
    if transforms is not None:
        info.transform_descriptors = transforms
    return make(MetadataIndex, fqn=fqn, offset=None if at is None else tuple(at), index=None), info


def metadata(folder, entries, places=(), planner_data=None, **attributes):
    """Writes `.metadata`; entries are {fqn: description}, places are from `place`."""
    folder.mkdir(exist_ok=True)
    root = make(Metadata, state_dict_metadata=entries, storage_data=dict(places), planner_data=planner_data, **attributes)
    with open(folder / ".metadata", "wb") as file:
        pickle.dump(root, file, protocol=4)
    return folder
