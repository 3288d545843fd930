# SPDX-License-Identifier: Apache-2.0
"""Fresh cases of megatron-core itself, installed here, against the results of its own load: sizes, ranks, and splits
of make_megatron.py by random seeds. Megatron also loads our rewrites of them."""
import json
import os
import random
import subprocess
import sys

from common import Oracle, need_torch, skip, seed as common_seed

need_torch()
from megatron_folders import check_sample  # noqa: E402

# The releases that run with PyTorch 2.13 on a machine without a GPU.
RELEASES = ("0.13.1", "0.14.0", "0.16.1")


READS_WHOLE = RELEASES[-1]  # the only one that loads whole optimizer state, so it reads our rewrites of all


def megatron(oracle, home, seed, *arguments):
    return subprocess.run([sys.executable, "-W", "ignore", oracle.data.parent / "oracle" / "make_megatron.py", *arguments],
                          env={**os.environ, "PYTHONPATH": str(home / "packages"), "MAKE_MEGATRON_SEED": str(seed)},
                          capture_output=True, text=True)


def main():
    oracle = Oracle(__doc__, lambda parser: parser.add_argument("--rounds", type=int, default=2))
    dice = random.Random(common_seed())
    earlier = []
    for release in RELEASES:
        home = oracle.work / release
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", home / "packages",
                               f"megatron-core=={release}", "psutil"], capture_output=True, text=True)
        if done.returncode != 0:
            skip(f"megatron-core {release} cannot be installed: {done.stderr.strip()[-300:]}")
        for _ in range(oracle.args.rounds):
            seed = dice.randint(1, 10**9)
            archive = home / f"{release}_seed_{seed}.tar.xz"
            done = megatron(oracle, home, seed, archive)
            if not oracle.check(done.returncode == 0, archive.name, done.stderr[-2000:]):
                continue
            folder = check_sample(oracle, archive).parent
            if release != READS_WHOLE:
                earlier.append((seed, folder))
                continue
            for of_seed, written in [*earlier, (seed, folder)]:
                done = megatron(oracle, home, of_seed, "--load", written / "dcp")
                wanted = json.loads((written / "expected.json").read_text())
                oracle.check(done.returncode == 0 and json.loads(done.stdout.splitlines()[-1]) == wanted, archive.name,
                             f"Megatron {release} loads {written.name} differently: {done.stderr[-2000:]}")
    oracle.finish()


if __name__ == "__main__":
    main()
