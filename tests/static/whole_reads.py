# SPDX-License-Identifier: Apache-2.0
"""Compares the tables of docs/security.md, under "What reading may cost", with the code. Every file that reads something
whole has a row, and the row has the code's limit.

    whole_reads.py ROOT
"""
import re
import sys
from pathlib import Path

READS = re.compile(r"\b(read_file|read_all|read_range|read_record|read_secret_file|check_readable)\(")
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# The file, the limit as the code spells it and in bytes (None: a limit that its caller gives), and words of the row.
PLACES = [
    ("modules/checkpoint/checking/file_content.cpp", None, None, "a stream that `verify` inspects"),
    ("modules/checkpoint/checking/pickle_scan.cpp", None, None, "a stream that `verify` inspects"),
    ("modules/checkpoint/recognition/consolidated_sizes.cpp", "{1} << 20", MIB, "the `params.json` of [Meta's folders]"),
    ("modules/checkpoint/recognition/megatron_folder.cpp", "4096)", 4096, "DeepSpeed's `latest`, Megatron's tracker"),
    ("modules/checkpoint_core/recorded_sums.cpp", "{1} << 32", 4 * GIB, "`.shardmesh_checksums`"),
    ("modules/collective_checkpoint/saving/rank_save.cpp", "1024)", 4096, "the mark of a save"),
    ("modules/dcp/folder_listing.cpp", None, None, "DCP's `.metadata`"),
    ("modules/dcp/item_checks.cpp", "{4} << 30", 4 * GIB, "archive that is copied"),
    ("modules/dcp/reader.cpp", None, None, "DCP's `.metadata`"),
    ("modules/deepspeed/folder.cpp", "longest_latest = 4096", 4096, "DeepSpeed's `latest`"),
    ("modules/deepspeed/parameter_files.cpp", "{1} << 28", 256 * MIB, "an object of a DeepSpeed folder"),
    ("modules/delta/open_delta.cpp", "limits().description_bytes", GIB, "the description of a [delta]"),
    ("modules/gguf/cursor.cpp", None, None, "the description of a GGUF file"),
    ("modules/mapping/llama_cpp/hf_folder.cpp", "{64} << 20", 64 * MIB, "the tokenizer of a model for llama.cpp"),
    ("modules/mapping/mapping_file.cpp", "{4} << 20", 4 * MIB, "a [mapping]"),
    ("modules/mapping/model_sizes.cpp", "{16} << 20", 16 * MIB, "a model's sizes for a mapping"),
    ("modules/nemo/reader.cpp", "16 << 20", 16 * MIB, "the settings in a `.nemo` file"),
    ("modules/npz/reader.cpp", "limits().description_bytes", GIB, "the objects of an `.npz` archive"),
    ("modules/npz/stored_array.cpp", "max_header_bytes", MIB, "the header of a NumPy array"),
    ("modules/remote/credentials/container_credentials.cpp", "{64} << 10", 64 * KIB, "another token"),
    ("modules/remote/credentials/sso_credentials.cpp", "{256} << 10", 256 * KIB, "the cached token of SSO"),
    ("modules/remote/credentials/sts.cpp", "{64} << 10", 64 * KIB, "another token"),
    ("modules/remote/settings/aws_profile.cpp", "{1} << 20", MIB, "an AWS configuration"),
    ("modules/remote/settings/hugging_face.cpp", "{64} << 10", 64 * KIB, "another token"),
    ("modules/remote/values/secret_file.cpp", None, None, "an AWS configuration"),
    ("modules/run/prune.cpp", "most_tracker_bytes = 4096", 4 * KIB, "Megatron's tracker"),
    ("modules/run/run_record.cpp", "{64} << 20", 64 * MIB, "the record of a [training run]"),
    ("modules/safetensors/header.cpp", "max_header_bytes", 100_000_000, "a safetensors header"),
    ("modules/safetensors/hf_index.cpp", "1'000'000'000", 1_000_000_000, "a Hugging Face index"),
    ("modules/safetensors/objects_file.cpp", "{4} << 30", 4 * GIB, "`objects.json`"),
    ("modules/safetensors/reader.cpp", "{4} << 30", 4 * GIB, "`objects.json`"),
    ("modules/state_checkpoint/flat_units.cpp", "{1} << 30", GIB, "a list of flat units"),
    ("modules/storage/destination/folder_rule.cpp", "{4} << 30", 4 * GIB, "`.shardmesh_checksums`"),
    ("modules/storage/source.cpp", None, None, ""),
    ("modules/storage/tar.cpp", "1 << 20", MIB, "a long name or the fields of pax"),
    ("modules/storage/zip/zip_record.cpp", None, None, "the directory of a ZIP archive"),
    ("modules/torch_checkpointing/folder_reader.cpp", None, None, "torch_checkpointing's metadata"),
    ("modules/torch_file/archive/checked_archive.cpp", None, None, "other pickles of an archive"),
    ("modules/torch_file/archive/item_reader.cpp", None, None, "a `data.pkl`"),
    ("modules/torch_file/archive/payload_reader.cpp", "{4} << 30", 4 * GIB, "archive that is copied"),
    ("modules/torch_file/archive/read_tensor.cpp", None, None, "a storage inside an object"),
    ("modules/torch_file/archive/spelled_pickle.cpp", None, None, "a bare or old-style pickle"),
    ("modules/torch_file/programs/exported_program.cpp", None, None, "weight lists of exported programs"),
    ("modules/torch_file/programs/script_archive.cpp", None, None, "TorchScript's class texts"),
    ("modules/torch_file/wrappers/wrapped_reader.cpp", None, None, "a storage inside an object"),
    ("modules/torchsnapshot/reader.cpp", None, None, "torchsnapshot's manifest"),
    ("tools/shardmesh/check_shards.cpp", "{4} << 30", 4 * GIB, "a JSON file of `check-shards`"),
]
# What is read in another way.
OTHERS = [
    ("modules/cuda/kernel_cache.cpp", "{64} << 20", 64 * MIB, "a compiled kernel"),
    ("modules/remote/credentials/credential_process.cpp", "{64} << 10", 64 * KIB, "the output of a credential process"),
    ("modules/remote/http_store.cpp", "64 << 20", 64 * MIB, "a listing of a web server"),
    ("modules/remote/hub/hf_hub.cpp", "64 << 20", 64 * MIB, "a listing of a web server or of the hub"),
    ("modules/remote/s3/s3_store.cpp", "16 << 20", 16 * MIB, "a page of a listing of S3"),
    ("modules/storage/stores/block_folder.cpp", None, None, "a block of the cache"),
    ("modules/storage/stores/cached_object.cpp", "1 << 20", MIB, "a block of the cache"),
]


