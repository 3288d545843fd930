# SPDX-License-Identifier: Apache-2.0
"""Folders of random parts with --all: every tensor is read once, or its file is named. The parts are of every format
that the tool writes, and samples of those that it only reads, with files beside them, links, junk, nested folders,
and many small parts. A part's expected contents are written here by hand, or are the tool's reading of that part
alone. Needs no package."""
import json
import os
import random
import shutil
import struct
import tarfile

from common import Oracle, read_safetensors, sha256, seed as common_seed

WRITTEN = {"dcp": "", "hf": "", "torch-checkpointing": "", "pt": ".pt", "safetensors": ".safetensors", "gguf": ".gguf", "npz": ".npz"}
FILES = ("pt", "safetensors", "gguf", "npz")  # of the written formats


def arguments(parser):
    parser.add_argument("--rounds", type=int, default=12)


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        raw = struct.pack(f"<{len(values)}q", *values)
        header[name] = {"dtype": "I64", "shape": [len(values)], "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def digests(file):
    """{KEY: digest} of a safetensors file."""
    return {key: sha256(dtype.encode() + repr(shape).encode() + data)
            for key, (dtype, shape, data) in read_safetensors(file)[0].items()}


class Maker:
    """Makes checkpoints with tensors that no other checkpoint has."""

    def __init__(self, oracle, chance):
        self.oracle, self.chance = oracle, chance
        self.scratch = oracle.work / "scratch"
        self.scratch.mkdir()
        self.samples = self.find_samples()
        self.nemo = oracle.data / "nemo/plain.nemo"
        self.nemo_held = self.alone(self.nemo)
        self.count = 0

    def find_samples(self):
        """Folders of formats that are only read, each with the tool's reading of it alone."""
        writers = self.oracle.data / "writers"
        with tarfile.open(writers / "deepspeed/samples.tar.xz") as archive:
            archive.extractall(self.scratch / "deepspeed")
        found = {"torchsnapshot": writers / "torchsnapshot/one",
                 "torch_files": writers / "transformers/whole/checkpoint",
                 "ranks": writers / "torch_ranks/dtensors_2/checkpoint",
                 "deepspeed": next(p for p in sorted((self.scratch / "deepspeed").iterdir())) / "ckpt",
                 "step": next((sorted((self.scratch / "deepspeed").iterdir())[2] / "ckpt").glob("global_step*"))}
        return {name: (path, self.alone(path)) for name, path in found.items()}

    def alone(self, path):
        file = self.scratch / "alone.safetensors"
        self.oracle.succeeds("alone", "convert", path, file, "--force", "--skip-unsupported")
        return sorted(digests(file).values())

    def new(self, form, path):
        """Writes one checkpoint; returns its tensors' digests."""
        self.count += 1
        tensors = {}
        for i in range(self.chance.randint(1, 4)):
            name = f"{self.chance.choice('abc')}{self.count}.{i}.weight"
            tensors[name] = [self.count * 1000 + i] * self.chance.randint(1, 5)
        file = self.scratch / "new.safetensors"
        write_safetensors(file, tensors)
        if self.oracle.succeeds(form, "convert", file, path, "--to", form) is None:
            return []
        return sorted(digests(file).values())

    def sample(self, name, path):
        source, held = self.samples[name]
        shutil.copytree(source, path, dirs_exist_ok=True)
        return held


def compare(oracle, case, folder, expected, problems=(), named=()):
    """The folder's tensors are exactly `expected`; the output names `named`, and the tool refuses `problems` by
    name."""
    file = oracle.work / "all.safetensors"
    for made in oracle.work.glob("all.*"):
        made.unlink()
    for command in (["inspect", folder, "--all"], ["verify", folder, "--all"],
                    ["convert", folder, file, "--all", "--skip-unsupported"]):
        status, out, err = oracle.run(*command, timeout=600)
        wanted = 1 if problems else 0
        oracle.check(status == wanted, case,
                     f"{command[0]} exits {status}, expected {wanted}: {err[-600:]}")
        for name in problems:
            oracle.check(name in err, case,
                         f"{command[0]} does not name {name}: {err[-600:]}")
        for name in named:
            oracle.check(name in out + err, case, f"{command[0]} does not name {name}: {(out + err)[-600:]}")
    if problems:
        oracle.check(not file.exists(), case, "something was written beside a problem")
        return
    found = sorted(digests(file).values()) if file.exists() else []
    oracle.check(found == sorted(expected), case, f"{len(found)} tensors, expected {len(expected)}; "
                 f"{len(set(expected) - set(found))} are missing")
    other = oracle.work / "other"
    shutil.rmtree(other, ignore_errors=True)
    if oracle.succeeds(case, "convert", folder, other, "--to", "hf", "--all", "--skip-unsupported") is not None:
        status, out, err = oracle.run("diff", folder, other, "--all", "--only", r".*weight", "--allow-unused")
        oracle.check(status == 0, case, f"diff with its own --to hf exits {status}: {(out + err)[-600:]}")


class Folder:
    """One random folder."""

    def __init__(self, oracle, maker, number):
        self.oracle, self.maker, self.chance = oracle, maker, maker.chance
        self.top = oracle.work / f"folder-{number}"
        self.expected, self.named, self.problems, self.what = [], [], [], []
        self.files = []  # possible targets of links
        self.elsewhere = oracle.work / f"elsewhere-{number}"
        self.top.mkdir()
        self.elsewhere.mkdir()

    def make(self):
        own = self.chance.choice(["none", "none", "dcp", "hf", "torch-checkpointing", *self.maker.samples])
        self.own(own, self.top)
        for i in range(self.chance.randint(1, 7)):
            self.add(f"p{i}")
        for i in range(self.chance.randint(0, 3)):
            self.link(f"l{i}")
        for i in range(self.chance.randint(0, 3)):
            self.junk(f"j{i}")

    def own(self, form, folder):
        self.what.append(f"{form} in {folder.relative_to(self.oracle.work)}")
        if form == "none":
            return
        if form in self.maker.samples:
            self.expected += self.maker.sample(form, folder)
            return
        made = self.oracle.work / "made"
        self.expected += self.maker.new(form, made)
        shutil.copytree(made, folder, dirs_exist_ok=True)
        shutil.rmtree(made)

    def place(self):
        """The folder itself, or one below."""
        folder = self.top
        for _ in range(self.chance.choice([0, 0, 0, 1, 2, 3])):
            folder = folder / self.chance.choice(["sub", "deep", "x.y"])
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def add(self, name):
        form = self.chance.choice([*WRITTEN, "pt", "pt", "nemo", *self.maker.samples])
        path = self.place() / (name + self.chance.choice(["", ".part"]) + (".nemo" if form == "nemo" else WRITTEN.get(form, "")))
        if form == "nemo":
            shutil.copy(self.maker.nemo, path)
            self.expected += self.maker.nemo_held
            self.what.append(f"nemo {path.relative_to(self.top)}")
            return
        if form in FILES:
            self.expected += self.maker.new(form, path)
            self.files.append(path)
            self.what.append(f"{form} {path.relative_to(self.top)}")
            return
        path.mkdir()
        self.own(form, path)
        if self.chance.random() < 0.4:  # adds a file beside a checkpoint in a subfolder
            self.expected += self.maker.new("pt", path / "beside.pt")

    def link(self, name):
        kind = self.chance.choice(["known", "hidden", "folder", "away", "away_text", "back", "broken"])
        self.what.append(f"link {kind}")
        at = self.place() / name
        if kind == "known" and self.files:
            at.with_suffix(".pt").symlink_to(self.chance.choice(self.files))
            self.named.append(name)
        elif kind in ("hidden", "folder"):
            store = self.top / ".store"
            store.mkdir(exist_ok=True)
            if kind == "hidden":
                self.expected += self.maker.new("pt", store / f"{name}-blob")
                at.with_suffix(".pt").symlink_to(os.path.relpath(store / f"{name}-blob", at.parent))
            else:
                self.expected += self.maker.new("dcp", store / name)
                at.symlink_to(store / name)
        elif kind == "away":
            self.maker.new("pt", self.elsewhere / f"{name}.pt")
            at.with_suffix(".pt").symlink_to(self.elsewhere / f"{name}.pt")
            self.problems.append(f"{name}.pt")
        elif kind == "away_text":
            (self.elsewhere / "README").write_text("text")
            at.symlink_to(self.elsewhere / "README")
            self.named.append(name)
        elif kind == "back":
            at.symlink_to(self.top)
            self.named.append(name)
        elif kind == "broken":
            at.with_suffix(".pt").symlink_to("nowhere")
            self.problems.append(f"{name}.pt")

    def junk(self, name):
        path = self.place() / name
        kind = self.chance.choice([".json", ".h5", ".onnx", "", "hidden"])
        if kind == "hidden":
            path = path.with_name(f".{name}.pt")
        else:
            path = path.with_name(name + kind)
        path.write_bytes(b"{}" if kind == ".json" else self.chance.randbytes(100))
        self.what.append(f"junk {path.name}")
        if kind != ".json":
            self.named.append(path.name)


def random_folders(oracle, maker):
    for number in range(oracle.args.rounds):
        folder = Folder(oracle, maker, number)
        folder.make()
        case = f"folder {number} ({'; '.join(folder.what)})"
        compare(oracle, case, folder.top, folder.expected, folder.problems,
                [] if folder.problems else [n for n in folder.named if n.endswith((".h5", ".onnx", ".pt"))])
        if folder.expected:
            printed = "".join(oracle.run("inspect", folder.top, "--all")[1:])
            for name in folder.named if not folder.problems else ():
                oracle.check(name in printed, case, f"inspect does not name {name}: {printed[-600:]}")


def beside_each_format(oracle, maker):
    """A checkpoint of each format with a file and a folder beside it: both are read, and damage to one is detected."""
    for form in ["dcp", "hf", "torch-checkpointing", *maker.samples]:
        folder = oracle.work / f"beside-{form}"
        folder.mkdir()
        held = maker.sample(form, folder) if form in maker.samples else maker.new(form, folder)
        held = list(held) + maker.new("pt", folder / "rng.pt") + maker.new("dcp", folder / "optimizer")
        compare(oracle, f"beside {form}", folder, held)
        keys = json.loads(oracle.run("inspect", folder, "--all", "--json")[1])["tensors"]
        heads = {key.split(".")[0] for key in keys}
        oracle.check({"rng", "optimizer"} < heads and len(heads) == 3, f"beside {form}", f"parts {heads}")
    for form, pattern in (("dcp", "*.distcp"), ("hf", "*.safetensors")):
        victim = next((oracle.work / f"beside-{form}").glob(pattern))
        whole = victim.read_bytes()
        victim.unlink()
        for command in (["verify"], ["convert", oracle.work / "never", "--to", "dcp"],
                        ["reshard", oracle.work / "never", "--mesh", "2", "--default", "R"]):
            status, out, err = oracle.run(command[0], oracle.work / f"beside-{form}", *command[1:], "--all")
            if form == "dcp":
                oracle.check(status in (1, 3) and victim.name in err, f"removed from {form}",
                             f"{command[0]} exits {status}: {out}{err}")
        oracle.check(not (oracle.work / "never").exists(), f"removed from {form}", "something was written")
        victim.write_bytes(whole)
    # One flipped byte, which the checksums of the part's own folder detect.
    for where in ("beside-dcp/.metadata", "beside-dcp/optimizer/.metadata"):
        file = oracle.work / where
        whole = bytearray(file.read_bytes())
        at = whole.index(b"torch.distributed")
        file.write_bytes(whole[:at] + b"T" + whole[at + 1:])
        status, out, err = oracle.run("verify", oracle.work / "beside-dcp", "--all")
        oracle.check(status == 1, where, f"verify exits {status}: {out}{err}")
        file.write_bytes(whole)


def reshards(oracle, maker):
    """The tensors of every part, sharded for two ranks."""
    folder, out = oracle.work / "beside-dcp", oracle.work / "resharded"
    file = oracle.work / "resharded.safetensors"
    if oracle.succeeds("reshard", "reshard", folder, out, "--all", "--mesh", "2", "--default", "R") is None:
        return
    oracle.succeeds("reshard", "diff", folder, out, "--all")
    oracle.succeeds("reshard", "convert", out, file)
    oracle.check(len(digests(file)) == len(json.loads(oracle.run("inspect", folder, "--all", "--json")[1])["tensors"]),
                 "reshard", f"{sorted(digests(file))}")


def deepspeed_runs(oracle, maker):
    """A step is found among many names, and through a link within the folder; a link out of it is refused by name."""
    sample = maker.samples["step"][0]
    run = oracle.work / "run"
    run.mkdir()
    for i in range(20000):
        (run / f"log-{i}.txt").touch()
    shutil.copytree(sample, run / "global_step7")
    (run / "latest").write_text("global_step7")
    oracle.check(maker.alone(run) == maker.samples["step"][1], "a step among many names", "other tensors")
    linked = oracle.work / "linked"
    shutil.copytree(sample, linked / "store")
    (linked / "global_step7").symlink_to("store")
    (linked / "latest").write_text("global_step7")
    oracle.check(maker.alone(linked) == maker.samples["step"][1], "a linked step", "other tensors")
    compare(oracle, "a linked step", linked, maker.samples["step"][1])
    away = oracle.work / "away"
    away.mkdir()
    (away / "global_step7").symlink_to(sample.resolve())
    (away / "latest").write_text("global_step7")
    never = oracle.work / "never"
    for command in (["verify", away], ["verify", away, "--all"], ["convert", away, never, "--to", "hf"]):
        status, out, err = oracle.run(*command)
        oracle.check(status == 1 and "global_step7" in err, "a step elsewhere", f"{command} exits {status}: {out}{err}")


def write_index(folder, weights):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weights}))


