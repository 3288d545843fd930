# SPDX-License-Identifier: Apache-2.0
"""Pickles, archives, and folders with names beside plain data, for `globals.py`. No file made here is ever unpickled."""
import bz2
import gzip
import io
import json
import lzma
import struct
import tarfile
import warnings
import zipfile
import zlib

from global_lists import ADVISORIES, REACHED, UNKNOWN
from pickles import *  # noqa: F403

RUN = call(global_("posix", "system"), text("touch MARKER"))  # would leave a mark
CASES = []


def case(*names, refused=None):
    """`names` must be named; `refused` is part of the line that refuses the archive."""
    def add(function):
        CASES.append((function.__name__, names, refused, function))
        return function
    return add


def in_archive(name, body, *names, proto=PROTO2):
    CASES.append((name, names, None, lambda path: archive(path / "m.pt", proto + dictionary(("x", body)) + STOP)))


def bare(name, stream, *names):
    def build(path):
        (path / "m.pkl").write_bytes(stream)
        return path / "m.pkl"
    CASES.append((name, names, None, build))


# Opcodes.
in_archive("global", RUN, "posix.system")
in_archive("stack_global", stack_global("posix", "system"), "posix.system", proto=PROTO4)
in_archive("inst", MARK + text("id") + b"iposix\nsystem\n", "posix.system")
in_archive("obj", MARK + global_("posix", "system") + text("id") + b"o", "posix.system")
in_archive("newobj", global_("subprocess", "Popen") + text("id") + TUPLE1 + b"\x81", "subprocess.Popen")
in_archive("newobj_ex", global_("subprocess", "Popen") + EMPTY_TUPLE + EMPTY_DICT + b"\x92", "subprocess.Popen")
in_archive("extension", b"\x82\x05" + EMPTY_TUPLE + REDUCE, "<extension 5>", "<call of extension()>")
in_archive("discarded", RUN + b"0" + NONE, "posix.system")
in_archive("discarded_to_mark", MARK + RUN + b"1" + NONE, "posix.system")
in_archive("python_2_name", global_("__builtin__", "eval"), "builtins.eval")
in_archive("text_of_protocol_0", b"Vposix\nVsyst\\u0065m\n" + STACK_GLOBAL, "posix.system", proto=PROTO4)
in_archive("quoted_names", b"S'posix'\nS'sys\\x74em'\n" + STACK_GLOBAL, "posix.system", proto=PROTO4)
in_archive("binstring_names", b"U\x05posixU\x06system" + STACK_GLOBAL, "posix.system", proto=PROTO4)
in_archive("dotted_name", stack_global("pathlib", "os.system"), "pathlib.os.system", proto=PROTO4)
in_archive("getattr", call(global_("builtins", "getattr"), global_("os", "path"), text("os")), "os.path", "builtins.getattr")
in_archive("getattr_chain", call(call(global_("builtins", "getattr"), global_("torch", "Tensor"), text("__init__")), text("x")),
           "<call of builtins.getattr(torch.Tensor, '__init__')>")
in_archive("getattr_of_an_enum", call(global_("builtins", "getattr"), global_("mymodel", "Color"), text("RED")),
           "builtins.getattr", "mymodel.Color", "<call of builtins.getattr(mymodel.Color, 'RED')>")
in_archive("getattr_of_a_nested_class", call(global_("builtins", "getattr"), call(global_("builtins", "getattr"),
                                             global_("mymodel", "A"), text("B")), text("C")),
           "builtins.getattr", "mymodel.A", "<call of builtins.getattr(mymodel.A, 'B')>",
           "<call of builtins.getattr(builtins.getattr(mymodel.A, 'B'), 'C')>")
in_archive("getattr_of_a_module", call(global_("builtins", "getattr"), call(global_("builtins", "getattr"),
                                       global_("numpy", "lib"), text("os")), text("system")),
           "<call of builtins.getattr(builtins.getattr(numpy.lib, 'os'), 'system')>")
in_archive("getattr_below_a_special_method", call(global_("builtins", "getattr"), call(global_("builtins", "getattr"),
                                                  global_("mymodel", "A"), text("__init__")), text("C")),
           "<call of builtins.getattr(builtins.getattr(mymodel.A, '__init__'), 'C')>")
