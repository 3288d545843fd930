# SPDX-License-Identifier: Apache-2.0
"""Compares folders that DeepSpeed saved, bit for bit, with the output of its own zero_to_fp32.py (make_deepspeed.py).
The same folders are damaged: each gives one line that names the file, status 1, and no output. Needs no package."""
import json
import shutil
import tarfile

from common import Oracle, fingerprint, read_safetensors

DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "BOOL": "bool"}


def unpack(oracle, writer="deepspeed"):
    with tarfile.open(oracle.data / "writers" / writer / "samples.tar.xz") as archive:
        archive.extractall(oracle.work / "samples")
    return sorted(p for p in (oracle.work / "samples").iterdir() if oracle.args.only in p.name)


def read(path):
    return {name: [DTYPES[dtype], shape, data.hex()] for name, (dtype, shape, data) in read_safetensors(path)[0].items()}


def compare(oracle, case, found, expected):
    for name in sorted(found.keys() | expected.keys()):
        a, b = found.get(name), expected.get(name)
        oracle.check(a == b, case, f"{name}: {a and a[:2]} is not {b and b[:2]}" if not (a and b and a[:2] == b[:2])
                     else f"{name}: other bytes")


def whole(oracle, folder):
    case, source = folder.name, folder / "ckpt"
    expected = json.loads((folder / "expected.json").read_text())
    wanted = dict(expected["state"])
    wanted.update({"optimizer.state." + name: value for name, value in expected["optimizer"].items()})
    step = next(p for p in source.iterdir() if p.is_dir())
    listing = oracle.succeeds(case, "inspect", "--json", source)
    if listing is None:
        return
    listing = json.loads(listing)
    oracle.check(listing["format"] == "deepspeed", case, f"the format is {listing['format']}")
    oracle.check(listing["objects"]["global_steps"]["value"] == 2, case, "global_steps is not 2")
    oracle.check(listing["objects"]["client_state.note"]["value"] == "hello", case, "the caller's note is not there")
    oracle.check(listing["objects"]["lr_scheduler.last_epoch"]["value"] == 2, case, "the schedule is not at epoch 2")
    oracle.check(listing["objects"]["ds_config.zero_optimization.stage"]["value"] == int(case[4]), case, "no ds_config")
    is_partitioned = not case.startswith("zero0")
    for where in (source, step):
        target = oracle.work / "out.safetensors"
        if oracle.succeeds(case, "convert", where, target, "--to", "safetensors", "--force") is None:
            return
        found = read(target)
        rng = found.pop("client_state.rng", None)
        oracle.check(rng == ["int64", [3], b"".join(i.to_bytes(8, "little") for i in range(3)).hex()], case, "rng")
        if is_partitioned:
            steps = {name: found.pop(name) for name in list(found) if name.startswith("optimizer.group_state.")}
            oracle.check(steps and all(s == ["float32", [], "00000040"] for s in steps.values()), case, f"steps {steps}")
        else:
            found = {name: value for name, value in found.items() if not name.startswith("optimizer.")}
        compare(oracle, case, found, wanted)
    oracle.succeeds(case, "verify", "--strict", source)
    for form in ("dcp", "hf", "pt"):
        target = oracle.work / f"{case}.{form}"
        if oracle.succeeds(case, "convert", source, target, "--to", form) is not None:
            oracle.succeeds(case, "verify", target)


DAMAGES = []


def damage(case, code, *words, hides=None):
    """`hides` is a text that no line may print."""
    def add(function):
        DAMAGES.append((function.__name__, case, code, words, hides, function))
        return function
    return add


def files(step, ending):
    return sorted(step.glob("*" + ending))


@damage("zero3_w3_fp32", 1, "zero_pp_rank_1_mp_rank_00_optim_states.pt", "missing")
def a_rank_is_missing(step, samples):
    files(step, "optim_states.pt")[1].unlink()


@damage("zero3_w3_fp32", 1, "zero_pp_rank_2_mp_rank_00_optim_states.pt", "missing", "3")
def the_last_rank_is_missing(step, samples):
    files(step, "optim_states.pt")[2].unlink()


@damage("zero3_w3_fp32", 1, "zero_pp_rank_2_mp_rank_00_model_states.pt", "missing")
def a_model_file_is_missing(step, samples):
    files(step, "model_states.pt")[2].unlink()


@damage("zero2_w2_bf16", 1, "mp_rank_00_model_states.pt", "missing")
def the_model_file_is_missing(step, samples):
    files(step, "model_states.pt")[0].unlink()


@damage("zero2_w2_bf16", 1, "mp_rank_00_model_states.pt", "_optim_states.pt")
def all_optimizer_files_are_missing(step, samples):
    for file in files(step, "optim_states.pt"):
        file.unlink()


