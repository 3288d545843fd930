# SPDX-License-Identifier: Apache-2.0
"""Every damaged checkpoint of golden/corrupt: `verify` names the damage, nothing crashes, nothing is executed, and
no partial output is left. Damage that must still load (level `valid`) must load to the reference. Needs no package."""
import json

from common import Oracle, read_safetensors, sha256

MARKERS = ("golden-evil-pickle-was-executed", "golden-evil-dotted-x")  # the evil pickles echo these


def main():
    oracle = Oracle(__doc__)
    entries = [json.loads(line) for line in (oracle.golden / "corrupt" / "index.jsonl").read_text().splitlines() if line]
    reference = json.loads((oracle.golden / "dtensor_shard0_4" / "expected.json").read_text())["tensors"]
    for entry in entries:
        name = entry["name"]
        if oracle.args.only not in name:
            continue
        folder = oracle.golden / "corrupt" / name / "checkpoint"
        # PyTorch never deflates but reads deflated data, as we do: a file that loads must equal the reference.
        valid = entry["level"] == "valid" or name == "blob_deflated"
        touched = entry["affected"]

        status, out, err = oracle.run("verify", folder)
        lines = [line for line in err.splitlines() if line.strip()]
        if valid:
            oracle.check(status == 0, name, f"verify of a valid one exits {status}: {err[-300:]}")
        else:
            oracle.check(status == 1, name, f"verify exits {status}, expected 1 ({entry['what']}): {(out + err)[-300:]}")
            # The line names the key or the faulty file; if nothing can be read, it names one of the folder's files.
            known = [key for key in touched if key != "*"] + [".metadata", ".distcp", str(folder)]
            named = lines and any(any(word in line for word in known) for line in lines)
            oracle.check(named, name, f"verify names neither file nor key: {err[-300:]!r}")
        check_unharmed(oracle, name, status, out + err)

        for command in ("inspect", "diff"):
            arguments = [command, folder] + ([folder] if command == "diff" else ["--json"])
            status, out, err = oracle.run(*arguments)
            check_unharmed(oracle, name, status, out + err)

        target = oracle.work / f"{name}.safetensors"
        status, out, err = oracle.run("convert", folder, target)
        check_unharmed(oracle, name, status, out + err)
        if valid:
            if oracle.check(status == 0 and target.exists(), name, f"convert of a valid one exits {status}: {err[-300:]}"):
                tensors, _ = read_safetensors(target)
                for key, expected in reference.items():
                    oracle.check(key in tensors and sha256(tensors[key][2]) == expected["sha256"], name,
                                 f"convert: {key} differs from the reference")
        else:
            check_refused(oracle, name, "convert", status, target, err)

        target = oracle.work / f"{name}.resharded"
        status, out, err = oracle.run("reshard", folder, target, "--mesh", "2", "--default", "R")
        check_unharmed(oracle, name, status, out + err)
        if valid:
            if oracle.check(status == 0, name, f"reshard of a valid one exits {status}: {err[-300:]}"):
                oracle.succeeds(name, "verify", target)
        else:
            check_refused(oracle, name, "reshard", status, target, err)
    leftovers = [p.name for p in oracle.work.iterdir() if p.name.startswith(".")]
    oracle.check(not leftovers, "all", f"temporaries are left: {leftovers[:5]}")
    oracle.finish()


def check_refused(oracle, name, command, status, target, err):
    oracle.check(status in (1, 3), name, f"{command} exits {status}, expected a refusal: {err[-300:]}")
    oracle.check(not target.exists(), name, f"{command} leaves a destination")
    oracle.check(err.strip() != "", name, f"{command} says nothing")


def check_unharmed(oracle, name, status, text):
    """No signal, no sanitizer report, and no output of the commands that evil pickles would run."""
    oracle.check(0 <= status < 128, name, f"died with status {status}: {text[-1500:]}")
    oracle.check("Sanitizer" not in text and "runtime error:" not in text, name, f"sanitizer: {text[-1500:]}")
    if "evil" in name:
        # `echo X` prints only X on a line; a message that quotes the pickle has more on it.
        ran = [line for line in text.splitlines() if line.strip().lower() in MARKERS]
        oracle.check(not ran, name, f"something was executed: {ran}")


if __name__ == "__main__":
    main()
