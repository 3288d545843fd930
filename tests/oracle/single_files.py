# SPDX-License-Identifier: Apache-2.0
"""Files that are not a state dict of torch.save: a bare tensor, a list, an object; pickles of pickle.dump with tensors
and numpy arrays; TorchScript archives and exported programs of this PyTorch and (tests/data/writers/torch_*) of
others. The tool's reading is compared, bit for bit, with PyTorch's own; hostile files are refused with one line."""
import json
import pickle
import shutil
import zipfile
from typing import Tuple

from common import Oracle, need_torch, rounds

need_torch()
import logging  # noqa: E402
import random  # noqa: E402
import warnings  # noqa: E402

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.checkpoint._nested_dict import flatten_state_dict  # noqa: E402

from make_programs import Model, Small, described  # noqa: E402


def check(oracle, name, file, expected, objects=None, notes=()):
    """`expected` is the result of `described` for the tensors; `objects` are the keys of other values."""
    out = oracle.succeeds(name, "inspect", file, "--json")
    if out is None:
        return
    said = json.loads(out)
    oracle.check(list(said["tensors"]) == list(expected), name, f"inspect lists {list(said['tensors'])}, not {list(expected)}")
    shown = {k: {"dtype": v["dtype"], "shape": v["shape"]} for k, v in said["tensors"].items()}
    oracle.check(shown == {k: {x: v[x] for x in ("dtype", "shape")} for k, v in expected.items()}, name, f"inspect says {shown}")
    oracle.check(sorted(said["objects"]) == sorted(objects or []), name, f"objects are {sorted(said['objects'])}")
    status, _, err = oracle.run("inspect", file)
    for note in notes:
        oracle.check(status == 0 and note in err, name, f"no note says {note!r}: {err}")
    oracle.succeeds(name, "verify", file)
    kinds = ["pt", "dcp", "safetensors"]
    if any(v["dtype"] == "complex128" for v in expected.values()):
        kinds.pop()  # it cannot hold complex128
    for kind in kinds:
        made = oracle.work / f"{name}.{kind}"
        if oracle.succeeds(name, "convert", file, made, "--to", kind) is None:
            return
        oracle.succeeds(name, "diff", file, made)
    loaded = torch.load(oracle.work / f"{name}.pt", weights_only=False)
    flat, _ = flatten_state_dict({str(i): v for i, v in enumerate(loaded)} if isinstance(loaded, list) else loaded)
    read = described({k: v for k, v in flat.items() if isinstance(v, torch.Tensor)})
    oracle.check(read == expected, name, f"other tensors: {sorted(k for k in expected if read.get(k) != expected[k])}")


def roots(oracle):
    torch.manual_seed(1)
    cases = {"tensor": torch.randn(3, 4), "bent": torch.randn(4, 6).t()[1:3], "zero_d": torch.tensor(5), "none": torch.empty(0, 2),
             "parameter": nn.Parameter(torch.randn(2).to(torch.bfloat16)), "conj": torch.randn(3, dtype=torch.complex64).conj()}
    for name, value in cases.items():
        for form, options in (("zip", {}), ("old", {"_use_new_zipfile_serialization": False})):
            file = oracle.work / f"root_{name}_{form}.in"
            torch.save(value, file, **options)
            check(oracle, f"root_{name}_{form}", file, described({"tensor": value.resolve_conj()}))
    held = {"list": ([torch.ones(2), 5, {"a": torch.zeros(3)}], ["1"], {"0": torch.ones(2), "2.a": torch.zeros(3)}),
            "tuple": ((torch.ones(1), (torch.zeros(0),)), [], {"0": torch.ones(1), "1.0": torch.zeros(0)}),
            "int": (7, ["object"], {}), "text": ("x", ["object"], {}), "plain_list": ([1, "a"], ["object"], {})}
    for name, (value, objects, tensors) in held.items():
        file = oracle.work / f"root_{name}.in"
        torch.save(value, file)
        check(oracle, f"root_{name}", file, described(tensors), objects)
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    torch.save(module, oracle.work / "root_module.in")
    check(oracle, "root_module", oracle.work / "root_module.in", described(module.state_dict()),
          notes=["is split into"])


