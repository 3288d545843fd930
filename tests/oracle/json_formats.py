# SPDX-License-Identifier: Apache-2.0
"""--json prints one document, whatever the bytes of a GGUF file, a .npz archive, a .nemo file, a run, a delta, or a
mapping are. No call crashes or hangs. json_documents.py tests DCP, safetensors, and .pt. Needs no package."""
import gzip
import json
import random
import shutil
import struct
import subprocess
from pathlib import Path

from common import Oracle, fingerprint, rounds, seed
from json_mutants import bytes_turned, document_of

FILES = ("gguf/blocks.gguf", "npz/stored.npz", "npz/deflated.npz", "npz/array.npy", "nemo/plain.nemo", "nemo/long.nemo",
         "nemo/packed.nemo")
MAPPING = """left = "parts"
right = "fused"
[sizes]
q = "heads * d"
d = "head_dim ?? h / heads"
heads = "num_heads"
h = "hidden_size"
[captures]
layer = "num_layers"
[rename]
"norm.weight" = "final.weight"
[[rule]]
name = "qk"
left.q = "layers.{layer}.q.weight"
left.k = "layers.{layer}.k.weight"
right.qk = "blocks.{layer}.qk.weight"
index = "q: q h, k: d h -> qk: [q:q | k:d] h"
"""
CONFIG = {"num_heads": 2, "hidden_size": 4, "num_layers": 2}


def header_sums_set(archive):
    """The tar archive with the right sum in each header, so that the change itself is read."""
    made = bytearray(archive)
    for at in range(0, len(made) - 511, 512):
        if made[at + 257:at + 262] == b"ustar":
            made[at + 148:at + 156] = b" " * 8
            made[at + 148:at + 156] = b"%06o\0 " % sum(made[at:at + 512])
    return bytes(made)


def turned(dice, path):
    """A file's bytes with changes. Half of the tar archives get right sums again."""
    data = path.read_bytes()
    if path.suffix != ".nemo" or dice.random() < 0.3:
        return bytes_turned(dice, data)
    is_packed = data.startswith(b"\x1f\x8b")
    made = bytes_turned(dice, gzip.decompress(data) if is_packed else data)
    if dice.random() < 0.7:
        made = header_sums_set(made)
    return gzip.compress(made) if is_packed else made


def look_at_files(oracle, dice, case):
    for name in FILES:
        path = oracle.data / name
        changed = oracle.work / f"turned{path.suffix}"
        changed.write_bytes(turned(dice, path))
        for arguments in (["inspect", changed], ["verify", changed], ["diff", changed, path], ["diff", path, changed]):
            document_of(oracle, f"{case}: {name}: {arguments[0]}", *arguments)


def make_run(oracle):
    """A run of three steps, of which two refer to the one before."""
    run, previous = oracle.work / "run", []
    run.mkdir()
    for step in (1, 2, 3):
        source = oracle.golden / "single_rank" / "checkpoint"
        subprocess.run([oracle.args.ranks.resolve(), source, run / f"step-{step}", "2", *previous], check=True, capture_output=True)
        previous = ["--previous", run / f"step-{step}"]
    return run


def look_at_run(oracle, dice, case, run):
    changed = oracle.work / "turned_run"
    shutil.copytree(run, changed)
    victim = dice.choice(sorted(path for path in changed.rglob("*") if path.is_file()))
    kind = dice.choice(("bytes", "bytes", "bytes", "gone", "folder", "names"))
    if kind == "bytes":
        victim.write_bytes(bytes_turned(dice, victim.read_bytes()))
    elif kind == "names":
        victim.parent.rename(changed / dice.choice(("step-\udcff", "step-99999999999999999999", "iter_0000004", 'step-"4"')))
    else:
        victim.unlink()
    if kind == "folder":
        victim.mkdir()
    before = fingerprint(changed)
    case = f"{case}: run: {kind} of {victim.relative_to(changed)}"
    for line in (["list", "--keep-last", "1"], ["list", "--deep"], ["latest", "--deep"], ["verify"], ["diff", "1", "3"],
                 ["prune", "--keep-last", "1", "--dry-run"]):
        document_of(oracle, f"{case}: {line[0]}", "run", line[0], changed, *line[1:])
        oracle.check(fingerprint(changed) == before, case, f"{line[0]} changes the run")
    for line in (["flatten", "3"], ["pin", "2"], ["unpin", "2"], ["prune", "--keep-last", "1"], ["list"]):
        document_of(oracle, f"{case}: {line[0]}", "run", line[0], changed, *line[1:])
    shutil.rmtree(changed)


