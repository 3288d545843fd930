# SPDX-License-Identifier: Apache-2.0
"""The C library and its headers, which a wheel contains.

    PKG_CONFIG_PATH=$(python3 -m shardmesh.c_api --pkgconfigdir) pkg-config --cflags --libs shardmesh_c
"""
from __future__ import annotations

import argparse
from pathlib import Path

_PREFIX = Path(__file__).absolute().parent


def get_include() -> str:
    """The folder to add to the include path of C and C++ compilers."""
    return _folder("include", "shardmesh/c_api.h")


def get_pkgconfig_dir() -> str:
    """The folder of shardmesh_c.pc, for PKG_CONFIG_PATH."""
    return _folder("lib/pkgconfig", "shardmesh_c.pc")


def _folder(name: str, file: str) -> str:
    folder = _PREFIX / name
    if not (folder / file).is_file():
        raise FileNotFoundError(f"this package was built without the C library: there is no {folder / file}; install a wheel")
    return str(folder)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m shardmesh.c_api", description="Prints folders of the C library.")
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--include", action="store_true", help=get_include.__doc__)
    group.add_argument("--pkgconfigdir", action="store_true", help=get_pkgconfig_dir.__doc__)
    print(get_include() if parser.parse_args().include else get_pkgconfig_dir())


if __name__ == "__main__":
    main()
