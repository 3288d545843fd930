# SPDX-License-Identifier: Apache-2.0
"""Wheels, built from source for every Python of 3.10 to 3.13 on this machine, work in fresh environments whose PATH has
no compiler: the package without PyTorch, the command line, and programs of the C library. The code of docs/python.md
runs with the Python that runs this script; PyTorch comes from that Python's environment.

    wheel.py ROOT WORK [BUILD]     BUILD: the folder in which the wheels are built (WORK/build)
"""
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import range_server  # noqa: E402

VERSIONS = ["3.10", "3.11", "3.12", "3.13"]
COMPILERS = ["cc", "gcc", "g++", "c++", "clang", "clang++", "clang-19", "clang++-19", "gcc-12", "g++-12"]
PACKAGE = """
import shardmesh, sys
from pathlib import Path
golden, work = Path(sys.argv[1]), Path(sys.argv[2])
assert "torch" not in sys.modules
checkpoint = shardmesh.open(golden)
assert len(checkpoint) > 0
shardmesh.convert(golden, work / "model.safetensors", skip_objects=True)
assert shardmesh.verify(work / "model.safetensors").ok
assert shardmesh.diff(work / "model.safetensors", work / "model.safetensors").equal
assert "torch" not in sys.modules
print(shardmesh.__file__)
"""


def run(*line, **options):
    done = subprocess.run([str(word) for word in line], **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(word) for word in line)}: exits {done.returncode}\n{done.stdout or ''}")
    return done


def said(*line, **options):
    return run(*line, text=True, stdout=subprocess.PIPE, **options).stdout.strip()


def interpreter(version):
    """An interpreter of that version that can make environments and build extensions; None if there is none."""
    candidates = [sys.executable] if sys.version.startswith(version + ".") else []
    candidates += [shutil.which(f"python{version}") or "", f"/usr/bin/python{version}"]
    candidates += sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    asks = ("import ensurepip, os, sys, sysconfig, venv\n"
            "header = os.path.join(sysconfig.get_paths()['include'], 'Python.h')\n"
            f"sys.exit(0 if sys.version.startswith('{version}.') and os.path.exists(header) else 1)")
    for candidate in filter(None, map(str, candidates)):
        if Path(candidate).exists() and subprocess.run([candidate, "-c", asks], capture_output=True).returncode == 0:
            return candidate
    return None


def check_c_library(python, work, root, clean):
    """A C program compiles with the flags of pkg-config alone, and runs without a library path."""
    pkg_config = shutil.which("pkg-config") or shutil.which("pkgconf")
    compiler = shutil.which("gcc-12") or shutil.which("gcc") or shutil.which("cc")
    folder = said(python, "-m", "shardmesh.c_api", "--pkgconfigdir", cwd=work, env=clean)
    assert Path(said(python, "-m", "shardmesh.c_api", "--include", cwd=work, env=clean), "shardmesh/c_api.hpp").is_file()
    if not pkg_config or not compiler:
        return "no C program was compiled: pkg-config or a compiler is missing"
    flags = said(pkg_config, "--cflags", "--libs", "shardmesh_c", env=dict(os.environ, PKG_CONFIG_PATH=folder)).split()
    run(compiler, "-std=c11", root / "tests/package/consumer_c/main.c", *flags, "-o", work / "consumer")
    found = said(work / "consumer", env=clean)
    assert found == "rank 3 of 4 holds 1 x 7", found
    return "a C program runs"


def check_kernels(package, python, tool, environment):
    """The Python module and the command line find the CUDA kernels, if nvcc was there when the wheel was built."""
    asks = "import shardmesh; print(shardmesh.devices().libraries['cuda_kernels'].file)"
    for kernels in package.glob("libshardmesh_cuda_kernels.so.*"):
        of_python = said(python, "-c", asks, cwd=package.parent, env=environment)
        document = said(tool, "devices", "--json", env=environment)
        for found in (of_python, json.loads(document)["libraries"]["cuda_kernels"]["file"]):
            if not found or Path(found).resolve() != kernels.resolve():
                sys.exit(f"the kernels {kernels} are not found, but {found!r}")


