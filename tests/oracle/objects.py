# SPDX-License-Identifier: Apache-2.0
"""Objects that hold tensors, odd keys, numpy values, and unread kinds, written by live PyTorch and by DCP. `convert`
yields every tensor that PyTorch sees, bit for bit under PyTorch's name for it, or refuses it by name."""
import collections
import dataclasses
import enum
import io
import json
import types
import warnings

from common import Oracle, need_torch, read_safetensors, rounds

need_torch()
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch import nn  # noqa: E402

warnings.filterwarnings("ignore")


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass
class State:
    w: torch.Tensor
    step: int


class Slots:
    __slots__ = ("t", "n")

    def __init__(self):
        self.t, self.n = torch.arange(3.0), 4


class Plain:
    def __init__(self):
        self.t, self.cfg, self.me = torch.full((2, 2), 1.5), {"lr": 0.1}, self


class Lookup(dict):
    pass


class Stack(list):
    pass


Point = collections.namedtuple("Point", "x y")


class Wrapped:
    """Only its own function knows what it makes of its argument."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __reduce__(self):
        return Wrapped, (self.tensor,)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 3), nn.BatchNorm1d(3)])
        self.tied = self.layers[0]
        self.register_buffer("transient", torch.arange(4), persistent=False)
        self.register_buffer("kept", torch.arange(5))
        self.scales = nn.ParameterDict({"a": nn.Parameter(torch.ones(2))})
        self.more = nn.ParameterList([nn.Parameter(torch.ones(1))])


def tensor_bytes(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def expect_tensors(oracle, case, path, wanted):
    found, _ = read_safetensors(path)
    oracle.check(set(found) == set(wanted), case, f"names {sorted(found)}, expected {sorted(wanted)}")
    for name in set(found) & set(wanted):
        _, shape, data = found[name]
        oracle.check(shape == list(wanted[name].shape) and data == tensor_bytes(wanted[name]), case, f"{name} differs")


def inspected(oracle, case, path):
    out = oracle.succeeds(case, "inspect", path, "--json")
    return json.loads(out) if out is not None else {"tensors": {}, "objects": {}}


def carried(oracle, case, value, wanted, objects=None):
    """From .pt to safetensors and to DCP, and from DCP to safetensors: always the same tensors."""
    source = oracle.work / f"{case}.pt"
    torch.save(value, source)
    for name, start in (("direct", source), ("by_dcp", oracle.work / f"{case}_dcp")):
        if name == "by_dcp":
            oracle.succeeds(case, "convert", source, start, "--to", "dcp")
        target = oracle.work / f"{case}_{name}.safetensors"
        if oracle.succeeds(case, "convert", start, target) is not None:
            expect_tensors(oracle, f"{case} {name}", target, wanted)
    oracle.succeeds(case, "diff", source, oracle.work / f"{case}_dcp")
    said = inspected(oracle, case, source)
    oracle.check(set(said["tensors"]) == set(wanted), case, f"inspect lists {sorted(said['tensors'])}")
    if objects is not None:
        oracle.check(set(said["objects"]) == set(objects), case, f"objects {sorted(said['objects'])}")
    back = {name: torch.empty_like(tensor) for name, tensor in wanted.items()}
    dcp.load(back, checkpoint_id=oracle.work / f"{case}_dcp", no_dist=True)
    for name, tensor in wanted.items():
        oracle.check(tensor_bytes(back[name]) == tensor_bytes(tensor), case, f"PyTorch loads {name}")


FLAG = "pass --skip-unsupported to leave it out"


def refused(oracle, case, value, key, says, tensors, kept):
    """Nothing is dropped without request; --skip-unsupported drops and counts, for every target."""
    source = oracle.work / f"{case}.pt"
    torch.save(value, source)
    for to in ("dcp", "safetensors", "hf", "pt", "torch-checkpointing"):
        target = oracle.work / f"{case}.{to}.out"
        status, out, err = oracle.run("convert", source, target, "--to", to)
        oracle.check(status == 1 and key in err and says in err and FLAG in err and not target.exists(), f"{case} {to}",
                     f"exits {status}: {err}")
        status, out, err = oracle.run("convert", source, target, "--to", to, "--skip-unsupported")
        wrote, skipped = (f"{count} tensor{'' if count == 1 else 's'}" for count in (kept, tensors))
        oracle.check(status == 0 and f"wrote {wrote} (" in out and f"skipped {skipped}" in out and key in err,
                     f"{case} {to}", f"skipping exits {status}: {out} {err}")
    status, _, err = oracle.run("reshard", source, oracle.work / f"{case}.mesh", "--mesh", "2", "--default", "R")
    oracle.check(status == 1 and key in err and FLAG in err, f"{case} reshard", f"exits {status}: {err}")
    oracle.succeeds(case, "reshard", source, oracle.work / f"{case}.mesh", "--mesh", "2", "--default", "R",
                    "--skip-unsupported")


def resharded(oracle, case, value):
    """Known wrappers are converted to every format (wrappers.py), and after a reshard one rank has each whole."""
    source, target = oracle.work / f"{case}.pt", oracle.work / f"{case}.mesh"
    torch.save(value, source)
    oracle.succeeds(case, "reshard", source, target, "--mesh", "2", "--default", "R")
    oracle.succeeds(case, "diff", source, target)


def containers(oracle):
    torch.manual_seed(0)
    t = [torch.rand(n + 1) for n in range(16)]
    carried(oracle, "containers", {
        "tuple": (t[0], 2), "list": [1, t[1]], "set": {t[2]}, "ordered": collections.OrderedDict(a=t[3]),
        "default": collections.defaultdict(list, {"k": [t[4]]}), "point": Point(t[5], 7), "lookup": Lookup(q=t[6]),
        "stack": Stack([t[7]]), "deque": collections.deque([t[8]], maxlen=3), "space": types.SimpleNamespace(z=t[9]),
        "deep": ((t[10], {"a": (t[11],)}),), "data": State(t[12], 5), "slots": Slots(), "plain": Plain(),
        "twice": [(t[13],), (t[13],)], "untouched": (1, "a")},
        {"tuple.0": t[0], "list.1": t[1], "set.0": t[2], "ordered.a": t[3], "default.k.0": t[4], "point.0": t[5],
         "lookup.q": t[6], "stack.0": t[7], "deque.0": t[8], "space.z": t[9], "deep.0.0": t[10], "deep.0.1.a.0": t[11],
         "data.w": t[12], "slots.t": torch.arange(3.0), "plain.t": torch.full((2, 2), 1.5), "twice.0.0": t[13],
         "twice.1.0": t[13]},
        {"tuple.1", "list.0", "point.1", "data.step", "slots.n", "plain.cfg", "untouched"})
    carried(oracle, "root_list", [t[0], (t[1], 3)], {"0": t[0], "1.0": t[1]}, {"1.1"})


def modules(oracle):
    net = Net()
    state = {name: value.clone() for name, value in net.state_dict().items()}
    carried(oracle, "module", {"model": net, "epoch": 3}, {f"model.{name}": v for name, v in state.items()}, {"epoch"})
    carried(oracle, "root_module", net, state, set())
    legacy = oracle.work / "legacy.pt"
    torch.save({"model": net}, legacy, _use_new_zipfile_serialization=False)
    target = oracle.work / "legacy.safetensors"
    oracle.succeeds("legacy module", "convert", legacy, target)
    expect_tensors(oracle, "legacy module", target, {f"model.{name}": v for name, v in state.items()})
    net.layers[0](torch.ones(1, 2)).sum().backward()
    optimizer = torch.optim.Adam(net.parameters())
    optimizer.step()
    source = oracle.work / "optimizer.pt"
    torch.save({"opt": optimizer}, source)
    found = inspected(oracle, "optimizer", source)["tensors"]
    for name in ("opt.state.0.exp_avg", "opt.state.1.exp_avg_sq", "opt.param_groups.0.params.0"):
        oracle.check(name in found, "optimizer", f"{name} is not among {sorted(found)}")


def keys(oracle):
    t = [torch.full((n + 1,), n + 0.5) for n in range(4)]
    value = {(1, "a"): t[0], b"b": t[1], torch.float32: t[2], "cfg": {Color.RED: 1, "x": 2}, "w": {Color.RED: t[3]},
             frozenset([1]): 4, 3.5: 5, None: 6, torch.Size([2, 1]): 7, torch.device("cuda:1"): 8}
    of_set, of_member = oracle.marks_of([frozenset([1]), Color.RED])
    carried(oracle, "keys", value, {"(1, 'a')": t[0], "b'b'": t[1], "torch.float32": t[2], f"w.{of_member}": t[3]},
            {"cfg", of_set, "3.5", "None", "torch.Size([2, 1])", "cuda:1"})
    # The names are those of PyTorch's own flattening, if it makes any.
    theirs, _ = dcp._nested_dict.flatten_state_dict({k: v for k, v in value.items() if not isinstance(k, frozenset) and k not in ("cfg", "w")})
    ours = inspected(oracle, "keys", oracle.work / "keys.pt")
    missing = set(theirs) - set(ours["tensors"]) - set(ours["objects"])
    oracle.check(not missing, "keys", f"PyTorch's names {sorted(missing)} are missing")


def cyclic(oracle):
    loop = [1]
    loop.append(loop)
    owner = types.SimpleNamespace(name="n")
    owner.child = types.SimpleNamespace(parent=owner)
    value = {"loop": loop, "owner": owner, "w": torch.ones(1)}
    carried(oracle, "cyclic", value, {"w": torch.ones(1)}, {"loop", "owner"})
    long = {"long": [(i,) for i in range(1_100_000)], "w": torch.ones(1)}
    if rounds(0, 1):
        carried(oracle, "long", long, {"w": torch.ones(1)}, {"long"})
        return
    torch.save(long, oracle.work / "long.pt")
    oracle.succeeds("long", "convert", oracle.work / "long.pt", oracle.work / "long_dcp", "--to", "dcp")
    oracle.succeeds("long", "diff", oracle.work / "long.pt", oracle.work / "long_dcp")


def values(oracle):
    value = {"range": range(0, 10, 2), "array": np.arange(6, dtype=np.int32).reshape(2, 3), "number": np.float64(2.5),
             "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "flags": np.array([True, False]),
             "text": np.array(["a", "b\u00e9"]), "dates": np.array(["2020-01-01"], dtype="M8[D]"), "none": np.zeros((0, 2)),
             "big": np.arange(3, dtype=">i2"), "half": np.array([1.5, -2.0], dtype="f2"), "nan": np.array([np.nan]),
             "complex": np.complex64(1 + 2j), "bool": np.bool_(True), "many": np.arange(2000), "bytes": np.array([b"ab"]),
             "listed": [np.int64(4), np.uint64(2**64 - 1)], "scalar_array": np.array(5), "delta": np.timedelta64(3, "ms"),
             "w": torch.ones(1)}
    carried(oracle, "values", value, {"w": torch.ones(1)}, set(value) - {"w"})
    # PyTorch's loading of the same file: numpy converts other byte orders to native order.
    kept = torch.load(oracle.work / "values.pt", weights_only=False)
    kept.pop("w")
    # Through objects.json and back to PyTorch.
    back = oracle.work / "values_back"
    oracle.succeeds("values", "convert", oracle.work / "values_direct.safetensors", back, "--to", "dcp")
    for case, folder in (("values by pickle", oracle.work / "values_dcp"), ("values by JSON", back)):
        loaded = {k: None for k in kept}
        dcp.state_dict_loader.load(loaded, checkpoint_id=folder, no_dist=True)
        for name, expected in kept.items():
            good = type(loaded[name]) is type(expected)
            if good and isinstance(expected, (np.ndarray, np.generic)):
                good = loaded[name].dtype == expected.dtype and np.asarray(loaded[name]).tobytes() == np.asarray(
                    expected).tobytes() and np.asarray(loaded[name]).shape == np.asarray(expected).shape
            elif good:
                good = loaded[name] == expected
            oracle.check(good, case, f"{name}: {loaded[name]!r}, expected {expected!r}")
    oracle.succeeds("values", "diff", oracle.work / "values.pt", back)
    said = inspected(oracle, "values", oracle.work / "values.pt")["objects"]
    wanted = {"range": {"$other": "builtins.range", "range": [0, 10, 2]},
              "number": {"$other": "numpy.float64", "dtype": "<f8", "value": {"$float": "0x1.4000000000000p+1"},
                         "data": "0000000000000440"}}
    for name, expected in wanted.items():
        oracle.check(said[name]["value"] == expected, "values", f"{name} is shown as {said[name]}")
    oracle.check(said["array"]["value"]["values"] == list(range(6)), "values", f"array is shown as {said['array']}")
    oracle.check(said["text"]["value"]["values"] == ["a", "b\u00e9"], "values", f"text is shown as {said['text']}")
    torch.save({"f": torch.nn.functional.relu, "g": torch.relu}, oracle.work / "names.pt")
    said = inspected(oracle, "names", oracle.work / "names.pt")["objects"]
    oracle.check(said["f"]["value"].get("name") == "torch.nn.functional.relu", "names", f"{said['f']}")
    oracle.check(said["g"]["value"].get("name", "").endswith(".relu"), "names", f"{said['g']}")


def refusals(oracle):
    w, eye = torch.ones(1), torch.eye(2)
    refused(oracle, "wrapped", {"a": {"x": Wrapped(torch.ones(3))}, "w": w}, "a.x", "1 tensor inside", 1, 1)
    refused(oracle, "storage", {"s": torch.ones(3).untyped_storage(), "w": w}, "s", "1 tensor inside", 1, 1)
    resharded(oracle, "coo", {"s": eye.to_sparse(), "w": w})
    resharded(oracle, "csr", {"s": (eye.to_sparse_csr(), 1), "w": w})
    quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    resharded(oracle, "quantized", {"q": quantized, "w": w})
    refused(oracle, "meta", {"m": torch.ones(2, device="meta"), "w": w}, "m", "meta tensor", 1, 1)
    ragged = [torch.ones(1), torch.ones(2)]
    resharded(oracle, "nested", {"n": torch.nested.nested_tensor(ragged), "w": w})
    resharded(oracle, "jagged", {"n": torch.nested.nested_tensor(ragged, layout=torch.jagged), "w": w})
    torch.save({"w": torch.zeros(1).expand(1 << 38)}, oracle.work / "expanded.pt")
    status, _, err = oracle.run("verify", oracle.work / "expanded.pt")
    oracle.check(status == 1 and "w" in err and "raise --limit-factor" in err, "expanded", f"exits {status}: {err}")


def beside_flat_parameters(oracle):
    """If a folder's flat parameter is split into named ones, a wrapper in it still becomes its components."""
    flat, spec, folder = torch.rand(10), oracle.work / "flat.json", oracle.work / "flat"
    torch.save({"m._flat_param": flat, "q": torch.quantize_per_tensor(torch.rand(4), 0.1, 0, torch.qint8)}, oracle.work / "flat.pt")
    spec.write_text(json.dumps({"units": [{"key": "m._flat_param", "parameters": [
        {"name": "w", "shape": [2, 3]}, {"name": "b", "shape": [4]}]}]}))
    oracle.succeeds("flat", "convert", oracle.work / "flat.pt", folder, "--to", "dcp")
    made = {}
    for name, more in (("plain", []), ("named", ["--flat-spec", spec])):
        if oracle.succeeds("flat", "convert", folder, oracle.work / f"{name}.safetensors", *more) is None:
            return
        made[name], _ = read_safetensors(oracle.work / f"{name}.safetensors")
    whole = made["plain"].pop("m._flat_param")[2]
    wanted = {**made["plain"], "m.w": ("F32", [2, 3], whole[:24]), "m.b": ("F32", [4], whole[24:])}
    oracle.check(len(wanted) > 2 and made["named"] == wanted, "flat", f"{sorted(made['named'])} for {sorted(wanted)}")


