# SPDX-License-Identifier: Apache-2.0
"""Wrapping tensors (sparse of every layout, nested, quantized, torchao's) return unchanged through safetensors: from
our files, torch.load and dcp.load return the original's class, attributes, and bits. Descriptions are not trusted."""
import importlib
import io
import logging
import pickle
import random
import shutil
import warnings
import zipfile

from common import Oracle, need_torch, rounds

need_torch()
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402

LAYOUTS = {torch.sparse_csr: ("crow_indices", "col_indices"), torch.sparse_bsr: ("crow_indices", "col_indices"),
           torch.sparse_csc: ("ccol_indices", "row_indices"), torch.sparse_bsc: ("ccol_indices", "row_indices")}


def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def plain_difference(ours, theirs):
    for what in ("dtype", "shape", "requires_grad"):
        if getattr(ours, what) != getattr(theirs, what):
            return f"{what} {getattr(ours, what)}, not {getattr(theirs, what)}"
    return None if ours.stride() == theirs.stride() and bits(ours) == bits(theirs) else "other strides or bits"


def parts_of(tensor):
    """All parts of a wrapper: plain tensors, and everything else."""
    if tensor.is_quantized:
        if tensor.qscheme() == torch.per_tensor_affine:
            return {"int_repr": tensor.int_repr()}, (tensor.dtype, tensor.qscheme(), tensor.q_scale(), tensor.q_zero_point(),
                                                     tensor.stride())
        return {"int_repr": tensor.int_repr(), "scales": tensor.q_per_channel_scales(), "zeros":
                tensor.q_per_channel_zero_points()}, (tensor.dtype, tensor.q_per_channel_axis(), tensor.stride())
    if tensor.layout is torch.sparse_coo:
        return {"indices": tensor._indices(), "values": tensor._values()}, (tensor.size(), tensor.is_coalesced())
    if tensor.layout in LAYOUTS:
        return {name: getattr(tensor, name)() for name in (*LAYOUTS[tensor.layout], "values")}, (tensor.size(),)
    if tensor.layout is torch.jagged:
        tensors = {"values": tensor._values, "offsets": tensor._offsets}
        if tensor._lengths is not None:
            tensors["lengths"] = tensor._lengths
        return tensors, (tensor._ragged_idx, tensor._maybe_min_seqlen, tensor._maybe_max_seqlen, tensor.dtype)
    return {"buffer": tensor.values(), "sizes": tensor._nested_tensor_size(), "strides": tensor._nested_tensor_strides(),
            "offsets": tensor._nested_tensor_storage_offsets()}, ()


def difference(ours, theirs):
    if type(ours) is not type(theirs) or not isinstance(theirs, torch.Tensor):
        return None if type(ours) is type(theirs) and ours == theirs else f"{type(ours)} {ours!r}"
    if (ours.layout, ours.is_quantized, ours.is_nested, ours.requires_grad) != (
            theirs.layout, theirs.is_quantized, theirs.is_nested, theirs.requires_grad):
        return f"{ours.layout}, requires_grad={ours.requires_grad}, not {theirs.layout}, {theirs.requires_grad}"
    if theirs.layout is torch.strided and not theirs.is_quantized and not theirs.is_nested:
        return plain_difference(ours, theirs.contiguous())
    (tensors, rest), (wanted, wanted_rest) = parts_of(ours.detach()), parts_of(theirs.detach())
    if tensors.keys() != wanted.keys() or rest != wanted_rest:
        return f"{rest}, not {wanted_rest}"
    found = {key: plain_difference(tensors[key], wanted[key]) for key in wanted}
    return next((f"{key}: {what}" for key, what in found.items() if what), None)


def compare(oracle, case, ours, theirs):
    if not oracle.check(list(ours) == list(theirs), case, f"keys {list(ours)}"):
        return
    for key in theirs:
        found = difference(ours[key], theirs[key])
        oracle.check(found is None, case, f"{key}: {found}")


def sparse_values(rng, *sizes):
    dense = torch.randn(*sizes, dtype=rng.choice([torch.float32, torch.float64, torch.bfloat16]))
    return dense * (torch.rand(sizes) < rng.choice([0.0, 0.2, 0.6, 1.0]))