in_archive("getattr_as_argument", call(global_("torch._tensor", "_rebuild_from_type_v2"), global_("builtins", "getattr"),
                                       global_("torch", "Tensor"), EMPTY_TUPLE, NONE), "builtins.getattr")
in_archive("call_of_a_result", call(call(global_("collections", "OrderedDict")), text("x")),
           "<call of collections.OrderedDict()(text)>".replace("text", "'x'"))
in_archive("change_of_a_class", global_("collections", "OrderedDict") + dictionary(("__setstate__", NONE)) + BUILD,
           "<change of collections.OrderedDict>")
in_archive("persistent_id", text("x") + b"Q", "<persistent id that is not a storage>")
in_archive("name_that_is_no_text", integer(1) + integer(2) + STACK_GLOBAL, "<a name that is not text>", proto=PROTO4)
# The memo: PUT and MEMOIZE share it, and some ways of filling it are known only to Python.
in_archive("memo_of_both_kinds",
           text("posix") + b"q\0" + text("system") + b"q\1" + text("torch._utils") + MEMOIZE +
           text("_rebuild_tensor_v2") + MEMOIZE + b"0000h\0h\1" + STACK_GLOBAL, "posix.system", proto=PROTO4)
in_archive("memo_index_with_a_blank",
           text("torch") + b"p1\n0" + text("float32") + b"p2\n0" + text("posix") + b"p 1\n0" + text("system") + b"p0_2\n0g1\ng2\n" +
           STACK_GLOBAL, "<a name that is not text>", proto=PROTO4)
# Before the call, constructs that we refuse and Python accepts.
in_archive("arguments_in_a_list", global_("collections", "OrderedDict") + EMPTY_LIST + REDUCE + b"0" + RUN, "posix.system")
in_archive("state_set_twice", call(global_("argparse", "Namespace")) + EMPTY_DICT + BUILD + EMPTY_DICT + BUILD + b"0" + RUN,
           "posix.system")
in_archive("number_with_underscore", b"I1_0\n0L0x10\n0F1_0.5\n0" + RUN, "posix.system")
in_archive("read_only_buffer", b"C\x01x\x980" + RUN, "posix.system", proto=PROTO4)
in_archive("items_of_a_class", global_("collections", "deque") + MARK + NONE + APPENDS + b"0" + RUN, "posix.system")
for name in ADVISORIES:
    # As an attribute of the first module, and as a name of the last one.
    if name.count(".") > 1 and not any(word in name for word in (".os.", ".importlib.", ".sys.", "builtins.dict", "torch.Tensor")):
        in_archive("advisory by module " + name, global_(*name.rsplit(".", 1)), name)
    in_archive("advisory " + name, global_(*name.rsplit(".", 1)) if name.count(".") == 1
               else stack_global(name.split(".", 1)[0], name.split(".", 1)[1]), name, proto=PROTO4)
for module, name in REACHED:
    in_archive(f"reached {module} {name}", stack_global(module, name), f"{module}.{name}", proto=PROTO4)
