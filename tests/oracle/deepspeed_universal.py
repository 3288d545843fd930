# SPDX-License-Identifier: Apache-2.0
"""Universal checkpoints that DeepSpeed's ds_to_universal.py made (make_universal.py): whole parameters and the
optimizer's states, bit for bit. The same folders are damaged, and each is refused in one line that names the file.
Needs no package."""
import json
import resource
import shutil
import zipfile

from common import Oracle, fingerprint
from deepspeed_folders import compare, read, unpack

STEP = "global_step2_universal"


def whole(oracle, folder):
    case, step = folder.name, folder / "ckpt" / STEP
    expected = json.loads((folder / "expected.json").read_text())
    wanted = dict(expected["state"])
    wanted.update({"optimizer.state." + name: value for name, value in expected["optimizer"].items()})
    listing = oracle.succeeds(case, "inspect", "--json", step)
    if listing is None:
        return
    listing = json.loads(listing)
    oracle.check(listing["format"] == "deepspeed", case, f"the format is {listing['format']}")
    for key, value in (("global_steps", 2), ("client_state.note", "hello"), ("optimizer.overflow", False)):
        oracle.check(listing["objects"][key]["value"] == value, case, f"{key} is not {value}")
    oracle.check("optimizer.param_groups.0.lr" in listing["objects"], case, "no param_groups")
    unseen = [k for k in (*listing["tensors"], *listing["objects"]) if "flat_groups" in k or "partition" in k]
    oracle.check(not unseen, case, f"rank 0's part is shown: {unseen}")
    # The run's folder, unless it names the step that this was made from.
    for where in (step, folder / "ckpt")[:1 if (folder / "ckpt/latest").exists() else 2]:
        target = oracle.work / "out.safetensors"
        if oracle.succeeds(case, "convert", where, target, "--force") is None:
            return
        found = read(target)
        rng = found.pop("client_state.rng", None)
        oracle.check(rng == ["int64", [3], b"".join(i.to_bytes(8, "little") for i in range(3)).hex()], case, "rng")
        # A step for each parameter, or (ZeRO 3) for each group.
        steps = {name: found.pop(name) for name in list(found)
                 if name.startswith(("optimizer.group_state.", "optimizer.state.step."))}
        count = len(expected["optimizer"]) // 2
        oracle.check(0 < len(steps) <= count and all(s == ["float32", [], "00000040"] for s in steps.values()), case,
                     f"steps {steps}")
        compare(oracle, case, found, wanted)
    oracle.succeeds(case, "verify", step)
    for form in ("dcp", "hf", "pt"):
        target = oracle.work / f"{case}.{form}"
        if oracle.succeeds(case, "convert", step, target, "--to", form, "--skip-objects") is not None:
            oracle.succeeds(case, "verify", target)
            status, out, err = oracle.run("diff", step, target)
            lines = [line for line in err.splitlines() if "is an object" not in line and "optimizer" not in line]
            oracle.check(status in (0, 1) and "bytes" not in err, case, f"diff with {form}: {out}{lines[:3]}")


def split(oracle, folder):
    """The tensor-parallel checkpoint that a universal one was made from, merged by the same rules."""
    case, source = folder.name + " itself", folder / "ckpt"
    expected = json.loads((folder / "expected.json").read_text())
    wanted = dict(expected["state"])
    wanted.update({"optimizer.state." + name: value for name, value in expected["optimizer"].items()})
    target = oracle.work / "split.safetensors"
    for where in (source, source / "global_step2"):
        if oracle.succeeds(case, "convert", where, target, "--force") is None:
            return
        found = {name: value for name, value in read(target).items()
                 if not name.startswith(("client_state.", "optimizer.group_state."))}
        compare(oracle, case, found, wanted)
    err = oracle.run("inspect", source)[2]
    oracle.check("are combined as" in err and "1 entry without a rule in 'universal_checkpoint_info': rank 0's part is taken: ids" in err, case, f"notes: {err}")
    oracle.succeeds(case, "verify", "--strict", source)


DAMAGES = []


def damage(case, *words):
    def add(function):
        DAMAGES.append((function.__name__, case, words, function))
        return function
    return add


def swap(step, name, other):
    first, second = step / "zero" / name, step / "zero" / other
    shutil.copy(second, first)


@damage("zero1_w2_bf16", "zero/cube/fp32.pt", "missing", "cube")
def weights_are_missing(step, samples):
    (step / "zero/cube/fp32.pt").unlink()


@damage("zero3_w2_bf16", "zero/scale/fp32.pt", "missing", "param_shapes")
def a_parameter_is_missing(step, samples):
    shutil.rmtree(step / "zero/scale")


@damage("zero1_w2_bf16", "zero/stray/fp32.pt", "missing")
def a_folder_is_empty(step, samples):
    (step / "zero/stray").mkdir()


@damage("zero1_w2_bf16", "zero/optimizer_state.pt", "missing")
def the_common_state_is_missing(step, samples):
    (step / "zero/optimizer_state.pt").unlink()


@damage("zero1_w2_bf16", "mp_rank_00_model_states.pt", "missing")
def the_model_file_is_missing(step, samples):
    (step / "mp_rank_00_model_states.pt").unlink()


@damage("zero3_w3_fp32", "zero_pp_rank_1_mp_rank_00_model_states.pt", "missing")
def a_rank_of_zero3_is_missing(step, samples):
    (step / "zero_pp_rank_1_mp_rank_00_model_states.pt").unlink()


@damage("zero3_w3_fp32", "frozen", "zero_pp_rank_0_mp_rank_00_model_states.pt", "fewer elements")
def the_last_rank_of_zero3_is_missing(step, samples):
    (step / "zero_pp_rank_2_mp_rank_00_model_states.pt").unlink()