@damage("zero2_w2_bf16", 1, "zero_pp_rank_0_mp_rank_00_optim_states.pt", "two files are of one rank")
def two_files_of_a_rank(step, samples):
    shutil.copy(files(step, "optim_states.pt")[0], step / "zero_pp_rank_0_mp_rank_00_optim_states.pt")


@damage("zero1_w2_bf16", 1, "zero_pp_rank_2_mp_rank_00_optim_states.pt", "partition_count")
def one_rank_too_many(step, samples):
    file = files(step, "optim_states.pt")[1]
    shutil.copy(file, step / file.name.replace("rank_1", "rank_2"))


@damage("zero2_w4_fp32", 1, "zero_pp_rank_1_mp_rank_00_optim_states.pt", "rank 0")
def a_rank_of_another_save(step, samples):
    other = samples / "zero1_w3_fp32/ckpt/global_step2"
    shutil.copy(files(other, "optim_states.pt")[1], files(step, "optim_states.pt")[1])


@damage("zero3_w2_bf16", 1, "zero_pp_rank_0_mp_rank_00_model_states.pt", "frozen.weight")
def a_model_of_another_save(step, samples):
    other = samples / "zero2_w2_bf16/ckpt/global_step2/mp_rank_00_model_states.pt"
    for file in files(step, "model_states.pt"):
        shutil.copy(other, file)


@damage("zero1_w3_fp32", 1, "mp_rank_01_model_states.pt", "experts")
def experts(step, samples):
    shutil.copy(files(step, "model_states.pt")[0], step / "layer_0_expert_1_mp_rank_01_model_states.pt")


@damage("zero1_w3_fp32", 1, "latest", "global_step9")
def latest_names_nothing(step, samples):
    (step.parent / "latest").write_text("global_step9")


@damage("zero1_w3_fp32", 1, "latest", "name of a folder")
def latest_leads_out(step, samples):
    (step.parent / "latest").write_text("../" + step.parent.name + "/global_step2")


@damage("zero1_w3_fp32", 1, "latest", "symbolic link leads out", hides="secret")
def latest_is_a_link(step, samples):
    outside = step.parent.parent / "outside.txt"
    outside.write_text("a secret of somebody else")
    (step.parent / "latest").unlink()
    (step.parent / "latest").symlink_to(outside)


@damage("zero1_w3_fp32", 1, "latest", "name of a folder", hides="\x1b")
def latest_holds_controls(step, samples):
    (step.parent / "latest").write_bytes("global_step2\x1b[2J\u202e\x7f".encode())


@damage("zero1_w3_fp32", 1, "latest", "4000 bytes", hides="xxxxxxxxxxxx")
def latest_is_long(step, samples):
    (step.parent / "latest").write_text("x" * 4000)


@damage("zero1_w3_fp32", 1, "symbolic link")
def latest_names_a_link(step, samples):
    step.rename(step.parent.parent / "elsewhere")
    step.symlink_to(step.parent.parent / "elsewhere")
    shutil.copytree(samples / "zero0_w1_bf16/ckpt/global_step2", step.parent / "global_step1")


@damage("zero1_w3_fp32", 1, "symbolic link")
def a_link_leads_out(step, samples):
    file = files(step, "optim_states.pt")[0]
    outside = step.parent.parent / "outside.pt"
    shutil.move(file, outside)
    file.symlink_to(outside)


@damage("zero1_w3_fp32", 1, "zero_pp_rank_1_mp_rank_00_optim_states.pt")
def a_file_is_cut(step, samples):
    file = files(step, "optim_states.pt")[1]
    file.write_bytes(file.read_bytes()[:5000])


def damaged(oracle, samples):
    for name, case, code, words, hides, function in DAMAGES:
        if not (samples / case).is_dir():
            continue
        folder = oracle.work / "damaged" / name
        shutil.copytree(samples / case / "ckpt", folder)
        function(folder / "global_step2", samples)
        before, target = fingerprint(folder), oracle.work / "never" / name
        for arguments in (("inspect", folder), ("convert", folder, target, "--to", "dcp")):
            status, out, err = oracle.run(*arguments)
            oracle.check(status == code, name, f"{arguments[0]} exits {status}, not {code}: {err.strip()}")
            oracle.check(len(err.strip().splitlines()) == 1 and all(word in err for word in words), name,
                         f"{arguments[0]} says {err.strip()!r}, without one of {words}")
            oracle.check(hides is None or hides not in out + err, name, f"{arguments[0]} prints {hides!r}")
        oracle.check(not target.exists() and fingerprint(folder) == before, name, "something was written")


def main():
    oracle = Oracle(__doc__, syncs=False)
    for folder in unpack(oracle):
        whole(oracle, folder)
    if not oracle.args.only:
        damaged(oracle, oracle.work / "samples")
    oracle.finish()


if __name__ == "__main__":
    main()
