# SPDX-License-Identifier: Apache-2.0
"""Quantized tensors keep their dtype: PyTorch loads a copy of its DCP folder with the same elements, and `verify`
warns of a dtype that PyTorch does not know."""
import shutil
import warnings

from common import Oracle, need_torch

need_torch()
warnings.filterwarnings("ignore")
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.filesystem import FileSystemReader  # noqa: E402


def load(folder):
    state = {"q": torch.quantize_per_tensor(torch.zeros(4, 4), 0.125, 3, torch.qint8),
             "qc": torch.quantize_per_channel(torch.zeros(4, 4), torch.tensor([0.5, 0.25, 0.125, 1.0]),
                                              torch.tensor([0, 1, 2, 3]), 0, torch.quint8),
             "w": torch.zeros(2, 3)}
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    return {"q": state["q"].int_repr(), "qc": state["qc"].int_repr(), "w": state["w"]}


def main():
    oracle = Oracle(__doc__, syncs=False)
    source, copy = oracle.data / "unusual" / "dcp", oracle.work / "copy"
    oracle.succeeds("copy", "convert", source, copy, "--to", "dcp")
    oracle.succeeds("copy", "verify", copy, "--strict")
    dtypes = [{key: entry.properties.dtype for key, entry in FileSystemReader(folder).read_metadata().state_dict_metadata.items()
               if hasattr(entry, "properties")} for folder in (source, copy)]
    oracle.check(dtypes[0] == dtypes[1] and dtypes[1]["q"] == torch.qint8 and dtypes[1]["qc"] == torch.quint8, "copy",
                 f"dtypes differ: {dtypes}")
    before, after = load(source), load(copy)
    for key, tensor in before.items():
        oracle.check(bool(tensor.any()) and torch.equal(tensor, after[key]), "copy", f"{key} differs: {after[key]}")

    unknown = oracle.work / "unknown"
    shutil.copytree(source, unknown)
    metadata = (unknown / ".metadata").read_bytes()
    oracle.check(metadata.count(b"qint8") == 1, "unknown", "the sample has changed")
    (unknown / ".metadata").write_bytes(metadata.replace(b"qint8", b"qintX"))
    for arguments, wanted in (([], 0), (["--strict"], 1)):
        status, _, err = oracle.run("verify", unknown, *arguments)
        oracle.check(status == wanted and "q: has a dtype that PyTorch 2.13 does not know: found torch.qintX" in err, "unknown",
                     f"verify {arguments} exits {status}: {err}")
    oracle.finish()


if __name__ == "__main__":
    main()
