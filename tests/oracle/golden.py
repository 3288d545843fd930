# SPDX-License-Identifier: Apache-2.0
"""Every golden checkpoint through the command line: `inspect --json`, `verify`, and `convert` against PyTorch's data
from when it wrote them. Needs no package."""
import itertools
import json
import math

from common import Oracle, read_safetensors, sha256

KINDS = {"builtins.int": "int", "builtins.float": "float", "builtins.bool": "bool", "builtins.str": "str",
         "builtins.NoneType": "none", "builtins.bytes": "bytes", "builtins.list": "list", "builtins.dict": "dict",
         "builtins.tuple": "tuple"}


def without_repr(value):
    """A value's JSON without what only Python can express: the repr of things that are neither data nor tensors."""
    if isinstance(value, dict):
        if "$other" in value:
            return {"$other": value["$other"]}
        return {key: without_repr(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_repr(item) for item in value]
    return value


def check_tensors(oracle, case, said):
    tensors = said["tensors"]
    oracle.check(set(tensors) == set(case.tensors), case.name,
                 f"inspect: tensor names differ: {sorted(set(tensors) ^ set(case.tensors))[:8]}")
    for key, expected in case.tensors.items():
        if key not in tensors:
            continue
        for field in ("dtype", "shape"):
            oracle.check(tensors[key][field] == expected[field], case.name,
                         f"inspect: {key}: {field} is {tensors[key][field]}, expected {expected[field]}")


def check_chunks(oracle, case, said):
    places = {}
    for entry in case.metadata["storage_data"]:
        places[(entry["fqn"], None if entry["offset"] is None else tuple(entry["offset"]))] = entry
    for key, expected in case.metadata["state_dict_metadata"].items():
        if expected["kind"] != "tensor" or key not in said["tensors"]:
            continue
        wanted = []
        for offsets, sizes in expected["chunks"]:
            place = places[(key, tuple(offsets))]
            wanted.append({"offsets": offsets, "sizes": sizes, "file": place["file"], "offset": place["pos"],
                           "length": place["length"]})
        found = said["tensors"][key]["chunks"]
        order = lambda chunk: (chunk["offsets"], chunk["sizes"])  # noqa: E731
        oracle.check(sorted(found, key=order) == sorted(wanted, key=order), case.name,
                     f"inspect: chunks of {key}: {found[:3]}, expected {wanted[:3]}")


def check_objects(oracle, case, said):
    objects = said["objects"]
    oracle.check(set(objects) == set(case.objects), case.name,
                 f"inspect: object names differ: {sorted(set(objects) ^ set(case.objects))[:8]}")
    for key, expected in case.objects.items():
        if not expected or "value" not in expected or key not in objects or case.unreadable:
            continue
        found = objects[key]
        oracle.check(found["type"] == expected["type"], case.name,
                     f"inspect: {key}: type is {found['type']}, expected {expected['type']}")
        if expected.get("type") in KINDS:
            oracle.check(found["kind"] == KINDS[expected["type"]], case.name,
                         f"inspect: {key}: kind is {found['kind']}, expected {KINDS[expected['type']]}")
        wanted, value = without_repr(expected["value"]), without_repr(found.get("value"))
        oracle.check(json.dumps(wanted, sort_keys=True) == json.dumps(value, sort_keys=True), case.name,
                     f"inspect: {key}: value is {json.dumps(value)[:300]}, expected {json.dumps(wanted)[:300]}")


def python_value(value):
    """The Python object of tagged JSON, for plain data; KeyError for anything else."""
    if not isinstance(value, (dict, list)):
        return value
    if isinstance(value, list):
        return [python_value(item) for item in value]
    if len(value) != 1:
        raise KeyError("not plain data")
    ((tag, inner),) = value.items()
    return {"$int": lambda: int(inner), "$bytes": lambda: bytes.fromhex(inner),
            "$float": lambda: float(inner) if inner in ("inf", "-inf", "nan") else float.fromhex(inner),
            "$tuple": lambda: tuple(python_value(item) for item in inner),
            "$dict": lambda: {python_value(key): python_value(item) for key, item in inner}}[tag]()


def check_object_texts(oracle, case):
    for key, expected in case.objects.items():
        if not expected:
            continue
        oracle.check(expected["ranks"] == list(range(case.expected["world_size"])), case.name,
                     f"{key} is said to be on ranks {expected['ranks']}")
        try:
            value = python_value(expected["value"])
        except KeyError:
            continue  # not plain data: only Python can express it
        except (ValueError, TypeError) as error:
            oracle.check(False, case.name, f"{key}: the value cannot be read: {error}")
            continue
        oracle.check(repr(value)[:2000] == expected["repr"], case.name, f"{key}: repr is {value!r}, {expected['repr']}")
        oracle.check(f"builtins.{type(value).__name__}" == expected["type"], case.name,
                     f"{key}: type is {type(value).__name__}, expected {expected['type']}")


def placement_text(placement):
    if placement["type"] == "Shard":
        return f"S({placement['dim']})"
    if placement["type"] == "StridedShard":
        return f"SS({placement['dim']},{placement['split_factor']})"
    return {"Replicate": "R"}[placement["type"]]


def cells_once(shape, boxes):
    """Whether the boxes hold every cell of the shape exactly once."""
    cells = [cell for offsets, sizes in boxes
             for cell in itertools.product(*(range(o, o + n) for o, n in zip(offsets, sizes)))]
    within = all(0 <= i < n for cell in cells for i, n in zip(cell, shape))
    return within and len(cells) == len(set(cells)) == math.prod(shape)


def check_boxes(oracle, case, said):
    """Compares each rank's boxes at the save with the file's chunks and with our layouts."""
    for key, expected in case.tensors.items():
        if "boxes" not in expected:
            continue  # old eras
        shape, where = expected["shape"], f"{key}: boxes"
        kind = "dtensor" if "mesh" in expected else "sharded_tensor" if "all_shards" in expected else "tensor"
        oracle.check(expected["kind"] == kind, case.name, f"{key}: kind is {expected['kind']}, by its fields {kind}")
        held = sorted((rank, offsets, sizes) for rank, offsets, sizes in expected["boxes"])
        distinct = [json.loads(box) for box in {json.dumps(box[1:]) for box in held if 0 not in box[2]}]
        oracle.check(expected["boxes_exact"] == cells_once(shape, distinct), case.name,
                     f"{where} of {shape} are {'not ' if expected['boxes_exact'] else ''}exact: {distinct[:4]}")
        if kind == "tensor":
            wanted = [(rank, [0] * len(shape), shape) for rank in range(case.expected["world_size"])]
            oracle.check(held == wanted, case.name, f"{where} of a whole tensor are {held[:4]}")
        if kind == "sharded_tensor":
            shards = sorted((s["placement"], s["offsets"], s["sizes"]) for s in expected["all_shards"])
            placed = sorted((f"rank:{rank}/cpu", offsets, sizes) for rank, offsets, sizes in held)
            oracle.check(placed == shards, case.name, f"{where} {placed[:4]} are not all_shards {shards[:4]}")
        if kind == "dtensor" and expected["boxes_exact"]:
            mesh = expected["mesh"]
            out = oracle.succeeds(case.name, "layout", "--shape", json.dumps(shape), "--mesh",
                                  ",".join(map(str, mesh["shape"])), "--place",
                                  ",".join(map(placement_text, expected["placements"])), "--json")
            ranks = json.loads(out or '{"ranks": []}')["ranks"]
            ours = sorted((mesh["ranks"][rank["rank"]], box["offsets"], box["sizes"])
                          for rank in ranks for box in rank["boxes"])
            local = {mesh["ranks"][rank["rank"]]: rank["local_shape"] for rank in ranks}
            sizes = {box[0]: box[2] for box in held if box[0] in local}
            oracle.check(sizes == local and len(local) == len(mesh["ranks"]), case.name, f"{where} {sizes}, our layout's shapes are {local}")
            # A mesh that is a row of another mesh: ranks of the other rows hold what the ranks at the same places hold.
            full = [box for box in held if 0 not in box[2]]
            inside = [box for box in full if box[0] in mesh["ranks"]]
            oracle.check(inside == ours, case.name, f"{where} {inside[:4]}, our layout's are {ours[:4]}")
            copies = [box[1:] for box in full if box[0] not in mesh["ranks"]]
            wanted = [box[1:] for box in ours] * (len(copies) // max(len(ours), 1))
            oracle.check(sorted(copies) == sorted(wanted), case.name, f"{where} outside the mesh are {copies[:4]}")
        chunks = said["tensors"].get(key, {}).get("chunks", [])
        found = sorted([c["offsets"], c["sizes"]] for c in chunks if 0 not in c["sizes"])
        if expected["boxes_exact"] and case.is_dcp:
            oracle.check(found == sorted(distinct), case.name, f"{where} {distinct[:4]}, chunks are {found[:4]}")


def check_world(oracle, case):
    ranks = {box[0] for tensor in case.tensors.values() for box in tensor.get("boxes", [])}
    if ranks:
        oracle.check(ranks == set(range(case.expected["world_size"])), case.name,
                     f"world_size is {case.expected['world_size']}, ranks are {sorted(ranks)}")


def check_converted(oracle, case):
    target = oracle.work / f"{case.name}.safetensors"
    skip = ["--skip-unsupported"] if any(not t["in_safetensors"] for t in case.tensors.values()) else []
    if oracle.succeeds(case.name, "convert", case.checkpoint, target, *skip) is None:
        return
    tensors, _ = read_safetensors(target)
    wanted = {key for key, tensor in case.tensors.items() if tensor["in_safetensors"]}
    oracle.check(wanted <= set(tensors), case.name, f"convert: missing {sorted(wanted - set(tensors))[:8]}")
    # An object with tensors in it is split: they have its name and their path in it.
    whole = [key for key, entry in case.objects.items() if "$tensor" in json.dumps((entry or {}).get("value"))]
    inside = {key for key in tensors if any(key.startswith(f"{name}.") for name in whole)}
    digests = json.dumps([case.objects[name]["value"] for name in whole])
    for key in inside:
        oracle.check(sha256(tensors[key][2]) in digests, case.name, f"convert: {key}: the bytes differ")
    oracle.check(bool(inside) == bool(whole), case.name, f"convert: tensors inside {whole} are missing")
    extra = set(tensors) - set(case.tensors) - inside
    oracle.check(not extra, case.name, f"convert: unexpected {sorted(extra)[:8]}")
    for key in wanted & set(tensors):
        _, shape, data = tensors[key]
        expected = case.tensors[key]
        oracle.check(shape == expected["shape"], case.name, f"convert: {key}: shape {shape}, expected {expected['shape']}")
        oracle.check(sha256(data) == expected["sha256"], case.name, f"convert: {key}: the bytes differ")
        oracle.check(len(data) == expected.get("nbytes", len(data)), case.name, f"convert: {key}: {len(data)} bytes")


def check_reference(oracle, case):
    """expected.json and expected.safetensors agree."""
    wanted = {key for key, tensor in case.tensors.items() if tensor.get("in_safetensors", True)}
    for key, expected in case.tensors.items():
        if "raw_hex" in expected:
            data = bytes.fromhex(expected["raw_hex"])
            oracle.check((sha256(data), len(data)) == (expected["sha256"], expected.get("nbytes", len(data))), case.name,
                         f"{key}: raw_hex is not the tensor")
    file = case.folder / "expected.safetensors"
    if file.is_file():
        tensors, _ = read_safetensors(file)
        oracle.check(set(tensors) == wanted, case.name, f"in_safetensors: {sorted(set(tensors) ^ wanted)[:8]}")
        for key in wanted & set(tensors):
            data = tensors[key][2]
            expected = case.tensors[key]
            oracle.check((sha256(data), len(data)) == (expected["sha256"], expected.get("nbytes", len(data))), case.name,
                         f"{key}: expected.safetensors holds other bytes")


def main():
    oracle = Oracle(__doc__)
    for case in oracle.cases():
        check_reference(oracle, case)
        out = oracle.succeeds(case.name, "inspect", case.checkpoint, "--json")
        if out is not None:
            try:
                said = json.loads(out)
            except ValueError as error:
                oracle.check(False, case.name, f"inspect --json is no JSON: {error}")
                continue
            check_tensors(oracle, case, said)
            check_objects(oracle, case, said)
            check_object_texts(oracle, case)
            check_boxes(oracle, case, said)
            check_world(oracle, case)
            if case.metadata:
                check_chunks(oracle, case, said)
                oracle.check(said["version"] == case.metadata["version"], case.name,
                             f"inspect: version {said['version']}, expected {case.metadata['version']}")
        if case.unreadable:
            status, _, err = oracle.run("verify", case.checkpoint)
            oracle.check(status == 1 and "stream.xor55/1" in err, case.name, f"verify exits {status}: {err[-300:]}")
            target = oracle.work / "refused.safetensors"
            status, _, err = oracle.run("convert", case.checkpoint, target)
            oracle.check(status in (1, 3) and "stream.xor55/1" in err and not target.exists(), case.name,
                         f"convert exits {status}: {err[-300:]}")
            continue
        oracle.succeeds(case.name, "verify", case.checkpoint)
        check_converted(oracle, case)
    oracle.finish()


if __name__ == "__main__":
    main()
