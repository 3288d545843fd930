# SPDX-License-Identifier: Apache-2.0
"""Checkpoints shown under another naming convention: the arguments `map`, `config`, `sizes`, and `map_inverse`. numpy
makes Megatron's fused tensors of a Llama independently."""
import json
from pathlib import Path

import common

common.need_torch()
import numpy  # noqa: E402
import torch  # noqa: E402

import shardmesh  # noqa: E402
from common import raw  # noqa: E402

TO_MEGATRON, TO_HF = "hf.llama:megatron.gpt", "megatron.gpt:hf.llama"
LAYERS, HEADS, GROUPS, HEAD_DIM, HIDDEN, INNER, VOCABULARY = 2, 6, 2, 4, 8, 10, 11
#: As transformers writes it: with values that are no integers, which are left out.
CONFIG = {"architectures": ["LlamaForCausalLM"], "head_dim": HEAD_DIM, "hidden_size": HIDDEN, "intermediate_size": INNER,
          "model_type": "llama", "num_attention_heads": HEADS, "num_hidden_layers": LAYERS,
          "num_key_value_heads": GROUPS, "rms_norm_eps": 1e-5, "rope_scaling": {"factor": 8.0},
          "tie_word_embeddings": False, "vocab_size": VOCABULARY}
#: The mapping's own sizes, instead of a configuration.
SIZES = {"layer": LAYERS, "g": GROUPS, "r": HEADS // GROUPS, "d": HEAD_DIM, "h": HIDDEN, "f": INNER}


def llama():
    """A Llama of random numbers under Hugging Face's names."""
    dice = numpy.random.default_rng(common.seed())
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,),
              "lm_head.weight": (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in {
            "input_layernorm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,),
            "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN), "self_attn.k_proj": (GROUPS * HEAD_DIM, HIDDEN),
            "self_attn.v_proj": (GROUPS * HEAD_DIM, HIDDEN), "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
            "mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN), "mlp.down_proj": (HIDDEN, INNER),
        }.items()}
    return {key: dice.standard_normal(shape).astype(numpy.float32) for key, shape in shapes.items()}


def megatron(hf):
    """The same model under Megatron's names, by numpy."""
    made = {"embedding.word_embeddings.weight": hf["model.embed_tokens.weight"],
            "decoder.final_layernorm.weight": hf["model.norm.weight"], "output_layer.weight": hf["lm_head.weight"]}
    for layer in range(LAYERS):
        old, new = f"model.layers.{layer}.", f"decoder.layers.{layer}."
        q, k, v = (hf[f"{old}self_attn.{one}_proj.weight"].reshape(GROUPS, -1, HIDDEN) for one in "qkv")
        made |= {
            f"{new}self_attention.linear_qkv.weight": numpy.concatenate([q, k, v], axis=1).reshape(-1, HIDDEN),
            f"{new}self_attention.linear_qkv.layer_norm_weight": hf[f"{old}input_layernorm.weight"],
            f"{new}self_attention.linear_proj.weight": hf[f"{old}self_attn.o_proj.weight"],
            f"{new}mlp.linear_fc1.weight": numpy.concatenate([hf[f"{old}mlp.gate_proj.weight"],
                                                              hf[f"{old}mlp.up_proj.weight"]]),
            f"{new}mlp.linear_fc1.layer_norm_weight": hf[f"{old}post_attention_layernorm.weight"],
            f"{new}mlp.linear_fc2.weight": hf[f"{old}mlp.down_proj.weight"],
        }
    return made


QKV = "decoder.layers.1.self_attention.linear_qkv.weight"


