# SPDX-License-Identifier: Apache-2.0
"""torch.load reads the output of `convert --to pt`. For every golden DCP checkpoint it equals the output of
PyTorch's own dcp_to_torch_save, type for type and bit for bit, with weights_only=True wherever PyTorch's file allows
it. Random state dicts are tested as well. verify warns of archives that torch.load refuses."""
import io
import logging
import random
import shutil
import struct
import warnings
import zipfile
import zlib
from collections import Counter, OrderedDict, defaultdict

from common import Oracle, need_torch, rounds, sha256, seed as common_seed

need_torch()
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint import FileSystemReader  # noqa: E402
from torch.distributed.checkpoint._nested_dict import flatten_state_dict  # noqa: E402
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp  # noqa: E402


def raw(tensor):
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    length = tensor.numel() * tensor.element_size()
    return bytes(torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage(), tensor.storage_offset() * tensor.element_size(),
                                                        (length,), (1,)).numpy()) if length else b""


def difference(ours, theirs, where="root"):
    """The first difference, or nothing."""
    if type(ours) is not type(theirs):
        return f"{where}: {type(ours).__name__}, not {type(theirs).__name__}"
    if isinstance(theirs, torch.Tensor):
        if theirs.layout is not torch.strided or theirs.is_quantized or theirs.device.type == "meta":
            return None if repr(ours) == repr(theirs) else f"{where}: {ours!r}, not {theirs!r}"
        for what in ("dtype", "shape", "requires_grad"):
            if getattr(ours, what) != getattr(theirs, what):
                return f"{where}: {what} {getattr(ours, what)}, not {getattr(theirs, what)}"
        return None if raw(ours) == raw(theirs) else f"{where}: other bytes"
    if isinstance(theirs, dict):
        if set(ours) != set(theirs):
            return f"{where}: keys {sorted(map(str, set(ours) ^ set(theirs)))} of one alone"
        return next(filter(None, (difference(ours[key], theirs[key], f"{where}[{key!r}]") for key in theirs)), None)
    if isinstance(theirs, (list, tuple)):
        if len(ours) != len(theirs):
            return f"{where}: {len(ours)} items, not {len(theirs)}"
        return next(filter(None, (difference(a, b, f"{where}[{i}]") for i, (a, b) in enumerate(zip(ours, theirs)))), None)
    if hasattr(theirs, "__dict__") and not isinstance(theirs, type):
        return difference(vars(ours), vars(theirs), where)
    return None if repr(ours) == repr(theirs) else f"{where}: {ours!r}, not {theirs!r}"


def load(file, weights_only):
    return torch.load(file, map_location="cpu", weights_only=weights_only)


def is_plain(file):
    try:
        load(file, True)
        return True
    except Exception:
        return False


def compare(oracle, name, ours, theirs):
    found = difference(load(ours, False), load(theirs, False))
    oracle.check(found is None, name, f"torch.load gives something else: {found}")
    if is_plain(theirs):
        found = difference(load(ours, True), load(theirs, True))
        oracle.check(found is None, name, f"weights_only=True gives something else: {found}")
    oracle.succeeds(name, "verify", ours)


def check_expected(oracle, case, ours):
    """Names, dtypes, shapes, and bytes are the golden ones, whatever PyTorch's converter makes of the checkpoint."""
    flat, _ = flatten_state_dict(load(ours, False))
    for key, expected in case.tensors.items():
        tensor = flat.get(key)
        if not oracle.check(isinstance(tensor, torch.Tensor), case.name, f"{key} is missing"):
            continue
        oracle.check(str(tensor.dtype) == f"torch.{expected['dtype']}" and list(tensor.shape) == expected["shape"], case.name,
                     f"{key}: {tensor.dtype} {list(tensor.shape)}")
        if tensor.layout is torch.strided and not tensor.is_quantized and tensor.device.type != "meta":
            oracle.check(sha256(raw(tensor)) == expected["sha256"], case.name, f"{key}: other bytes")
    # Flattening enters containers of tensors, but not containers of plain values.
    missing = sorted(key for key in case.objects if key not in flat and not any(
        other.startswith(f"{key}.") or key.startswith(f"{other}.") for other in flat))
    oracle.check(not missing, case.name, f"objects are missing: {missing}")
    oracle.succeeds(case.name, "verify", ours)