def random_coo(rng):
    sizes = [rng.randint(0, 5) for _ in range(rng.randint(1, 4))]
    inner = rng.randint(1, len(sizes))
    count = 0 if 0 in sizes[:inner] else rng.randint(0, 6)
    indices = torch.stack([torch.randint(0, max(size, 1), (count,)) for size in sizes[:inner]])
    made = torch.sparse_coo_tensor(indices, torch.randn(count, *sizes[inner:]), sizes, check_invariants=True)
    return made.coalesce() if rng.random() < 0.5 else made


def random_compressed(rng):
    dense = sparse_values(rng, *[rng.randint(1, 3) for _ in range(rng.choice([0, 0, 1]))], 2 * rng.randint(1, 4), 3 * rng.randint(1, 3))
    if dense.dim() == 3:  # the same places in every batch
        dense = dense * (dense[0] != 0)
        dense[:, dense[0] != 0] = 1.5
    layout = rng.choice(list(LAYOUTS))
    made = dense.to_sparse(layout=layout, **({"blocksize": (2, 3)} if layout in (torch.sparse_bsr, torch.sparse_bsc) else {}))
    if rng.random() < 0.5:
        first, second = LAYOUTS[layout]
        made = torch.sparse_compressed_tensor(getattr(made, first)().int(), getattr(made, second)().int(), made.values(), made.size(),
                                              layout=layout)
    return made


def random_nested(rng):
    width = rng.randint(0, 4)
    made = torch.nested.nested_tensor([torch.randn(rng.randint(0, 4), width) for _ in range(rng.randint(1, 4))])
    return made.transpose(1, 2) if rng.random() < 0.3 else made


def random_jagged(rng):
    if rng.random() < 0.3:
        starts, lengths = torch.tensor([0, 1]), torch.tensor([rng.randint(1, 2), rng.randint(1, 3)])
        return torch.nested.narrow(torch.randn(2, 4, 3), 1, starts, lengths, layout=torch.jagged)
    made = torch.nested.nested_tensor([torch.randn(rng.randint(1, 4), 3) for _ in range(rng.randint(1, 4))], layout=torch.jagged)
    return made.transpose(1, 2) if rng.random() < 0.3 else made


def random_quantized(rng):
    dtype = rng.choice([torch.qint8, torch.quint8, torch.qint32])
    sizes = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.5:
        made = torch.quantize_per_tensor(torch.randn(sizes), rng.random() + 0.01, rng.randint(0, 3), dtype)
        return made.transpose(0, -1) if rng.random() < 0.3 else made
    axis = rng.randrange(len(sizes))
    zeros = torch.randint(0, 3, (sizes[axis],))
    zeros = zeros.float() if rng.random() < 0.5 and dtype is torch.quint8 else zeros
    return torch.quantize_per_channel(torch.randn(sizes), torch.rand(sizes[axis]) + 0.1, zeros, axis, dtype)


MAKERS = (random_coo, random_compressed, random_nested, random_jagged, random_quantized)


