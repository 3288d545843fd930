# SPDX-License-Identifier: Apache-2.0
"""Packs the build folder as Debian packages, and checks them: control fields, files, dependencies. Unpacks them into a
folder and runs the command line, and C and C++17 programs that are compiled with the packed pkg-config file.

    debian.py CPACK BUILD SOURCE WORK VERSION [COMPILER...]     COMPILER: gcc or g++, by any name
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

# Package: (section, beginnings of its dependencies, files). MULTIARCH is lib/x86_64-linux-gnu, or lib.
# range-v3, nlohmann-json, toml++, and CLI11 are headers, and the modules are in no package.
SYSTEM = ["libc6", "libstdc++6", "libgcc-s1"]
LIBRARIES = ["libfmt", "libxxhash", "libisal", "libssl", "zlib1g", "libzstd", "libre2-"]
PACKAGES = {
    "shardmesh": ("science", SYSTEM + LIBRARIES + ["libsimdjson"], [
        "usr/bin/shardmesh", "usr/share/man/man1/shardmesh.1.gz", "usr/share/bash-completion/completions/shardmesh",
        "usr/share/zsh/vendor-completions/_shardmesh", "usr/share/fish/vendor_completions.d/shardmesh.fish",
        "usr/share/doc/shardmesh/copyright"]),
    "libshardmesh-c1": ("libs", SYSTEM + LIBRARIES, [
        "usr/MULTIARCH/libshardmesh_c.so.1", "usr/share/doc/libshardmesh-c1/copyright"]),
    "libshardmesh-c-dev": ("libdevel", ["libshardmesh-c1 (= VERSION)"], [
        "usr/MULTIARCH/libshardmesh_c.so", "usr/MULTIARCH/pkgconfig/shardmesh_c.pc", "usr/include/shardmesh/c_api.h",
        "usr/include/shardmesh/c_api.hpp", "usr/share/doc/libshardmesh-c-dev/copyright"]),
}


def run(*line, status=0, **options):
    done = subprocess.run([str(word) for word in line], capture_output=True, text=True, **options)
    if done.returncode != status:
        sys.exit(f"{' '.join(map(str, line))}: exits {done.returncode}, expected {status}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def check_control(package, file, version, extra):
    section, dependencies, _ = PACKAGES[package]
    if package != "libshardmesh-c-dev":
        dependencies = dependencies + extra
    fields = dict(re.findall(r"^(\S[^:]*): (.*)$", run("dpkg-deb", "-f", file), re.M))
    assert fields["Package"] == package and fields["Version"] == version, fields
    assert fields["Section"] == section and fields["Priority"] == "optional", fields
    assert re.fullmatch(r".+ <[^ ]+@[^ ]+>", fields["Maintainer"]), fields
    assert fields["Architecture"] == run("dpkg", "--print-architecture").strip(), fields
    assert fields["Description"].startswith("sharded checkpoints of PyTorch: "), fields
    listed = fields["Depends"].split(", ")
    for wanted in dependencies:
        wanted = wanted.replace("VERSION", version)
        assert any(one.startswith(wanted) for one in listed), f"{package} does not depend on {wanted}: {listed}"
    assert len(listed) == len(dependencies), f"{package} depends on {listed}"
    # It is loaded with the first URL, so dpkg-shlibdeps does not see it.
    recommended = "libcurl4 | libcurl3-gnutls" if extra and package != "libshardmesh-c-dev" else None
    assert fields.get("Recommends") == recommended, fields
    if package == "libshardmesh-c1":
        assert "activate-noawait ldconfig" in run("dpkg-deb", "-I", file, "triggers")
        assert run("dpkg-deb", "-I", file, "shlibs").startswith("libshardmesh_c 1 libshardmesh-c1 ")


def check_files(package, file, multiarch, headers):
    wanted = [name.replace("MULTIARCH", multiarch) for name in PACKAGES[package][2]]
    if package == "libshardmesh-c-dev":
        wanted += [f"usr/include/shardmesh/c_api/{name}" for name in headers]
    found = []
    for line in run("dpkg-deb", "-c", file).splitlines():
        mode, owner, _, _, _, name, *_ = line.split()
        assert owner == "root/root", line
        if not mode.startswith("d"):
            found.append(name.removeprefix("./"))
        executable = name.startswith("./usr/bin/")
        assert mode[0] in "dl" or mode == ("-rwxr-xr-x" if executable else "-rw-r--r--"), line
    assert sorted(found) == sorted(wanted), f"{package}: {sorted(set(found) ^ set(wanted))}"


def check_programs(root, multiarch, source, work, compilers):
    said = run(root / "usr/bin/shardmesh", "verify", "--quick", source / "tests/data/golden/dtensor_shard0_4/checkpoint")
    manual = run("gzip", "-dc", root / "usr/share/man/man1/shardmesh.1.gz")
    assert manual.startswith((".TH", ".\\\"", "'\\\"")), manual[:80]
    run("bash", "-n", root / "usr/share/bash-completion/completions/shardmesh")
    print(said.strip().splitlines()[-1])
    environment = dict(os.environ, PKG_CONFIG_PATH=str(root / "usr" / multiarch / "pkgconfig"))
    pkg_config = shutil.which("pkg-config") or shutil.which("pkgconf")
    if not pkg_config or not compilers:
        print("no pkg-config or no compiler: no program is compiled")
        return
    flags = run(pkg_config, "--cflags", "--libs", "shardmesh_c", env=environment).split()
    assert not any("rpath" in flag for flag in flags), flags  # the loader searches the folder of the installed library
    loads = dict(os.environ, LD_LIBRARY_PATH=str(root / "usr" / multiarch))
    for compiler in compilers:
        cxx = "++" in Path(compiler).name
        example = source / "examples" / ("checkpoint_from_cpp17.cpp" if cxx else "checkpoint_from_c.c")
        run(compiler, "-std=c++17" if cxx else "-std=c11", example, *flags, "-o", work / "program")
        said = run(work / "program", "no-such-checkpoint", "saved", status=1, cwd=work, env=loads)
        assert said == "io: no-such-checkpoint: does not exist\n", said
        print(f"{Path(compiler).name}: a program with the packed library runs")


def main(cpack, build, source, work, version, compilers):
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    # xz takes most of the time of the ordinary run; --full packs with it, as users do.
    quickly = [] if os.environ.get("SHARDMESH_PROPERTY_RUNS") == "long" else ["-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip"]
    run(cpack, "-G", "DEB", "--config", build / "CPackConfig.cmake", *quickly, "-B", work / "packages")
    files = {file.name.partition("_")[0]: file for file in (work / "packages").glob("*.deb")}
    assert set(files) == set(PACKAGES), sorted(files)
    root = work / "root"
    for file in files.values():
        run("dpkg-deb", "-x", file, root)
    (library,) = (root / "usr").glob("lib/**/libshardmesh_c.so.1")
    multiarch = library.parent.relative_to(root / "usr").as_posix()
    folder = source / "include/shardmesh/c_api"
    headers = [file.name for file in folder.iterdir() if file.suffix in (".h", ".hpp")]
    remote = ["libpugixml"] if (build / "modules/libshardmesh_remote.a").exists() else []
    for package, file in files.items():
        check_control(package, file, version, remote)
        check_files(package, file, multiarch, headers)
        print(f"{file.name}: {file.stat().st_size >> 10} KiB")
    check_programs(root, multiarch, source, work, compilers)


if __name__ == "__main__":
    paths = [Path(word) for word in sys.argv[1:5]]
    main(*paths, sys.argv[5], sys.argv[6:])
