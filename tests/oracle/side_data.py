# SPDX-License-Identifier: Apache-2.0
"""Data beside the entries of a checkpoint, for every source and every target: it is in the destination, byte for
byte, or a note names it. Files beside a folder, texts of safetensors files, attributes of DCP metadata. Needs no
package."""
import json
import re
import shutil
import struct
import tarfile

from common import Oracle, read_safetensors

TARGETS = {"dcp": "", "hf": "", "safetensors": ".safetensors", "pt": ".pt", "torch-checkpointing": "", "gguf": ".gguf", "npz": ".npz"}
# These hold no texts: a note names them.
WITHOUT_TEXTS = {"pt", "torch-checkpointing", "npz"}
BESIDE = {"config.json": b'{"a":1}', "tokenizer.json": b'{"b":2}', "adapter_config.json": b"{}", "README.md": b"text",
          "blob.h5": b"PK\x05\x06" + bytes(18), "extra.weights": b"xyz"}
KNOWN = {"config.json", "tokenizer.json", "adapter_config.json", "README.md", "metadata.json", "meta.pt"}
TEXTS = {"format": "pt", "who-wrote": "me-myself", "when-written": "now-then"}
# The settings in the sample of NeMo.
SETTINGS = {"model_config.yaml": "name: small\n"}
# Side files are copied only into a destination of their family.
FAMILY = {("dcp", "dcp"), ("hf", "hf"), ("torch_files", "hf"), ("ranks", "hf")}


def write_safetensors(path, texts):
    header = {"w": {"dtype": "I64", "shape": [2], "data_offsets": [0, 16]}}
    if texts:
        header["__metadata__"] = texts
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + struct.pack("<2q", 1, 2))


class Source:
    """A checkpoint, and the data beside its entries."""

    def __init__(self, path, family, files=(), texts=(), attributes=()):
        self.path, self.family = path, family
        self.files, self.texts, self.attributes = dict(files), dict(texts), list(attributes)


def sources(oracle):
    work, writers = oracle.work, oracle.data / "writers"
    write_safetensors(work / "texts.safetensors", TEXTS)
    write_safetensors(work / "plain.safetensors", None)

    def convert(name, form, ending="", texts=False):
        path = work / f"source-{name}{ending}"
        source = work / ("texts.safetensors" if texts else "plain.safetensors")
        oracle.succeeds(name, "convert", source, path, "--to", form)
        return path

    def copy(name, sample):
        path = work / f"source-{name}"
        shutil.copytree(sample, path)
        return path

    def beside(path, family, more=(), **others):
        files = {**BESIDE, **dict(more)}
        for name, data in files.items():
            (path / name).write_bytes(data)
        return Source(path, family, files, **others)

    with tarfile.open(writers / "deepspeed/samples.tar.xz") as archive:
        archive.extractall(work / "deepspeed")
    deepspeed = sorted((work / "deepspeed").iterdir())[2] / "ckpt"
    yield "dcp", beside(convert("dcp", "dcp"), "dcp", {"meta.pt": b"meta", "metadata.json": b"{}"})
    yield "dcp of texts", beside(convert("dcp-texts", "dcp", texts=True), "dcp", texts=TEXTS)
    yield "hf", beside(convert("hf", "hf", texts=True), "hf", texts=TEXTS)
    yield "safetensors", Source(work / "texts.safetensors", "file", texts=TEXTS)
    yield "pt", Source(convert("pt", "pt", ".pt"), "file")
    yield "torch-checkpointing", beside(convert("tc", "torch-checkpointing"), "torch_checkpointing")
    yield "torch-files", beside(copy("bin", writers / "transformers/whole/checkpoint"), "torch_files")
    yield "gguf", Source(convert("gguf", "gguf", ".gguf", texts=True), "file", texts=TEXTS)
    yield "npz", Source(convert("npz", "npz", ".npz"), "file")
    (work / "mlx").mkdir()
    shutil.copy(work / "source-npz.npz", work / "mlx/weights.npz")
    yield "mlx", beside(work / "mlx", "npz")
    yield "nemo", Source(oracle.data / "nemo/plain.nemo", "file", texts=SETTINGS)
    yield "ranks", beside(copy("ranks", writers / "torch_ranks/dtensors_2/checkpoint"), "ranks")
    yield "torchsnapshot", beside(copy("snapshot", writers / "torchsnapshot/one"), "torchsnapshot")
    yield "deepspeed", beside(copy("run", deepspeed), "deepspeed")
    yield "deepspeed's step", beside(copy("step", next(deepspeed.glob("global_step*"))), "deepspeed")
    parts = work / "source-parts"
    shutil.copytree(convert("unet", "hf", texts=True), parts / "unet")
    shutil.copy(convert("opt", "pt", ".pt"), parts / "optimizer.pt")
    (parts / "unet/config.json").write_bytes(b"{}")
    yield "parts", beside(parts, "parts", {"unet/config.json": b"{}"}, texts=TEXTS)


