# SPDX-License-Identifier: Apache-2.0
"""Installs transformers, megatron-core, and torchtitan into a separate environment, and runs the scripts that compare
`convert --map` with them. For ./dev test --release: it needs a package registry."""
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from common import Oracle, need_torch, skip

HERE = Path(__file__).resolve().parent
TRANSFORMERS = "transformers==5.24.0"
# Only what their parts that run here import: the rest would install CUDA libraries, and a second PyTorch.
WITHOUT_DEPENDENCIES = ("megatron-core==0.16.1 torchtitan==0.3.0 torch_checkpointing==0.1.1 spmd_types==0.2.3 einops==0.8.2 "
                        "tyro==1.0.17 docstring_parser==0.18.0 typeguard==4.6.1 torchdata==0.11.0").split()
SCRIPTS = ("mapping_transformers", "mapping_megatron", "mapping_torchtitan")


def install(folder):
    """Python of an environment with this one's packages (PyTorch) and those of the scripts."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "outer.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    for arguments in ([TRANSFORMERS], ["--no-deps", *WITHOUT_DEPENDENCIES]):
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *arguments],
                              capture_output=True, text=True)
        if done.returncode != 0:
            skip(f"{' '.join(arguments)} cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    return python


def main():
    need_torch()
    oracle = Oracle(__doc__)
    python = install(oracle.work / "venv")
    for script in SCRIPTS:
        command = [python, "-B", HERE / f"{script}.py", "--tool", oracle.tool, "--data", oracle.data, "--work",
                   oracle.work / script]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        # A script that skips itself here did not find what was installed: that is a failure.
        oracle.check(done.returncode == 0, script, (done.stdout + done.stderr).strip()[-3000:])
        print("\n".join(done.stdout.splitlines()[-2:]))
    oracle.finish()


if __name__ == "__main__":
    main()
