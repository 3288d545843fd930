# SPDX-License-Identifier: Apache-2.0
"""Checks that the installed bill of materials is CycloneDX 1.5 and names everything that is linked.

    bill.py PREFIX VERSION

The dynamic section of the installed command line tells what is linked.
"""
import json
import re
import subprocess
import sys
from pathlib import Path

# Header-only, and libcurl, which is loaded with the first URL.
HEADERS = {"range-v3", "nlohmann-json", "tomlplusplus", "cli11", "curl"}
SYSTEM = {"c", "m", "stdc++", "gcc_s", "ld-linux-x86-64", "ld-linux-aarch64", "pthread", "dl"}
NAMES = {"z": "zlib", "crypto": "openssl", "isal": "isa-l"}  # if the file's name differs


def main(prefix, version):
    bill = json.loads((prefix / "share/shardmesh/shardmesh.cdx.json").read_text())
    assert list(bill) == ["bomFormat", "specVersion", "version", "metadata", "components", "dependencies"], list(bill)
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
    ours = bill["metadata"]["component"]
    assert (ours["type"], ours["name"], ours["version"]) == ("library", "shardmesh", version), ours
    for part in [ours, *bill["components"]]:
        assert part["type"] == "library" and part["name"] == part["bom-ref"], part
        assert [list(entry) for entry in part["licenses"]] == [["expression"]], part
        assert re.fullmatch(r"[\w.+-]+( (OR|AND|WITH) [\w.+-]+)*", part["licenses"][0]["expression"]), part
        assert re.fullmatch(r"[0-9]+(\.[0-9]+)+", part.get("version", "0.0")), part
        if part["name"].startswith("shardmesh"):
            assert part["version"] == version and part["licenses"] == ours["licenses"], part
        else:
            at = "@" + part["version"] if "version" in part else ""
            assert re.fullmatch(r"pkg:(github/[\w.-]+|generic)/[\w.-]+" + at, part["purl"]), part
    names = [part["name"] for part in [*bill["components"], ours]]
    assert sorted(set(names)) == sorted(names), "a name stands there twice"
    needs = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert sorted(needs) == sorted(names), set(needs) ^ set(names)
    for name, wanted in needs.items():
        assert set(wanted) <= set(names) - {name}, (name, wanted)

    dynamic = subprocess.run(["readelf", "-d", prefix / "bin/shardmesh"], check=True, capture_output=True, text=True).stdout
    linked = set(re.findall(r"\(NEEDED\).*\[(?:lib)?([^\]]*?)\.so", dynamic)) - SYSTEM
    linked = {NAMES.get(name, name) for name in linked}
    named = set(needs["shardmesh"]) | set(needs["shardmesh-tools"]) - {"shardmesh"}
    assert linked == named - HEADERS, f"linked: {sorted(linked)}, named: {sorted(named)}"
    print(f"{len(names)} components; {len(linked)} libraries are linked and named")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
