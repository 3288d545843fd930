# SPDX-License-Identifier: Apache-2.0
"""--json of every command over mutated descriptions prints exactly one document that a strict parser accepts,
whatever the files contain: no repeated keys, no NaN, nothing after it. The descriptions are golden ones with
changed, cut, and repeated bytes, and DCP metadata whose entries were rearranged with Python's own pickle. Needs
PyTorch."""
import pickle
import random
import shutil
from pathlib import Path

from common import Oracle, need_torch, seed as common_seed
from json_mutants import bytes_turned, document_of, strict

need_torch()
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402


def commands(path, other, out):
    yield ["inspect", path]
    yield ["inspect", path, "--only", ".*w.*", "--allow-unused"]
    yield ["verify", path]
    yield ["verify", path, "--quick", "--strict"]
    yield ["diff", path, other]
    yield ["diff", other, path, "--limit", "1"]
    yield ["convert", path, out / "a.safetensors"]
    yield ["convert", path, out / "a.pt", "--skip-unsupported", "--dtype", ".*=float16", "--allow-unused"]
    yield ["reshard", path, out / "cut", "--mesh", "2"]
    yield ["reshard", path, out / "dry", "--mesh", "2", "--dry-run"]
    yield ["clean", path]
    yield ["check-shards", path / ".metadata" if path.is_dir() else path]


def look(oracle, case, path, other):
    out = oracle.work / "out"
    for number, arguments in enumerate(commands(path, other, out)):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        document_of(oracle, f"{case}: {arguments[0]} ({number})", *arguments)


def entries_moved(dice, metadata):
    """One change of the metadata, by its name."""
    stored, listed = metadata.storage_data, metadata.state_dict_metadata
    places, keys = list(stored), list(listed)
    kind = dice.choice(("unplaced", "unlisted", "swapped", "renamed", "negative", "nowhere", "empty", "large", "plans"))
    if kind == "unplaced":  # listed, but without a place
        key = dice.choice(keys)
        for place in [place for place in places if place.fqn == key]:
            del stored[place]
    elif kind == "unlisted":
        del listed[dice.choice(keys)]
    elif kind == "swapped":
        a, b = dice.sample(places, 2)
        stored[a], stored[b] = stored[b], stored[a]
    elif kind == "renamed":
        name = dice.choice(('"', "\\", "a\nb", "\x00", "\udcff", "é", "</script>", "", "a.b." * 30, "\u202e"))
        listed[name] = listed[dice.choice(keys)]
    elif kind in ("negative", "large"):
        place = dice.choice(places)
        stored[place].offset = -1 if kind == "negative" else 2**62
        stored[place].length = dice.choice((0, -1, 2**63 - 1, 1))
    elif kind == "nowhere":
        stored[dice.choice(places)].relative_path = dice.choice(("", "../x", "none.distcp", '"'))
    elif kind == "empty":
        stored.clear()
    else:
        metadata.planner_data = dice.choice((None, {}, {"a": ("a",)}, {key: (key, 0, (1,)) for key in keys}))
    return kind


def main():
    oracle = Oracle(__doc__, lambda parser: parser.add_argument("--rounds", type=int, default=12))
    seed = common_seed()
    dice = random.Random(seed)
    torch.manual_seed(seed % 2**31)
    source = oracle.work / "source"
    dcp.save({"w": torch.rand(4, 3), "b.w": torch.ones(2), "step": 7, "names": ["a", 1.5, float("inf")], "set": {1, 2}}, checkpoint_id=source)
    # A former bug: an object that is listed, has no place, and is read before all others.
    for keys in (("step",), ("names",), ("w",), ("step", "names", "set"), ("step", "names", "set", "w", "b.w")):
        lost, case = oracle.work / "_".join(("lost", *keys)), f"{', '.join(keys)} placed nowhere"
        shutil.copytree(source, lost)
        metadata = pickle.loads((lost / ".metadata").read_bytes())
        for place in [place for place in metadata.storage_data if place.fqn in keys]:
            del metadata.storage_data[place]
        (lost / ".metadata").write_bytes(pickle.dumps(metadata))
        look(oracle, case, lost, source)
        status, text, err = oracle.run("inspect", lost, "--json")
        problems = strict(text).get("problems", [])
        named = sorted(problem["key"] for problem in problems)
        oracle.check(status == 1 and named == sorted(keys) and all(key in err for key in keys), case,
                     f"exits {status} and names {named}: {err}")
        shown = strict(text)["objects"]
        oracle.check(not set(shown) & set(keys), case, f"shows values that are not there: {shown}")
    for round_number in range(oracle.args.rounds):
        moved = oracle.work / "moved"
        shutil.copytree(source, moved)
        metadata = pickle.loads((moved / ".metadata").read_bytes())
        kinds = [entries_moved(dice, metadata) for _ in range(dice.randint(1, 2)) if metadata.storage_data and metadata.state_dict_metadata]
        try:
            (moved / ".metadata").write_bytes(pickle.dumps(metadata))
            look(oracle, f"round {round_number}: {'+'.join(kinds)}", moved, source)
        except UnicodeEncodeError:  # Python's pickle cannot write lone surrogates
            pass
        shutil.rmtree(moved)
    files = {"dcp": source / ".metadata", "objects": next(iter(sorted(source.glob("*.distcp"))))}
    torch.save({"model": {"w": torch.rand(2, 2), "n": [1, None, (2.5, "x")]}, "epoch": 3}, oracle.work / "file.pt")
    for round_number in range(oracle.args.rounds):
        for name, path in files.items():
            turned = oracle.work / "turned"
            shutil.copytree(source, turned)
            (turned / path.name).write_bytes(bytes_turned(dice, path.read_bytes()))
            look(oracle, f"round {round_number}: bytes of {name}", turned, source)
            shutil.rmtree(turned)
        for path in (oracle.work / "file.pt", oracle.data / "golden" / "hf_sharded" / "checkpoint"):
            turned = oracle.work / f"turned{path.suffix}"
            if path.is_dir():
                shutil.copytree(path, turned)
                victim = dice.choice(sorted(turned.iterdir()))
            else:
                shutil.copy(path, turned)
                victim = turned
            victim.write_bytes(bytes_turned(dice, victim.read_bytes()))
            look(oracle, f"round {round_number}: bytes of {Path(victim).name}", turned, source)
            shutil.rmtree(turned) if turned.is_dir() else turned.unlink()
    oracle.finish()


main()
