# SPDX-License-Identifier: Apache-2.0
"""`convert --map` against conversions that are written by hand in NumPy (mapping_layouts.py): every shipped mapping, in
both directions, bit for bit, from files of each format. Configurations and checkpoints that do not fit are refused with
the key, and nothing is written. Needs PyTorch, NumPy, and safetensors."""
import json
import random
import re
import sys
import warnings
from pathlib import Path

from common import Oracle, fingerprint, need_torch, read_safetensors, skip, seed as common_seed

need_torch()
try:
    import numpy as np
    import safetensors.torch
except ImportError as missing:
    skip(str(missing))
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402

import mapping_layouts as layouts  # noqa: E402

sys.path.append(str(Path(__file__).parent.parent / "python"))
from rank_group import run_ranks  # noqa: E402

warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # one process loads DCP folders
NAMES = {np.dtype(np.float32): "F32", np.dtype(np.uint16): "BF16"}
# 4 MiB is the smallest budget, and less than the largest tensor.
WAYS = ([], ["--threads", "1"], ["--threads", "7"], ["--memory", "4MiB"], ["--threads", "1", "--memory", "4MiB"])


def tensor_of(array):
    made = torch.from_numpy(np.ascontiguousarray(array))
    return made.view(torch.bfloat16) if array.dtype == np.uint16 else made


def tensors_of(state):
    return {key: tensor_of(array) for key, array in state.items()}


def described(state):
    return {key: (NAMES[array.dtype], list(array.shape), np.ascontiguousarray(array).tobytes())
            for key, array in state.items()}


def differences(found, expected):
    """The first keys that only one side has, or whose dtype, shape, or bits differ."""
    keys = sorted(found.keys() | expected.keys())
    return [key for key in keys if found.get(key) != expected.get(key)][:5]


def write_config(folder, config):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))


