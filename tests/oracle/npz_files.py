# SPDX-License-Identifier: Apache-2.0
"""Files of numpy.savez, savez_compressed, and save have the same tensors, bit for bit, after a conversion; numpy.load
reads what shardmesh writes, without pickles. Arrays of other types are listed and refused by name. Damaged and hostile
files are refused by one line, and nothing is executed or written."""
import io
import json
import os
import random
import struct
import warnings
import zipfile

from common import Oracle, read_safetensors, skip, seed as common_seed

try:
    import numpy as np
except Exception as error:
    skip(f"the package numpy is needed ({type(error).__name__}: {error})")

CODES = {"b1": "BOOL", "u1": "U8", "i1": "I8", "u2": "U16", "i2": "I16", "u4": "U32", "i4": "I32", "u8": "U64", "i8": "I64",
         "f2": "F16", "f4": "F32", "f8": "F64", "c8": "C64"}
SHAPES = ((), (1,), (7,), (0,), (2, 3), (3, 0, 2), (4, 1, 5), (2, 3, 4, 5))


class Marker:
    """Executed by a careless reader of pickles."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def random_array(draw, code, shape):
    if code == "b1":
        return draw.integers(0, 2, shape).astype(bool)
    dtype = np.dtype(code)
    count = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(draw.bytes(count), dtype=dtype).reshape(shape)


def all_arrays(draw):
    """{name: array} of every type, shape, order, and byte order."""
    arrays = {}
    for code in CODES:
        for number, shape in enumerate(SHAPES):
            data = random_array(draw, code, shape)
            arrays[f"{code}/c.{number}"] = data
            arrays[f"{code}/fortran.{number}"] = np.asfortranarray(data).reshape(shape, order="F")
            arrays[f"{code}/big.{number}"] = data.astype(data.dtype.newbyteorder(">"))
    arrays["W"], arrays["w"] = np.float32(1), np.float32(2)
    arrays["\u00e9\u4e2d"] = np.arange(3)
    arrays["large"] = np.asfortranarray(draw.random((700, 900)))
    return arrays


def little(array):
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()


def code_of(array):
    return CODES[array.dtype.str[1:]]


def check_reading(oracle, draw):
    arrays = all_arrays(draw)
    for case, save in (("savez", np.savez), ("savez_compressed", np.savez_compressed)):
        file, made = oracle.work / f"{case}.npz", oracle.work / f"{case}.safetensors"
        save(file, **arrays)
        oracle.succeeds(case, "verify", file, "--strict")
        if oracle.succeeds(case, "convert", file, made) is None:
            continue
        found, _ = read_safetensors(made)
        oracle.check(set(found) == set(arrays), case, f"tensors {sorted(set(found) ^ set(arrays))}")
        for key, array in arrays.items():
            wanted = (code_of(array), list(array.shape), little(array))
            oracle.check(found.get(key) == wanted, case, f"{key} differs")
        back = oracle.work / f"{case}_back.npz"
        oracle.succeeds(case, "convert", made, back)
        oracle.succeeds(case, "diff", file, back)
    return arrays


def check_writing(oracle, arrays):
    """From NumPy to NumPy by way of shardmesh: members are what numpy.save writes, at multiples of 64."""
    file = oracle.work / "copy.npz"
    if oracle.succeeds("writing", "convert", oracle.work / "savez_compressed.npz", file) is None:
        return
    with np.load(file, allow_pickle=False) as made:
        oracle.check(set(made.files) == set(arrays), "writing", f"{sorted(set(made.files) ^ set(arrays))}")
        for key, array in arrays.items():
            same = key in made.files and made[key].dtype == array.dtype.newbyteorder("<") and made[key].shape == array.shape
            oracle.check(same and made[key].tobytes() == little(array), "writing", f"{key} differs")
    with zipfile.ZipFile(file) as archive:
        oracle.check(archive.testzip() is None, "writing", "a CRC-32 differs")
        for info in archive.infolist():
            name_bytes, extra_bytes = struct.unpack("<HH", file.read_bytes()[info.header_offset + 26:info.header_offset + 30])
            begin = info.header_offset + 30 + name_bytes + extra_bytes
            oracle.check(info.compress_type == zipfile.ZIP_STORED and begin % 64 == 0, "writing", f"{info.filename} at {begin}")
            wanted = io.BytesIO()
            array = arrays[info.filename[:-len(".npy")]]
            np.save(wanted, np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).reshape(array.shape))
            oracle.check(archive.read(info) == wanted.getvalue(), "writing", f"{info.filename} is not numpy.save's")


def check_names(oracle):
    """Names without the flag for UTF-8 are read as NumPy reads them, and keep their text in a copy."""
    names = [bytes([byte]) + b"x" for byte in range(128, 256)] + ["th\u00e9".encode()]
    file, copy = oracle.work / "names.npz", oracle.work / "names_copy.npz"
    with zipfile.ZipFile(file, "w") as archive:
        for number, name in enumerate(names):
            data = io.BytesIO()
            np.save(data, np.int32(number))
            archive.writestr(f"{number:0{len(name)}x}.npy", data.getvalue())
    with zipfile.ZipFile(file) as archive:
        stored = [info.filename.encode() for info in archive.infolist()]
    content = file.read_bytes()
    for old, new in zip(stored, names):
        oracle.check(content.count(old) == 2, "names", f"{old} is not in both headers")
        content = content.replace(old, new + b".npy")
    file.write_bytes(content)
    with np.load(file) as theirs:
        wanted = {name: int(theirs[name]) for name in theirs.files}
    oracle.check(len(wanted) == len(names), "names", f"NumPy reads {len(wanted)} names")
    out = oracle.succeeds("names", "inspect", file, "--json")
    oracle.check(out is not None and set(json.loads(out)["tensors"]) == set(wanted), "names", f"{out}")
    if oracle.succeeds("names", "convert", file, copy) is not None:
        with np.load(copy) as ours:
            oracle.check({name: int(ours[name]) for name in ours.files} == wanted, "names", "the copy has other names")


def check_formats(oracle):
    """To every format and back, with the values of complex128."""
    arrays = {"w": np.arange(6, dtype="<f4").reshape(2, 3), "n.step": np.int64(3), "flags": np.array([True, False])}
    source = oracle.work / "formats.npz"
    np.savez(source, **arrays)
    for to in ("dcp", "safetensors", "hf", "pt", "torch-checkpointing"):
        middle, back = oracle.work / f"formats_{to}", oracle.work / f"formats_{to}.npz"
        more = ["--item", "model"] if to == "torch-checkpointing" else []
        if (oracle.succeeds(to, "convert", source, middle, "--to", to, *more) is not None
                and oracle.succeeds(to, "convert", middle, back) is not None):
            with np.load(back, allow_pickle=False) as made:
                got = {key.removeprefix("model."): made[key] for key in made.files}
            good = set(got) == set(arrays) and all(np.array_equal(got[key], arrays[key]) for key in arrays)
            oracle.check(good, to, f"{got}")
    np.savez(oracle.work / "complex.npz", c=np.array([1 + 2j, 3 - 4j]))
    if oracle.succeeds("complex", "convert", oracle.work / "complex.npz", oracle.work / "complex_copy.npz") is not None:
        with np.load(oracle.work / "complex_copy.npz", allow_pickle=False) as made:
            oracle.check(np.array_equal(made["c"], [1 + 2j, 3 - 4j]), "complex", f"{made['c']}")


def check_single(oracle, draw):
    for code in CODES:
        for order in "CF":
            case = f"save {code} {order}"
            array = np.array(random_array(draw, code, (5, 6)), order=order)
            file, made = oracle.work / "one.npy", oracle.work / "one.safetensors"
            np.save(file, array)
            if oracle.succeeds(case, "convert", file, made, "--force") is not None:
                found, _ = read_safetensors(made)
                oracle.check(found == {"tensor": (CODES[code], [5, 6], little(array))}, case, f"{sorted(found)}")


def check_other_types(oracle):
    marker = oracle.work / "executed"
    others = {"objects": np.array([Marker(marker)], dtype=object), "texts": np.array(["a"]), "bytes": np.array([b"a"]),
              "dates": np.array(["2020-01-01"], dtype="M8[D]"), "records": np.zeros(2, dtype=[("a", "<f4"), ("b", "<i2")]),
              "raw": np.zeros(3, dtype="V2"), "long": np.zeros(2, dtype=np.longdouble)}
    file = oracle.work / "others.npz"
    np.savez(file, w=np.ones(2, "<f4"), **others)
    said = oracle.succeeds("other types", "inspect", file, "--json")
    if said is not None:  # a tensor that is not read is listed with the objects
        listed = json.loads(said)
        oracle.check(set(listed["tensors"]) == {"w"} and set(listed["objects"]) == set(others), "other types", said[:300])
    status, _, err = oracle.run("convert", file, oracle.work / "others.safetensors")
    oracle.check(status == 1 and all(f"{key}: a NumPy array of" in err for key in others), "other types", f"exits {status}: {err}")
    skips = [argument for key in others for argument in ("--skip", key)]
    for more in (["--skip-unsupported"], skips):
        made = oracle.work / "rest.safetensors"
        if oracle.succeeds("other types", "convert", file, made, "--force", *more) is not None:
            oracle.check(set(read_safetensors(made)[0]) == {"w"}, "other types", "w alone is expected")
    status, out, err = oracle.run("verify", file)
    oracle.check(status == 1 and "posix.mkdir" in out + err, "other types", f"verify does not name the pickle's function: {out}{err}")
    oracle.check(not marker.exists(), "other types", "a pickle was executed")


def check_lacking(oracle):
    """bfloat16 and float8, which NumPy lacks."""
    header = {"h": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}, "q": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [4, 6]}}
    text = json.dumps(header).encode()
    source, made = oracle.work / "lacking.safetensors", oracle.work / "lacking.npz"
    source.write_bytes(struct.pack("<Q", len(text)) + text + bytes.fromhex("803f0040") + bytes.fromhex("3840"))
    status, _, err = oracle.run("convert", source, made)
    oracle.check(status == 1 and "NumPy has no bfloat16" in err and "--dtype float32" in err, "lacking", f"exits {status}: {err}")
    oracle.check(not made.exists(), "lacking", "a file was written")
    if oracle.succeeds("lacking", "convert", source, made, "--dtype", ".*=float32") is not None:
        with np.load(made) as found:
            oracle.check(found["h"].tolist() == [1, 2] and found["q"].tolist() == [1, 2], "lacking", f"{dict(found)}")


def hostile_archives():
    """(name, bytes, text in the message)."""
    def npy(dict_text, data=b"", version=b"\1\0"):
        text = dict_text.encode()
        return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + data

    def zipped(*members, method=zipfile.ZIP_STORED):
        made = io.BytesIO()
        with warnings.catch_warnings(), zipfile.ZipFile(made, "w", method) as archive:
            warnings.simplefilter("ignore")
            for name, data in members:
                archive.writestr(name, data)
        return made.getvalue()

    plain = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", bytes(4))
    yield "duplicate", zipped(("a.npy", plain), ("a.npy", plain)), "two records are named"
    yield "huge", zipped(("a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}"))), "a: "
    yield "long", zipped(("a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000,)}"))), "leave the array's bytes"
    yield "negative", zipped(("a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"))), "tuple of sizes"
    yield "call", zipped(("a.npy", npy("{'descr': exit(), 'fortran_order': False, 'shape': (1,)}"))), "is not a text"
    yield "dimensions", zipped(("a.npy", npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'1,' * 20})}}", bytes(4)))), "dimensions"
    yield "version", zipped(("a.npy", npy("{}", version=b"\7\0"))), "version"
    yield "nested", zipped(("a.npy", npy("{'descr': " + "[" * 50000))), "no end"
    yield "bzip2", zipped(("a.npy", plain), method=zipfile.ZIP_BZIP2), "compression"
    damaged = bytearray(zipped(("a.npy", plain)))
    damaged[damaged.index(b"a.npy")] = ord("b")
    yield "contradiction", bytes(damaged), "does not match the directory"
    damaged = bytearray(zipped(("a.npy", plain)))
    damaged[damaged.index(plain) + len(plain) - 1] ^= 1
    yield "element", bytes(damaged), "checksum"
    bomb = bytearray(zipped(("a.npy", npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", bytes(1 << 20))), method=zipfile.ZIP_DEFLATED))
    directory = bomb.index(b"PK\1\2")
    header = len(npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}")) + 1
    for at in (22, directory + 24):
        bomb[at:at + 4] = struct.pack("<I", header)
    yield "bomb", bytes(bomb), "another size than the directory says"


def check_hostile(oracle):
    for name, data, says in hostile_archives():
        file, made = oracle.work / f"{name}.npz", oracle.work / f"{name}.safetensors"
        file.write_bytes(data)
        for command in (["verify", file], ["convert", file, made]):
            status, out, err = oracle.run(*command, timeout=20)
            oracle.check(status == 1 and says in out + err, name, f"{command[0]} exits {status}: {out[-300:]}{err[-300:]}")
        oracle.check(not made.exists(), name, "a file was written")


def check_mutants(oracle):
    """verify and convert agree on changed bytes, and no change passes both unless the tensors are the same."""
    source = oracle.work / "mutant_source.npz"
    np.savez_compressed(source, a=np.arange(40, dtype="<i4").reshape(5, 8), b=np.ones(3, ">f8"))
    data, choose = source.read_bytes(), random.Random(common_seed())
    wanted = {"a": np.arange(40, dtype="<i4").tobytes(), "b": np.ones(3).tobytes()}
    for number in range(120):
        changed = bytearray(data)
        at = choose.randrange(len(data))
        changed[at] ^= 1 << choose.randrange(8)
        file, made = oracle.work / "mutant.npz", oracle.work / "mutant.safetensors"
        file.write_bytes(changed)
        verified, converted = oracle.run("verify", file)[0], oracle.run("convert", file, made, "--force")[0]
        case = f"mutant {number}, byte {at}"
        oracle.check(verified in (0, 1) and converted in (0, 1), case, f"verify exits {verified}, convert exits {converted}")
        oracle.check(verified == 0 or converted == 1, case, "convert accepts what verify refuses")
        if converted == 0:
            found = {key.encode(): tensor[2] for key, tensor in read_safetensors(made)[0].items()}
            oracle.check(sorted(found.values()) == sorted(wanted.values()), case, "other elements pass")
        made.unlink(missing_ok=True)


def check_cut(oracle):
    data, choose = (oracle.work / "formats.npz").read_bytes(), random.Random(common_seed())
    for length in sorted({0, 3, 4, 21, *(choose.randrange(len(data)) for _ in range(30))}):
        (oracle.work / "cut.npz").write_bytes(data[:length])
        status, _, err = oracle.run("inspect", oracle.work / "cut.npz")
        oracle.check(status == 1 and len(err.splitlines()) == 1, "cut", f"{length} bytes: exits {status}: {err}")


def check_folder(oracle):
    """An MLX folder: shards, and quantized triples as the plain tensors that they are."""
    folder = oracle.work / "mlx"
    folder.mkdir()
    parts = [{"l.weight": np.arange(8, dtype="<u4").reshape(2, 4), "l.scales": np.ones((2, 1), "<f2")},
             {"l.biases": np.zeros((2, 1), "<f2"), "norm": np.ones(4, "<f2")}]
    for number, part in enumerate(parts):
        np.savez(folder / f"weights.{number:02d}.npz", **part)
    (folder / "config.json").write_text("{}")
    made = oracle.work / "mlx.safetensors"
    if oracle.succeeds("folder", "convert", folder, made) is not None:
        found, _ = read_safetensors(made)
        wanted = {key: (code_of(array), list(array.shape), array.tobytes()) for part in parts for key, array in part.items()}
        oracle.check(found == wanted, "folder", f"{sorted(found)}")


def main():
    oracle = Oracle(__doc__, syncs=False)
    draw = np.random.default_rng(common_seed())
    arrays = check_reading(oracle, draw)
    check_writing(oracle, arrays)
    check_names(oracle)
    check_formats(oracle)
    check_single(oracle, draw)
    check_other_types(oracle)
    check_lacking(oracle)
    check_hostile(oracle)
    check_mutants(oracle)
    check_cut(oracle)
    check_folder(oracle)
    oracle.finish()


if __name__ == "__main__":
    main()
