# SPDX-License-Identifier: Apache-2.0
"""Damages each record of every writer's archives in turn: no writer accepts an archive that `verify` refuses, and a
command that succeeds loses nothing. The archives are made by hand (torch.save's, TorchScript's, exported programs of
two versions); some are in folders beside other files (accelerate's, Hugging Face's). In the ordinary run, one writer
in turn meets each damage, from one that SHARDMESH_SEED chooses; SHARDMESH_PROPERTY_RUNS=long takes all five. Needs no
package."""
import itertools
import json
import os
import shutil
import struct
import sys
import zipfile

from common import Oracle, fingerprint, seed as common_seed
from pickles import *  # noqa: F403

STORAGE = struct.pack("<4f", 1, 2, 3, 4)
PLAIN = PROTO2 + EMPTY_DICT + STOP
WEIGHT = tensor("0", 4, [4], [1])


def state(path):
    return archive(path / "m.pt", PROTO2 + dictionary(("w", WEIGHT), ("x", integer(1))) + STOP,
                   [("data/0", STORAGE), ("data/1", STORAGE), (".data/serialization_id", "0" * 40)])


def state_with_more(path):
    """A pickle and a text beside the state that no reader of the state needs."""
    return archive(path / "m.pt", PROTO2 + dictionary(("w", WEIGHT)) + STOP,
                   [("data/0", STORAGE), ("extra.pkl", PLAIN), ("extra/notes.txt", "notes")])


def deflated(path):
    return archive(path / "m.pt", PROTO2 + dictionary(("w", WEIGHT)) + STOP, [("data/0", STORAGE), ("more.pkl", PLAIN)],
                   method=zipfile.ZIP_DEFLATED)


def script(path):
    root = global_("__torch__", "M") + EMPTY_TUPLE + b"\x81" + dictionary(("w", WEIGHT), ("training", b"\x88")) + BUILD
    code = 'class M(Module):\n  __parameters__ = ["w", ]\n  __buffers__ = []\n  w : Tensor\n'
    return archive(path / "m.pt", PROTO2 + root + STOP,
                   [("data/0", STORAGE), ("code/__torch__.py", code), ("code/__torch__.py.debug_pkl", PLAIN),
                    ("constants.pkl", PROTO2 + EMPTY_TUPLE + STOP)])


def program(path):
    """torch.export.save of 2.9: plain weights, a list of them in JSON, and a graph that is not read."""
    meta = {"dtype": 7, "sizes": [{"as_int": 4}], "requires_grad": False, "device": {"type": "cpu", "index": None},
            "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0}, "layout": 7}
    weights = {"config": {"w": {"path_name": "weight_0", "is_param": True, "use_pickle": False, "tensor_meta": meta}}}
    with zipfile.ZipFile(path / "m.pt2", "w") as out:
        for name, data in (("archive_format", "pt2"), ("models/model.json", "{}"), ("archive_version", "0"),
                           ("data/weights/weight_0", STORAGE), ("data/weights/model_weights_config.json", json.dumps(weights)),
                           ("data/constants/model_constants_config.json", '{"config":{}}'),
                           ("data/extra.pkl", PLAIN), ("byteorder", "little"), ("version", "6")):
            out.writestr("m/" + name, data)
    return path / "m.pt2"


def old_program(path):
    """torch.export.save of 2.7 and 2.8: a torch.save archive inside the archive."""
    inner = archive(path / "inner.pt", PROTO2 + dictionary(("w", WEIGHT)) + STOP, [("data/0", STORAGE)])
    with zipfile.ZipFile(path / "m.pt2", "w") as out:
        for name, data in (("archive_format", b"pt2"), ("models/model.json", b"{}"),
                           ("data/weights/model.pt", inner.read_bytes()), ("extra.pkl", PLAIN), ("version", b"5")):
            out.writestr("m/" + name, data)
    inner.unlink()
    return path / "m.pt2"


def safetensors_file(path):
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + STORAGE)


def beside(*names):
    def build(path):
        safetensors_file(path / "model.safetensors")
        for name in names:
            archive(path / name, PROTO2 + dictionary(("x", integer(1)), ("t", WEIGHT)) + STOP, [("data/0", STORAGE)])
        return path
    return build


def item(path):
    archive(path / "__0_0.distcp", PROTO2 + WEIGHT + STOP, [("data/0", STORAGE), ("more.pkl", PLAIN)])
    length = (path / "__0_0.distcp").stat().st_size
    archive(path / "__1_0.distcp", PROTO2 + dictionary(("x", integer(1))) + STOP, [("more.pkl", PLAIN)])
    other = (path / "__1_0.distcp").stat().st_size
    return metadata(path, {"w": tensor_metadata([4], [chunk([0], [4])]), "o": make(BytesStorageMetadata)},
                    [place("w", "__0_0.distcp", 0, length, [0]), place("o", "__1_0.distcp", 0, other)])


SOURCES = [("state", state, "m.pt"), ("state_with_more", state_with_more, "m.pt"), ("deflated", deflated, "m.pt"),
           ("script", script, "m.pt"), ("program", program, "m.pt2"), ("old_program", old_program, "m.pt2"),
           ("accelerate", beside("optimizer.bin", "scheduler.bin", "random_states_0.pkl"), "random_states_0.pkl"),
           ("trainer", beside("training_args.bin", "scaler.pt"), "training_args.bin"),
           ("item", item, "__0_0.distcp"), ("object", item, "__1_0.distcp")]