def random_values(rng):
    """A state, its tensors, and its objects."""
    dtypes = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
              torch.uint8, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.uint16]
    arrays = [np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
              np.bool_, np.complex64, np.complex128]
    state, tensors, objects = {}, {}, []
    for i in range(rng.randint(1, 8)):
        shape = [rng.choice([0, 1, 2, 3, 7]) for _ in range(rng.randint(0, 3))]
        tensor = (10 * torch.randn(shape)).to(rng.choice(dtypes))
        if tensor.dim() > 1 and rng.random() < 0.4:
            tensor = tensor.transpose(0, 1)
        kind = rng.randrange(4)
        if kind == 0:
            state[f"k{i}"] = tensor
        elif kind == 1:
            state[f"k{i}"] = {"list": [tensor, i]}
            objects.append(f"k{i}.list.1")
        elif kind == 2:
            array = np.asarray(10 * np.random.default_rng(i).standard_normal(shape)).astype(rng.choice(arrays))
            array = np.asfortranarray(array) if rng.random() < 0.4 else array
            state[f"k{i}"], tensor = array, torch.from_numpy(array.copy())
        else:
            state[f"k{i}"] = np.arange(3).astype(rng.choice([">f4", "U3", "M8[s]"]))
            objects.append(f"k{i}")
            continue
        tensors[f"k{i}.list.0" if kind == 1 else f"k{i}"] = tensor
    return state, tensors, objects


def pickles(oracle):
    for seed in range(rounds(4, 24)):
        rng = random.Random(seed)
        torch.manual_seed(seed)
        state, tensors, objects = random_values(rng)
        file = oracle.work / f"pickle_{seed}.pkl"
        file.write_bytes(pickle.dumps(state, protocol=seed % 6))
        out = oracle.succeeds(f"pickle_{seed}", "inspect", file, "--json")
        if out is None:
            continue
        # Safetensors has no place for objects of strange types: they are left out.
        ordered = {k: described(tensors)[k] for k in json.loads(out)["tensors"] if k in tensors}
        oracle.check(len(ordered) == len(tensors), f"pickle_{seed}", f"{set(tensors) - set(ordered)} are no tensors")
        check(oracle, f"pickle_{seed}", file, ordered, objects)
    file = oracle.work / "pickled_module.pkl"
    module = nn.Linear(2, 3)
    for protocol in range(6):
        file.write_bytes(pickle.dumps(module, protocol=protocol))
        check(oracle, f"pickled_module_{protocol}", file, described(module.state_dict()))
    # Shared tensors stay shared, and texts with all kinds of letters stay texts.
    shared = torch.arange(40_000.0)  # longer than the first block that is inspected
    for protocol in range(6):
        file.write_bytes(pickle.dumps({"a": shared, "b": shared[3:7], "c": [shared], "bytes": bytes(range(256)),
                                       "text": "\n\r\\ \u00e9\u20ac\U0001f600\0\x1a", "big": 1 << 90}, protocol=protocol))
        name = f"shared_{protocol}"
        check(oracle, name, file, described({"a": shared, "b": shared[3:7], "c.0": shared}), ["bytes", "text", "big"])
        values = json.loads(oracle.succeeds(name, "inspect", file, "--json") or "{}").get("objects", {})
        oracle.check({key: value["value"] for key, value in values.items()} == {
            "bytes": {"$bytes": bytes(range(256)).hex()}, "text": "\n\r\\ \u00e9\u20ac\U0001f600\0\x1a",
            "big": {"$int": str(1 << 90)}}, name, f"{values}")
    # Every order in which numpy writes an array's elements.
    dense = np.arange(30.0).reshape(2, 3, 5)
    arrays = {"dense": dense, "fortran": np.asfortranarray(dense), "transposed": dense.transpose(2, 0, 1),
              "matrix": dense[0].T, "strided": dense[:, ::2], "empty": np.zeros((0, 3, 2)).transpose(2, 0, 1)}
    for protocol in range(6):
        file.write_bytes(pickle.dumps(arrays, protocol=protocol))
        check(oracle, f"arrays_{protocol}", file, described({k: torch.from_numpy(v.copy()) for k, v in arrays.items()}))


def refused(oracle, name, file, *says):
    for command in (["inspect", file], ["convert", file, oracle.work / "refused", "--to", "dcp"]):
        status, _, err = oracle.run(*command)
        lines = [line for line in err.splitlines() if not line.startswith(("  names", "  not data", "note:", "warning:"))]
        oracle.check(status == 1 and len(lines) == 1 and file.name in lines[0] and all(word in lines[0] for word in says), name,
                     f"{command[0]} exits {status}: {err}")
    oracle.check(not (oracle.work / "refused").exists(), name, "something was written")


