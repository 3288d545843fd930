# SPDX-License-Identifier: Apache-2.0
"""Folders of several checkpoints: each part by its name, and all of them with --all, equal what the writers had in
memory."""
import json
import shutil

from common import Oracle, need_torch
from writer_answers import refused, same_tensors, tensors_of


def folder_of(oracle, case):
    return oracle.data / "writers/trainers" / case / "checkpoint"


def expected_of(oracle, case):
    return json.loads((folder_of(oracle, case).parent / "expected.json").read_text())


def part_of(expected, name):
    return {key.removeprefix(name + "."): value for key, value in expected.items() if key.startswith(name + ".")}


def samples(oracle):
    parts = {"accelerate": ["custom_checkpoint_0", "model", "optimizer", "random_states_0", "scheduler"],
             "pipeline": ["text_encoder", "text_encoder_2"]}
    for case, names in parts.items():
        folder, expected = folder_of(oracle, case), expected_of(oracle, case)
        for name in {key.split(".")[0] for key in expected}:
            same_tensors(oracle, f"{case}/{name}", folder / name, part_of(expected, name))
            oracle.succeeds(f"{case}/{name}", "verify", folder / name)
        found = tensors_of(oracle, f"{case} --all", folder, "--all", "--skip-unsupported")
        oracle.check({key: found.get(key) for key in expected} == expected, f"{case} --all",
                     f"{found}, expected {expected}")
        shown = json.loads(oracle.run("inspect", folder, "--all", "--json")[1])
        heads = sorted({key.split(".")[0] for key in [*shown["tensors"], *shown["objects"]]})
        oracle.check(shown["format"] == "parts" and heads == names, f"{case} --all", f"{shown['format']}: {heads}")
        oracle.succeeds(f"{case} --all", "verify", folder, "--all")
        made = oracle.work / f"{case}.dcp"
        oracle.succeeds(f"{case} --all", "convert", folder, made, "--to", "dcp", "--all", "--skip-unsupported")


def without_a_name(oracle):
    """A model in the folder is opened; a folder that has only parts lists them."""
    same_tensors(oracle, "accelerate", folder_of(oracle, "accelerate"),
                 part_of(expected_of(oracle, "accelerate"), "model"))
    refused(oracle, "pipeline", folder_of(oracle, "pipeline"), "text_encoder", "text_encoder_2", "by its name")
    folder = oracle.work / "states"
    shutil.copytree(folder_of(oracle, "accelerate"), folder)
    (folder / "model.safetensors").unlink()
    refused(oracle, "states", folder, "optimizer.bin", "by its name")
    status, out, err = oracle.run("verify", folder / "nothing")
    oracle.check(status == 3 and "does not exist" in err, "no such part", f"{status}: {out}{err}")


def ambiguous(oracle):
    folder = oracle.work / "twice"
    shutil.copytree(folder_of(oracle, "accelerate"), folder)
    shutil.copy(folder / "optimizer.bin", folder / "optimizer.pt")
    refused(oracle, "two of one name", folder / "optimizer", "optimizer.bin, optimizer.pt")
    oracle.succeeds("two of one name", "diff", folder / "optimizer.pt", folder / "optimizer.bin")


def damaged(oracle):
    """An unreadable part is a problem of the whole: nothing is written without it."""
    folder = oracle.work / "damaged"
    shutil.copytree(folder_of(oracle, "accelerate"), folder)
    whole = (folder / "optimizer.bin").read_bytes()
    (folder / "optimizer.bin").write_bytes(whole[:len(whole) // 2])
    for command in (["verify", folder, "--all"], ["convert", folder, oracle.work / "never", "--to", "dcp", "--all"]):
        status, out, err = oracle.run(*command)
        oracle.check(status == 1 and "optimizer.bin" in err, "damaged", f"{command[0]} exits {status}: {out}{err}")
    oracle.check(not (oracle.work / "never").exists(), "damaged", "something was written")
    oracle.succeeds("damaged", "diff", folder / "model", folder_of(oracle, "accelerate") / "model")


def main():
    oracle = Oracle(__doc__, syncs=False)
    need_torch()
    samples(oracle)
    without_a_name(oracle)
    ambiguous(oracle)
    damaged(oracle)
    oracle.finish()


main()