def save_two_ranks(rank, world, folder):
    """One of two processes: each tensor is cut into uneven rows, or into columns."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (2,))
    for number, file in enumerate(sorted(folder.glob("*.pt"))):
        state = torch.load(file, weights_only=True)
        held = {key: distribute_tensor(tensor, mesh, [Shard((number + at) % tensor.dim())])
                for at, (key, tensor) in enumerate(state.items())}
        dcp.save(held, checkpoint_id=folder / file.stem)


def write_dcp(oracle, states):
    """{name: state} as DCP folders of two ranks below `oracle.work / "ranks"`."""
    folder = oracle.work / "ranks"
    folder.mkdir()
    for name, state in states.items():
        torch.save(tensors_of(state), folder / f"{name}.pt")
    run_ranks(2, save_two_ranks, folder)
    return folder


def write_sources(oracle, name, config, state):
    """(form, path, options) of the same checkpoint in each format."""
    folder, tensors = oracle.work / name, tensors_of(state)
    write_config(folder / "file", config)
    safetensors.torch.save_file(tensors, folder / "file/model.safetensors")
    write_config(folder / "hf", config)
    keys = list(tensors)
    files = {"model-00001-of-00002.safetensors": keys[::2], "model-00002-of-00002.safetensors": keys[1::2]}
    for file, part in files.items():
        safetensors.torch.save_file({key: tensors[key] for key in part}, folder / "hf" / file, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {key: file for file, part in files.items() for key in part}}
    (folder / "hf/model.safetensors.index.json").write_text(json.dumps(index))
    torch.save(tensors, folder / "state.pt")
    sizes = [part for key, value in config.items() if isinstance(value, int)
             for part in ("--size", f"{key}={int(value)}")]
    return [("safetensors", folder / "file/model.safetensors", []), ("hf", folder / "hf", []),
            ("dcp", oracle.work / "ranks" / name, ["--config", folder / "hf/config.json"]),
            ("pt", folder / "state.pt", sizes)]


def used(oracle, mapping, options):
    """The options without sizes that the mapping does not use: those are errors."""
    if "--size" not in options:
        return options
    text = re.sub("#.*", "", oracle.succeeds("the mapping's text", "map", "print", mapping) or "")
    return [part for option, size in zip(options[::2], options[1::2])
            if re.search(rf"\b{re.escape(size.split('=')[0])}\b", text) for part in (option, size)]


def round_trips(oracle, name, config, state, mapping, expected, sources):
    """Converts each source there; and the first results back, in several formats."""
    there, back = mapping, ":".join(reversed(mapping.split(":")))
    wanted, original = described(expected), described(state)
    for number, (form, source, options) in enumerate(sources):
        case, way = f"{name} {there} from {form}", WAYS[number % len(WAYS)]
        options = used(oracle, there, options)
        made = oracle.work / f"made_{form}.safetensors"
        if oracle.succeeds(case, "convert", source, made, "--map", there, *options, *way, "--force") is None:
            continue
        differ = differences(read_safetensors(made)[0], wanted)
        oracle.check(not differ, case, f"differs from NumPy's: {differ}")
        returned = oracle.work / "returned.safetensors"
        way = WAYS[(number + 2) % len(WAYS)]
        config_options = options or ["--config", source / "config.json" if form == "hf" else source.parent / "config.json"]
        if oracle.succeeds(case, "convert", made, returned, "--map", back, *config_options, *way, "--force") is not None:
            differ = differences(read_safetensors(returned)[0], original)
            oracle.check(not differ, case + " and back", f"differs from the source: {differ}")
    # DCP and .pt as targets, read by PyTorch.
    form, source, options = sources[0]
    folder = oracle.work / "made_dcp"
    if oracle.succeeds(name, "convert", source, folder, "--to", "dcp", "--map", there, *options, "--force") is not None:
        check_dcp(oracle, f"{name} {there} to dcp", folder, expected)
    file = oracle.work / "made.pt"
    if oracle.succeeds(name, "convert", source, file, "--map", there, *options, "--force") is not None:
        read = torch.load(file, weights_only=True)
        check_tensors(oracle, f"{name} {there} to pt", read, expected)


def check_tensors(oracle, case, read, expected):
    found = {key: (str(value.dtype), list(value.shape), value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
             for key, value in read.items()}
    torch_names = {"F32": "torch.float32", "BF16": "torch.bfloat16"}
    wanted = {key: (torch_names[dtype], shape, data) for key, (dtype, shape, data) in described(expected).items()}
    differ = differences(found, wanted)
    oracle.check(not differ, case, f"PyTorch reads other tensors than NumPy's: {differ}")


def check_dcp(oracle, case, folder, expected):
    read = {key: torch.empty_like(tensor) for key, tensor in tensors_of(expected).items()}
    stored = set(dcp.FileSystemReader(folder).read_metadata().state_dict_metadata)
    oracle.check(stored == set(read), case, f"other keys: {sorted(stored ^ set(read))[:5]}")
    dcp.load(read, checkpoint_id=folder, no_dist=True)
    check_tensors(oracle, case, read, expected)


def reshards(oracle, dice, config, state, expected):
    """Results of a mapping, moved to random meshes."""
    source = oracle.work / "resharded.safetensors"
    for number in range(3):
        if oracle.succeeds("reshard", "convert", oracle.work / "llama_bf16/hf", source, "--map", "hf.llama:megatron.gpt",
                           "--force") is None:
            return
        mesh = (dice.randint(1, 3), dice.randint(1, 3))
        matrices = ",".join(dice.choice(["S(0)", "S(1)", "R"]) for _ in mesh)
        vectors = ",".join(dice.choice(["S(0)", "R"]) for _ in mesh)
        rules = ["--place", f".*norm.*={vectors}", "--place", f".*={matrices}"]
        folder, case = oracle.work / f"mesh_{number}", f"reshard to {mesh}, {matrices}, {vectors}"
        if oracle.succeeds(case, "reshard", source, folder, "--mesh", f"{mesh[0]},{mesh[1]}", *rules) is None:
            continue
        check_dcp(oracle, case, folder, expected)
        # And back to Hugging Face's names from the shards.
        returned = oracle.work / "returned.safetensors"
        if oracle.succeeds(case, "convert", folder, returned, "--map", "megatron.gpt:hf.llama", "--config",
                           oracle.work / "llama_bf16/hf/config.json", "--force") is not None:
            differ = differences(read_safetensors(returned)[0], described(state))
            oracle.check(not differ, case, f"differs from the source: {differ}")


def refused(oracle, case, status, says, state, config, *arguments, mapping="hf.llama:megatron.gpt"):
    """The conversion fails with this status and these texts, and writes nothing."""
    folder = oracle.work / "refused"
    write_config(folder, config)
    if state is not None:
        safetensors.torch.save_file(state, folder / "model.safetensors")
    before = fingerprint(folder)
    found, out, err = oracle.run("convert", folder / "model.safetensors", folder / "out.safetensors", "--map", mapping,
                                 *arguments)
    oracle.check(found == status, case, f"exits {found}, expected {status}: {err[-700:]}")
    oracle.check(all(text in err for text in says), case, f"does not say {says}: {err[-700:]}")
    oracle.check(fingerprint(folder) == before, case, "something was written")


def filled(shown, state):
    """The tensor that the boxes of `map show --json` make of the sources."""
    first = state[shown["sources"][0]["key"]]
    made = np.zeros(shown["shape"], first.dtype)
    for box in shown["boxes"]:
        to = tuple(slice(at, at + size) for at, size in zip(box["offsets"], box["sizes"]))
        of = tuple(slice(at, at + size) for at, size in zip(box["from"]["offsets"], box["from"]["sizes"]))
        made[to] = state[shown["sources"][box["source"]]["key"]][of].reshape(box["sizes"])
    return made


def shown_boxes(oracle):
    """`map show --json` lists boxes from which NumPy makes the same tensors: both have the order of the dimensions."""
    for name, config, make, convert, mapping in (
            ("llama", layouts.LLAMA, layouts.make_llama, layouts.to_megatron, "hf.llama:megatron.gpt"),
            ("mixtral", layouts.MIXTRAL, layouts.make_mixtral, layouts.to_fused_experts, "hf.mixtral:hf.mixtral-fused")):
        state = make(config, np.float32, 9)
        folder = oracle.work / f"shown_{name}"
        write_config(folder, config)
        safetensors.torch.save_file(tensors_of(state), folder / "model.safetensors")
        for key, expected in convert(config, state).items():
            case = f"map show {mapping} {key}"
            out = oracle.succeeds(case, "map", "show", folder / "model.safetensors", key, "--map", mapping, "--json")
            if out is None:
                continue
            shown = json.loads(out)
            oracle.check(shown["more_boxes"] == 0 and filled(shown, state).tobytes() == expected.tobytes(), case,
                         f"the boxes make another tensor: {out[:300]}")
            picture = folder / "picture.svg"
            oracle.succeeds(case, "map", "show", folder / "model.safetensors", key, "--map", mapping, "--svg", picture,
                            "--force")
            text = picture.read_text()
            oracle.check(text.startswith("<svg ") and all(one["key"] in text for one in shown["sources"][:32]), case,
                         f"the picture lacks a source: {text[:300]}")
    status, _, err = oracle.run("map", "list", "--json")
    oracle.check(status == 2 and "map show" in err, "map list --json", f"{status}: {err}")


def wrong_checkpoints(oracle):
    config = layouts.LLAMA
    good = tensors_of(layouts.make_llama(config, np.float32, 5))
    q, k = ("model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight")

    def case(name, status, says, change=None, **keys):
        state = dict(good)
        if change:
            change(state)
        refused(oracle, name, status, says, state, {**config, **keys})

    case("heads do not divide", 2, ["'r'", "num_attention_heads / g", "remainder"], num_key_value_heads=3)
    case("other heads", 1, ["model.layers.0.self_attn", "shape_mismatch"], num_attention_heads=8)
    case("other head size", 1, ["model.layers.0.self_attn", "shape_mismatch", "head_dim = 3"], head_dim=3)
    case("other hidden size", 1, ["[24, 12]", "shape_mismatch", "hidden_size = 24", "num_attention_heads = "],
         hidden_size=24)
    case("no heads", 2, ["'r'", "divisor must be positive"], num_attention_heads=0, num_key_value_heads=0)
    case("negative layers", 2, ["'layer'", "-1"], num_hidden_layers=-1)
    case("too few layers", 1, ["model.layers.1.mlp.up_proj.weight", "no rule"], num_hidden_layers=1)
    case("too many layers", 1, ["model.layers.2.mlp.up_proj.weight", "lacks it"], num_hidden_layers=3)
    case("too many layers by far", 1, ["too many names", f"layer = {2**40}"], num_hidden_layers=2**40)
    case("missing tensor", 1, [k, "'qkv'", "missing_key"], lambda s: s.pop(k))
    case("stray tensor", 1, ["model.layers.1.extra.weight", "no rule"],
         lambda s: s.update({"model.layers.1.extra.weight": torch.ones(2)}))
    case("stray layer", 1, ["model.layers.01.mlp.up_proj.weight", "no rule"],
         lambda s: s.update({"model.layers.01.mlp.up_proj.weight": s.pop("model.layers.1.mlp.up_proj.weight")}))
    case("other shape", 1, [k, "shape"], lambda s: s.update({k: torch.ones(11, 12)}))
    case("other rank", 1, ["model.layers.1.self_attn", "dimensions"], lambda s: s.update({q: torch.ones(24, 12, 1)}))
    case("other dtype", 1, [k, "dtype", "float64"], lambda s: s.update({k: s[k].double()}))
    case("one bias", 1, ["model.layers.0.self_attn.k_proj.bias", "model.layers.0.self_attn.v_proj.bias"],
         lambda s: s.update({"model.layers.0.self_attn.q_proj.bias": torch.ones(24)}))
    # Tied embeddings: lm_head may be stored, and must equal the embedding.
    tied = {**config, "tie_word_embeddings": True}
    refused(oracle, "tied and different", 1, ["lm_head.weight", "values differ", "model.embed_tokens.weight"], good, tied)
    equal = {**good, "lm_head.weight": good["model.embed_tokens.weight"].clone()}
    folder = oracle.work / "tied"
    write_config(folder, tied)
    safetensors.torch.save_file(equal, folder / "model.safetensors")
    out = oracle.work / "tied.safetensors"
    if oracle.succeeds("tied", "convert", folder / "model.safetensors", out, "--map", "hf.llama:megatron.gpt") is not None:
        oracle.check("output_layer.weight" not in read_safetensors(out)[0], "tied", "output_layer.weight is made")
    del equal["lm_head.weight"]
    safetensors.torch.save_file(equal, folder / "model.safetensors")
    oracle.succeeds("tied, absent", "convert", folder / "model.safetensors", out, "--map", "hf.llama:megatron.gpt", "--force")
    back = oracle.work / "tied_back.safetensors"
    if oracle.succeeds("tied, back", "convert", out, back, "--map", "megatron.gpt:hf.llama", "--config",
                       folder / "config.json") is not None:
        oracle.check("lm_head.weight" not in read_safetensors(back)[0], "tied, back", "lm_head.weight is made")
    # Rotary frequencies, which old checkpoints have.
    old = {**good, "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(3)}
    write_config(folder, config)
    safetensors.torch.save_file(old, folder / "model.safetensors")
    status, _, err = oracle.run("convert", folder / "model.safetensors", out, "--map", "hf.llama:megatron.gpt", "--force")
    oracle.check(status == 0 and "inv_freq is not used" in err, "frequencies", f"exits {status}: {err}")


def extra_states(oracle):
    """Megatron with Transformer Engine: bytes beside the weights, which Hugging Face's convention lacks."""
    config, state = layouts.LLAMA, layouts.make_llama(layouts.LLAMA, np.float32, 8)
    megatron = tensors_of(layouts.to_megatron(config, state))
    layer = "decoder.layers.1."
    for number, module in enumerate((layer + "self_attention.linear_qkv", layer + "self_attention.core_attention",
                                     layer + "mlp.linear_fc2", "output_layer")):
        megatron[module + "._extra_state"] = torch.ones(number, dtype=torch.uint8)
    folder = oracle.work / "extra"
    write_config(folder, config)
    torch.save(megatron, folder / "megatron.pt")
    out = folder / "out.safetensors"
    if oracle.succeeds("extra states", "convert", folder / "megatron.pt", out, "--map", "megatron.gpt:hf.llama") is not None:
        differ = differences(read_safetensors(out)[0], described(state))
        oracle.check(not differ, "extra states", f"differs from NumPy's: {differ}")