def look_at_delta(oracle, dice, case):
    base, delta, made = oracle.data / "delta/base.safetensors", oracle.data / "delta/next.delta", oracle.work / "made"
    changed_delta, changed_base = oracle.work / "turned.delta", oracle.work / "turned_base.safetensors"
    changed_delta.write_bytes(bytes_turned(dice, delta.read_bytes()))
    changed_base.write_bytes(bytes_turned(dice, base.read_bytes()))
    for line in (["apply", base, changed_delta, made / "a.safetensors"], ["apply", changed_base, delta, made / "b.safetensors"],
                 ["make", base, changed_base, made / "c.delta"], ["make", changed_base, base, made / "d.delta"]):
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        document = document_of(oracle, f"{case}: delta {line[0]} {line[3].name}", "delta", *line)
        if document is not None and document.get("ok") is False:
            left = [entry.name for entry in made.iterdir()]
            oracle.check(not left, f"{case}: delta {line[0]}", f"fails and leaves {left}")


def write_model(path):
    shapes = {f"layers.{layer}.{name}.weight": (rows, 4) for layer in (0, 1) for name, rows in (("q", 4), ("k", 2))}
    header, end = {}, 0
    for name, shape in {**shapes, "norm.weight": (4,)}.items():
        begin, end = end, end + 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


def look_at_mapping(oracle, dice, case, intact):
    """Changes the mapping, the configuration, or the checkpoint."""
    folder = oracle.work / "turned_model"
    shutil.copytree(intact, folder)
    victim = dice.choice(sorted(folder.iterdir()))
    victim.write_bytes(bytes_turned(dice, victim.read_bytes()))
    case, mapped = f"{case}: map: {victim.name}", ["--map", folder / "rules.toml", "--config", folder / "config.json"]
    model, made = folder / "model.safetensors", folder / "made.safetensors"
    for arguments in (["map", "show", model, "blocks.1.qk.weight", *mapped], ["map", "show", model, "final.weight", *mapped],
                      ["map", "check", model, *mapped], ["convert", model, made, *mapped]):
        document_of(oracle, f"{case}: {' '.join(map(str, arguments[:2]))}", *arguments)
    shutil.rmtree(folder)


def check_intact(oracle, run, model):
    """The commands of this script succeed before anything is changed, so that the changes are what they meet."""
    oracle.check(b"../step-" in (run / "step-3" / ".metadata").read_bytes(), "intact", "step 3 refers to no other step")
    mapped = ["--map", model / "rules.toml", "--config", model / "config.json"]
    for arguments in (["run", "list", run], ["run", "verify", run], ["run", "diff", run, "1", "3"],
                      ["run", "prune", run, "--keep-last", "1", "--dry-run"],
                      ["delta", "apply", oracle.data / "delta/base.safetensors", oracle.data / "delta/next.delta",
                       oracle.work / "applied.safetensors"],
                      ["map", "show", model / "model.safetensors", "blocks.1.qk.weight", *mapped],
                      ["convert", model / "model.safetensors", oracle.work / "fused.safetensors", *mapped],
                      *(["verify", oracle.data / name] for name in FILES)):
        oracle.succeeds("intact", *arguments, "--json")
        document_of(oracle, f"intact: {arguments[0]}", *arguments, *(["--force"] if arguments[0] in ("delta", "convert") else []))
    for action in ("list", "check", "print"):  # they print text only, and say so in a document
        document = document_of(oracle, f"map {action}", "map", action)
        oracle.check(document is not None and document.get("ok") is False, f"map {action}", f"{document}")


def main():
    oracle = Oracle(__doc__, lambda parser: parser.add_argument("--ranks", type=Path, required=True, help="rank_copy"), syncs=False)
    dice = random.Random(seed())
    run, model = make_run(oracle), oracle.work / "model"
    model.mkdir()
    write_model(model / "model.safetensors")
    (model / "rules.toml").write_text(MAPPING)
    (model / "config.json").write_text(json.dumps(CONFIG))
    check_intact(oracle, run, model)
    for number in range(rounds(6, 300)):
        case = f"round {number}"
        look_at_files(oracle, dice, case)
        look_at_run(oracle, dice, case, run)
        look_at_delta(oracle, dice, case)
        look_at_mapping(oracle, dice, case, model)
    oracle.finish()


if __name__ == "__main__":
    main()
