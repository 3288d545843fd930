# SPDX-License-Identifier: Apache-2.0
"""`convert --map hf.llama:meta.llama` against torchtitan's own adapter of Llama 3 (Llama3StateDictAdapter), bit for bit
in both directions. torchtitan arranges tensors as Meta does, with two other names. Needs torchtitan
(mapping_fresh.py)."""
import sys
import types
from unittest.mock import MagicMock

from common import Oracle, need_torch, skip

need_torch()
import numpy as np  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402

# torchtitan's kernels for GPUs need Triton at import; state dicts do not need the kernels.
sys.modules["torchtitan.distributed.minimal_async_ep.kernels"] = MagicMock()
try:
    from torchtitan.models.common.rope import ComplexRoPE
    from torchtitan.models.llama3.state_dict_adapter import Llama3StateDictAdapter
except ImportError as missing:
    skip(f"{missing}: ./dev test --release installs it and runs this test (mapping_fresh.py)")

import mapping_layouts as layouts  # noqa: E402
from mapping_numpy import tensors_of, write_config  # noqa: E402


def adapter_of(config):
    """The adapter, with the members of torchtitan's configuration that it reads."""
    heads, groups, d = layouts.sizes_of(config)
    rope = ComplexRoPE.Config(dim=d, max_seq_len=64)
    attention = types.SimpleNamespace(n_heads=heads, n_kv_heads=groups, head_dim=d, rope=rope)
    layer = types.SimpleNamespace(attention=attention)
    return Llama3StateDictAdapter(
        types.SimpleNamespace(layers=[layer] * config["num_hidden_layers"], dim=config["hidden_size"],
                              enable_weight_tying=False), None)


def titan_names(state):
    """Meta's names as torchtitan spells them."""
    return {"lm_head.weight" if key == "output.weight" else
            key.replace("attention.w", "attention.qkv_linear.w") if key.split(".")[-2] in ("wq", "wk", "wv") else key: value
            for key, value in state.items()}


def meta_names(state):
    return {"output.weight" if key == "lm_head.weight" else key.replace("qkv_linear.", ""): value.contiguous()
            for key, value in state.items()}


def bits(state):
    return {key: (value.dtype, tuple(value.shape), value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
            for key, value in state.items()}


def main():
    oracle = Oracle(__doc__)
    for config_name, config in (("small", layouts.LLAMA), ("wide", layouts.WIDE)):
        for dtype in (np.float32, np.uint16):
            case, folder = f"{config_name} {np.dtype(dtype).name}", oracle.work / config_name
            hf = tensors_of(layouts.make_llama(config, dtype, int(torch.seed() % 2**31)))
            write_config(folder, config)
            safetensors.torch.save_file(hf, folder / "model.safetensors")
            made, returned = folder / "made.safetensors", folder / "returned.safetensors"
            adapter = adapter_of(config)
            titan = adapter.from_hf(dict(hf))
            if oracle.succeeds(case, "convert", folder / "model.safetensors", made, "--map", "hf.llama:meta.llama",
                               "--force") is None:
                continue
            ours = titan_names(safetensors.torch.load_file(made))
            oracle.check(bits(ours) == bits(titan), case, "torchtitan's from_hf makes other tensors")
            oracle.check(bits(adapter.to_hf(ours)) == bits(hf), case, "torchtitan's to_hf makes other tensors of ours")
            safetensors.torch.save_file(meta_names(titan), made)
            if oracle.succeeds(case, "convert", made, returned, "--map", "meta.llama:hf.llama", "--force") is not None:
                oracle.check(bits(safetensors.torch.load_file(returned)) == bits(hf), case,
                             "torchtitan's tensors become others than those of Hugging Face")
    oracle.finish()


if __name__ == "__main__":
    main()
