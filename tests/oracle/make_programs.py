# SPDX-License-Identifier: Apache-2.0
"""Writes torch_jit and torch_export of tests/data/writers. They hold a TorchScript archive and an exported program of
the running PyTorch (2.15), and the two older forms of exported programs that torch.export.load still reads.
expected.json has the values that PyTorch loads.

    make_programs.py OUT
"""
import io
import json
import shutil
import sys
import warnings
import zipfile
from pathlib import Path

warnings.filterwarnings("ignore")
import torch
from torch import nn


class Below(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("running", torch.arange(5))
        self.register_buffer("transient", torch.ones(2), persistent=False)
        self.attribute = torch.full((2,), 7.0)
        self.scale = 3

    def forward(self, x):
        return self.linear(x) * self.scale + self.attribute + self.transient


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Below(), Below()
        self.b.linear.weight = self.a.linear.weight  # tied
        self.layers = nn.ModuleList([nn.Linear(2, 2, bias=False), nn.Linear(2, 2)])
        self.bent = nn.Parameter(torch.randn(2, 3).to(torch.bfloat16).t())
        self.empty = nn.Parameter(torch.empty(0, 3), requires_grad=False)
        self.register_buffer("step", torch.tensor(4))

    def forward(self, x):
        y = self.a(x) + self.b(x)
        for layer in self.layers:
            y = layer(y)
        return y + self.bent.float().sum()


class Small(Model):
    """The same weights, and almost no graph."""

    def forward(self, x):
        return x + self.a.attribute.sum() + self.b.transient.sum()


def described(state):
    def raw(t):
        flat = t.detach().contiguous().reshape(-1)
        return bytes(flat.view(torch.uint8).numpy()).hex() if flat.numel() else ""
    return {k: {"dtype": str(t.dtype)[6:], "shape": list(t.shape), "bytes": raw(t)} for k, t in state.items()}


def torch_save(value):
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def write_old_zip(program, path):
    """torch.export.save of PyTorch 2.1 to 2.6."""
    from torch._export.serde.serialize import SCHEMA_VERSION, serialize
    artifact = serialize(program)
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("serialized_exported_program.json", artifact.exported_program)
        out.writestr("serialized_state_dict.pt", torch_save(program.state_dict))
        out.writestr("serialized_constants.pt", torch_save(dict(program.constants)))
        out.writestr("serialized_example_inputs.pt", torch_save(program.example_inputs))
        out.writestr("version", ".".join(map(str, SCHEMA_VERSION)))


def write_one_archive_of_weights(program, new, path):
    """torch.export.save of PyTorch 2.7 and 2.8: like `new`, but all weights are one torch.save archive."""
    source, out = torch._C.PyTorchFileReader(str(new)), torch._C.PyTorchFileWriter(str(path))
    for name in source.get_all_records():
        if not name.startswith(("data/weights/", "data/constants/", ".data/")) and name not in ("byteorder", "version"):
            record = source.get_record(name)
            out.write_record(name, record, len(record))
    for name, value in (("weights", program.state_dict), ("constants", dict(program.constants))):
        record = torch_save(value)
        out.write_record(f"data/{name}/model.pt", record, len(record))
    out.write_end_of_file()


def main():
    out = Path(sys.argv[1])
    export, jit = out / "torch_export", out / "torch_jit"
    for folder in (export, jit):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    torch.manual_seed(3)
    torch.jit.save(torch.jit.script(Model().eval()), jit / "script.pt")
    program = torch.export.export(Small().eval(), (torch.randn(1),))
    torch.export.save(program, export / "program.pt2")
    write_old_zip(program, export / "program_2_6.pt2")
    write_one_archive_of_weights(program, export / "program.pt2", export / "program_2_8.pt2")
    loaded = {jit: {"script.pt": torch.jit.load(jit / "script.pt").state_dict()},
              export: {name: torch.export.load(export / name).state_dict
                       for name in ("program.pt2", "program_2_6.pt2", "program_2_8.pt2")}}
    for folder, files in loaded.items():
        answers = {"torch": torch.__version__, "files": {name: described(state) for name, state in files.items()}}
        (folder / "expected.json").write_text(json.dumps(answers) + "\n")


if __name__ == "__main__":
    main()
