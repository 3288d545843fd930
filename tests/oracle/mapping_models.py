# SPDX-License-Identifier: Apache-2.0
"""Tiny random models of transformers, saved by save_pretrained, for the scripts that compare `convert --map` with other
packages. Needs PyTorch and transformers."""
import os

os.environ.update({"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"})
import torch  # noqa: E402
import transformers  # noqa: E402

transformers.utils.logging.disable_progress_bar()
THETA, EPS = 10000.0, 1e-5
COMMON = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": EPS, "tie_word_embeddings": False,
          "attn_implementation": "eager"}
# name: (class of the configuration, class of the model, further settings)
MODELS = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {}),
    "llama_heads": ("LlamaConfig", "LlamaForCausalLM", {"head_dim": 16}),  # heads * head_dim is not hidden_size
    "llama_tied": ("LlamaConfig", "LlamaForCausalLM", {"tie_word_embeddings": True}),
    "mistral": ("MistralConfig", "MistralForCausalLM", {"sliding_window": None}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {}),  # with biases of q, k, and v
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {"head_dim": 16}),  # with norms of the heads of q and k
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 2,
                                                       "sliding_window": None}),
}


def make(name, seed, **settings):
    """A model in float32 with random weights, its norms and biases included."""
    config, model, more = MODELS[name]
    torch.manual_seed(seed)
    made = getattr(transformers, model)(getattr(transformers, config)(**{**COMMON, **more, **settings})).eval()
    with torch.no_grad():
        for key, parameter in made.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
            else:
                parameter.mul_(4)  # the initial weights are so small that attention is nearly uniform
    return made


def tokens_of(seed, length=12):
    return torch.randint(0, COMMON["vocab_size"], (length,), generator=torch.Generator().manual_seed(seed))


def logits_of(model, tokens):
    with torch.no_grad():
        return model(tokens[None]).logits[0]


def largest_difference(a, b):
    """Relative to the logits' size, so that a tolerance does not depend on the random weights."""
    return float((a - b).abs().max() / b.abs().max()) if a.shape == b.shape else float("inf")