def wrong_experts(oracle):
    config, mapping = layouts.MIXTRAL, "hf.mixtral:hf.mixtral-fused"
    good = tensors_of(layouts.make_mixtral(config, np.float32, 6))
    key = "model.layers.1.block_sparse_moe.experts.2.w3.weight"
    lacking = {name: tensor for name, tensor in good.items() if name != key}
    refused(oracle, "missing expert", 1, [key, "'gate and up'"], lacking, config, mapping=mapping)
    refused(oracle, "fewer experts", 1, [key, "no rule"], good, {**config, "num_local_experts": 2}, mapping=mapping)
    refused(oracle, "more experts", 1, ["model.layers.0.block_sparse_moe.experts.3.w1.weight"], good,
            {**config, "num_local_experts": 4}, mapping=mapping)
    refused(oracle, "experts of other shapes", 1, [key, "shape"], {**good, key: torch.ones(5, 8)}, config, mapping=mapping)
    refused(oracle, "experts of other dtypes", 1, [key, "dtype"], {**good, key: good[key].half()}, config, mapping=mapping)
    without = {name: value for name, value in config.items() if name != "num_local_experts"}
    refused(oracle, "unknown number of experts", 1, ["num_local_experts"], good, without, mapping=mapping)
    # The hint of that error works.
    out = oracle.work / "experts.safetensors"
    oracle.succeeds("experts of the command line", "convert", oracle.work / "refused/model.safetensors", out, "--map",
                    mapping, "--size", "num_local_experts=3")


