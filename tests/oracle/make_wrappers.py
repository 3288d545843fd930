# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/writers/wrappers: `wrappers.pt`, with sparse and nested tensors of PyTorch and tensors of torchao
0.18; `dcp`, with the latter (PyTorch does not save sparse ones there); and `expected.json`, their components from
PyTorch's own accessors. Run by hand; its output is committed. Needs PyTorch and torchao: make_wrappers.py FOLDER

`torchao.pt` has more of torchao's classes; make_wrappers.py --torchao FILE writes it alone. If a quantizer needs
another machine (Int4 of every packing, dynamic float8), its class is made from tensors of the same shape.
`optimizer/` has the states of torchao's 8-bit, 4-bit, and float8 optimizers; make_wrappers.py --optimizer FOLDER
writes them alone.
"""
import hashlib
import json
import shutil
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp

warnings.filterwarnings("ignore")


def described(tensor):
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "sha256": hashlib.sha256(data).hexdigest()}


def sparse_tensors(dense):
    """Each tensor with its components from PyTorch's accessors."""
    coo = dense.to_sparse().coalesce()
    yield "coo", coo, {"indices": coo.indices(), "values": coo.values()}
    loose = torch.sparse_coo_tensor(torch.tensor([[1, 1], [0, 0]]), torch.tensor([2.0, 3.0]), (3, 2))
    yield "uncoalesced", loose, {"indices": loose._indices(), "values": loose._values()}
    empty = torch.sparse_coo_tensor(size=(0, 5))
    yield "empty", empty, {"indices": empty._indices(), "values": empty._values()}
    for name, one in (("csr", dense.to_sparse_csr()), ("bsr", dense.to_sparse_bsr((2, 3)))):
        yield name, one, {"crow_indices": one.crow_indices(), "col_indices": one.col_indices(), "values": one.values()}
    for name, one in (("csc", dense.to_sparse_csc()), ("bsc", dense.to_sparse_bsc((2, 3)))):
        yield name, one, {"ccol_indices": one.ccol_indices(), "row_indices": one.row_indices(), "values": one.values()}


def nested_tensor():
    nested = torch.nested.nested_tensor([torch.arange(6.0).reshape(2, 3), torch.zeros(1, 3)])
    return nested, {"buffer": nested.values(), "sizes": nested._nested_tensor_size(), "strides": nested._nested_tensor_strides(),
                    "offsets": nested._nested_tensor_storage_offsets()}


def torchao_tensors():
    from torchao.quantization import Float8WeightOnlyConfig, Int8WeightOnlyConfig, quantize_
    for name, config in (("int8", Int8WeightOnlyConfig(version=2)), ("float8", Float8WeightOnlyConfig())):
        layer = torch.nn.Linear(48, 5, bias=False, dtype=torch.bfloat16)
        quantize_(layer, config)
        weight = layer.state_dict()["weight"]
        tensors = {key: value for key, value in vars(weight).items() if type(value) is torch.Tensor}
        yield name, weight, tensors