def noted(notes, beginning):
    names = set()
    for note in notes:
        if note.startswith(beginning):
            names |= set(re.sub(r" and \d+ more$", "", note.removeprefix(beginning)).split(", "))
    return names


def texts_of(form, path):
    """A destination's texts, without those that describe the file itself."""
    if form in WITHOUT_TEXTS:
        return {}
    if form in ("dcp", "gguf"):
        data = (path / ".metadata" if form == "dcp" else path).read_bytes()
        return {key: value for key, value in (TEXTS | SETTINGS).items() if key.encode() in data and value.encode() in data}
    files = [path] if form == "safetensors" else sorted(path.glob("*.safetensors"))
    found = {}
    for file in files:
        found |= read_safetensors(file)[1]
    return {key: value for key, value in found.items() if not key.startswith("shardmesh.")}


def cross(oracle, name, source, form, ending):
    case = f"{name} to {form}"
    target = oracle.work / f"target{ending or '-folder'}"
    if target.is_dir():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    for beside in oracle.work.glob("target*.objects.json"):
        beside.unlink()
    command = ["convert", source.path, target, "--to", form, "--json", "--skip-unsupported"]
    if name == "parts":
        command.append("--all")
    status, out, err = oracle.run(*command)
    if not oracle.check(status == 0, case, f"exits {status}: {err}"):
        return
    notes = json.loads(out)["notes"]
    takes = (source.family, form) in FAMILY
    carried = {file for file in source.files if takes and file in KNOWN}
    for file in carried:
        there = target / file
        oracle.check(there.is_file() and there.read_bytes() == source.files[file], case, f"{file} is not copied")
    left = noted(notes, "not copied: ")
    if name == "parts":  # parts are named when they are gathered
        left = noted(notes, "skipped, as files of these kinds hold no tensors: ")
        unread = f"{source.path}: 2 entries are not readable checkpoints and are skipped: "
        left |= noted(notes, unread)
    oracle.check(left == set(source.files) - carried, case, f"not copied: {sorted(left)}, expected "
                 f"{sorted(set(source.files) - carried)}")
    present = {file for file in source.files if target.is_dir() and (target / file).exists()}
    oracle.check(present == carried, case, f"{sorted(present)} are in the destination")
    kept = texts_of(form, target)
    of_what = {"nemo": "of the .nemo file", "gguf": "of the GGUF file"}.get(name, "in the __metadata__ of safetensors files")
    named = noted(notes, f"not kept: texts {of_what}: ")
    wanted = {key for key in source.texts if key != "format"}
    oracle.check({key for key in kept if key != "format"} | named == wanted and not named & set(kept), case,
                 f"texts {kept}, named {named}")
    oracle.check(all(source.texts[key] == value for key, value in kept.items() if key in source.texts), case, f"{kept}")
    if form in WITHOUT_TEXTS:
        oracle.check(not kept and named == wanted, case, f"texts {kept}, named {named}")
    else:
        oracle.check(not named, case, f"named {named}, which the destination can hold")


def attributes(oracle):
    """Megatron's metadata has attributes that only DCP can hold."""
    sample = next((oracle.data / "writers/megatron").glob("megatron_core_0.16*.tar.xz"))
    with tarfile.open(sample) as archive:
        archive.extractall(oracle.work / "megatron")
    folder = min((p.parent for p in (oracle.work / "megatron").rglob(".metadata")), key=str)
    shown = b"mcore_data" in (folder / ".metadata").read_bytes()
    for form, ending in TARGETS.items():
        target = oracle.work / f"megatron-{form}{ending}"
        status, out, err = oracle.run("convert", folder, target, "--to", form, "--json", "--skip-unsupported")
        if not oracle.check(status == 0, f"megatron to {form}", f"exits {status}: {err}"):
            continue
        notes = json.loads(out)["notes"]
        named = noted(notes, "not kept: attributes of .metadata: ")
        has_it = form == "dcp" and b"mcore_data" in (target / ".metadata").read_bytes()
        oracle.check(not shown or has_it != ("mcore_data" in named), f"megatron to {form}", f"{notes}")
        copied = form == "dcp" and (target / "common.pt").is_file()
        oracle.check(form != "dcp" or copied, f"megatron to {form}", "common.pt is not copied")
        left = noted(notes, "not copied: ")
        oracle.check("common.pt" not in left and (form == "dcp") != ("metadata.json" in left), f"megatron to {form}",
                     f"not copied: {left}")


def main():
    oracle = Oracle(__doc__, syncs=False)
    for name, source in sources(oracle):
        if oracle.args.only in name:
            for form, ending in TARGETS.items():
                cross(oracle, name, source, form, ending)
    attributes(oracle)
    oracle.finish()


main()