def hostile_pickles(oracle):
    good = pickle.dumps({"w": torch.arange(100.0)}, protocol=4)
    at = good.index(np.arange(100.0, dtype=np.float32).tobytes())
    file = oracle.work / "hostile.pkl"
    changes = {"count": (at - 8, b"\x65"), "count_negative": (at - 1, b"\x80"), "magic": (good.index(b"\x6c\xfc\x9c\x46"), b"\x6d")}
    for name, (where, byte) in changes.items():
        file.write_bytes(good[:where] + byte + good[where + 1:])
        refused(oracle, f"hostile_{name}", file)
    # A tensor that claims more than its storage has.
    sizes = good.replace(b"Kd\x85", b"Ke\x85", 1)
    assert sizes != good
    file.write_bytes(sizes)
    refused(oracle, "hostile_sizes", file)
    array = pickle.dumps({"a": np.arange(100.0)}, protocol=4).replace(b"Kd\x85", b"Ke\x85", 1)
    file.write_bytes(array)  # no array of that shape: an object, as in a .pt file
    out = oracle.succeeds("hostile_array", "inspect", file, "--json")
    oracle.check(out is not None and json.loads(out)["tensors"] == {}, "hostile_array", "it is a tensor")


def hostile_texts(oracle):
    """Protocols 0 to 2, which write bytes as text."""
    file = oracle.work / "hostile_text.pkl"
    tensor, array = torch.arange(100.0), np.arange(100.0)
    for protocol in (0, 1, 2):
        name, good = f"hostile_text_{protocol}", pickle.dumps({"w": tensor}, protocol=protocol)
        for cut in (len(good) // 3, len(good) - 1):
            file.write_bytes(good[:cut])
            refused(oracle, f"{name}_cut", file)
        # Letters that do not fit into a byte: a pickle that Python cannot load has no data.
        letter = b"\\u0142" if protocol == 0 else "\u0142".encode()
        old = b"\x80A" if protocol == 0 else "\x80A".encode()
        assert old in good
        changed = good.replace(old, letter + (b"" if protocol == 0 else b"A"), 1)
        file.write_bytes(changed)
        refused(oracle, f"{name}_letter", file)
        file.write_bytes(good.replace(b"I100\n" if protocol == 0 else b"Kd", b"I101\n" if protocol == 0 else b"Ke", 1))
        refused(oracle, f"{name}_sizes", file)
        file.write_bytes(pickle.dumps({"a": array}, protocol=protocol).replace(
            b"(I100\n" if protocol == 0 else b"Kd", b"(I101\n" if protocol == 0 else b"Ke", 1))
        out = oracle.succeeds(f"{name}_array", "inspect", file, "--json")
        oracle.check(out is not None and json.loads(out)["tensors"] == {}, f"{name}_array", "it is a tensor")
    # One long text, encoded many times: the file's size limits the output's.
    bomb = b"\x80\x02](X" + (1 << 20).to_bytes(4, "little") + b"a" * (1 << 20) + b"q\0"
    bomb += b"c_codecs\nencode\nq\1h\0X\6\0\0\0latin1q\2\x86R" + b"h\1h\0h\2\x86R" * 50_000 + b"e."
    file.write_bytes(bomb)
    status, _, err = oracle.run("inspect", file, timeout=60)
    oracle.check(status in (0, 1), "hostile_text_bomb", f"{status}: {err[-300:]}")


def programs(oracle):
    torch.manual_seed(4)
    model = Model().eval()
    made = {"script": torch.jit.script(model), "trace": torch.jit.trace(model, (torch.randn(4, 3),))}
    for name, module in made.items():
        file = oracle.work / f"{name}.in"
        torch.jit.save(module, file, _extra_files={"data.txt": "x"})
        check(oracle, name, file, described(torch.jit.load(file).state_dict()), notes=["TorchScript"])
        # Its classes are in the archive: no reason to warn.
        out = oracle.succeeds(name, "verify", "--strict", file)
        oracle.check(out is not None and "__torch__" not in out, name, f"verify says {out}")
        listed = json.loads(oracle.succeeds(name, "inspect", "--json", file) or "{}").get("globals", [])
        oracle.check(any(g["name"].startswith("__torch__.") and g["harmless"] for g in listed), name, f"{listed}")
        evil = oracle.work / "evil.in"  # a class outside the archive, or without an archive, causes a warning
        rewrite(file, evil, lambda r, data: (r, data.replace(b"c__torch__", b"cos\nsystem\n0c__torch__", 1))
                if r.endswith("/data.pkl") else (r, data))
        out = oracle.run("verify", evil)
        oracle.check("its pickle names os.system" in out[1] + out[2], name, f"verify says {out}")
        rewrite(file, evil, lambda r, data: None if r.endswith("/constants.pkl") else (r, data))
        out = oracle.run("verify", evil)
        oracle.check("its pickle names __torch__" in out[1] + out[2], name, f"verify says {out}")
    torch.jit.save(torch.jit.script(Packed()), oracle.work / "packed.in")
    refused(oracle, "getstate", oracle.work / "packed.in", "inner", "__getstate__", "torch.save its state_dict()")
    file = oracle.work / "program.pt2"
    torch.export.save(torch.export.export(Small().eval(), (torch.randn(1),)), file)
    check(oracle, "program", file, described(torch.export.load(file).state_dict), notes=["exported program", " constants"])
    shared = Views()
    torch.export.save(torch.export.export(shared, (torch.randn(2),)), file)
    check(oracle, "program_views", file, described(torch.export.load(file).state_dict))
    for writer in ("torch_jit", "torch_export"):
        folder = oracle.data / "writers" / writer
        for name, expected in json.loads((folder / "expected.json").read_text())["files"].items():
            check(oracle, "committed_" + name, folder / name, expected)
    folder = oracle.data / "writers" / "torch_jit"
    for text, says in (("M = 1", "no code"), ("class Other(Module):\n  __parameters__ = []\n", "not a module")):
        broken = oracle.work / "broken.pt"
        rewrite(folder / "script.pt", broken, lambda name, data: (name, text.encode()) if name == "script/code/__torch__.py" and
                says == "not a module" else None if name == "script/code/__torch__.py" else (name, data))
        refused(oracle, f"script_{says}", broken, says)


class OwnState(nn.Module):
    """Keeps its weights in its own state."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 3))

    @torch.jit.export
    def __getstate__(self):
        return self.weight * 2, self.training

    @torch.jit.export
    def __setstate__(self, state: Tuple[torch.Tensor, bool]):
        self.weight = state[0] / 2
        self.training = state[1]

    def forward(self, x):
        return x @ self.weight


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.outer = nn.Linear(2, 2)
        self.inner = OwnState()

    def forward(self, x):
        return self.inner(self.outer(x))


SCRIPT_DTYPES = ("float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu uint16 uint32 uint64 complex32 "
                 "float16 bool").split()


class Buffers(nn.Module):
    """Lazily conjugated and negated buffers, and one of every dtype with its own name in TorchScript."""

    def __init__(self):
        super().__init__()
        self.register_buffer("conjugated", torch.tensor([1 + 2j, -3j]).conj())
        self.register_buffer("negated", torch.tensor([3.0, -4.0])._neg_view())
        for name in SCRIPT_DTYPES:
            self.register_buffer(name, torch.arange(5).to(getattr(torch, name)))

    def forward(self, x):
        return x


def script_buffers(oracle):
    file = oracle.work / "buffers.in"
    torch.jit.save(torch.jit.script(Buffers()), file)
    wanted = {k: v.resolve_conj().resolve_neg().clone() for k, v in torch.jit.load(file).state_dict().items()}
    torch.save(wanted, oracle.work / "buffers.pt")
    shown = json.loads(oracle.succeeds("buffers", "inspect", file, "--json") or "{}")
    oracle.check(list(shown.get("tensors", {})) == list(wanted), "buffers", f"{shown}")
    oracle.succeeds("buffers", "diff", file, oracle.work / "buffers.pt")
    made = oracle.work / "buffers.made.pt"
    oracle.succeeds("buffers", "convert", file, made)
    read = torch.load(made, weights_only=True)
    same = {k: read[k].dtype == v.dtype and bytes(read[k].view(torch.uint8).numpy()) == bytes(v.view(torch.uint8).numpy())
            for k, v in wanted.items() if k != "bool"}
    oracle.check(all(same.values()) and read["bool"].equal(wanted["bool"]), "buffers", f"{same}")


class Views(nn.Module):
    """Weights that are views of one storage: overlapping, and some not contiguous."""

    def __init__(self):
        super().__init__()
        base = torch.randn(20)
        self.register_buffer("base", base)
        self.register_buffer("part", base[3:9])
        self.register_buffer("bent", base[2:14].view(3, 4).t())
        self.register_buffer("scalar", base[7])

    def forward(self, x):
        return x + self.scalar


def rewrite(source, target, change):
    """Copies a ZIP with some records changed, or left out (None)."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for record in old.infolist():
            kept = change(record.filename, old.read(record))
            if kept:
                new.writestr(kept[0], kept[1])


def unread_records(oracle):
    """A note names the records that neither torch.save writes nor the pickle refers to, and no others."""
    attributed = torch.ones(2)
    attributed.extra = torch.zeros(3)  # a storage inside the record of a plain tensor
    state = {"w": torch.ones(2), "sparse": torch.eye(3).to_sparse(), "attributed": attributed, "empty": torch.zeros(0)}
    file, made = oracle.work / "unread.pt", oracle.work / "unread_made.pt"
    torch.save(state, file)
    for call in (("inspect", file), ("convert", file, made, "--force")):
        status, _, err = oracle.run(*call)
        oracle.check(status == 0 and "not read" not in err, "nothing unread", f"{call[0]} exits {status}: {err}")
    with zipfile.ZipFile(file, "a") as archive:
        for name in ("unread/config.json", "unread/data/77", "other/data/0", "unread/data/0/more", "unread/.data/more"):
            archive.writestr(name, b"1234")
        archive.writestr("unread/folder/", b"")
    said = ("not read: 4 records to which the pickle does not refer: unread/config.json, unread/data/77, other/data/0, "
            "unread/data/0/more\n")
    for call in (("inspect", file), ("verify", file), ("convert", file, made, "--force")):
        status, out, err = oracle.run(*call)
        oracle.check(status == 0 and said in out + err, "unread", f"{call[0]} exits {status}: {out + err}")


def hostile_programs(oracle):
    folder = oracle.data / "writers" / "torch_export"
    config = "program/data/weights/model_weights_config.json"

    def changed(name, says, edit):
        def change(record, data):
            if record != config:
                return record, data
            document = json.loads(data)
            edit(document["config"])
            return record, json.dumps(document).encode()
        file = oracle.work / "hostile.pt2"
        rewrite(folder / "program.pt2", file, change)
        refused(oracle, f"hostile_{name}", file, *says)

    key = "a.linear.bias"
    changed("path", [key, "no record"], lambda c: c[key].update(path_name="../../../etc/passwd"))
    changed("sizes", [key, "fewer bytes"], lambda c: c[key]["tensor_meta"].update(sizes=[{"as_int": 1 << 40}]))
    changed("huge", [key], lambda c: c[key]["tensor_meta"].update(sizes=[{"as_int": 1 << 62}] * 2, strides=[{"as_int": 4}] * 2))
    changed("offset", [key, "fewer bytes"], lambda c: c[key]["tensor_meta"].update(storage_offset={"as_int": 1}))
    changed("negative", [key], lambda c: c[key]["tensor_meta"].update(strides=[{"as_int": -1}]))
    changed("dtype", [key, "99"], lambda c: c[key]["tensor_meta"].update(dtype=99))
    changed("symbolic", [key], lambda c: c[key]["tensor_meta"].update(sizes=[{"as_expr": {"expr_str": "s0"}}]))
    changed("layout", [key, "strided"], lambda c: c[key]["tensor_meta"].update(layout=1))
    changed("rank", [key], lambda c: c[key]["tensor_meta"].update(sizes=[{"as_int": 1}] * 200, strides=[{"as_int": 1}] * 200))
    changed("missing", [key], lambda c: c[key].pop("tensor_meta"))
    changed("expanded", [], lambda c: c[key]["tensor_meta"].update(sizes=[{"as_int": 1 << 38}], strides=[{"as_int": 0}]))
    damaged = oracle.work / "damaged.pt2"
    data = bytearray((folder / "program.pt2").read_bytes())
    expected = json.loads((folder / "expected.json").read_text())["files"]["program.pt2"][key]
    at = data.index(bytes.fromhex(expected["bytes"]))
    data[at] ^= 1
    damaged.write_bytes(data)
    status, _, err = oracle.run("verify", damaged)
    oracle.check(status == 1 and key in err and "damaged.pt2" in err, "damaged", f"verify exits {status}: {err}")


oracle = Oracle(__doc__, syncs=False)
for part in (roots, unread_records, pickles, hostile_pickles, hostile_texts, programs, script_buffers, hostile_programs):
    if oracle.args.only in part.__name__:
        part(oracle)
shutil.rmtree(oracle.work, ignore_errors=True)
oracle.finish()