def more_torchao_tensors():
    from torchao.prototype.mx_formats.mx_tensor import MXTensor
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor
    from torchao.quantization import (Float8Tensor, Int4PlainInt32Tensor, Int4PreshuffledTensor, Int4Tensor, Int4TilePackedTo4dTensor,
                                      Int8DynamicActivationInt8WeightConfig, Int8DynamicActivationIntxWeightConfig,
                                      IntxWeightOnlyConfig, PerGroup, PerRow, quantize_)
    from torchao.quantization.quantize_.workflows.float8.float8_tensor import QuantizeTensorToFloat8Kwargs
    for name, config in (("int8_dynamic", Int8DynamicActivationInt8WeightConfig(version=2)),
                         ("intx", IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(16))),
                         ("intx_dynamic", Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4,
                                                                               weight_granularity=PerGroup(16)))):
        layer = torch.nn.Linear(32, 4, bias=False, dtype=torch.bfloat16)
        quantize_(layer, config)
        yield name, layer.weight if name == "intx" else layer.weight.detach()
    weight = torch.randn(16, 32, dtype=torch.bfloat16)
    yield "float8_dynamic", Float8Tensor.from_hp(weight, granularity=PerRow(), act_quant_kwargs=QuantizeTensorToFloat8Kwargs(
        granularity=PerRow()))
    yield "nvfp4", NVFP4Tensor.to_nvfp4(weight, per_tensor_scale=torch.tensor(0.5))
    yield "mxfp8", MXTensor.to_mx(weight, torch.float8_e4m3fn, 32)
    yield "mxfp4", MXTensor.to_mx(weight, torch.float4_e2m1fn_x2, 32)
    packed, scale, zero = torch.randint(0, 127, (16, 16), dtype=torch.int8), torch.randn(2, 16).bfloat16(), torch.randn(2, 16).bfloat16()
    size = torch.Size((16, 32))
    yield "int4", Int4Tensor(packed, scale, zero, [1, 16], size)
    yield "int4_scaled", Int4Tensor(packed, scale, zero, [1, 16], size, torch.rand(32).bfloat16())
    yield "int4_int32", Int4PlainInt32Tensor(torch.randint(0, 99, (16, 4), dtype=torch.int32), scale, zero, [1, 16], size)
    yield "int4_preshuffled", Int4PreshuffledTensor(packed, scale, [1, 16], size, zero)
    yield "int4_tiled", Int4TilePackedTo4dTensor(torch.randint(0, 99, (2, 1, 32, 4), dtype=torch.int32), torch.randn(2, 16, 2).bfloat16(),
                                                 [1, 16], size)


def save_more(file):
    torch.manual_seed(0)
    state = {f"m.{name}": tensor for name, tensor in more_torchao_tensors()}
    torch.save(state, file)
    print({key: type(value).__name__ for key, value in state.items()})


def save_optimizer(folder):
    """`states.pt`, the folder `dcp` with the same states, and `expected.json`: each state's components and values."""
    from torchao.optim.subclass_4bit import OptimState4bit
    from torchao.optim.subclass_8bit import OptimState8bit
    from torchao.optim.subclass_fp8 import OptimStateFp8
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    step = {}
    for name, made in (("bit8", OptimState8bit.zeros((4, 32), True, 64)), ("bit4", OptimState4bit.zeros((4, 32), False, 64)),
                       ("float8", OptimStateFp8.zeros((4, 32), 64))):
        step[name] = made.copy_(torch.randn(4, 32).abs())
    state = {"optimizer": {"state": {0: {"step": torch.tensor(3.0), **step}}}}
    torch.save(state, folder / "states.pt")
    dcp.save(state, checkpoint_id=folder / "dcp", no_dist=True)
    (folder / "expected.json").write_text(json.dumps({name: {
        "components": {key: described(value) for key, value in vars(made).items() if type(value) is torch.Tensor},
        "values": described(made.dequantize())} for name, made in step.items()}, indent=1, sort_keys=True) + "\n")


def main(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    dense = torch.randn(4, 9) * (torch.rand(4, 9) < 0.3)
    state, expected = {"plain": torch.arange(3)}, {}
    nested, parts = nested_tensor()
    for name, tensor, components in [*sparse_tensors(dense), ("nested", nested, parts), *torchao_tensors()]:
        state[f"m.{name}"] = tensor
        expected[f"m.{name}"] = {key: described(value) for key, value in components.items()}
    coo = state["m.coo"]
    state["m.parameter"] = torch.nn.Parameter(coo)
    expected["m.parameter"] = expected["m.coo"]
    torch.save(state, folder / "wrappers.pt")
    dcp.save({key: state[key] for key in ("m.int8", "m.float8", "plain")}, checkpoint_id=folder / "dcp", no_dist=True)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
    save_more(folder / "torchao.pt")
    save_optimizer(folder / "optimizer")
    print({key: list(value) for key, value in expected.items()})


if __name__ == "__main__":
    if sys.argv[1] == "--torchao":
        save_more(sys.argv[2])
    elif sys.argv[1] == "--optimizer":
        save_optimizer(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]))
