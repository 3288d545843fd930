# SPDX-License-Identifier: Apache-2.0
"""A conversion that would leave out all of a source's tensors is refused, with their number and names. A conversion
of objects without a way back names each and how to leave it out. Output that cannot be converted further is named at
that time."""
import argparse
import collections
import datetime
import enum
import io
import json
import zipfile

from common import Oracle, need_torch, read_safetensors, sha256

need_torch()
import torch  # noqa: E402

TARGETS = {"dcp": "", "safetensors": ".safetensors", "hf": "", "pt": ".pt", "torch-checkpointing": ""}


class Color(enum.Enum):
    RED = 1


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)
        self.table = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.linear(x) + self.table.sum()


class Transient(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(3), persistent=False)
        self.register_buffer("bias", torch.zeros(2), persistent=False)


class Plain(torch.nn.Module):
    """A tensor that is neither parameter nor buffer: the exported program's constant."""

    def __init__(self):
        super().__init__()
        self.k = torch.ones(3)

    def forward(self, x):
        return x + self.k


class Attribute(torch.nn.Module):
    """The same in a TorchScript archive."""

    def __init__(self):
        super().__init__()
        self.scale = torch.ones(3)

    def forward(self, x):
        return x * self.scale


def rewritten(source, target, replaced, added=()):
    """Copies a ZIP archive with the contents of some records replaced, and with further records."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for record in old.infolist():
            new.writestr(record.filename, replaced.get(record.filename, old.read(record)))
        for name, data in added:
            new.writestr(name, data)


def programs_of_constants(oracle):
    """Exported programs of PyTorch 2.6 and 2.8 without weights. Their constants are an archive of torch.save."""
    stream = io.BytesIO()
    torch.save({}, stream)
    for release, weights in (("2_6", "serialized_state_dict.pt"), ("2_8", "program_2_8/data/weights/model.pt")):
        file = oracle.work / f"constants_{release}.pt2"
        rewritten(oracle.data / "writers" / "torch_export" / f"program_{release}.pt2", file, {weights: stream.getvalue()})
        yield f"constants_{release}", file, 3, "3 constants (a.attribute, a.transient, b.transient)"


def empty_sources(oracle):
    """Yields (name, file, number of tensors, a text of the note that names them)."""
    file = oracle.work / "frozen.pt"
    torch.jit.freeze(torch.jit.script(Scaled().eval())).save(str(file))
    with zipfile.ZipFile(file) as archive:
        constants = sum("/constants/" in name for name in archive.namelist())
    yield "frozen", file, constants, "constants/0"
    file = oracle.work / "attribute.pt"
    torch.jit.script(Attribute()).save(str(file))
    yield "attribute", file, 1, "(scale)"
    file = oracle.work / "transient.pt"
    torch.save(Transient(), file)
    yield "transient", file, 2, "2 buffers that are not persistent are not kept: mask, bias"
    yield from programs_of_constants(oracle)
    try:
        file = oracle.work / "plain.pt2"
        torch.export.save(torch.export.export(Plain().eval(), (torch.ones(3),)), file)
        yield "exported", file, 1, "tensor_0"
    except Exception as error:  # exporting needs a compiler's front end, which some builds of PyTorch lack
        print(f"skipped: no program can be exported ({type(error).__name__}: {error})")


def check_verify(oracle, name, file, count, named):
    """If all tensors of a source are left out, nothing is checked; `verify` says so with their number, and --strict
    fails."""
    tensors = f"{count} tensor{'s' * (count != 1)}"
    status, out, err = oracle.run("verify", file)
    warning = f"{file}: no tensor is checked: it holds {tensors}, and none of them is read"
    oracle.check(status == 0 and f"; {tensors} {'is' if count == 1 else 'are'} not read" in out and warning in err and named in err,
                 f"{name} verified", f"exits {status}: {out + err}")
    status, out, err = oracle.run("verify", file, "--strict")
    oracle.check((status, out) == (1, "") and warning in err, f"{name} verified strictly", f"exits {status}: {out + err}")
    status, out, err = oracle.run("verify", file, "--json")
    document = json.loads(out)
    texts = [one["text"] for one in document["warnings"]]
    oracle.check((status, document.get("unread_tensors"), sum(text.startswith(warning + " [") for text in texts)) == (0, count, 1)
                 and any(named in note for note in document.get("notes", [])), f"{name} verified as JSON", f"exits {status}: {out + err}")


def check_diff(oracle, name, file, count, named):
    """`diff` finds such tensors equal, but says that they were not compared, and how many they are."""
    tensors = f"{count} tensor{'s' * (count != 1)} of {file}"
    status, out, err = oracle.run("diff", file, file)
    line = f"equal: 0 tensors (0 bytes); not read, so not compared: {tensors} and {tensors}\n"
    oracle.check((status, out) == (0, line) and named in err, f"{name} compared", f"exits {status}: {out + err}")
    status, out, err = oracle.run("diff", file, file, "--json")
    document = json.loads(out)
    oracle.check((status, document.get("unread_tensors")) == (0, [count, count])
                 and any(named in note for note in document.get("notes", [])), f"{name} compared as JSON", f"exits {status}: {out + err}")


def check_empty(oracle):
    for name, file, count, named in empty_sources(oracle):
        for to, ending in TARGETS.items():
            made, case = oracle.work / f"{name}_{to}{ending}", f"{name} to {to}"
            status, out, err = oracle.run("convert", file, made, "--to", to)
            oracle.check(status == 1 and f"the source's {count} tensor{'s' * (count != 1)} cannot be kept" in err and named in err and str(file) in err
                         and "--skip-unsupported" in err and not made.exists(), case, f"exits {status}: {out + err}")
            oracle.succeeds(case, "convert", file, made, "--to", to, "--skip-unsupported")
            oracle.check(made.exists(), case, "nothing is written on demand")
        check_verify(oracle, name, file, count, named)
        check_diff(oracle, name, file, count, named)
        status, _, err = oracle.run("reshard", file, oracle.work / f"{name}_reshard", "--mesh", "2", "--default", "R")
        oracle.check(status == 1 and "cannot be kept" in err, f"{name} resharded", f"exits {status}: {err}")
    # It is enough if some tensors are left, or if the source has none.
    torch.save({"n": 3}, oracle.work / "none.pt")
    oracle.succeeds("none", "convert", oracle.work / "none.pt", oracle.work / "none.safetensors")
    for to in ("npz", "gguf"):  # whose names do not show the format
        oracle.succeeds(f"none as {to}", "convert", oracle.work / "none.pt", oracle.work / f"none_{to}", "--to", to)
        oracle.succeeds(f"none as {to}", "diff", oracle.work / "none.pt", oracle.work / f"none_{to}")
    script = torch.jit.script(Scaled())
    script.save(str(oracle.work / "script.pt"))
    oracle.succeeds("script", "convert", oracle.work / "script.pt", oracle.work / "script.safetensors")


def check_extra_files(oracle):
    """A note names the files that a program's author added to its archive."""
    script = oracle.work / "extra.pt"
    torch.jit.script(Scaled()).save(str(script), _extra_files={"labels.json": b"{}", "words.txt": b"a"})
    files, folder = [script], oracle.data / "writers" / "torch_export"
    for name, inside in (("program", "program/extra/"), ("program_2_8", "program_2_8/extra/"), ("program_2_6", "extra_files/")):
        files.append(oracle.work / f"extra_{name}.pt2")
        rewritten(folder / f"{name}.pt2", files[-1], {}, [(inside + "labels.json", b"{}"), (inside + "words.txt", b"a")])
    for file in files:
        status, out, err = oracle.run("convert", file, file.with_suffix(".safetensors"))
        # torch.jit.save writes them in the order of a hash table
        is_named = any(f"2 extra files ({names})" in err for names in ("labels.json, words.txt", "words.txt, labels.json"))
        oracle.check(status == 0 and is_named, file.name, f"exits {status}: {out + err}")