def again_from(oracle, name, ours):
    again = oracle.work / f"{name}.again.pt"
    if oracle.succeeds(name, "convert", ours, again) is not None:
        found = difference(load(again, False), load(ours, False))
        oracle.check(found is None, name, f"written again from .pt: {found}")


def check_golden(oracle):
    plain = 0
    for case in oracle.cases():
        if case.unreadable or not case.is_dcp:
            continue
        ours, theirs = oracle.work / f"{case.name}.pt", oracle.work / f"{case.name}.theirs.pt"
        if oracle.succeeds(case.name, "convert", case.checkpoint, ours) is None:
            continue
        try:
            dcp_to_torch_save(case.checkpoint, theirs)
        except BaseException as error:  # CheckpointException does not derive from Exception
            print(f"note {case.name}: PyTorch does not convert it: {type(error).__name__}: {str(error).splitlines()[-1][:160]}")
        check_expected(oracle, case, ours)
        # For a checkpoint without global metadata, PyTorch reads one rank's and leaves the rest uninitialized.
        if theirs.exists() and case.name != "options_no_collectives":
            compare(oracle, case.name, ours, theirs)
            plain += is_plain(theirs)
            again_from(oracle, case.name, ours)
    oracle.check(bool(oracle.args.only) or plain > 5, "golden", f"only {plain} files were loaded with weights_only=True")


DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
          torch.uint8, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16,
          torch.uint32, torch.uint64]
VALUES = [None, True, False, 0, -1, 255, 65536, 2**40, -2**70, 0.1, float("inf"), "", "text", "ä\u20ac\U0001f600", b"\x00\xff",
          (), (1, "a"), [], {}, torch.float16, torch.Size([2, 3]), torch.device("cpu"), OrderedDict(a=1)]


def random_state(dice, depth=0):
    made = {}
    for i in range(dice.randint(1, 5)):
        kind = dice.randint(0, 5)
        if kind == 0 and depth < 4:
            value = random_state(dice, depth + 1)
        elif kind == 1 and depth < 4:
            value = [random_state(dice, depth + 1) for _ in range(dice.randint(1, 3))]
        elif kind == 2:
            value = dice.choice(VALUES)
        else:
            shape = [dice.choice([0, 1, 2, 3, 5, 7, 11]) for _ in range(dice.randint(0, 3))]
            value = torch.randint(0, 2, shape).to(dice.choice(DTYPES))
        made[dice.choice(["weight", "a.b", "ü", "x", "0"]) + str(i)] = value
    return made