# A storage from pickle.dump is only a name. With another pickle inside, it is as dangerous as that pickle.
STREAM = [PROTO2 + part + STOP for part in (b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19", b"M\xe9\x03", EMPTY_DICT)]
LOADER = global_("torch.storage", "_load_from_bytes")


def loaded(*pickles):
    data = b"".join(pickles)
    return call(LOADER, b"B" + struct.pack("<I", len(data)) + data)


STORED = PROTO2 + MARK + text("storage") + global_("torch", "FloatStorage") + text("0") + text("cpu") + integer(0) + NONE + TUPLE + b"Q."
bare("unknown storage_in_a_pickle", b"\x80\x03" + dictionary(("x", loaded(*STREAM, STORED, PROTO2 + EMPTY_LIST + STOP))) + STOP,
     "torch.storage._load_from_bytes")
for name, inside in (("run", [PROTO2 + RUN + STOP]), ("run_in_a_stream", [*STREAM, PROTO2 + RUN + STOP]),
                     ("run_below", [PROTO2 + loaded(PROTO2 + RUN + STOP) + STOP])):
    bare("loaded_" + name, b"\x80\x03" + dictionary(("x", loaded(*inside))) + STOP, "posix.system", "torch.storage._load_from_bytes")
bare("loaded_archive", b"\x80\x03" + loaded(b"PK\3\4" + bytes(100)) + STOP, "torch.storage._load_from_bytes")
bare("loaded_twice", b"\x80\x03" + loaded(*STREAM, STORED, PROTO2 + EMPTY_LIST + STOP) + b"0" + loaded(PROTO2 + RUN + STOP) + STOP,
     "posix.system")
for name in UNKNOWN:
    in_archive("unknown " + name, stack_global("mymodel.layers", "Outer.Inner") if name.endswith("Outer.Inner")
               else stack_global("zoneinfo", "ZoneInfo._unpickle") if name.startswith("zoneinfo")
               else global_(*name.rsplit(".", 1)), name, proto=PROTO4)
# No number of unknown names hides a dangerous one.
in_archive("behind_many", b"".join(global_("m", f"C{i}") + b"0" for i in range(3000)) + RUN, "posix.system")
in_archive("behind_very_many", b"".join(global_("m", f"C{i}") + b"0" for i in range(12000)) + RUN,
           "<more names than are listed>")
in_archive("behind_many_members",
           b"".join(call(global_("builtins", "getattr"), global_(METADATA, "_MEM_FORMAT_ENCODING"), text("A" * (1 + i % 50)))
                    + b"0" for i in range(12000)) +
           call(call(global_("builtins", "getattr"), global_("m", "x"), text("y")), text("z")), "builtins.getattr")
# Streams.
bare("bare_pickle", PROTO2 + dictionary(("x", RUN)) + STOP, "posix.system")
bare("protocol_0", b"(dp0\nVx\ncposix\nsystem\n(Vid\ntRs.", "posix.system")
bare("broken_after_the_call", PROTO2 + RUN + b"\xff", "posix.system")
bare("cut_after_the_call", PROTO2 + RUN, "posix.system")
bare("long_before_the_call", PROTO2 + NONE + b"0" + text("x" * 300000) + b"0" + RUN + STOP, "posix.system")
bare("second_pickle", PROTO2 + EMPTY_DICT + STOP + PROTO2 + RUN + STOP, "posix.system")
bare("behind_the_end", PROTO2 + EMPTY_DICT + STOP + b"\0\0\0", "<bytes after the end>")
bare("legacy_stream", b"".join(PROTO2 + part + STOP for part in (
    b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19", b"M\xe9\x03", EMPTY_DICT, RUN, EMPTY_LIST)), "posix.system")
bare("looks_like_safetensors", PROTO2 + b"X\x02\0\0\0\0{" + b"0" + RUN + STOP, "posix.system")


# Archives.
PLAIN = PROTO2 + EMPTY_DICT + STOP


@case("posix.system")
def other_record(path):
    return archive(path / "m.pt", PLAIN, [("extra.pkl", PROTO2 + RUN + STOP)])


@case("posix.system")
def record_without_an_ending(path):
    return archive(path / "m.pt", PLAIN, [("notes.txt", PROTO2 + RUN + STOP)])


@case("posix.system")
def deflated_record(path):
    return archive(path / "m.pt", PROTO2 + RUN + STOP, method=zipfile.ZIP_DEFLATED)


@case("posix.system")
def torch_script(path):
    return archive(path / "m.pt", PROTO2 + RUN + STOP, [("constants.pkl", PLAIN)])


@case("torch.jit._pickle.torch.os.system")
def torch_script_by_its_own_module(path):
    name = stack_global("torch.jit._pickle", "torch.os.system")
    return archive(path / "m.pt", PROTO4 + call(name, text("touch MARKER")) + STOP, [("constants.pkl", PLAIN)])


@case("posix.system", refused="two pickles")
def second_folder(path):
    return archive(path / "m.pt", PLAIN, [("../other/data.pkl", PROTO2 + RUN + STOP)])


@case(refused="apart from case")
def other_case(path):
    return archive(path / "m.pt", PLAIN, [("DATA.PKL", PROTO2 + RUN + STOP)])


@case(refused="are named")
def same_name(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return archive(path / "m.pt", PLAIN, [("data.pkl", PROTO2 + RUN + STOP)])


def patched(path, change):
    """The archive with one place changed: (offset in the first local header, or in the directory's first, new
    bytes)."""
    file = archive(path / "m.pt", PROTO2 + RUN + STOP)
    data = bytearray(file.read_bytes())
    for signature, offset, new in change:
        at = data.index(signature) + offset
        data[at:at + len(new)] = new
    file.write_bytes(data)
    return file


LOCAL, CENTRAL = b"PK\3\4", b"PK\1\2"
for name, change, refuse in (
        ("local_name", [(LOCAL, 30 + len("archive/"), b"DATA.pk1")], "does not match the directory"),
        ("central_name", [(CENTRAL, 46 + len("archive/"), b"data.pk1")], "does not match the directory"),
        ("encrypted_in_the_directory", [(CENTRAL, 8, b"\1")], "encrypted"),
        ("encrypted_in_the_record", [(LOCAL, 6, b"\1")], "does not match the directory"),
        ("flags_differ", [(LOCAL, 6, b"\0\x20")], "does not match the directory"),
        ("method_differs", [(LOCAL, 8, b"\x08")], "does not match the directory"),
        ("size_differs", [(LOCAL, 22, b"\x07\0\0\0")], "does not match the directory"),
        ("crc_differs_in_the_record", [(LOCAL, 14, b"\x07\7\7\7")], "does not match the directory"),
        ("crc_differs_in_both", [(LOCAL, 14, b"\x07\7\7\7"), (CENTRAL, 16, b"\x07\7\7\7")], "CRC-32"),
        ("name_with_a_nul", [(LOCAL, 30 + 10, b"\0"), (CENTRAL, 46 + 10, b"\0")], "NUL")):
    names = ("posix.system",) if name == "crc_differs_in_both" else ()
    CASES.append(("zip " + name, names, refuse, lambda path, change=change: patched(path, change)))


# Folders.

@case("posix.system")
def metadata_of_dcp(path):
    folder = metadata(path / "dcp", {})
    data = (folder / ".metadata").read_bytes()
    (folder / ".metadata").write_bytes(data[:2] + RUN + b"0" + data[2:])
    return folder


@case("posix.system")
def item_of_dcp(path):
    folder = path / "dcp"
    folder.mkdir()
    archive(folder / "__0_0.distcp", PROTO2 + RUN + STOP)
    length = (folder / "__0_0.distcp").stat().st_size
    return metadata(folder, {"o": make(BytesStorageMetadata)}, [place("o", "__0_0.distcp", 0, length)])


def folder_with(name, data):
    def build(path):
        folder = path / "hf"
        folder.mkdir()
        header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0\0\0\0")
        (folder / name).write_bytes(data)
        return folder
    return build


for name in ("training_args.bin", "optimizer.pt", "weights.xyz", "scheduler"):
    CASES.append(("beside " + name, ("posix.system",), None, folder_with(name, PROTO2 + RUN + STOP)))


# Archives in archives, stored and deflated, at every depth up to the limit.

def zipped(records, method=zipfile.ZIP_STORED):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as out:
        for name, data in records:
            out.writestr(name, data)
    return made.getvalue()


def torch_archive(data_pkl, method=zipfile.ZIP_STORED):
    return zipped([("archive/data.pkl", data_pkl), ("archive/byteorder", "little"), ("archive/version", "3\n")], method)


EVIL = PROTO2 + RUN + STOP
for method, how in ((zipfile.ZIP_STORED, "stored"), (zipfile.ZIP_DEFLATED, "deflated")):
    for depth in (1, 2, 5):
        data = torch_archive(EVIL, method)
        for _ in range(depth - 1):
            data = zipped([("x/inner", data)], method)
        CASES.append((f"inner archive {how} {depth}", ("posix.system",), None,
                      lambda path, data=data, method=method:
                      archive(path / "m.pt", PLAIN, [("extra/model.pt", data)], method=method)))
    for name, data in (("protocol_0.pt", b"cposix\nsystem\n(tR."), ("model", EVIL), ("model.bin", EVIL)):
        CASES.append((f"inner pickle {how} {name}", ("posix.system",), None,
                      lambda path, name=name, data=data, method=method:
                      archive(path / "m.pt", PLAIN, [(name, data)], method=method)))
data = torch_archive(EVIL)
for _ in range(40):
    data = zipped([("x/inner", data)])
CASES.append(("inner archive too deep", ("<archives too deep in archives>",), None,
              lambda path, data=data: archive(path / "m.pt", PLAIN, [("extra/model.pt", data)])))
broken = bytearray(torch_archive(EVIL))
broken[broken.index(b"data.pkl")] = ord("e")
CASES.append(("inner archive that contradicts itself", ("<archive that contradicts itself>",), None,
              lambda path, data=bytes(broken): archive(path / "m.pt", PLAIN, [("extra/model.pt", data)])))


def program(name, *inner):
    """A copy of an exported program, with one inner archive replaced."""
    def build(path):
        made = path / name
        source = build.data / "writers" / "torch_export" / name
        with zipfile.ZipFile(source) as old, zipfile.ZipFile(made, "w") as new:
            found = [record for record in old.namelist() if record.endswith(inner)]
            assert found, (name, inner)
            for record in old.namelist():
                new.writestr(record, torch_archive(EVIL) if record in found else old.read(record))
        return made
    return build


for name, inner in (("program_2_8.pt2", "data/sample_inputs/model.pt"), ("program_2_8.pt2", "data/weights/model.pt"),
                    ("program_2_8.pt2", "data/constants/model.pt"), ("program_2_6.pt2", "serialized_state_dict.pt"),
                    ("program_2_6.pt2", "serialized_constants.pt"), ("program_2_6.pt2", "serialized_example_inputs.pt")):
    CASES.append((f"program {inner}", ("posix.system",), None, program(name, inner)))


# Containers of other programs: numpy's are inspected, others are named.

def npy(pickled, descr="|O"):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (1,), }}".encode()
    if len(header) < 123:
        header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + pickled


for name, data in (("a.npy", npy(EVIL)), ("a.npz", zipped([("x.npy", npy(EVIL))])), ("escaped.npy", npy(EVIL, "|\\x4f")),
                   ("protocol_0.npy", npy(b"cposix\nsystem\n(tR.")), ("no_suffix", npy(EVIL)),
                   ("brace.npy", npy(EVIL, "|O', 'x': '" + "x" * 58)), ("packed.npz", zipped([("x.npy", npy(EVIL))], zipfile.ZIP_DEFLATED)),
                   ("a.zip", zipped([("model.pt", torch_archive(EVIL))])),
                   ("packed.zip", zipped([("model.pt", torch_archive(EVIL))], zipfile.ZIP_DEFLATED)),
                   ("pickle.zip", zipped([("model.pkl", EVIL)], zipfile.ZIP_DEFLATED)),
                   ("brace.pkl", b"V{{{{{{{{{\n0cposix\nsystem\n(tR."), ("tar.pkl", b"V" + b"x" * 256 + b"ustar\n0cposix\nsystem\n(tR."),
                   ("npz.zip", zipped([("a.npz", zipped([("x.npy", npy(EVIL))]))]))):
    CASES.append(("container " + name, ("posix.system",), None, folder_with(name, data)))


def tarred():
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as out:
        info = tarfile.TarInfo("model.pkl")
        info.size = len(EVIL)
        out.addfile(info, io.BytesIO(EVIL))
    return made.getvalue()


for name, data, what in (("a.tar", tarred(), "tar archive"), ("a.pkl.gz", gzip.compress(EVIL), "gzip data"),
                         ("a.pkl.bz2", bz2.compress(EVIL), "bzip2 data"), ("a.pkl.xz", lzma.compress(EVIL), "xz data"),
                         ("a.joblib", zlib.compress(EVIL), "zlib data"), ("a.pkl", zlib.compress(EVIL, 1), "zlib data"),
                         ("a.pt", gzip.compress(EVIL), "gzip data"), ("gz.zip", zipped([("a.pkl.gz", gzip.compress(EVIL))]), "gzip data"),
                         ("a.lzma", lzma.compress(EVIL, lzma.FORMAT_ALONE), "lzma data")):
    CASES.append(("unknown container " + name, (f"<{what}>",), None, folder_with(name, data)))
CASES.append(("beside protocol_0.bin", ("posix.system",), None, folder_with("protocol_0.bin", b"cposix\nsystem\n(tR.")))