def wrong_arguments(oracle):
    config, good = layouts.LLAMA, tensors_of(layouts.make_llama(layouts.LLAMA, np.float32, 7))
    refused(oracle, "unknown convention", 2, ["hf.other", "hf.llama"], good, config, mapping="hf.other:megatron.gpt")
    refused(oracle, "no mapping between", 2, ["hf.mixtral"], good, config, mapping="hf.llama:hf.mixtral")
    refused(oracle, "missing file", 3, ["none.toml"], good, config, mapping=str(oracle.work / "none.toml"))
    for text in ("g=two", "g", "=2", "g=99999999999999999999"):
        refused(oracle, f"--size {text}", 2, [text, "NAME=N"], good, config, "--size", text)
    refused(oracle, "--size of an unused name", 2, ["num_hiden_layers=2", "did you mean num_hidden_layers"], good, config,
            "--size", "num_hiden_layers=2")
    refused(oracle, "--size of two unused names", 2, ["zzz=1", "yyyyy=1", "the mapping uses"], good, config,
            "--size", "zzz=1", "--size", "yyyyy=1")
    refused(oracle, "--size twice", 2, ["g=3", "each name once"], good, config, "--size", "g=2", "--size", "g=3")
    refused(oracle, "--inverse", 2, ["swap"], good, config, "--inverse")
    refused(oracle, "--memory", 2, ["at least 4194304"], good, config, "--memory", "1MiB")
    broken = oracle.work / "broken.json"
    for name, text in (("list", "[1]"), ("cut", '{"hidden_size": 1'), ("deep", '{"a":' * 100_000), ("bytes", "\x00\xff")):
        broken.write_text(text, encoding="latin-1")
        refused(oracle, f"configuration: {name}", 1, ["broken.json", "JSON object"], good, config, "--config", broken)
    empty = oracle.work / "empty.json"
    empty.write_text("{}")
    refused(oracle, "empty configuration", 1, ["num_hidden_layers"], good, config, "--config", empty)


