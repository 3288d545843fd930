# SPDX-License-Identifier: Apache-2.0
"""Archives of Python's tarfile in every format, plain and compressed, whose weights torch.save wrote, have the same
tensors and objects as the weights alone. Hostile archives are refused by one line, and nothing is extracted. Needs
PyTorch."""
import gzip
import io
import json
import random
import tarfile

from common import Oracle, need_torch, read_safetensors, rounds, seed as common_seed

need_torch()

import torch  # noqa: E402

from make_nemo import weights, write_nemo  # noqa: E402

CONFIG = b"name: small\ntarget: nemo.collections.asr\n"


def state():
    shared = torch.arange(12, dtype=torch.float32)
    return {"encoder.w": shared.reshape(3, 4), "encoder.tied": shared[:4], "encoder.t": shared.reshape(3, 4).t(),
            "half": torch.randn(5, 3).to(torch.bfloat16), "none": torch.zeros(0, 2), "step": 7, "names": ["a", "b"]}


def members_of(data):
    return {"./model_config.yaml": CONFIG, "./model_weights.ckpt": data, "./0a1b_tokenizer.model": b"tokenizer",
            "./" + "long/" * 40 + "vocab.txt": b"vocab"}


def check_reading(oracle):
    data = weights(state())
    alone = oracle.work / "alone.pt"
    alone.write_bytes(data)
    oracle.succeeds("alone", "convert", alone, oracle.work / "alone.safetensors")
    wanted, _ = read_safetensors(oracle.work / "alone.safetensors")
    formats = {"gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT, "ustar": tarfile.USTAR_FORMAT}
    for name, format in formats.items():
        for mode in ("w", "w:gz"):
            case = f"{name} {mode}"
            file, made = oracle.work / f"{name}_{mode[2:]}.nemo", oracle.work / f"{name}_{mode[2:]}.safetensors"
            write_nemo(file, members_of(data), mode, format)
            oracle.succeeds(case, "verify", file, "--strict")
            if oracle.succeeds(case, "convert", file, made) is None:
                continue
            found, texts = read_safetensors(made)
            oracle.check(found == wanted, case, f"tensors {sorted(found)}")
            oracle.check(texts.get("model_config.yaml") == CONFIG.decode(), case, f"texts {texts}")
            oracle.succeeds(case, "diff", file, alone)
            said = oracle.succeeds(case, "inspect", file, "--json")
            oracle.check(said is not None and json.loads(said)["format"] == "nemo", case, "inspect names another format")
    return oracle.work / "gnu_.nemo"


def check_zip_free(oracle):
    """The stream that torch.save wrote before 1.6."""
    made = io.BytesIO()
    torch.save({"w": torch.arange(6.0)}, made, _use_new_zipfile_serialization=False)
    file = oracle.work / "old.nemo"
    write_nemo(file, members_of(made.getvalue()))
    if oracle.succeeds("old", "convert", file, oracle.work / "old.safetensors") is not None:
        found, _ = read_safetensors(oracle.work / "old.safetensors")
        oracle.check(found["w"][2] == torch.arange(6.0).numpy().tobytes(), "old", "w differs")


def check_folder(oracle):
    """A folder of torch.distributed.checkpoint in the archive is the checkpoint that it is outside."""
    import torch.distributed.checkpoint as dcp

    folder, file = oracle.work / "model_weights", oracle.work / "folder.nemo"
    dcp.save({**state(), "list": [torch.ones(2), 3]}, checkpoint_id=folder, no_dist=True)
    members = {f"./model_weights/{path.name}": path.read_bytes() for path in sorted(folder.iterdir())}
    write_nemo(file, {"./model_config.yaml": CONFIG, **members})
    oracle.succeeds("folder", "verify", file, "--strict")
    oracle.succeeds("folder", "diff", file, folder)
    for to in ("safetensors", "dcp", "pt"):
        for source, name in ((file, "inside"), (folder, "outside")):
            oracle.succeeds("folder", "convert", source, oracle.work / f"{name}_{to}", "--to", to)
        oracle.succeeds("folder", "diff", oracle.work / f"inside_{to}", oracle.work / f"outside_{to}")
    missing = {name: data for name, data in members.items() if not name.endswith(".distcp")}
    write_nemo(oracle.work / "missing.nemo", {"./model_config.yaml": CONFIG, **missing})
    status, out, err = oracle.run("verify", oracle.work / "missing.nemo")
    oracle.check(status == 1 and "the file is missing" in out + err, "folder", f"verify exits {status}: {out}{err}")


def check_targets(oracle, file):
    for to in ("dcp", "pt", "hf"):
        made = oracle.work / f"to_{to}"
        if oracle.succeeds(to, "convert", file, made, "--to", to) is not None:
            oracle.succeeds(to, "diff", file, made)


def tar_of(*infos, data=b""):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as out:
        for info in infos:
            out.addfile(info, io.BytesIO(data) if info.size else None)
    return made.getvalue()


def info(name, type=tarfile.REGTYPE, size=0, link=""):
    made = tarfile.TarInfo(name)
    made.type, made.size, made.linkname = type, size, link
    return made


def hostile_archives(data):
    """(name, bytes, text in the message)."""
    good = [info("model_config.yaml")]
    yield "symlink", tar_of(*good, info("model_weights.ckpt", tarfile.SYMTYPE, link="/etc/passwd")), "symbolic link"
    yield "hardlink", tar_of(*good, info("model_weights.ckpt", tarfile.LNKTYPE, link="model_config.yaml")), "hard link"
    yield "fifo", tar_of(*good, info("model_weights.ckpt", tarfile.FIFOTYPE)), "pipe"
    yield "device", tar_of(*good, info("model_weights.ckpt", tarfile.CHRTYPE)), "device"
    yield "absolute", tar_of(*good, info("/model_weights.ckpt")), "absolute"
    yield "parent", tar_of(*good, info("../model_weights.ckpt")), "leads out"
    yield "twice", tar_of(*good, info("./model_config.yaml")), "two members have this name"
    yield "none", tar_of(*good), "holds no weights"
    yield "zarr", tar_of(*good, info("model_weights/w/.zarray")), "zarr"
    yield "folder", tar_of(*good, info("model_weights/.metadata"), info("model_weights/__0_0.distcp")), "model_weights/.metadata"
    yield "ranks", tar_of(*good, info("mp_rank_00/model_weights.ckpt"), info("mp_rank_01/model_weights.ckpt")), "for each rank"
    large = bytearray(tar_of(*good, info("model_weights.ckpt", size=len(data)), data=data))
    at = large.index(b"model_weights.ckpt")
    header = tarfile.TarInfo("model_weights.ckpt")
    header.size = 1 << 40
    large[at:at + 512] = header.tobuf(tarfile.GNU_FORMAT)
    yield "size", bytes(large), "leaves the file"
    sparse = tarfile.TarInfo("model_weights.ckpt")
    sparse.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 50)}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as out:
        out.addfile(sparse)
    yield "sparse", made.getvalue(), "sparse"
    yield "text", b"not an archive", "is not a .nemo file"
    bomb = io.BytesIO()
    with gzip.GzipFile(fileobj=bomb, mode="wb") as out:
        for _ in range(1300):  # MiB; the limit is a GiB and sixteen times the compressed bytes
            out.write(bytes(1 << 20))
    yield "bomb", bomb.getvalue(), "decodes to more than is plausible"
    damaged = bytearray(tar_of(*good, info("model_weights.ckpt", size=len(data)), data=data))
    damaged[damaged.index(data) + data.index(torch.arange(12, dtype=torch.float32).numpy().tobytes()) + 5] ^= 1
    yield "element", bytes(damaged), "checksum"