def check_urls(python, tool, file, work, environment):
    """The Python module and the command line open a URL with the libcurl of this machine."""
    try:
        ctypes.CDLL("libcurl.so.4")
    except OSError as problem:
        return f"no URL is opened: {problem}"
    asks = "import shardmesh, sys; print(shardmesh.diff(sys.argv[1], sys.argv[2]).equal)"
    with range_server.Server(file.parent) as server:
        url = f"{server.url}/{file.name}"
        assert said(python, "-c", asks, url, file, cwd=work, env=environment) == "True"
        run(tool, "verify", url, cwd=work, env=environment, stdout=subprocess.DEVNULL)
        assert server.bytes_sent > 0
    return "URLs are opened"


def check(wheel, version, python, root, work):
    shutil.rmtree(work, ignore_errors=True)
    environment = work / "environment"
    run(python, "-m", "venv", environment)
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    clean["PATH"] = str(environment / "bin")
    clean["SHARDMESH_TEST_DATA"] = str(root / "tests" / "data")
    assert not any(shutil.which(name, path=clean["PATH"]) for name in COMPILERS), "a compiler is on the PATH"
    own = environment / "bin" / "python"
    run(own, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check", wheel, env=clean)
    (site,) = (environment / "lib").glob("python3*/site-packages")
    golden = root / "tests/data/golden/dtensor_shard0_4/checkpoint"
    where = said(own, "-c", PACKAGE, golden, work, cwd=work, env=clean)
    assert where.startswith(str(site)), f"not the wheel's package: {where}"
    run(own, "-m", "shardmesh", "--version", cwd=work, env=clean)
    run(environment / "bin" / "shardmesh", "verify", "--quick", golden, cwd=work, env=clean)
    check_kernels(site / "shardmesh", own, environment / "bin" / "shardmesh", clean)
    urls = check_urls(own, environment / "bin" / "shardmesh", work / "model.safetensors", work, clean)
    c_library = check_c_library(own, work, root, clean)
    page = "docs/python.md is left out: only the Python of this script has PyTorch"
    if sys.version.startswith(version + ".") and Path(sysconfig.get_paths()["purelib"], "torch").is_dir():
        (site / "torch_of_setup.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        run(own, "-B", root / "tests" / "python" / "page.py", cwd=work, env=clean)
        page = "the code of docs/python.md runs"
    print(f"{wheel.name} ({wheel.stat().st_size >> 10} KiB): installs and runs; {urls}; {c_library}; {page}", flush=True)


def main(root, work, build):
    pythons = {version: interpreter(version) for version in VERSIONS}
    found = {version: python for version, python in pythons.items() if python}
    missing = [version for version in VERSIONS if version not in found]
    print(f"Python {', '.join(found)}; missing: {', '.join(missing) or 'none'}", flush=True)
    assert found, "there is no Python with headers"
    shutil.rmtree(work / "wheels", ignore_errors=True)
    for version, python in found.items():
        built = said(sys.executable, "-B", root / "python/build_wheel.py", root, work / "wheels", build, python)
        wheel = Path(built.splitlines()[-1])
        tag = "cp" + version.replace(".", "")
        pattern = rf"shardmesh-[\d.]+-{tag}-{tag}-(manylinux_2_\d+_\w+\.?)+\.whl"
        assert re.fullmatch(pattern, wheel.name), f"not a manylinux wheel: {wheel.name} (is auditwheel installed?)"
        check(wheel, version, python, root, work / f"python{version}")


if __name__ == "__main__":
    given = [Path(word).resolve() for word in sys.argv[1:]]
    main(given[0], given[1], given[2] if len(given) > 2 else given[1] / "build")
