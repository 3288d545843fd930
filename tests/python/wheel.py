# SPDX-License-Identifier: Apache-2.0
"""The wheel, built from source, installs into a fresh virtual environment, and the code of docs/python.md runs there.
PyTorch comes from the environment that runs this script.

    wheel.py ROOT WORK [BUILD]     BUILD: the folder in which the wheel is built (WORK/build)
"""
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path


def run(*line, **options):
    done = subprocess.run([str(word) for word in line], **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(word) for word in line)}: exits {done.returncode}")
    return done


def main(root, work, build):
    shutil.rmtree(work / "environment", ignore_errors=True)
    shutil.rmtree(work / "wheels", ignore_errors=True)
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--disable-pip-version-check", "--wheel-dir", work / "wheels",
        f"--config-settings=build-dir={build}", root)
    (wheel,) = (work / "wheels").glob("shardmesh-*.whl")
    run(sys.executable, "-m", "venv", work / "environment")
    python = work / "environment" / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check", wheel)
    (site,) = (work / "environment" / "lib").glob("python3*/site-packages")
    (site / "torch_of_setup.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    clean["SHARDMESH_TEST_DATA"] = str(root / "tests" / "data")
    where = run(python, "-c", "import shardmesh; print(shardmesh.__file__)", cwd=work, env=clean, text=True,
                stdout=subprocess.PIPE).stdout.strip()
    if not where.startswith(str(site)):
        sys.exit(f"not the wheel's package: {where}")
    run(python, "-B", root / "tests" / "python" / "page.py", cwd=work, env=clean)
    run(python, "-m", "shardmesh", "--version", cwd=work, env=clean)
    run(work / "environment" / "bin" / "shardmesh", "verify", "--quick",
        root / "tests" / "data" / "golden" / "dtensor_shard0_4" / "checkpoint", cwd=work, env=clean)
    print(f"{wheel.name} ({wheel.stat().st_size >> 10} KiB) installs and runs")


if __name__ == "__main__":
    given = [Path(word).resolve() for word in sys.argv[1:]]
    main(given[0], given[1], given[2] if len(given) > 2 else given[1] / "build")