def beside_an_index(oracle, maker):
    """Files that an index does not name are parts; the target of a link in the folder is read once."""
    folder = oracle.work / "indexed"
    (folder / "weights").mkdir(parents=True)
    write_safetensors(folder / "weights/blob.safetensors", {"w": [1, 2]})
    (folder / "model-00001-of-00001.safetensors").symlink_to("weights/blob.safetensors")
    write_index(folder, {"w": "model-00001-of-00001.safetensors"})
    write_safetensors(folder / "model.fp16-00001-of-00001.safetensors", {"w": [3, 4]})
    write_safetensors(folder / "head.safetensors", {"head.weight": [5]})
    held = [*digests(folder / "weights/blob.safetensors").values(), *digests(folder / "head.safetensors").values()]
    compare(oracle, "beside an index", folder, held, named=["model.fp16-00001-of-00001.safetensors"])


def caches(oracle, maker):
    """A repository of the Hugging Face cache: a snapshot, whose files are elsewhere, and all of it; each thing once."""
    top = oracle.work / "hub/models--x"
    (top / "blobs").mkdir(parents=True)
    (top / "snapshots/abc/unet").mkdir(parents=True)
    (top / "snapshots/def").mkdir()
    write_safetensors(top / "blobs/aaa", {"w": [1, 2]})
    write_safetensors(top / "blobs/bbb", {"w": [3, 4]})
    held = maker.new("pt", top / "blobs/ccc")
    for blob in ("aaa", "bbb"):
        held += digests(top / "blobs" / blob).values()
    (top / "snapshots/abc/model.safetensors").symlink_to("../../blobs/aaa")
    (top / "snapshots/abc/unet/model.safetensors").symlink_to("../../../blobs/bbb")
    (top / "snapshots/abc/optimizer.pt").symlink_to("../../blobs/ccc")
    (top / "snapshots/def/model.safetensors").symlink_to("../../blobs/aaa")
    compare(oracle, "a snapshot", top / "snapshots/abc", held)
    compare(oracle, "a repository", top, held)
    printed = "".join(oracle.run("inspect", top, "--all")[1:])
    oracle.check("snapshots/def/model.safetensors (blobs/aaa)" in printed, "a repository", printed)