def records(data):
    """Yields (name, offset of the local header, offset of the directory's entry)."""
    (begin,) = struct.unpack_from("<I", data, data.rindex(b"PK\5\6") + 16)
    at = begin
    while data[at:at + 4] == b"PK\1\2":
        name, extra, comment = struct.unpack_from("<HHH", data, at + 28)
        (local,) = struct.unpack_from("<I", data, at + 42)
        yield data[at + 46:at + 46 + name].decode(), local, at
        at += 46 + name + extra + comment


def damages(data):
    """Yields (description, the file's bytes)."""
    for name, local, central in records(data):
        def changed(*places):
            made = bytearray(data)
            for offset, new in places:
                made[offset:offset + len(new)] = new
            return bytes(made)
        other_crc = b"\x07\x07\x07\x07"
        yield f"{name}: another name in the record", changed((local + 30, b"_"))
        yield f"{name}: another size in the record", changed((local + 22, b"\x01\x02\0\0"))
        yield f"{name}: another method in the record", changed((local + 8, b"\x0c\0"))
        yield f"{name}: another CRC in the record", changed((local + 14, other_crc))
        yield f"{name}: another CRC in both", changed((local + 14, other_crc), (central + 16, other_crc))
        yield f"{name}: no local header", changed((local, b"\0\0\0\0"))
        (extra,) = struct.unpack_from("<H", data, local + 28)
        first = local + 30 + len(name) + extra
        (size,) = struct.unpack_from("<I", data, central + 20)
        if size > 0:
            yield f"{name}: a flipped byte", changed((first + size // 2, bytes([data[first + size // 2] ^ 0x40])))
            yield f"{name}: a flipped last byte", changed((first + size - 1, bytes([data[first + size - 1] ^ 1])))
    yield "cut", data[:len(data) * 2 // 3]
    yield "no end record", data[:-10]


TARGETS = ("dcp", "safetensors", "pt", "hf")
LONG = os.environ.get("SHARDMESH_PROPERTY_RUNS") == "long"


def check_inflating(oracle):
    """A main pickle that inflates to far more than its record justifies is refused by every command, with status 1."""
    pickled = PROTO2 + dictionary(("w", WEIGHT)) + STOP + bytes(1 << 27)
    source = archive(oracle.work / "inflating.pt", pickled, [("data/0", STORAGE)], method=zipfile.ZIP_DEFLATED)
    made = oracle.work / "inflated"
    for command in (["inspect", source], ["verify", source], ["convert", source, made, "--to", "dcp"],
                    ["reshard", source, made, "--mesh", "2", "--default", "R"]):
        status, out, err = oracle.run(*command)
        oracle.check(status == 1 and "data.pkl\" is too large" in err, "inflating", f"{command[0]} exits {status}: {out}{err}")
        oracle.check(not made.exists(), "inflating", f"{command[0]} writes")


def main():
    oracle = Oracle(__doc__, syncs=False)
    refused = 0
    if oracle.args.only in "inflating":
        check_inflating(oracle)
    seed = common_seed()
    turns = itertools.count(seed)
    for name, build, file in SOURCES:
        if oracle.args.only not in name:
            continue
        folder = oracle.work / name
        folder.mkdir()
        source = build(folder)
        whole = (folder / file).read_bytes()
        if not oracle.check(oracle.run("verify", source)[0] == 0, name, f"is refused as it is: {oracle.run('verify', source)}"):
            continue
        for what, data in damages(whole):
            (folder / file).write_bytes(data)
            before = fingerprint(folder)
            status, _, err = oracle.run("verify", source)
            refused += status != 0
            out = oracle.work / "out"
            commands = [["convert", source, out / target, "--to", target, "--skip-unsupported"] for target in TARGETS]
            commands.append(["reshard", source, out / "mesh", "--mesh", "2", "--default", "R", "--skip-unsupported"])
            if not LONG:
                commands = [commands[next(turns) % 5]]
            for arguments in commands:
                out.mkdir()
                code, _, said = oracle.run(*arguments)
                case = f"{name}: {what}"
                oracle.check(status in (0, 1), case, f"verify exits {status}: {err[:300]}")
                oracle.check(code in (0, 1), case, f"{arguments[0]} exits {code}: {said[:300]}")
                oracle.check(status == 0 or (code != 0 and not list(out.iterdir())), case,
                             f"verify refuses it, {' '.join(map(str, arguments[3:]))} does not: {err.strip()[:300]}")
                oracle.check(code == 0 or file in said or source.name in said, case, f"no file is named: {said[:300]}")
                shutil.rmtree(out)
            oracle.check(fingerprint(folder) == before, name, "the source was changed")
        (folder / file).write_bytes(whole)
    print(f"{refused} damaged archives were refused by verify")
    oracle.check(oracle.args.only or refused > 200, "all", f"verify refuses {refused} only")
    oracle.finish()


if __name__ == "__main__":
    sys.exit(main())