def check_ways_back(oracle):
    """Objects that JSON stores only by type have no way back: each is named, with two alternatives."""
    foreign = {"when": datetime.datetime(2026, 1, 2), "color": Color.RED, "queue": collections.deque([1]), "a.b": {"ns": argparse.Namespace(x=1)}}
    state = {"w": torch.arange(4.), "step": 3, "table": {None: 1}, **foreign}
    source = oracle.work / "ways.pt"
    torch.save(state, source)
    keys = ["when", "color", "queue", "a.b.ns"]
    for middle in ("safetensors", "hf"):
        there = oracle.work / f"ways_{middle}{TARGETS[middle]}"
        oracle.succeeds(middle, "convert", source, there, "--to", middle)
        for to in ("pt", "dcp", "torch-checkpointing"):
            case = f"{middle} to {to}"
            back, skipped = (oracle.work / f"{middle}_{to}_{how}{TARGETS[to]}" for how in ("back", "skipped"))
            status, _, err = oracle.run("convert", there, back, "--to", to)
            oracle.check(status == 1 and not back.exists(), case, f"exits {status}: {err}")
            for key in keys:
                pattern = key.replace(".", "\\.")
                lines = [line for line in err.splitlines() if f"{key}: " in line]
                oracle.check(len(lines) == 1 and there.name in lines[0] and f"pass --skip-unsupported to leave it out, or --skip '{pattern}'" in lines[0],
                             case, f"says of {key}: {lines}")
            status, out, err = oracle.run("convert", there, skipped, "--to", to, "--skip-unsupported")
            oracle.check(status == 0 and all(f"{key} is left out" in err for key in keys) and "4 objects" in out, case, f"says {out + err}")
            oracle.succeeds(case, "convert", there, oracle.work / f"{middle}_{to}_bare{TARGETS[to]}", "--to", to,
                            *(["--skip-objects"] if to != "dcp" else ["--skip-unsupported"]))
            rules = [word for key in keys for word in ("--skip", key.replace(".", "\\."))]
            oracle.succeeds(case, "convert", there, back, "--to", to, *rules)
            for made in (back, skipped):
                if to == "pt":
                    found = torch.load(made, weights_only=False)
                    oracle.check(torch.equal(found.pop("w"), state["w"]) and found == {"step": 3, "table": {None: 1}}, case, f"gives {found}")
                else:
                    oracle.succeeds(case, "verify", made)
        status, _, err = oracle.run("reshard", there, oracle.work / f"{middle}_mesh", "--mesh", "2", "--default", "R")
        oracle.check(status == 1 and all(f"{key}: " in err for key in keys), f"{middle} resharded", f"exits {status}: {err}")
        line = ["reshard", there, oracle.work / f"{middle}_mesh", "--mesh", "2", "--default", "R", "--skip-unsupported"]
        dry = json.loads(oracle.succeeds(middle, *line, "--dry-run", "--json"))
        oracle.check("; skipped " in oracle.succeeds(middle, *line, "--dry-run"), f"{middle} resharded", "a dry run names no skipped entry")
        real = json.loads(oracle.succeeds(middle, *line, "--json"))
        counts = [{name: of[name] for name in ("tensors", "objects", "skipped_tensors", "skipped_objects", "excluded")} for of in (dry, real)]
        oracle.check(counts[0] == counts[1], f"{middle} resharded", f"a dry run counts otherwise: {counts}")
        oracle.check(dry["skipped_tensors"] + dry["skipped_objects"] == len(keys), f"{middle} resharded", f"counts {counts}")