HEAD = 'left = "a"\nright = "b"\n'
KEEP_Y = '[rename]\n"y" = "y"\n'


def fused(index, more=""):
    return f'{HEAD}{more}{KEEP_Y}[[rule]]\nleft = "x"\nright = "z"\nindex = "{index}"\n'


def tied(name, same_as):
    return f'[[tie]]\nside = "left"\nname = "{name}"\nsame_as = "{same_as}"\n'


def hostile_files(oracle):
    """Each mapping file gives one error, within seconds, and nothing is written."""
    equal = {"x": torch.arange(6.0), "y": torch.arange(6.0)}
    safetensors.torch.save_file(equal, oracle.work / "hostile.safetensors")
    million = 1_000_000
    cases = {
        "empty": "", "not text": "\0\1\2", "not UTF-8": HEAD + '"\xff"', "cut": HEAD + "[[rule]]\nleft = ",
        "10 MB": HEAD + "# " + "x" * 10 * million, "deep lists": HEAD + "a = " + "[" * million,
        "deep tables": HEAD + "a = " + "{a=" * million, "dotted key": HEAD + ".".join(["a"] * 2 * million) + " = 1",
        "dotted table": HEAD + "[" + ".".join(["a"] * 2 * million) + "]",
        "dotted key after strings": HEAD + '"\'" = \'"\'\n"""" = 1\n' + ".".join(["a"] * million) + " = 1",
        "deep expression": HEAD + '[sizes]\na = "' + "(" * 3000 + '1"\n',
        "long expression": HEAD + '[sizes]\na = "' + "1+" * million + '1"\n',
        "long index": fused("l: (" + "1 " * million + "n) -> r: n"),
        "many terms": fused("l: (" + "1 " * 1500 + "n) -> r: n"),
        "sums of filler": fused("l: (" + "[_ | a] " * 60 + ") -> r: k", "[sizes]\nk = 1\n"),
        "sums of parts": fused("l: (" + "[a | b] " * 60 + ") -> r: k", "[sizes]\nk = 1\n"),
        "huge sizes": fused("l: (n m) -> r: (m n)", f"[sizes]\nn = {2**62}\nm = {2**62}\n"),
        "huge filler": fused("l: n -> r: [l:n | _:m]", f"[sizes]\nm = {2**62}\n"),
        "negative size": fused("l: (n m) -> r: (m n)", "[sizes]\nn = -2\n"),
        "overflow": HEAD + f'[sizes]\nn = "{2**62} * 4"\n' + KEEP_Y,
        "division by zero": HEAD + '[sizes]\nn = "1 / (1 - 1)"\n' + KEEP_Y,
        "many layers": HEAD + '[captures]\nc = 16000000\n[rename]\n"y" = "y"\n"x.{c}" = "z.{c}"\n',
        "huge ranges": HEAD + f'[captures]\nc = {2**40}\nd = {2**40}\n' + KEEP_Y + '"x.{c}.{d}" = "z.{c}.{d}"\n',
        "long name": HEAD + '[captures]\nc = 9\n[rename]\n"x" = "' + "{c}" * million + '"\n',
        "negative name": HEAD + '[captures]\nc = 2\n[rename]\n"y" = "y"\n"x.{c - 1}" = "z.{c}"\n',
        "cycle of sizes": HEAD + '[sizes]\na = "b"\nb = "a"\n[captures]\nc = "a"\n[rename]\n"x" = "x"\n"y" = "y"\n',
        "size of itself": fused("l: (n m) -> r: (m n)", '[sizes]\nn = "n"\n'),
        "cycle of ties": HEAD + tied("x", "y") + tied("y", "x"), "tied to itself": HEAD + KEEP_Y + tied("x", "x"),
        "swapped onto one": HEAD + '[rename]\n"x" = "y"\n"y" = "y"\n', "unused": HEAD + '[rename]\n"x" = "x"\n',
        "used twice": HEAD + KEEP_Y + '[[rule]]\nleft = "y"\nright = "w"\n[[rule]]\nleft = "x"\nright = "x"\n',
    }
    for name, text in cases.items():
        file, out = oracle.work / "hostile.toml", oracle.work / "hostile_out.safetensors"
        file.write_bytes(text.encode("latin-1"))
        status, said, err = oracle.run("convert", oracle.work / "hostile.safetensors", out, "--map", file, timeout=20)
        lines = err.splitlines()
        problems = [line for line in lines if not line.startswith("note: ")]
        oracle.check(status in (1, 2) and 1 <= len(problems) <= 2, f"hostile: {name}", f"exits {status}: {err[-600:]}")
        # Either the file, or the tensor that could not be made.
        oracle.check(all("hostile.toml: " in line or line.startswith("z: ") for line in problems), f"hostile: {name}",
                     f"an error names no place: {err[-300:]}")
        written = list(oracle.work.glob("*hostile_out*"))
        oracle.check(not written, f"hostile: {name}", "something was written")
        for path in written:
            path.unlink()
    # Wrong ranges below the limit: the first missing tensors, and the number of the others.
    file.write_text(HEAD + "[captures]\nc = 4000000\n" + KEEP_Y + '"x.{c}" = "z.{c}"\n')
    status, _, err = oracle.run("convert", oracle.work / "hostile.safetensors", out, "--map", file, timeout=20)
    oracle.check(status == 1 and len(err.splitlines()) <= 101 and "x.0" in err and "more problems" in err and not out.exists(),
                 "hostile: missing layers", f"exits {status}: {len(err.splitlines())} lines: {err[-600:]}")
    # A swap is no cycle: both tensors are read before either is made.
    safetensors.torch.save_file({"x": torch.ones(3), "y": torch.ones(2)}, oracle.work / "swap.safetensors")
    file.write_text(HEAD + '[rename]\n"x" = "y"\n"y" = "x"\n')
    if oracle.succeeds("swap", "convert", oracle.work / "swap.safetensors", out, "--map", file) is not None:
        read = read_safetensors(out)[0]
        oracle.check(read["x"][1] == [2] and read["y"][1] == [3], "swap", f"{read}")