def check_random(oracle):
    dice = random.Random(common_seed())
    count, unconverted = rounds(5, 40), 0
    for number in range(count):
        state = random_state(dice)
        source, ours = oracle.work / f"random{number}.in.pt", oracle.work / f"random{number}.pt"
        torch.save(state, source)
        folder, theirs = oracle.work / f"random{number}.dcp", oracle.work / f"random{number}.theirs.pt"
        torch_save_to_dcp(source, folder)  # its flattening turns mappings into dicts and loses empty ones
        try:
            dcp_to_torch_save(folder, theirs)
        except BaseException as error:  # of an element of a list that holds only empty dicts
            unconverted += 1
            text = str(error).splitlines()[-1]
            print(f"note random {number}: PyTorch does not convert it: {text[:160]}")
            oracle.check("Missing key in checkpoint state_dict" in text, f"random {number}", text)
            continue
        for kind, given in (("a file", source), ("a folder", folder)):
            if kind == "a file":
                torch.save(with_empty_dicts(load(theirs, False), state), theirs)
            else:
                dcp_to_torch_save(folder, theirs)
            if oracle.succeeds(f"random {number}", "convert", given, ours, "--force") is not None:
                compare(oracle, f"random {number} from {kind}", ours, theirs)
                oracle.succeeds(f"random {number} from {kind}", "diff", given, ours)
    oracle.check(unconverted <= count // 3, "random", f"PyTorch does not convert {unconverted} of {count} states")


def check_options(oracle):
    source, out = oracle.work / "flat.in.pt", oracle.work / "flat.pt"
    shared = torch.arange(6.0)
    torch.save({"model.a": shared, "model.b": shared, "step": 3, "opt": [{"lr": 0.1, "w": torch.ones(2)}]}, source)
    status, _, err = oracle.run("convert", source, out, "--rename", r"model\.(.*)=m.\1", "--dtype", r"model\.a=float16", "--skip", "step")
    oracle.check(status == 0 and "nested" not in err, "rename", f"exits {status}: {err}")
    found = difference(load(out, True), {"m.a": shared.half(), "m.b": shared, "opt": [{"lr": 0.1, "w": torch.ones(2)}]})
    oracle.check(found is None, "rename", str(found))
    torch.save({"model": {"a": shared, "b": shared}}, oracle.work / "deep.in.pt")
    for options, flat in (([], True), (["--nest"], False)):
        status, _, err = oracle.run("convert", oracle.work / "deep.in.pt", out, "--force", "--rename", r"model\.a=model.c", *options)
        oracle.check(status == 0 and ("note: renamed, and no longer nested: model.c (" in err) == flat, "rename", f"exits {status}: {err}")
        wanted = {"model": {"b": shared}, "model.c": shared} if flat else {"model": {"b": shared, "c": shared}}
        found = difference(load(out, True), wanted)
        oracle.check(found is None, "rename", f"{options}: {found}")
    # Entries that already have a path keep it, including indices and integer keys.
    deep = {"g": [{"lr": torch.ones(1)}], 5: torch.ones(1), "a.b": torch.ones(2)}
    torch.save(deep, oracle.work / "deep.in.pt")
    oracle.succeeds("nest", "convert", oracle.work / "deep.in.pt", out, "--force", "--nest")
    found = difference(load(out, True), {"g": deep["g"], 5: deep[5], "a": {"b": deep["a.b"]}})
    oracle.check(found is None, "nest", str(found))
    oracle.succeeds("nest", "convert", source, out, "--force", "--nest", "--only", r"model\..*")
    found = difference(load(out, True), {"model": {"a": shared, "b": shared}})
    oracle.check(found is None, "nest", str(found))
    oracle.succeeds("objects", "convert", source, out, "--force", "--skip-objects", "--only", "step|model.a")
    found = difference(load(out, True), {"model.a": shared})
    oracle.check(found is None, "objects", str(found))
    oracle.succeeds("no sync", "convert", source, oracle.work / "synced.pt")
    quick = oracle.work / "quick" / "synced.pt"  # a torch.save file contains its own name
    quick.parent.mkdir()
    oracle.succeeds("no sync", "convert", source, quick, "--no-sync")
    oracle.check((oracle.work / "synced.pt").read_bytes() == quick.read_bytes(), "no sync", "other bytes")
    for option in (["--item", "a"], ["--payload", "safetensors"]):
        status, _, err = oracle.run("convert", source, oracle.work / "new.pt", *option)
        oracle.check(status == 2 and "--item and --payload apply only to torch-checkpointing" in err, option[0], f"exits {status}: {err}")
    status, _, err = oracle.run("convert", source, out)
    oracle.check(status != 0 and "exists" in err, "no force", f"exits {status}: {err}")


def trained():
    """A module and its AdamW after two steps, always the same."""
    torch.manual_seed(3)
    module = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 2))
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
    for _ in range(2):
        step(module, optimizer)
    return module, optimizer


def step(module, optimizer):
    optimizer.zero_grad()
    module(torch.arange(6.0).reshape(2, 3)).square().sum().backward()
    optimizer.step()


def by_way_of(oracle, title, source, names):
    """The result of conversions to these, one after the other ("dcp/": a folder of that format); None if one fails."""
    now = source
    for name in names:
        to = oracle.work / f"{title}.{'.'.join(names).replace('/', '')}.{name}"
        kind = name[:-1] if name.endswith("/") else name.split(".")[-1]
        if oracle.succeeds(f"{title} {names}", "convert", now, to, "--to", kind) is None:
            return None
        now = to
    return now


