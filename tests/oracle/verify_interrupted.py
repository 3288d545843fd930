# SPDX-License-Identifier: Apache-2.0
"""`verify` recognises saves that were really interrupted (tests/data/interrupted), reports them in plain words, and
distinguishes a damaged checkpoint from a suspicious one. A suspicious one passes with warnings, and fails with
--strict. Needs no package."""
import json
import os
import shutil
import time

from common import Oracle

# sample: (status, status with --strict, required texts on standard error)
EXPECTED = {
    "fresh_before_metadata": (1, 1, ["incomplete save"]),
    "fresh_in_metadata": (1, 1, ["incomplete save"]),
    "fresh_before_rename": (1, 1, ["incomplete save"]),
    "overwrite_in_items": (1, 1, ["__0_0.distcp"]),
    "overwrite_before_metadata": (0, 1, ["newer than .metadata", "__0_0.distcp"]),
    "overwrite_before_remove": (1, 1, ["an overwrite was interrupted"]),
    "overwrite_before_rename": (1, 1, ["incomplete save"]),
    "rank_metadata_beside_metadata": (0, 1, [".metadata takes precedence", "__1_0.distcp"]),
    "no_collectives_one_rank": (1, 1, []),
}


def prepare(oracle, name):
    """A copy with the files' original ages; version control stores none."""
    sample, target = oracle.data / "interrupted" / name, oracle.work / name
    shutil.copytree(sample / "checkpoint", target)
    start = time.time() - 1000
    for file, age in json.loads((sample / "mtimes.json").read_text()).items():
        os.utime(target / file, (start + age, start + age))
    return target


def main():
    oracle = Oracle(__doc__)
    samples = {p.name for p in (oracle.data / "interrupted").iterdir() if p.is_dir()}
    oracle.check(samples == set(EXPECTED), "all", f"samples and expectations differ: {samples ^ set(EXPECTED)}")
    for name, (plain, strict, words) in EXPECTED.items():
        if oracle.args.only not in name:
            continue
        folder = prepare(oracle, name)
        for arguments, wanted in ((["verify", folder], plain), (["verify", folder, "--strict"], strict)):
            status, _, err = oracle.run(*arguments)
            said = f"{' '.join(map(str, arguments[2:])) or 'verify'}: {err.strip()[-400:]!r}"
            oracle.check(status == wanted, name, f"exits {status}, expected {wanted}: {said}")
            for word in words:
                oracle.check(word in err, name, f"does not say {word!r}: {said}")
            oracle.check(status == 0 or err.strip(), name, "fails without a word")
        if plain == 1:  # nothing is made from half a save
            target = oracle.work / f"{name}.safetensors"
            status, _, err = oracle.run("convert", folder, target)
            oracle.check(status in (1, 3) and not target.exists(), name, f"convert exits {status}: {err.strip()[-300:]}")

    # A complete save whose files were copied in any order passes; a leftover item is named, and --strict refuses it.
    folder = oracle.work / "stale_items"
    shutil.copytree(oracle.golden / "options_overwrite" / "checkpoint", folder)
    for age, file in enumerate(sorted(folder.iterdir(), key=lambda p: p.name == ".metadata")):
        os.utime(file, (1_700_000_000 + age, 1_700_000_000 + age))
    status, _, err = oracle.run("verify", folder)
    oracle.check(status == 0 and "nothing refers to" in err, "stale_items", f"exits {status}: {err[-400:]}")
    status, _, err = oracle.run("verify", folder, "--strict")
    oracle.check(status == 1, "stale_items", f"--strict exits {status}: {err[-400:]}")

    # An unmodified copy causes no warning.
    folder = oracle.work / "clean"
    shutil.copytree(oracle.golden / "dtensor_shard0_4" / "checkpoint", folder)
    for file in folder.iterdir():
        os.utime(file, (1_700_000_000, 1_700_000_000))
    status, _, err = oracle.run("verify", folder, "--strict")
    oracle.check(status == 0 and not err.strip(), "clean", f"--strict exits {status}: {err[-400:]}")
    oracle.finish()


if __name__ == "__main__":
    main()