def conversions(oracle):
    seed = common_seed()
    small, wide, moe = layouts.LLAMA, layouts.WIDE, layouts.MIXTRAL
    llamas = {"llama_f32": (small, layouts.make_llama(small, np.float32, seed)),
              "llama_bf16": (small, layouts.make_llama(small, np.uint16, seed + 1)),
              "qwen_bf16": (small, layouts.make_llama(small, np.uint16, seed + 2, bias=True, norms=True)),
              "wide_f32": (wide, layouts.make_llama(wide, np.float32, seed + 3))}
    mixtrals = {"mixtral_f32": (moe, layouts.make_mixtral(moe, np.float32, seed + 4)),
                "mixtral_bf16": (moe, layouts.make_mixtral(moe, np.uint16, seed + 5))}
    models = llamas | mixtrals
    write_dcp(oracle, {name: state for name, (_, state) in models.items()})
    for name, (config, state) in models.items():
        sources = write_sources(oracle, name, config, state)
        if name in mixtrals:
            round_trips(oracle, name, config, state, "hf.mixtral:hf.mixtral-fused", layouts.to_fused_experts(config, state),
                        sources)
            continue
        round_trips(oracle, name, config, state, "hf.llama:megatron.gpt", layouts.to_megatron(config, state), sources)
        round_trips(oracle, name, config, state, "hf.llama:vllm.llama", layouts.to_vllm(config, state), sources)
        if not name.startswith("qwen"):  # Meta's Llama has neither biases nor norms of heads
            round_trips(oracle, name, config, state, "hf.llama:meta.llama", layouts.to_meta(config, state), sources)
    config, state = models["llama_bf16"]
    reshards(oracle, random.Random(seed), config, state, layouts.to_megatron(config, state))
    # A chain of two mappings.
    meta = oracle.work / "meta"
    write_config(meta, config)
    safetensors.torch.save_file(tensors_of(layouts.to_meta(config, state)), meta / "consolidated.safetensors")
    made = oracle.work / "chain.safetensors"
    if oracle.succeeds("chain", "convert", meta / "consolidated.safetensors", made, "--map", "meta.llama:megatron.gpt") is not None:
        differ = differences(read_safetensors(made)[0], described(layouts.to_megatron(config, state)))
        oracle.check(not differ, "chain", f"differs from NumPy's: {differ}")
    other_commands(oracle, config, state)