def check_integer_keys(oracle):
    """optimizer.state_dict() keeps its integer keys, in .pt and through safetensors."""
    module, optimizer = trained()
    state = {"model": dict(module.state_dict()), "optimizer": optimizer.state_dict(),
             "by_number": {7: torch.ones(2), -5: {0: torch.zeros(1), "0x": 1}, 10**14: "far", "7.5": 2}}
    source = oracle.work / "integers.in.pt"
    torch.save(state, source)
    for names in (["a.pt"], ["a.safetensors", "b.pt"], ["hf/", "c.pt"], ["torchsave.pt", "d.safetensors", "e.pt"],
                  ["dcp/", "f.pt"], ["g.safetensors", "dcp/", "hf/", "h.pt"]):
        now = by_way_of(oracle, "integers", source, names)
        if now is None:
            return
        found = difference(load(now, True), state)
        oracle.check(found is None, f"integer keys {names}", str(found))
        ours, ours_optimizer = trained()
        for group in ours_optimizer.state.values():
            for value in group.values():
                value.zero_()
        ours_optimizer.load_state_dict(load(now, True)["optimizer"])
        theirs, theirs_optimizer = trained()
        step(ours, ours_optimizer)
        step(theirs, theirs_optimizer)
        oracle.check(all(map(torch.equal, ours.parameters(), theirs.parameters())), f"integer keys {names}",
                     "the next step of the optimizer is another")


def check_told(oracle):
    """PyTorch's converter turns integer keys into text, which `convert` to DCP reports; we keep them everywhere."""
    source, folder = oracle.work / "told.in.pt", oracle.work / "told.dcp"
    torch.save({"o": {"state": {0: torch.ones(1), 7: torch.ones(2)}}}, source)
    for to in ("dcp", "torch-checkpointing"):
        status, out, err = oracle.run("convert", source, oracle.work / f"told.{to}", "--to", to)
        is_told = "o.state.0 and 1 more: integer keys of dicts become text for PyTorch's dcp_to_torch_save" in out + err
        oracle.check(status == 0 and is_told == (to == "dcp"), to, out + err)
        status, out, err = oracle.run("convert", oracle.work / f"told.{to}", oracle.work / f"told.{to}.pt")
        oracle.check(status == 0 and set(load(oracle.work / f"told.{to}.pt", True)["o"]["state"]) == {0, 7}, to, "other keys")
    dcp_to_torch_save(folder, oracle.work / "told.theirs.pt")
    oracle.check(set(load(oracle.work / "told.theirs.pt", True)["o"]["state"]) == {"0", "7"}, "told", "other keys")


def check_empty(oracle):
    """Empty dicts are kept, also in lists: an optimizer's state before its first step, a disabled scaler."""
    module = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    state = {"model": dict(module.state_dict()), "optimizer": optimizer.state_dict(), "scaler": {}, "groups": [{"a": [0]}, {}],
             "mixed": [torch.ones(1), {}, 2], "all": [{}, {"a": {}}], "ordered": OrderedDict()}
    source = oracle.work / "empty.in.pt"
    torch.save(state, source)
    for names in (["a.pt"], ["a.safetensors", "b.pt"], ["dcp/", "c.pt"], ["hf/", "a.safetensors", "d.pt"]):
        now = by_way_of(oracle, "empty", source, names)
        if now is None:
            return
        found = difference(load(now, True), state)
        oracle.check(found is None, f"empty {names}", str(found))
        oracle.succeeds(f"empty {names}", "diff", source, now)
        optimizer.load_state_dict(load(now, True)["optimizer"])
    oracle.succeeds("empty", "convert", source, oracle.work / "empty.theirs.dcp", "--to", "dcp")
    dcp_to_torch_save(oracle.work / "empty.theirs.dcp", oracle.work / "empty.theirs.pt")
    found = difference(load(oracle.work / "empty.theirs.pt", True), state)
    oracle.check(found is None, "empty, by PyTorch", str(found))