@damage("tp2_zero2_w2", "mp_rank_00_model_states.pt", "tensor parallelism", "mp_world_size")
def a_rank_of_tensor_parallelism_is_missing(step, samples):
    (step / "mp_rank_01_model_states.pt").unlink()


@damage("tp3_zero1_w2", "mp_rank_01_model_states.pt", "missing")
def a_rank_between_is_missing(step, samples):
    (step / "mp_rank_01_model_states.pt").unlink()


@damage("tp2_zero2_w2", "mp_rank_01_model_states.pt", "differs from rank 0")
def ranks_of_two_saves(step, samples):
    shutil.copy(samples / "tp2_zero1_w1/ckpt" / STEP / "mp_rank_01_model_states.pt", step)


@damage("zero1_w2_bf16", "zero/cube/fp32.pt", "cube", "param_shapes", "[2, 3, 7]", "[7, 5]")
def weights_of_another_parameter(step, samples):
    swap(step, "cube/fp32.pt", "first.weight/fp32.pt")


@damage("zero3_w2_bf16", "zero/cube/fp32.pt", "cube", "[2, 3, 7]", "[35]")
def a_list_of_another_length(step, samples):
    swap(step, "cube/fp32.pt", "first.weight/fp32.pt")


@damage("zero2_w4_fp32", "zero/cube/exp_avg.pt", "cube", "shape", "[1]")
def a_state_of_another_parameter(step, samples):
    swap(step, "cube/exp_avg.pt", "scale/exp_avg.pt")


@damage("zero2_w4_fp32", "zero/cube/fp32.pt", "not a parameter")
def weights_that_are_none(step, samples):
    swap(step, "cube/fp32.pt", "optimizer_state.pt")


@damage("zero2_w4_fp32", "zero/cube/exp_avg.pt")
def a_file_is_cut(step, samples):
    file = step / "zero/cube/exp_avg.pt"
    file.write_bytes(file.read_bytes()[:700])


@damage("zero2_w4_fp32", "zero/cube/fp32.pt", "symbolic link")
def a_link_leads_out(step, samples):
    outside = step.parent.parent / "outside.pt"
    shutil.move(step / "zero/cube/fp32.pt", outside)
    (step / "zero/cube/fp32.pt").symlink_to(outside)


@damage("zero2_w4_fp32", "latest_universal", "global_step9")
def latest_names_nothing(step, samples):
    (step.parent / "latest_universal").write_text("global_step9")
    return step.parent


@damage("zero2_w4_fp32", "latest_universal", "name of a folder")
def latest_leads_out(step, samples):
    (step.parent / "latest_universal").write_text("../" + step.parent.name)
    return step.parent


@damage("zero2_w4_fp32", "zero/cube/fp32.pt", "reaches beyond its storage")
def more_elements_than_bytes(step, samples):
    """The tensor claims more rows than the file holds."""
    file = step / "zero/cube/fp32.pt"
    with zipfile.ZipFile(file) as archive:
        records = {info.filename: archive.read(info) for info in archive.infolist()}
    (main,) = [name for name in records if name.endswith("data.pkl")]
    changed = records[main].replace(b"K\x02K\x03K\x07\x87", b"K\xc8K\x03K\x07\x87")
    assert changed != records[main]
    records[main] = changed
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in records.items():
            archive.writestr(name, data)


def damaged(oracle, samples):
    for name, case, words, function in DAMAGES:
        folder = oracle.work / "damaged" / name
        shutil.copytree(samples / case / "ckpt", folder)
        opened = function(folder / STEP, samples) or folder / STEP
        before, target = fingerprint(folder), oracle.work / "never" / name
        for arguments in (("inspect", opened), ("verify", opened), ("convert", opened, target, "--to", "dcp")):
            status, out, err = oracle.run(*arguments)
            said = [line for line in (out + err).splitlines() if not line.startswith("  names ") and "its pickle names" not in line]
            oracle.check(status == 1 and len(said) == 1 and all(word in said[0] for word in words), name,
                         f"{arguments[0]} exits {status} and says {said}, without one of {words}")
        oracle.check(not target.exists() and fingerprint(folder) == before, name, "something was written")


def many_files(oracle, samples):
    """More files than a process may open."""
    step = oracle.work / "many" / STEP
    shutil.copytree(samples / "zero2_w4_fp32/ckpt" / STEP, step)
    for i in range(400):
        shutil.copytree(step / "zero/cube", step / f"zero/cube{i}")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
    made, one = oracle.work / "many.safetensors", oracle.work / "one.safetensors"
    done = oracle.succeeds("many files", "convert", step, made, "--only", r"(.*\.)?cube\d+")
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    if done is None or oracle.succeeds("many files", "convert", samples / "zero2_w4_fp32/ckpt" / STEP, one) is None:
        return
    found, cube = read(made), read(one)
    oracle.check(len(found) == 1600, "many files", f"{len(found)} tensors")
    oracle.check(all(found[f"{prefix}cube{i}"] == cube[f"{prefix}cube"] for i in range(400)
                     for prefix in ("", "optimizer.state.exp_avg.", "optimizer.state.exp_avg_sq.")), "many files", "differ")


def main():
    oracle = Oracle(__doc__, syncs=False)
    for folder in unpack(oracle, "deepspeed_universal"):
        whole(oracle, folder)
        if (folder / "ckpt/global_step2").exists():
            split(oracle, folder)
    if not oracle.args.only:
        damaged(oracle, oracle.work / "samples")
        many_files(oracle, oracle.work / "samples")
    oracle.finish()


if __name__ == "__main__":
    main()