def callers(root):
    """The bodies that read something whole."""
    for folder in ("modules", "tools/shardmesh", "bindings", "c_api"):
        for file in sorted((root / folder).rglob("*.cpp")):
            if READS.search(re.sub(r"//[^\n]*", "", file.read_text())):
                yield str(file.relative_to(root))


def shown(size):
    """The spellings of a limit in the tables."""
    names = [f"{size:,} bytes"]
    for unit, name in ((KIB, "KiB"), (MIB, "MiB"), (GIB, "GiB")):
        if size % unit == 0:
            names.append(f"{size // unit} {name}")
    return names


def rows_of(page):
    """The rows of the tables "read whole", as one text each."""
    rows = []
    for table in re.findall(r"^\| read whole \| limit \|\n\|[-|]+\|\n((?:\|[^\n]*\n)+)", page, re.M):
        rows += table.splitlines()
    return rows


def main():
    root, wrong = Path(sys.argv[1]).resolve(), []
    rows = rows_of((root / "docs/security.md").read_text())
    if len(rows) < 20:
        wrong.append(f"docs/security.md: the tables have {len(rows)} rows")
    found = set(callers(root))
    listed = {file for file, *_ in PLACES}
    wrong += [f"{file} reads something whole: add it to this script and to docs/security.md" for file in sorted(found - listed - {file for file, *_ in OTHERS})]
    wrong += [f"{file} no longer reads anything whole" for file in sorted(listed - found)]
    for file, spelled, size, words in PLACES + OTHERS:
        if spelled is not None and spelled not in (root / file).read_text():
            wrong.append(f"{file}: the limit is no longer {spelled}")
        row = next((row for row in rows if words in row), None)
        if row is None:
            wrong.append(f"docs/security.md has no row with '{words}', for {file}")
        elif size is not None and words and not any(text in row.split(" | ")[-1] for text in shown(size)):
            wrong.append(f"docs/security.md: the row '{words}' has no {' or '.join(shown(size))}, the limit of {file}")
    print("\n".join(wrong) if wrong else f"{len(found)} bodies read whole, and {len(rows)} rows say what and up to how many bytes")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
