# SPDX-License-Identifier: Apache-2.0
"""Models of transformers, saved by save_pretrained and converted by `convert --map`: from Meta's and Megatron's tensors,
a forward pass in plain PyTorch (mapping_forward.py) computes the logits of transformers' model; Mixtral with fused and
with separate experts loads in transformers. Needs transformers, which mapping_fresh.py installs."""
import shutil

from common import Oracle, need_torch, skip

need_torch()
try:
    import transformers
except ImportError as missing:
    skip(f"{missing}: ./dev test --release installs transformers and runs this test (mapping_fresh.py)")
if int(transformers.__version__.split(".")[0]) < 5:
    skip(f"transformers {transformers.__version__} has no fused experts: install 5 or newer")
import safetensors.torch  # noqa: E402
import torch  # noqa: E402

import mapping_models as models  # noqa: E402
from mapping_forward import megatron_logits, meta_logits  # noqa: E402

TOLERANCE = 1e-5
FORWARD = {"meta.llama": meta_logits, "megatron.gpt": megatron_logits}


def saved(oracle, name, model, **options):
    folder = oracle.work / name
    model.save_pretrained(folder, max_shard_size="20KB", **options)
    oracle.check(len(list(folder.glob("*.safetensors"))) > 1, name, "save_pretrained wrote one file")
    return folder


def same_bits(a, b):
    return a.keys() == b.keys() and all(a[key].dtype == b[key].dtype and torch.equal(a[key], b[key]) for key in a)


def stored(folder):
    return {key: value for file in folder.glob("*.safetensors") for key, value in safetensors.torch.load_file(file).items()}


def dense(oracle, name, seed):
    model, tokens = models.make(name, seed), models.tokens_of(seed)
    source, expected = saved(oracle, name, model), models.logits_of(model, tokens)
    config = model.config
    sizes = {"heads": config.num_attention_heads, "groups": config.num_key_value_heads, "layers": config.num_hidden_layers,
             "theta": models.THETA, "eps": models.EPS}
    for convention, forward in FORWARD.items():
        case, made = f"{name} to {convention}", oracle.work / f"{name}_{convention}.safetensors"
        if name.startswith("qwen") and convention == "meta.llama":
            # Meta's Llama has no such tensors, so no rule may leave them out.
            status, _, err = oracle.run("convert", source, made, "--map", f"hf.llama:{convention}")
            key = "q_proj.bias" if name == "qwen2" else "q_norm.weight"
            oracle.check(status == 1 and key in err and not made.exists(), case, f"exits {status}: {err[-300:]}")
            continue
        if oracle.succeeds(case, "convert", source, made, "--map", f"hf.llama:{convention}") is None:
            continue
        weights = safetensors.torch.load_file(made)
        difference = models.largest_difference(forward(weights, tokens, **sizes), expected)
        print(f"{case}: logits differ by {difference:.1e}")
        oracle.check(difference < TOLERANCE, case, f"the logits differ by {difference}")
        # The comparison must notice a wrong convention: without the permutation, or with another order of heads.
        key = "layers.0.attention.wq.weight" if convention == "meta.llama" else "decoder.layers.0.self_attention.linear_qkv.weight"
        wrong = {**weights, key: weights[key].roll(1, 0)}
        difference = models.largest_difference(forward(wrong, tokens, **sizes), expected)
        oracle.check(difference > 100 * TOLERANCE, case, f"other rows in {key} change the logits by {difference} only")
        back = oracle.work / f"{name}_{convention}_back"
        if oracle.succeeds(case, "convert", made, back, "--to", "hf", "--map", f"{convention}:hf.llama", "--config",
                           source / "config.json") is None:
            continue
        oracle.check(same_bits(stored(back), stored(source)), case + " and back", "the tensors differ from those that were saved")
        shutil.copy(source / "config.json", back)
        loaded, info = type(model).from_pretrained(back, output_loading_info=True, attn_implementation="eager")
        oracle.check(not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), case, f"{info}")
        oracle.check(torch.equal(models.logits_of(loaded.eval(), tokens), expected), case + " and back", "the logits differ")


def mixtral(oracle, seed):
    model, tokens = models.make("mixtral", seed), models.tokens_of(seed)
    expected = models.logits_of(model, tokens)
    separate = saved(oracle, "mixtral_separate", model)
    oracle.check(any("experts.0.w1.weight" in key for key in stored(separate)), "mixtral", "save_pretrained wrote no w1")
    fused = saved(oracle, "mixtral_fused", model, save_original_format=False)
    oracle.check(any("experts.gate_up_proj" in key for key in stored(fused)), "mixtral", "save_pretrained wrote no gate_up_proj")
    for case, source, other, mapping in (("mixtral to fused", separate, fused, "hf.mixtral:hf.mixtral-fused"),
                                         ("mixtral from fused", fused, separate, "hf.mixtral-fused:hf.mixtral")):
        made = oracle.work / case.replace(" ", "_")
        if oracle.succeeds(case, "convert", source, made, "--to", "hf", "--map", mapping, "--max-shard-size", "20KB") is None:
            continue
        oracle.check(same_bits(stored(made), stored(other)), case, "the tensors differ from those of save_pretrained")
        shutil.copy(source / "config.json", made)
        loaded, info = type(model).from_pretrained(made, output_loading_info=True, attn_implementation="eager")
        oracle.check(not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), case, f"{info}")
        difference = models.largest_difference(models.logits_of(loaded.eval(), tokens), expected)
        oracle.check(difference < TOLERANCE, case, f"the logits differ by {difference}")


def main():
    oracle = Oracle(__doc__)
    torch.set_num_threads(1)
    seed = int(torch.seed() % 2**31)
    print(f"transformers {transformers.__version__}, seed {seed}")
    for name in models.MODELS:
        if oracle.args.only in name:
            mixtral(oracle, seed) if name == "mixtral" else dense(oracle, name, seed)
    oracle.finish()


if __name__ == "__main__":
    main()