def random_state(seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    state = {"plain": torch.randn(3, 2), "step": 3}
    for maker in MAKERS:
        for i in range(3):
            state[f"{maker.__name__}{i}"] = maker(rng)
    eye = torch.eye(3)
    state["coo_parameter"] = torch.nn.Parameter(eye.to_sparse(), requires_grad=bool(seed % 2))
    state["quantized_parameter"] = torch.nn.Parameter(torch.quantize_per_tensor(eye, 0.5, 1, torch.quint8), requires_grad=False)
    state["nested_parameter"] = torch.nn.Parameter(torch.nested.nested_tensor([eye[:1], eye]))
    state["jagged_parameter"] = torch.nn.Parameter(torch.nested.nested_tensor([eye[:1], eye], layout=torch.jagged))
    state["turned"] = torch.sparse_coo_tensor(torch.tensor([[0, 1], [2, 2], [1, 0]]).t(), torch.randn(4, 3).t()[:, 0], (4, 4))
    return state


def check_dcp(oracle, case, folder, original):
    """In DCP, sparse and nested tensors are objects, because PyTorch saves none of them as tensors. Quantized ones
    are tensors, and their items hold the original: dcp.load itself copies them into the destination's quantizer."""
    state, stored = {}, dcp.FileSystemReader(folder).read_metadata().storage_data
    quantized = {key for key, value in original.items() if isinstance(value, torch.Tensor) and value.is_quantized}
    for key, value in original.items():
        if key not in quantized:
            state[key] = torch.zeros_like(value) if type(value) is torch.Tensor and not value.is_nested and value.layout is torch.strided \
                else None
    dcp.state_dict_loader.load(state, checkpoint_id=folder, no_dist=True)
    for index, place in stored.items():
        if index.fqn in quantized:
            item = (folder / place.relative_path).read_bytes()[place.offset:place.offset + place.length]
            state[index.fqn] = torch.load(io.BytesIO(item), weights_only=True)
    for key, value in original.items():
        found = difference(state[key], value)
        oracle.check(found is None, case, f"{key}: {found}")
    like = {key: torch.empty_quantized(value.shape, value.detach()) for key, value in original.items() if key in quantized}
    dcp.state_dict_loader.load(like, checkpoint_id=folder, no_dist=True)
    for key, value in like.items():
        oracle.check(torch.equal(value.int_repr(), original[key].int_repr()), case, f"{key}: dcp.load gives {value}")


def check_random(oracle, seed):
    case, work = f"random {seed}", oracle.work / f"random_{seed}"
    work.mkdir()
    state = random_state(seed)
    torch.save(state, work / "source.pt")
    original = torch.load(work / "source.pt", weights_only=True)
    for made, source, *options in (("a.safetensors", "source.pt"), ("back.pt", "a.safetensors"), ("back_dcp", "a.safetensors", "--to", "dcp"),
                                   ("b_hf", "back_dcp", "--to", "hf"), ("again.pt", "b_hf"), ("direct.pt", "source.pt"),
                                   ("direct_dcp", "source.pt", "--to", "dcp"), ("from_dcp.pt", "direct_dcp"),
                                   ("apart_dcp", "direct_dcp", "--to", "dcp", "--components"), ("joined.pt", "apart_dcp")):
        oracle.succeeds(case, "convert", work / source, work / made, *options)
        oracle.succeeds(case, "verify", work / made)
    oracle.succeeds(case, "reshard", work / "source.pt", work / "cut_dcp", "--mesh", "3", "--default", "S(0)", "--place", "turned=R", "--allow-unused")
    oracle.succeeds(case, "diff", work / "source.pt", work / "cut_dcp")
    oracle.check({file.name for file in (work / "cut_dcp").glob("*.distcp")} == {f"__{rank}_0.distcp" for rank in range(3)}, case, "not three ranks' files")
    for made in ("back.pt", "again.pt", "direct.pt", "from_dcp.pt", "joined.pt"):
        for weights_only in (True, False):
            loaded = torch.load(work / made, weights_only=weights_only)
            compare(oracle, f"{case} {made}", {key: loaded.get(key) for key in original}, original)
    for made in ("back_dcp", "direct_dcp", "cut_dcp"):
        check_dcp(oracle, f"{case} {made}", work / made, original)
    apart = dcp.FileSystemReader(work / "apart_dcp").read_metadata().state_dict_metadata
    oracle.check("coo_parameter.indices" in apart and "coo_parameter" not in apart, case, f"--components: {sorted(apart)}")
    shutil.rmtree(work)


class Recorder:
    """Replaces torchao, which need not be installed: records the calls and their arguments."""
    def __init__(self, name, args):
        self.name, self.args, self.state = name, args, None

    def __setstate__(self, state):
        self.state = state


def recorder(name):
    class Recorded(Recorder):
        def __new__(cls, *args):
            made = object.__new__(cls)
            Recorder.__init__(made, name, args)
            return made

        def __init__(self, *args):
            pass
    Recorded.dotted = name
    return Recorded


class Structure(pickle.Unpickler):
    """Reads a torch.save pickle without torchao's code: plain tensors are tensors, and wrappers are their parts."""
    def __init__(self, file):
        self.archive = zipfile.ZipFile(file)
        self.prefix = self.archive.namelist()[0].split("/")[0]
        self.known = {}
        super().__init__(io.BytesIO(self.archive.read(f"{self.prefix}/data.pkl")))

    def find_class(self, module, name):
        if module.split(".")[0] in ("torch", "collections") and name not in ("_rebuild_from_type_v2", "_rebuild_wrapper_subclass"):
            return getattr(importlib.import_module(module), name)
        if name == "getattr":
            return lambda owner, member: (owner.dotted, member)
        return self.known.setdefault((module, name), recorder(f"{module}.{name}"))

    def persistent_load(self, saved):
        _, kind, key, _, _ = saved
        data = bytearray(self.archive.read(f"{self.prefix}/data/{key}"))
        storage = torch.UntypedStorage(len(data))
        if data:
            torch.empty(0, dtype=torch.uint8).set_(storage).copy_(torch.frombuffer(data, dtype=torch.uint8))
        return torch.storage.TypedStorage(wrap_storage=storage, dtype=torch.uint8 if kind is torch.UntypedStorage else kind.dtype,
                                          _internal=True)


def structure_difference(ours, theirs, where=""):
    if isinstance(theirs, torch.Tensor):
        found = difference(ours, theirs)
        return f"{where}: {found}" if found else None
    if isinstance(theirs, Recorder):
        if getattr(ours, "name", None) != theirs.name:
            return f"{where}: {ours!r}, not {theirs.name}"
        return structure_difference(ours.args, theirs.args, f"{where}()") or structure_difference(ours.state, theirs.state, f"{where}.")
    if isinstance(theirs, type) and hasattr(theirs, "dotted"):
        return None if ours.dotted == theirs.dotted else f"{where}: {ours.dotted}"
    if type(ours) is not type(theirs):
        return f"{where}: {ours!r}, not {theirs!r}"
    if isinstance(theirs, dict):
        if list(ours) != list(theirs):
            return f"{where}: {list(ours)}, not {list(theirs)}"
        return next(filter(None, (structure_difference(ours[k], theirs[k], f"{where}[{k!r}]") for k in theirs)), None)
    if isinstance(theirs, (list, tuple)):
        if len(ours) != len(theirs):
            return f"{where}: {len(ours)} items"
        return next(filter(None, (structure_difference(a, b, f"{where}[{i}]") for i, (a, b) in enumerate(zip(ours, theirs)))), None)
    return None if ours == theirs else f"{where}: {ours!r}, not {theirs!r}"


def has_torchao():
    try:
        import torchao.prototype.mx_formats.mx_tensor  # noqa: F401
        import torchao.prototype.mx_formats.nvfp4_tensor  # noqa: F401
        import torchao.quantization  # noqa: F401
        return True
    except Exception:
        return False


def check_torchao(oracle):
    folder = oracle.data / "writers" / "wrappers"
    for case, source in (("torchao.pt", folder / "torchao.pt"), ("wrappers.pt", folder / "wrappers.pt")):
        work = oracle.work / case
        work.mkdir()
        oracle.succeeds(case, "convert", source, work / "a.safetensors")
        oracle.succeeds(case, "convert", work / "a.safetensors", work / "back.pt")
        oracle.succeeds(case, "convert", work / "a.safetensors", work / "dcp", "--to", "dcp")
        oracle.succeeds(case, "convert", work / "dcp", work / "from_dcp.pt")
        theirs = Structure(source).load()
        for made in ("back.pt", "from_dcp.pt"):
            ours = Structure(work / made).load()
            found = structure_difference({key: ours.get(key) for key in theirs}, theirs)
            oracle.check(found is None, f"{case} {made}", str(found))
        metadata = dcp.FileSystemReader(work / "dcp").read_metadata().state_dict_metadata
        tensors = {key for key, value in metadata.items() if hasattr(value, "chunks")}
        oracle.check("m.int8" in tensors or case == "torchao.pt", case, f"tensors of DCP: {sorted(tensors)}")
        if has_torchao():
            check_with_torchao(oracle, case, source, work)
    # A real DCP folder with torchao's tensors: not only equal when read, but the same pickle bytes.
    work = oracle.work / "dcp_wrappers"
    work.mkdir()
    oracle.succeeds("dcp", "convert", folder / "dcp", work / "a.safetensors")
    oracle.succeeds("dcp", "convert", work / "a.safetensors", work / "back", "--to", "dcp")
    status, out, err = oracle.run("diff", folder / "dcp", work / "back")
    oracle.check(status == 0, "dcp", f"diff exits {status}: {out}{err}")


def check_with_torchao(oracle, case, source, work):
    # Some Pythons pickle enums by getattr, which weights_only refuses in the original as well.
    original = torch.load(source, weights_only=False)
    for made in ("back.pt", "from_dcp.pt"):
        loaded = torch.load(work / made, weights_only=case == "torchao.pt")
        for key, wanted in original.items():
            ours = loaded[key]
            if not oracle.check(type(ours) is type(wanted), f"{case} {made}", f"{key} is a {type(ours)}"):
                continue
            if type(wanted) is torch.Tensor or type(wanted) is torch.nn.Parameter or not type(wanted).__module__.startswith("torchao"):
                continue
            oracle.check((ours.dtype, ours.shape, ours.stride()) == (wanted.dtype, wanted.shape, wanted.stride()), case, f"{key}")
            oracle.check(list(vars(ours)) == list(vars(wanted)), case, f"{key} has {list(vars(ours))}")
            for name, value in vars(wanted).items():
                good = plain_difference(vars(ours)[name], value) is None if isinstance(value, torch.Tensor) else vars(ours)[name] == value
                oracle.check(good, f"{case} {made}", f"{key}.{name} is {vars(ours)[name]!r}, not {value!r}")
    print(f"{case}: compared by torchao's own classes, too")


def described(kind, components, **more):
    return {"type": kind, **more, "components": {name: {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
                                                 for name, tensor in components.items()}}


def hostile_states():
    """Yields (name, state, text of the single refusal line)."""
    coo = {"indices": torch.tensor([[0, 1], [1, 2]]), "values": torch.tensor([1.0, 2.0])}
    csr = {"crow_indices": torch.tensor([0, 1, 2]), "col_indices": torch.tensor([0, 1]), "values": torch.ones(2)}
    nested = {"buffer": torch.ones(6), "sizes": torch.tensor([[2, 3]]), "strides": torch.tensor([[3, 1]]), "offsets": torch.tensor([0])}
    jagged = {"values": torch.ones(4, 2), "offsets": torch.tensor([0, 1, 4])}
    int8 = {"qdata": torch.ones(2, 2, dtype=torch.int8), "scale": torch.ones(2, 1)}
    qint = {"int_repr": torch.ones(2, 2, dtype=torch.int8)}
    size = torch.Size((2, 3))

    def state(components, description, **changed):
        parts = {f"a.{name}": tensor for name, tensor in {**components, **changed}.items() if tensor is not None}
        return {**parts, "a.wrapper": description, "w": torch.ones(1)}

    def int8_state(**changed):
        whole = described("torchao.quantization.Int8Tensor", int8, dtype=torch.bfloat16, size=(2, 2), strides=(2, 1), attributes={},
                          state=["qdata", "scale"])
        return state(int8, {**whole, **changed})

    def setting(value):
        return int8_state(attributes={"x": value}, state=["qdata", "scale", "x"])

    cycle = []
    cycle.append(cycle)
    wide = []
    wide.extend([wide] * 60)
    good = described("torch.sparse_coo", coo, size=size, is_coalesced=True)
    yield "other class", state(coo, {**good, "type": "os.system"}), "os.system"
    yield "other torch name", state(coo, {**good, "type": "torch.load"}), "torch.load"
    yield "old description", state(coo, {**good, "components": ["indices", "values"]}), "a.wrapper"
    yield "missing", state(coo, good, values=None), "a.values"
    yield "cast", state(coo, good, values=torch.tensor([1, 2])), "a.values"
    yield "cut", state(coo, good, values=torch.tensor([1.0])), "a.values"
    yield "object as component", state(coo, good, values=[1.0, 2.0]), "a.values"
    yield "no size", state(coo, described("torch.sparse_coo", coo)), "a.wrapper"
    yield "size of another rank", state(coo, {**good, "size": torch.Size((2,))}), "a.wrapper"
    yield "dense size", state(coo, {**good, "size": torch.Size((2, 3, 4))}), "a.wrapper"
    yield "huge", state(coo, {**good, "size": torch.Size((2**40, 2**40))}), "a.wrapper"
    yield "negative", state(coo, {**good, "size": [-1, 3]}), "a.wrapper"
    yield "index outside", state(coo, good, indices=torch.tensor([[0, 1], [1, 3]])), "indices"
    yield "index below", state(coo, good, indices=torch.tensor([[0, -1], [1, 2]])), "indices"
    yield "float indices", state({**coo, "indices": coo["indices"].double()},
                                 described("torch.sparse_coo", {**coo, "indices": coo["indices"].double()}, size=size)), "a.wrapper"
    yield "csr rows", state(csr, described("torch.sparse_csr", csr, size=torch.Size((3, 3)))), "a.wrapper"
    whole_csr = described("torch.sparse_csr", csr, size=torch.Size((2, 2)))
    yield "csr pointers", state(csr, whole_csr, crow_indices=torch.tensor([0, 9, 2])), "crow_indices"
    yield "csr end", state(csr, whole_csr, crow_indices=torch.tensor([0, 1, 1])), "crow_indices"
    yield "csr columns", state(csr, whole_csr, col_indices=torch.tensor([0, 2])), "col_indices"
    yield "nested outside", state(nested, described("torch.nested", nested), sizes=torch.tensor([[2, 4]])), "offsets"
    yield "nested overflow", state(nested, described("torch.nested", nested), strides=torch.tensor([[2**62, 2**62]])), "offsets"
    yield "nested before", state(nested, described("torch.nested", nested), offsets=torch.tensor([-1])), "offsets"
    whole_jagged = described("torch.jagged", jagged, ragged_dimension=1, requires_grad=False)
    yield "jagged outside", state(jagged, whole_jagged, offsets=torch.tensor([0, 1, 5])), "offsets"
    yield "jagged dimension", state(jagged, {**whole_jagged, "ragged_dimension": 3}), "a.wrapper"
    yield "jagged length", state(jagged, {**whole_jagged, "longest": -1}), "a.wrapper"
    yield "unknown dtype", int8_state(dtype=torch.load), "a.wrapper"
    yield "dtype as text", int8_state(dtype="bfloat16"), "a.wrapper"
    yield "strides", int8_state(strides=(2**62, 1)), "a.wrapper"
    yield "no scale", state({"qdata": int8["qdata"]}, described("torchao.quantization.Int8Tensor", {"qdata": int8["qdata"]},
                                                             dtype=torch.bfloat16, size=(2, 2), strides=(2, 1), attributes={},
                                                             state=["qdata"])), "a.wrapper"
    yield "state", int8_state(state=["qdata", "scale", "scale"]), "a.wrapper"
    yield "dunder", int8_state(attributes={"__class__": 1}, state=["qdata", "scale", "__class__"]), "a.wrapper"
    yield "enum of another class", setting({"enum": "os.system", "value": "true"}), "os.system"
    yield "enum of ours as instance", setting({"instance": "torchao.quantization.quant_primitives.MappingType", "arguments": []}), "MappingType"
    yield "instance of another class", setting({"instance": "subprocess.Popen", "arguments": ["true"]}), "subprocess.Popen"
    yield "lost setting", setting({"unknown": "torchao.core.Some"}), "torchao.core.Some"
    yield "bare dict", setting({"a": 1}), "a"
    yield "cycle", setting(cycle), "a"
    yield "wide cycle", setting(wide), "a"
    yield "global", setting(torch.nn.functional.relu), "a"
    yield "quantized dtype", state(qint, described("torch.per_tensor_affine", qint, dtype="quint8", scale=0.5, zero_point=1)), "a.wrapper"
    yield "quantized scale", state(qint, described("torch.per_tensor_affine", qint, dtype="qint8", scale="0.5", zero_point=1)), "a.wrapper"
    scales = {**qint, "scales": torch.ones(3), "zero_points": torch.zeros(3)}
    yield "quantized scales", state(scales, described("torch.per_channel_affine", scales, dtype="qint8", axis=0)), "a.wrapper"
    yield "name taken", {**state(coo, good), "a": torch.ones(1)}, "a"


def save_flat(state, folder):
    """Dicts stay objects."""
    shutil.rmtree(folder, ignore_errors=True)
    dcp.save(state, checkpoint_id=folder, no_dist=True, planner=dcp.DefaultSavePlanner(False, False))


def check_hostile(oracle):
    source = oracle.work / "hostile"
    for name, state, says in hostile_states():
        case = f"hostile {name}"
        save_flat(state, source)
        for out, *options in (("out.pt",), ("out_dcp", "--to", "dcp")):
            status, _, err = oracle.run("convert", source, oracle.work / out, *options)
            lines = [line for line in err.splitlines() if not line.startswith("note: ")]
            oracle.check(status == 1 and len(lines) == 1 and says in lines[0] and "hostile" in lines[0], case, f"exits {status}: {err}")
            oracle.check(not (oracle.work / out).exists(), case, f"{out} was written")
        if name != "cycle" and name != "wide cycle":
            oracle.succeeds(case, "convert", source, oracle.work / "apart_dcp", "--to", "dcp", "--components", "--force")
    # An object with that name that describes nothing remains an object.
    save_flat({"a.wrapper": {"type": 3}, "wrapper": {"type": "x", "components": {}}, "b.wrapper": 1}, source)
    oracle.succeeds("no description", "convert", source, oracle.work / "objects", "--to", "dcp")


def main():
    oracle = Oracle(__doc__, syncs=False)
    check_torchao(oracle)
    for seed in range(rounds(3, 6)):
        check_random(oracle, seed)
    check_hostile(oracle)
    oracle.finish()


if __name__ == "__main__":
    main()