def other_commands(oracle, config, state):
    """`diff` and `reshard` with a mapping, and the text of a chain."""
    hf, case = oracle.work / "llama_bf16/hf", "diff --map"
    made = oracle.work / "other.safetensors"
    expected = layouts.to_megatron(config, state)
    safetensors.torch.save_file(tensors_of(expected), made)
    out = oracle.succeeds(case, "diff", hf, made, "--map", "hf.llama:megatron.gpt")
    oracle.check(out is not None and f"equal: {len(expected)} tensors" in out, case, f"prints {out}")
    oracle.succeeds(case, "diff", made, hf, "--map", "megatron.gpt:hf.llama", "--config", hf / "config.json")
    status, out, err = oracle.run("diff", hf, made)
    oracle.check(status == 1, case, f"exits {status} without the mapping: {err[-300:]}")
    status, out, err = oracle.run("diff", hf, made, "--config", hf / "config.json")
    oracle.check(status == 2 and "--map" in err, case, f"--config alone exits {status}: {err[-300:]}")
    folder = oracle.work / "mapped_mesh"
    if oracle.succeeds("reshard --map", "reshard", hf, folder, "--mesh", "2", "--place", ".*=S(0)", "--map",
                       "hf.llama:megatron.gpt") is not None:
        check_dcp(oracle, "reshard --map", folder, expected)
    first, second = (oracle.succeeds("map print", "map", "print", name) for name in ("hf.llama:meta.llama", "hf.llama:megatron.gpt"))
    wanted = f"# 1 of 2: meta.llama:hf.llama, with --inverse\n{first}\n# 2 of 2: hf.llama:megatron.gpt\n{second}"
    printed = oracle.succeeds("map print", "map", "print", "meta.llama:megatron.gpt")
    oracle.check(printed == wanted, "map print of a chain", f"prints {printed}")
    status, _, err = oracle.run("map", "print", "hf.llama:none")
    oracle.check(status == 2 and "hf.llama" in err, "map print of an unknown mapping", f"exits {status}: {err[-300:]}")


def main():
    oracle = Oracle(__doc__, syncs=False)
    for part in (conversions, shown_boxes, wrong_checkpoints, extra_states, wrong_experts, wrong_arguments, hostile_files):
        if oracle.args.only in part.__name__:
            part(oracle)
    oracle.finish()


if __name__ == "__main__":
    main()
