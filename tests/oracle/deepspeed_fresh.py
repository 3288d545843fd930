# SPDX-License-Identifier: Apache-2.0
"""Installs DeepSpeed into a separate environment, where it trains and saves small models (make_deepspeed.py).
Compares our reading with its zero_to_fp32.py, for those checkpoints and for many random ones (deepspeed_random.py).
For ./dev test --release: it takes minutes and needs a package registry."""
import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from common import Oracle, need_torch, skip

HERE = Path(__file__).resolve().parent
PACKAGES = "deepspeed hjson py-cpuinfo pydantic pydantic_core annotated-types typing_inspection msgpack einops psutil tqdm"


def install(folder):
    """Python of an environment with this one's packages (PyTorch) and DeepSpeed."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "outer.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    done = subprocess.run([python, "-m", "pip", "install", "--no-deps", *PACKAGES.split()], capture_output=True, text=True,
                          env={**os.environ, "DS_BUILD_OPS": "0"})
    if done.returncode != 0:
        skip(f"DeepSpeed cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    return python


def main():
    need_torch()
    oracle = Oracle(__doc__)
    python, data = install(oracle.work / "venv"), oracle.work / "data"
    samples = data / "writers/deepspeed"
    samples.mkdir(parents=True)
    environment = {**os.environ, "SHARDMESH_RANDOM_CASES": "100", "SHARDMESH_RANDOM_SEED": str(int(time.time()))}
    for line in ([HERE / "make_deepspeed.py", samples],
                 *([HERE / script, "--tool", oracle.tool, "--data", data, "--work", oracle.work / script]
                   for script in ("deepspeed_folders.py", "deepspeed_random.py"))):
        done = subprocess.run([python, "-B", *line], capture_output=True, text=True, env=environment)
        said = (done.stdout + done.stderr if done.returncode else done.stdout).strip()
        oracle.check(done.returncode == 0, line[0].name, said[-3000:])
        print("\n".join(said.splitlines()[-2:]))
    oracle.finish()


if __name__ == "__main__":
    main()