def check_modules(oracle):
    """A module that was saved whole, or as TorchScript, becomes its state_dict(), at any depth."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1)))
    expected = dict(module.state_dict())
    source, ours = oracle.work / "module.in.pt", oracle.work / "module.pt"
    for name, state in (("a root", module), ("below a key", {"model": {"net": module}, "step": 3}), ("script", None)):
        torch.jit.script(module).save(source) if state is None else torch.save(state, source)
        oracle.succeeds(name, "convert", source, ours, "--force")
        found = load(ours, True)
        if isinstance(state, dict):
            oracle.check(found["step"] == 3 and set(found) == {"model", "step"}, name, str(set(found)))
            found = found["model"]["net"]
        oracle.check(list(found) == list(expected), name, f"other keys: {list(found)}")
        problem = difference(found, {key: value.detach() for key, value in expected.items()})
        oracle.check(problem is None or "requires_grad" in problem, name, str(problem))
        module.load_state_dict(found)


def check_mappings(oracle):
    """Mappings become plain dicts with their keys in order, at the root and below it, and load_state_dict takes them."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    backward = OrderedDict(reversed(list(module.state_dict().items())))
    default = defaultdict(list, {"z": torch.ones(2), "a": torch.zeros(1)})
    source, ours = oracle.work / "mapping.in.pt", oracle.work / "mapping.pt"
    for name, state in (("state_dict()", module.state_dict()), ("OrderedDict", backward), ("defaultdict", default),
                        ("Counter", Counter({"b": torch.ones(1), "a": torch.ones(2)}))):
        for root in (state, {"below": state}):
            torch.save(root, source)
            if oracle.succeeds(name, "convert", source, ours, "--force") is None:
                continue
            found = load(ours, True)
            found = found if root is state else found["below"]
            oracle.check(type(found) is dict and list(found) == list(state), name, f"{type(found)} {list(found)}")
            oracle.check(difference(found, dict(state)) is None, name, str(difference(found, dict(state))))
            if name in ("state_dict()", "OrderedDict"):
                module.load_state_dict(found)


def with_empty_dicts(theirs, state):
    """PyTorch's result for a state dict through DCP, plus the state dict's empty dicts, which PyTorch loses there."""
    for key, value in state.items() if isinstance(state, dict) else enumerate(state):
        if isinstance(value, (dict, list)) and (not value or any(isinstance(one, (dict, list)) for one in
                                                                 (value.values() if isinstance(value, dict) else value))):
            if isinstance(theirs, list):
                theirs.extend([None] * (key + 1 - len(theirs)))
            if (theirs.get(key) if isinstance(theirs, dict) else theirs[key]) is None:
                theirs[key] = type(value)()
            with_empty_dicts(theirs[key], value)
    return theirs


def archives_of_records(records):
    """(name, records): the archive with another version, without one, and with records in other folders."""
    folder = records[0][0].split("/")[0]
    others = [(name, data) for name, data in records if name != f"{folder}/version"]
    for text in (b"", b"junk\n", b"0\n", b"1\n", b"3", b"10\n", b"11\n", b"99\n", b"-3\n", b" 3", b"+3", b"+-3", b"3 junk", b"0x3",
                 b"0" * 100 + b"3", b"18446744073709551619\n", b"\0\3", b"3\0"):
        yield f"version {text!r}", [*others, (f"{folder}/version", text)]
    yield "no version", others
    yield "version elsewhere", [*others, ("version", b"3\n")]
    yield "VERSION", [*others, (f"{folder}/VERSION", b"3\n")]
    yield ".data/version", [*others, (f"{folder}/.data/version", b"3\n")]
    yield "two versions, the second good", [*others, (f"{folder}/version", b"99\n"), (f"{folder}/.data/version", b"3\n")]
    yield "two versions, the second bad", [*others, (f"{folder}/version", b"3\n"), (f"{folder}/.data/version", b"99\n")]
    kept = [(name, data) for name, data in records if name != f"{folder}/.storage_alignment"]
    for text in (b"64", b"", b"junk", b" 64\n", b"+64", b"-64", b"6_4", b"_64", b"6__4", b"64_", b"0x40", b"64.0", b"64\0", b"6 4", b"\xc3\xa9",
                 b"0" * 4400):
        yield f"alignment {text[:20]!r}", [*kept, (f"{folder}/.storage_alignment", text)]
    yield "no alignment", kept
    yield "a record outside", [*records, ("other/x", b"1")]
    yield "no folder", [(name.split("/", 1)[1], data) for name, data in records]
    yield "the same", records