class ConventionTest(common.WorkTest):
    def setUp(self):
        super().setUp()
        self.hf = llama()
        self.folder = self.work / "hf"
        self.written(self.hf, self.folder, "hf")
        (self.folder / "config.json").write_text(json.dumps(CONFIG))

    def written(self, arrays, path, format="dcp"):
        shardmesh.save({key: torch.from_numpy(array.copy()) for key, array in arrays.items()}, path, format)
        return path

    def check(self, checkpoint, arrays):
        """Compares every tensor with an array, bit for bit."""
        self.assertEqual({entry.key for entry in checkpoint.tensors}, set(arrays))
        for key, array in arrays.items():
            self.assertEqual((checkpoint[key].shape, checkpoint[key].dtype), (array.shape, "float32"), key)
            self.assertEqual(raw(checkpoint.load(key)), array.tobytes(), key)

    def refused(self, code, call, *words):
        with self.assertRaises(shardmesh.Error) as caught:
            call()
        self.assertEqual(caught.exception.code, code, str(caught.exception))
        for word in words:
            self.assertIn(word, str(caught.exception))
        return caught.exception

    def test_a_llama_is_shown_as_numpy_makes_megatrons_tensors(self):
        shown, expected = shardmesh.open(self.folder, map=TO_MEGATRON), megatron(self.hf)
        self.check(shown, expected)
        for begin in range(0, expected[QKV].shape[0] - 5, 3):  # boxes across queries, keys, and values
            box = shown[QKV][begin:begin + 5, 2:7]
            self.assertEqual(raw(box), expected[QKV][begin:begin + 5, 2:7].tobytes())
        into = {key: torch.empty(array.shape) for key, array in expected.items()}
        shown.load_into(into)
        for key, array in expected.items():
            self.assertEqual(raw(into[key]), array.tobytes(), key)

    def test_conversion_there_and_back_is_equal_bit_for_bit(self):
        there, back = self.work / "megatron", self.work / "back"
        shardmesh.convert(self.folder, there, "dcp", map=TO_MEGATRON)
        self.check(shardmesh.open(there), megatron(self.hf))
        shardmesh.convert(there, back, "hf", map=TO_HF, config=self.folder / "config.json")
        self.check(shardmesh.open(back), self.hf)
        self.assertTrue(shardmesh.diff(self.folder, back).equal)

    def test_a_state_is_saved_under_the_other_names_and_loaded_into_its_own(self):
        state = {key: torch.from_numpy(array.copy()) for key, array in self.hf.items()}
        for format, name in (("dcp", "saved"), ("safetensors", "saved.safetensors"), ("hf", "saved_hf"), ("pt", "saved.pt")):
            path = self.work / name
            report = shardmesh.save({**state, "epoch": 3}, path, format, map=TO_MEGATRON, config=CONFIG)
            self.assertEqual((report.tensors, report.objects), (len(megatron(self.hf)), 1), format)
            self.check(shardmesh.open(path), megatron(self.hf))
            into = {key: torch.empty(array.shape) for key, array in self.hf.items()}
            shardmesh.open(path, map=TO_HF, config=CONFIG).load_into(into)
            for key, array in self.hf.items():
                self.assertEqual(raw(into[key]), array.tobytes(), key)
        # Strided tensors, and a selection of the new names.
        turned = {key: tensor.T.contiguous().T if tensor.dim() == 2 else tensor for key, tensor in state.items()}
        some = shardmesh.save(turned, self.work / "some", map=TO_MEGATRON, sizes=SIZES,
                              selection=shardmesh.Selection(only=".*linear_qkv.weight", rename=r"(.*)\.weight=\1.w"))
        self.assertEqual((some.tensors, some.excluded), (LAYERS, len(megatron(self.hf)) - LAYERS))
        self.assertEqual(raw(shardmesh.load(self.work / "some", QKV[:-len("eight")])), megatron(self.hf)[QKV].tobytes())

    def test_a_state_that_does_not_fit_the_mapping_is_not_saved(self):
        state = {key: torch.from_numpy(array.copy()) for key, array in self.hf.items()}
        path = self.work / "refused"
        self.refused("missing_key", lambda: shardmesh.save(state, path, map=TO_MEGATRON), "num_hidden_layers")
        self.refused("missing_key", lambda: shardmesh.save({**state, "extra": torch.ones(2)}, path, map=TO_MEGATRON,
                                                           config=CONFIG), "extra")
        self.refused("invalid_argument", lambda: shardmesh.save(state, path, map=TO_MEGATRON, config=CONFIG,
                                                                previous=self.folder), "previous")
        self.refused("invalid_argument", lambda: shardmesh.save(state, path, config=CONFIG), "pass map")
        self.assertFalse(path.exists())

    def test_reshard_cuts_the_mapped_tensors(self):
        shardmesh.reshard(self.folder, self.work / "two", 2, place=[".*linear_qkv.weight=S(0)", ".*=R"], map=TO_MEGATRON)
        made = shardmesh.open(self.work / "two")
        self.check(made, megatron(self.hf))
        self.assertEqual(len(made[QKV].chunks), 2)

    def test_diff_compares_checkpoints_of_two_conventions(self):
        arrays = megatron(self.hf)
        equal = shardmesh.diff(self.folder, self.written(arrays, self.work / "equal"), map=TO_MEGATRON)
        self.assertTrue(equal.equal, equal.differences)
        self.assertEqual(equal.tensors, len(arrays))
        arrays[QKV] = arrays[QKV] + (numpy.arange(arrays[QKV].size).reshape(arrays[QKV].shape) == 5)
        other = shardmesh.diff(self.folder, self.written({**arrays, QKV: arrays[QKV].astype(numpy.float32)},
                                                         self.work / "other"), map=TO_MEGATRON)
        self.assertEqual([(one.key, one.kind, one.different) for one in other.differences], [(QKV, "values", 1)])

    def test_the_sizes_of_the_model_come_from_a_file_a_mapping_or_sizes(self):
        expected, elsewhere = megatron(self.hf), self.work / "elsewhere.json"
        (self.folder / "config.json").rename(elsewhere)
        error = self.refused("missing_key", lambda: shardmesh.open(self.folder, map=TO_MEGATRON))
        self.assertIn("num_hidden_layers", str(error))
        for config in (elsewhere, str(elsewhere), CONFIG, {key: numpy.int64(value) for key, value in CONFIG.items()
                                                           if isinstance(value, int)}):
            self.check(shardmesh.open(self.folder, map=TO_MEGATRON, config=config), expected)
        self.check(shardmesh.open(self.folder, map=TO_MEGATRON, sizes=SIZES), expected)
        self.check(shardmesh.open(self.folder, map=TO_MEGATRON, config={**CONFIG, "num_key_value_heads": 3},
                                  sizes={"g": GROUPS}), expected)
        error = self.refused("invalid_argument", lambda: shardmesh.open(self.folder, map=TO_MEGATRON, config=CONFIG,
                                                                        sizes={"num_hiden_layers": LAYERS}))
        self.assertIn("did you mean num_hidden_layers?", str(error))
        error = self.refused("missing_key", lambda: shardmesh.open(self.folder, map=TO_MEGATRON, config=CONFIG,
                                                                   sizes={"layer": LAYERS + 1}))
        self.assertIn(f"model.layers.{LAYERS}.", error.key)
        self.refused("shape_mismatch", lambda: shardmesh.open(self.folder, map=TO_MEGATRON,
                                                              config={**CONFIG, "num_key_value_heads": 3}))

    def test_numbers_of_nested_configurations_have_dotted_names(self):
        rules = self.work / "nested.toml"
        rules.write_text("left = 'a'\nright = 'b'\n[sizes]\nn = 'text_config.n'\n"
                         "[[rule]]\nleft = 'w'\nright = 'v'\nindex = 'w: (n m) -> v: m n'\n")
        array = numpy.arange(6, dtype=numpy.float32)
        self.written({"w": array}, self.work / "w.safetensors", "safetensors")
        shown = shardmesh.open(self.work / "w.safetensors", map=rules, config={"text_config": {"n": 2}, "n": 3})
        self.check(shown, {"v": numpy.ascontiguousarray(array.reshape(2, 3).T)})

    def test_texts_and_lists_of_a_configuration_are_names_whether_from_a_file_or_a_dict(self):
        rules = self.work / "lists.toml"
        rules.write_text("left = 'a'\nright = 'b'\n[captures]\nlayer = 'kinds.length'\n"
                         "[[rule]]\nleft = 'l.{layer}'\nright = 'dense.{layer}'\nif = 'kinds[layer].dense ?? 0'\n"
                         "[[rule]]\nleft = 'l.{layer}'\nright = 'sparse.{layer + act.silu + n.has[7] + n[1]}'\n"
                         "if = 'kinds[layer].sparse ?? 0'\n")
        arrays = {f"l.{layer}": numpy.full(2, layer, numpy.float32) for layer in range(3)}
        stored = self.work / "lists.safetensors"
        self.written(arrays, stored, "safetensors")
        config = {"kinds": ["dense", "sparse", "sparse"], "act": "silu", "n": [7, 10], "other": [None, "a b", {}]}
        (self.work / "lists.json").write_text(json.dumps(config))
        expected = {"dense.0": arrays["l.0"], "sparse.13": arrays["l.1"], "sparse.14": arrays["l.2"]}
        for given in (self.work / "lists.json", config, {**config, "kinds": tuple(config["kinds"])}):
            self.check(shardmesh.open(stored, map=rules, config=given), expected)

    def test_joined_settings_of_an_optimizer_that_differ_are_shown_as_python_writes_them(self):
        state = {key: torch.from_numpy(array) for key, array in self.hf.items()}
        rates = {f"optim.param_groups.{key}.lr": 0.001 if ".q_proj" in key else 0.01 for key in self.hf}
        self.refused("disagreement", lambda: shardmesh.save({**state, **rates}, self.work / "rates", map=TO_MEGATRON,
                                                            config=CONFIG),
                     "expected 0.001 of ", "found 0.01 of ")

    def test_the_time_limit_of_a_call_ends_the_proof_of_a_slow_mapping(self):
        rules = self.work / "slow.toml"
        rules.write_text("left = 'a'\nright = 'b'\n[captures]\ni = 4000000\n[[rule]]\nleft = 'l.{i}'\nright = 'r.{i}'\n"
                         f"if = '{'+'.join(2000 * ['i'])} < 0'\n")
        self.refused("deadline_exceeded", lambda: shardmesh.open(self.folder, map=rules, within=0.2))

    def test_the_dict_of_a_configuration_of_transformers_has_integers_as_keys_of_its_labels(self):
        labels = {"id2label": {0: "LABEL_0", 1: "LABEL_1"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1}}
        self.check(shardmesh.open(self.folder, map=TO_MEGATRON, config={**CONFIG, **labels}), megatron(self.hf))
        rules = self.work / "labels.toml"
        rules.write_text("left = 'a'\nright = 'b'\n[sizes]\nn = 'more.1 * id2label.1.LABEL_1'\n"
                         "[[rule]]\nleft = 'w'\nright = 'v'\nindex = 'w: (n m) -> v: m n'\n")
        array = numpy.arange(6, dtype=numpy.float32)
        stored = self.written({"w": array}, self.work / "labels.safetensors", "safetensors")
        config = {**labels, "more": {1: 2}, "digits": 10**400}
        (self.work / "labels.json").write_text(json.dumps({**labels, "more": {1: 2}}))
        for given in (self.work / "labels.json", config):
            self.check(shardmesh.open(stored, map=rules, config=given),
                       {"v": numpy.ascontiguousarray(array.reshape(2, 3).T)})

    def test_the_sizes_of_a_params_json_have_hugging_faces_names_whether_from_a_file_or_a_dict(self):
        there = self.work / "megatron"
        shardmesh.convert(self.folder, there, "hf", map=TO_MEGATRON)
        names = {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_key_value_heads": "n_kv_heads",
                 "num_hidden_layers": "n_layers", "intermediate_size": "hidden_dim"}
        params = {names.get(name, name): value for name, value in CONFIG.items()}
        (self.work / "params.json").write_text(json.dumps({**params, "vocab_size": -1}))
        for given in (self.work / "params.json", params, {**params, "vocab_size": -1}):
            self.check(shardmesh.open(there, map=TO_HF, config=given), self.hf)

    def test_a_model_is_refused_by_a_fraction_of_its_configuration_whether_from_a_file_or_a_dict(self):
        part = {**CONFIG, "partial_rotary_factor": 0.75}
        (self.work / "part.json").write_text(json.dumps(part))
        for config in (self.work / "part.json", part, {**part, "partial_rotary_factor": numpy.float32(0.75)},
                       {**CONFIG, "rope_parameters": {"partial_rotary_factor": 0.5}}):
            self.refused("unsupported", lambda: shardmesh.open(self.folder, map="hf.llama:meta.llama", config=config),
                         "hf.llama:meta.llama", "a part of each head", "partial_rotary_factor.fraction")
            self.check(shardmesh.open(self.folder, map=TO_MEGATRON, config=config), megatron(self.hf))
        whole = {**CONFIG, "partial_rotary_factor": 1.0}
        self.assertIn("tok_embeddings.weight", shardmesh.open(self.folder, map="hf.llama:meta.llama", config=whole))

    def test_the_file_of_a_mapping_is_a_path_of_any_kind_and_works_in_both_directions(self):
        text = shardmesh.mapping_text(TO_MEGATRON)
        self.assertEqual(shardmesh.mapping_text(TO_HF), text)
        expected = megatron(self.hf)
        stored = self.written(expected, self.work / "megatron")
        for name in ("own.toml", "own.rules"):
            rules = self.work / name
            rules.write_text(text)
            for path in (rules, str(rules)):
                self.check(shardmesh.open(self.folder, map=path), expected)
            self.check(shardmesh.open(stored, map=rules, map_inverse=True, config=CONFIG), self.hf)
        self.refused("io", lambda: shardmesh.open(self.folder, map="none.toml"), "none.toml")
        self.refused("io", lambda: shardmesh.open(self.folder, map=Path("none")), "none")
        self.refused("invalid_argument", lambda: shardmesh.open(self.folder, map=text), "the argument map")

    def test_mappings_are_listed_with_their_texts(self):
        names = shardmesh.mappings()
        self.assertIn(TO_MEGATRON, names)
        for name in names:
            left, right = name.split(":")
            text = shardmesh.mapping_text(name)
            self.assertIn(f'left = "{left}"', text)
            self.assertIn(f'right = "{right}"', text)
        self.refused("invalid_argument", lambda: shardmesh.mapping_text("hf.llama:nothing"), TO_MEGATRON)

    def test_a_wrong_mapping_is_refused_with_the_key_or_the_known_conventions(self):
        known = {one for name in shardmesh.mappings() for one in name.split(":")}
        for wrong in ("hf.llama:nothing", "hf.llama", "", ":"):
            self.refused("invalid_argument", lambda: shardmesh.open(self.folder, map=wrong), *known)
        self.refused("invalid_argument", lambda: shardmesh.open(self.folder, map=TO_MEGATRON, map_inverse=True), "swap")
        extra = self.written({**self.hf, "model.extra.weight": numpy.zeros(1, numpy.float32)}, self.work / "extra")
        lacking = self.written({key: array for key, array in self.hf.items() if "layers.1.self_attn.k_proj" not in key},
                               self.work / "lacking")
        for path, key in ((extra, "model.extra.weight"), (lacking, "model.layers.1.self_attn.k_proj.weight")):
            error = self.refused("missing_key", lambda: shardmesh.open(path, map=TO_MEGATRON, config=CONFIG))
            self.assertEqual(error.key, key)
            to = self.work / "never"
            self.refused("missing_key", lambda: shardmesh.convert(path, to, "dcp", map=TO_MEGATRON, config=CONFIG), key)
            self.assertFalse(to.exists())

    def test_arguments_that_do_not_go_together_are_refused(self):
        for how in ({"config": CONFIG}, {"sizes": SIZES}, {"map_inverse": True}):
            self.refused("invalid_argument", lambda: shardmesh.open(self.folder, **how), *how, "pass map")
        self.refused("invalid_argument", lambda: shardmesh.open(self.folder, map=TO_MEGATRON, only_keys=[QKV]), "only_keys")
        for name, values in {"map": (3, b"hf.llama:megatron.gpt", [TO_MEGATRON]), "config": (3, [1], {1: 2}),
                             "sizes": (3, "g=2", {"g": 2.5}, {"g": "2"}, {1: 2}, {"g": -1})}.items():
            for value in values:
                error = self.refused("invalid_argument",
                                     lambda: shardmesh.open(self.folder, **{"map": TO_MEGATRON, name: value}))
                self.assertEqual(error.message, f"the argument {name} is invalid")

    def test_a_fused_tensor_is_not_in_the_file_to_be_mapped(self):
        shown = shardmesh.open(self.folder, map=TO_MEGATRON)
        self.refused("unsupported", lambda: shown.map_tensor(QKV, allow_unaligned=True), QKV)
        renamed = shown.map_tensor("output_layer.weight", allow_unaligned=True)
        self.assertEqual(renamed.numpy().tobytes(), self.hf["lm_head.weight"].tobytes())


if __name__ == "__main__":
    common.main()