def many(oracle, maker):
    folder = oracle.work / "many"
    folder.mkdir()
    held = maker.new("pt", oracle.work / "one.pt")
    for i in range(1100):
        shutil.copy(oracle.work / "one.pt", folder / f"part-{i:04}.pt")
    shown = json.loads(oracle.run("inspect", folder, "--all", "--json")[1])
    oracle.check(len(shown["tensors"]) == 1100 * len(held), "1,100 parts", f"{len(shown['tensors'])} tensors")
    compare(oracle, "1,100 parts", folder, held * 1100)


def alone(oracle, maker):
    """A checkpoint with nothing beside it keeps its own keys, also with --all."""
    for form in ("dcp", "hf", "torch-checkpointing", *maker.samples):
        folder = oracle.work / f"alone-{form}"
        folder.mkdir()
        maker.sample(form, folder) if form in maker.samples else maker.new(form, folder)
        (folder / "README.md").write_text("text")
        plain, all_of_it = (json.loads(oracle.run("inspect", folder, "--json", *more)[1]) for more in ([], ["--all"]))
        oracle.check(plain["tensors"] == all_of_it["tensors"] and plain["format"] == all_of_it["format"],
                     f"{form} alone", f"{sorted(plain['tensors'])[:3]}, {sorted(all_of_it['tensors'])[:3]}")


def main():
    oracle = Oracle(__doc__, arguments, syncs=False)
    maker = Maker(oracle, random.Random(common_seed()))
    alone(oracle, maker)
    beside_each_format(oracle, maker)
    reshards(oracle, maker)
    deepspeed_runs(oracle, maker)
    beside_an_index(oracle, maker)
    caches(oracle, maker)
    random_folders(oracle, maker)
    many(oracle, maker)
    oracle.finish()


main()
