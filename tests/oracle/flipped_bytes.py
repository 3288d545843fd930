# SPDX-License-Identifier: Apache-2.0
"""No writer accepts a checkpoint that `verify` refuses. Changes bytes at random places of every sample with wrapping
tensors, objects, or tensors of an unknown representation. If `verify` exits with 1, so do `convert` to every format
and `reshard`, with and without --skip-unsupported, and they leave no destination. Every line about a checksum has a
remedy. Needs no package."""
import random
import shutil
from concurrent.futures import ThreadPoolExecutor

from common import Oracle, seed as common_seed

TARGETS = ("safetensors", "hf", "pt", "dcp", "torch-checkpointing")
# Archives with checksummed records beside the elements; entries that --skip-unsupported leaves out.
SAMPLES = ("writers/wrappers/dcp", "writers/wrappers/optimizer/dcp", "unusual/dcp", "writers/wrappers/wrappers.pt",
           "writers/wrappers/torchao.pt", "writers/wrappers/optimizer/states.pt", "unusual/quantized.pt",
           "objects/containers.pt", "objects/module.pt", "golden/nested_objects/checkpoint",
           "golden/options_no_flatten/checkpoint", "writers/torchsnapshot/ranks", "writers/torchsnapshot/one",
           "writers/torch_checkpointing/one_rank/checkpoint", "writers/torch_ranks/partial_2/checkpoint",
           "writers/torch_ranks/sharded_2/checkpoint", "writers/checkpointable/checkpoint",
           "writers/torch_jit/script.pt", "writers/torch_export/program.pt2")
# Rewritten first: each then has our checksum record, the components, or another format's description.
REWRITTEN = (("writers/wrappers/wrappers.pt", "dcp"), ("writers/wrappers/wrappers.pt", "hf"),
             ("writers/wrappers/dcp", "torch-checkpointing"), ("unusual/dcp", "dcp"),
             ("golden/single_rank/checkpoint", "npz"))
# Changes that some writers used to accept.
KNOWN = (("writers/wrappers/dcp", "__0_0.distcp", 4514, 0x10), ("unusual/dcp", "__0_0.distcp", 4521, 0x50),
         ("writers/torch_export/program.pt2", "", 17103, 0x1))


def more_arguments(parser):
    parser.add_argument("--rounds", type=int, default=4, help="changed bytes for each sample")


def commands(source, work, number):
    for option in ((), ("--skip-unsupported",)):
        for to in TARGETS:
            made = work / f"{number}-{to}{'-skip' if option else ''}"
            yield made, ["convert", source, made, "--to", to, *option]
        made = work / f"{number}-resharded{'-skip' if option else ''}"
        yield made, ["reshard", source, made, "--mesh", "2", "--default", "R", *option]


def remove(path):
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)


def check_remedies(oracle, case, said):
    """A line about a checksum ends in a hint: "w.safetensors: w: ...: expected ..., found ...; restore ..."."""
    for line in said.splitlines():
        if line.endswith("[checksum_mismatch]"):
            oracle.check("; " in line, case, f"no remedy: {line}")


def try_change(oracle, name, sample, number, file, offset, mask):
    """Whether `verify` refuses the copy of the sample with one changed byte."""
    copy = oracle.work / f"{number}" / sample.name
    copy.parent.mkdir()
    (shutil.copytree if sample.is_dir() else shutil.copy)(sample, copy)
    changed = copy / file if file else copy
    data = bytearray(changed.read_bytes())
    data[offset] ^= mask
    changed.write_bytes(data)
    case = f"{name}, {file or sample.name} at {offset} ^ {mask:#x}"
    status, _, said = oracle.run("verify", copy)
    oracle.check(status in (0, 1), case, f"verify exits {status}: {said[-300:]}")
    check_remedies(oracle, case, said)
    is_refused = status == 1
    if is_refused:
        for made, command in commands(copy, copy.parent, number):
            status, out, err = oracle.run(*command)
            shown = " ".join(map(str, command)).replace(str(copy.parent) + "/", "")
            check_remedies(oracle, case, err)
            oracle.check(status in (1, 2, 3), case,
                         f"`{shown}` exits {status}: {(out + err)[-400:]}; verify: {said[:300]}")
            oracle.check(not list(copy.parent.glob(made.name + "*")), case, f"`{shown}` leaves a destination")
    remove(copy.parent)
    return is_refused


def main():
    oracle = Oracle(__doc__, more_arguments)
    chosen = random.Random(common_seed())
    samples = [(name, oracle.data / name) for name in SAMPLES]
    for name, to in REWRITTEN:
        made = oracle.work / f"{name.replace('/', '-')}-as-{to}"
        oracle.succeeds(name, "convert", oracle.data / name, made, "--to", to)
        samples.append((f"{name} as {to}", made))
    for name, sample in samples:
        oracle.succeeds(name, "verify", sample)
    changes = [(name, oracle.data / name, file, offset, mask) for name, file, offset, mask in KNOWN]
    for name, sample in samples:
        files = sorted(p for p in sample.rglob("*") if p.is_file()) if sample.is_dir() else [sample]
        sizes = [p.stat().st_size for p in files]
        for _ in range(oracle.args.rounds):
            file = chosen.choices(files, sizes)[0]
            offset = chosen.randrange(file.stat().st_size)
            changes.append((name, sample, str(file.relative_to(sample)) if sample.is_dir() else "", offset,
                            1 << chosen.randrange(8)))
    changes = [change for change in changes if oracle.args.only in change[0]]
    with ThreadPoolExecutor(4) as pool:
        refused = sum(pool.map(lambda numbered: try_change(oracle, *numbered[1][:2], numbered[0], *numbered[1][2:]),
                               enumerate(changes)))
    oracle.check(refused >= len(changes) // 4, "all", f"verify refuses {refused} of {len(changes)} changes only")
    print(f"verify refuses {refused} of {len(changes)}")
    oracle.finish()


if __name__ == "__main__":
    main()