def check_hostile(oracle):
    data = weights(state())
    for name, archive, says in hostile_archives(data):
        file, made = oracle.work / f"hostile_{name}.nemo", oracle.work / f"hostile_{name}.safetensors"
        file.write_bytes(archive)
        before = sorted(oracle.work.iterdir())
        commands = [["verify", file], ["convert", file, made]]
        if name == "bomb" and rounds(0, 1) == 0:  # both inflate a GiB: the ordinary run draws one
            commands = [commands[common_seed() % 2]]
        for command in commands:
            status, out, err = oracle.run(*command, timeout=60)
            oracle.check(status == 1 and says in out + err, name, f"{command[0]} exits {status}: {out[-300:]}{err[-300:]}")
        oracle.check(sorted(oracle.work.iterdir()) == before, name, "a file was written")
        file.unlink()


def check_mutants(oracle, file):
    """verify and convert agree on changed bytes, and what passes has the same tensors."""
    data, choose = file.read_bytes(), random.Random(common_seed())
    wanted, _ = read_safetensors(oracle.work / "gnu_.safetensors")
    changed_file, made = oracle.work / "mutant.nemo", oracle.work / "mutant.safetensors"
    for number in range(rounds(12, 120)):
        changed = bytearray(data)
        at = choose.randrange(len(data))
        changed[at] ^= 1 << choose.randrange(8)
        changed_file.write_bytes(changed)
        verified, converted = oracle.run("verify", changed_file)[0], oracle.run("convert", changed_file, made, "--force")[0]
        case = f"mutant {number}, byte {at}"
        oracle.check(verified in (0, 1) and converted in (0, 1), case, f"verify exits {verified}, convert exits {converted}")
        oracle.check(verified == 0 or converted == 1, case, "convert accepts what verify refuses")
        if converted == 0:
            oracle.check(read_safetensors(made)[0] == wanted, case, "other tensors pass")
        made.unlink(missing_ok=True)
    used = len(data.rstrip(b"\0"))
    for length in sorted({0, 1, 511, 512, *(choose.randrange(used) for _ in range(rounds(8, 30)))}):
        changed_file.write_bytes(data[:length])
        status, _, err = oracle.run("inspect", changed_file)
        oracle.check(status == 1 and len(err.splitlines()) == 1, "cut", f"{length} bytes: exits {status}: {err}")


def main():
    oracle = Oracle(__doc__, syncs=False)
    file = check_reading(oracle)
    check_zip_free(oracle)
    check_folder(oracle)
    check_targets(oracle, file)
    check_hostile(oracle)
    check_mutants(oracle, file)
    oracle.finish()


if __name__ == "__main__":
    main()
