# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/unusual: small checkpoints with rare contents: quantized tensors, tensors inside objects, tied
weights, views, transposed storages, deflated records. Run by hand; its output is committed. Needs PyTorch.

Usage: make_unusual.py FOLDER"""
import argparse
import shutil
import sys
import warnings
import zipfile
from pathlib import Path

README = """# Unusual checkpoints

Made by `tests/oracle/make_unusual.py` with PyTorch {version}.

| path | what it has |
|---|---|
| `dcp` | quantized tensors (int8 per tensor, uint8 per channel), an object that holds a tensor, a tensor without elements |
| `quantized.pt` | the same tensors as `dcp` in one file |
| `views.pt` | tied weights, a part of a storage, a transposed storage, two parts of one storage, equal tensors that are not tied |
| `views_deflated.pt` | the same, every record deflated |
| `views_legacy.pt` | the same in the format before PyTorch 1.6, which has no checksums |
"""


def main():
    import torch
    import torch.distributed.checkpoint as dcp
    warnings.simplefilter("ignore")
    out = Path(sys.argv[1])
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    torch.manual_seed(0)
    quantized = {"q": torch.quantize_per_tensor(torch.randn(4, 4), 0.125, 3, torch.qint8),
                 "qc": torch.quantize_per_channel(torch.randn(4, 4), torch.tensor([0.5, 0.25, 0.125, 1.0]),
                                                  torch.tensor([0, 1, 2, 3]), 0, torch.quint8),
                 "w": torch.arange(6, dtype=torch.float32).reshape(2, 3)}
    settings = argparse.Namespace(name="run", mean=torch.arange(5, dtype=torch.float64))
    state = {**quantized, "empty": torch.zeros(0, 4), "settings": settings, "history": [1, 2.5, "three"]}
    dcp.save(state, checkpoint_id=out / "dcp")
    torch.save({**quantized, "settings": settings}, out / "quantized.pt")
    shared = torch.arange(96, dtype=torch.float32)
    embed = torch.arange(48, dtype=torch.float32).reshape(12, 4) * 0.5
    views = {"embed": embed, "lm_head": embed, "copy_of_embed": embed.clone(), "part": shared[8:24].view(4, 4),
             "other_part": shared[40:70], "turned": torch.arange(64, dtype=torch.int64).reshape(8, 8).t(),
             "first_rows": embed[:6], "count": torch.tensor(7), "epoch": 3}
    torch.save(views, out / "views.pt")
    torch.save(views, out / "views_legacy.pt", _use_new_zipfile_serialization=False)
    with zipfile.ZipFile(out / "views.pt") as plain, \
            zipfile.ZipFile(out / "views_deflated.pt", "w", zipfile.ZIP_DEFLATED) as deflated:
        for record in plain.infolist():
            deflated.writestr(zipfile.ZipInfo(record.filename), plain.read(record), zipfile.ZIP_DEFLATED)
    (out / "README.md").write_text(README.format(version=torch.__version__))


if __name__ == "__main__":
    main()