def check_optimizer_states(oracle):
    """The states of torchao's optimizers become components like its weights, from DCP and .pt, there and back."""
    folder = oracle.data / "writers" / "wrappers" / "optimizer"
    expected = json.loads((folder / "expected.json").read_text())
    for name in ("states.pt", "dcp"):
        source, apart, back = folder / name, oracle.work / f"{name}_hf", oracle.work / f"{name}_again.pt"
        oracle.succeeds(name, "convert", source, apart, "--to", "hf")
        tensors, _ = read_safetensors(apart / "model.safetensors")
        for key, parts in expected.items():
            for part, wanted in parts["components"].items():
                dtype, shape, data = tensors.get(f"optimizer.state.0.{key}.{part}", (None, None, b""))
                oracle.check(shape == wanted["shape"] and sha256(data) == wanted["sha256"], name, f"{key}.{part} is {dtype} {shape}")
        for middle in ("pt", "dcp", "torch-checkpointing", "hf"):
            made = oracle.work / f"{name}_{middle}{TARGETS[middle]}"
            oracle.succeeds(name, "convert", source, made, "--to", middle, "--force")
            oracle.succeeds(name, "diff", source, made)
            for to in ("pt", "dcp", "hf"):
                further = oracle.work / f"{name}_{middle}_{to}{TARGETS[to]}"
                oracle.succeeds(f"{name} by {middle} to {to}", "convert", made, further, "--to", to)
                oracle.succeeds(f"{name} by {middle} to {to}", "diff", source, further)
        oracle.succeeds(name, "convert", apart, back)


def main():
    oracle = Oracle(__doc__)
    check_empty(oracle)
    check_extra_files(oracle)
    check_ways_back(oracle)
    check_optimizer_states(oracle)
    oracle.finish()


if __name__ == "__main__":
    main()
