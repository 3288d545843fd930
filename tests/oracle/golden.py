# SPDX-License-Identifier: Apache-2.0
"""Every golden checkpoint through the command line: `inspect --json`, `verify` and `convert` against what PyTorch said
when it wrote them. Needs no package."""
import json

from common import Oracle, read_safetensors, sha256

KINDS = {"builtins.int": "int", "builtins.float": "float", "builtins.bool": "bool", "builtins.str": "str",
         "builtins.NoneType": "none", "builtins.bytes": "bytes", "builtins.list": "list", "builtins.dict": "dict",
         "builtins.tuple": "tuple"}


def without_repr(value):
    """A value's JSON without what only Python can say: the repr of things that are neither data nor tensors."""
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
        if expected.get("type") in KINDS:
            oracle.check(found["kind"] == KINDS[expected["type"]], case.name,
                         f"inspect: {key}: kind is {found['kind']}, expected {KINDS[expected['type']]}")
        wanted, value = without_repr(expected["value"]), without_repr(found.get("value"))
        oracle.check(json.dumps(wanted, sort_keys=True) == json.dumps(value, sort_keys=True), case.name,
                     f"inspect: {key}: value is {json.dumps(value)[:300]}, expected {json.dumps(wanted)[:300]}")


def check_converted(oracle, case):
    target = oracle.work / f"{case.name}.safetensors"
    skip = ["--skip-unsupported"] if any(not t["in_safetensors"] for t in case.tensors.values()) else []
    if oracle.succeeds(case.name, "convert", case.checkpoint, target, *skip) is None:
        return
    tensors, _ = read_safetensors(target)
    wanted = {key for key, tensor in case.tensors.items() if tensor["in_safetensors"]}
    oracle.check(wanted <= set(tensors), case.name, f"convert: missing {sorted(wanted - set(tensors))[:8]}")
    # An object with tensors in it is taken apart: these have its name and their path in it.
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


def main():
    oracle = Oracle(__doc__)
    for case in oracle.cases():
        out = oracle.succeeds(case.name, "inspect", case.checkpoint, "--json")
        if out is not None:
            try:
                said = json.loads(out)
            except ValueError as error:
                oracle.check(False, case.name, f"inspect --json is no JSON: {error}")
                continue
            check_tensors(oracle, case, said)
            check_objects(oracle, case, said)
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