def not_checkpoints(oracle):
    made = {"compressed.pt": "gzip", "pointer.pt": "Git LFS"}
    (oracle.work / "compressed.pt").write_bytes(b"\x1f\x8b\x08\x00" + bytes(40))
    (oracle.work / "pointer.pt").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    for file, says in made.items():
        status, _, err = oracle.run("inspect", oracle.work / file)
        oracle.check(status == 1 and says in err and file in err, file, f"exits {status}: {err}")


def archive_of(folder, key):
    metadata = dcp.FileSystemReader(folder).read_metadata()
    (place,) = [info for index, info in metadata.storage_data.items() if index.fqn == key]
    data = (folder / place.relative_path).read_bytes()
    return data[place.offset:place.offset + place.length]


def object_of(folder, key):
    return torch.load(io.BytesIO(archive_of(folder, key)), weights_only=False)


def whole_objects_of_dcp(oracle):
    """flatten_state_dict=False: verbatim from DCP to DCP, split elsewhere."""
    t = [torch.rand(4, 3), torch.arange(2)]
    folder = oracle.work / "whole"
    dcp.save({"nested": {"t": t[0], "n": [1, 2], "deep": {"u": t[1], "pair": (t[0], 1)}}, "net": nn.Linear(2, 1), "w": t[1]},
             checkpoint_id=folder, no_dist=True, planner=dcp.DefaultSavePlanner(flatten_state_dict=False))
    said = inspected(oracle, "whole", folder)
    oracle.check(set(said["tensors"]) == {"w"}, "whole", f"inspect lists {sorted(said['tensors'])}")
    inside = said["objects"]["nested"].get("tensors", {})
    oracle.check(inside == {"nested.t": {"dtype": "float32", "shape": [4, 3]}, "nested.deep.u": {"dtype": "int64", "shape": [2]},
                            "nested.deep.pair.0": {"dtype": "float32", "shape": [4, 3]}}, "whole", f"inside: {inside}")
    copy = oracle.work / "whole_copy"
    oracle.succeeds("whole", "convert", folder, copy, "--to", "dcp")
    oracle.succeeds("whole", "diff", folder, copy)
    loaded = {name: object_of(copy, name) for name in ("nested", "net")}
    oracle.check(torch.equal(loaded["nested"]["deep"]["pair"][0], t[0]), "whole", "PyTorch loads the copied object")
    oracle.check(archive_of(copy, "nested") == archive_of(folder, "nested"), "whole", "the object is copied verbatim")
    net = loaded["net"]  # DCP saves the state_dict() of a module
    wanted = {"nested.t": t[0], "nested.deep.u": t[1], "nested.deep.pair.0": t[0], "w": t[1], "net.weight": net["weight"],
              "net.bias": net["bias"]}
    for to, file in (("safetensors", oracle.work / "whole.safetensors"), ("hf", oracle.work / "whole_hf")):
        if oracle.succeeds("whole", "convert", folder, file, "--to", to) is not None:
            expect_tensors(oracle, f"whole {to}", file if to != "hf" else file / "model.safetensors", wanted)


def main():
    oracle = Oracle(__doc__, syncs=False)
    for step in (containers, modules, keys, cyclic, values, refusals, beside_flat_parameters, not_checkpoints, whole_objects_of_dcp):
        step(oracle)
    oracle.finish()


if __name__ == "__main__":
    main()