def check_refused(oracle):
    """verify reads these archives, and warns of exactly those that torch.load refuses, with a record's name."""
    made, file = oracle.work / "sound.pt", oracle.work / "altered.pt"
    torch.save({"w": torch.arange(4.0)}, made)
    with zipfile.ZipFile(made) as sound:
        records = [(name, sound.read(name)) for name in sound.namelist()]
    refused = 0
    for name, altered in archives_of_records(records):
        with zipfile.ZipFile(file, "w") as out:
            for record, data in altered:
                out.writestr(record, data)
        try:
            load(file, True)
            reads = True
        except Exception:
            reads = False
        refused += not reads
        oracle.succeeds(name, "verify", file)
        status, _, err = oracle.run("verify", "--strict", file)
        warned = "torch.load refuses the" in err and "record" in err
        oracle.check((status, warned) == (0, False) if reads else (status, warned) == (1, True), name,
                     f"torch.load {'reads' if reads else 'refuses'} it, and verify --strict exits {status}: {err.strip()}")
    oracle.check(refused > 10, "refused", f"torch.load refuses only {refused} archives")


def with_record(item, name, data):
    """The archive `item` with other data of the same length in a record, and their CRC-32 in both headers."""
    with zipfile.ZipFile(io.BytesIO(item)) as archive:
        info = next(one for one in archive.infolist() if one.filename.endswith("/" + name))
        old = archive.read(info)
    name_bytes, extra_bytes = struct.unpack("<HH", item[info.header_offset + 26:info.header_offset + 30])
    begin = info.header_offset + 30 + name_bytes + extra_bytes
    assert len(old) == len(data) and item[begin:begin + len(old)] == old
    changed = item[:begin] + data + item[begin + len(data):]
    return changed.replace(struct.pack("<I", zlib.crc32(old)), struct.pack("<I", zlib.crc32(data)))


def check_refused_items(oracle):
    """verify warns of items of a DCP folder that torch.load refuses, with key and file."""
    sound = oracle.work / "items"
    dcp.save({"w": torch.arange(6.0), "large": torch.arange(9000.0), "n": {1, 2}}, checkpoint_id=sound, no_dist=True)
    places = FileSystemReader(sound).read_metadata().storage_data
    oracle.succeeds("sound items", "verify", sound, "--strict")
    for name, data in (("version", b"0\n"), (".storage_alignment", b"6x")):
        for index, place in places.items():
            title, folder = f"{name} of {index.fqn}", oracle.work / "altered_items"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(sound, folder)
            file = folder / place.relative_path
            content = file.read_bytes()
            item = with_record(content[place.offset:place.offset + place.length], name, data)
            file.write_bytes(content[:place.offset] + item + content[place.offset + place.length:])
            try:
                torch.load(io.BytesIO(item), weights_only=False)
                oracle.check(False, title, "torch.load reads it")
            except Exception:
                pass
            oracle.succeeds(title, "verify", folder)
            status, _, err = oracle.run("verify", "--strict", folder)
            line = f"warning: {file}: {index.fqn}: torch.load refuses the "
            oracle.check(status == 1 and err.count(line) == 1 and err.count("torch.load refuses") == 1 and name in err, title,
                         f"exits {status}: {err.strip()}")


def main():
    oracle = Oracle(__doc__, syncs=False)
    check_refused(oracle)
    check_refused_items(oracle)
    check_told(oracle)
    check_empty(oracle)
    check_modules(oracle)
    check_mappings(oracle)
    check_integer_keys(oracle)
    check_golden(oracle)
    check_random(oracle)
    check_options(oracle)
    oracle.finish()


if __name__ == "__main__":
    main()
