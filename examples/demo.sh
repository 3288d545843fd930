#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The demonstration behind `./dev demo`: inspects, verifies, reshards, converts, and compares one checkpoint that
# PyTorch wrote on four ranks (FSDP2 and tensor parallel, with Adam). Usage: demo.sh PROJECT_ROOT, with shardmesh on the
# PATH.
set -euo pipefail
root=$1
work=$root/build/demo
rm -rf "$work"
mkdir -p "$work"
cp -rp "$root/tests/data/golden/fsdp2_tp_2x2/checkpoint" "$work/trained-2x2"
touch "$work/trained-2x2/.metadata" # git keeps no times; PyTorch writes the metadata last
cd "$work"

show() { # prints the command and its output, and keeps the output for the summary
  printf '\n$ shardmesh %s\n' "$*"
  shardmesh "$@" 2>&1 | tee "output-$1.txt"
}

show inspect trained-2x2 --limit 12
cp output-inspect.txt summary-source.txt
show verify trained-2x2
show inspect trained-2x2 --map --only 'model\..*' --limit 6
show reshard trained-2x2 resharded-3 --mesh 3 --place '.*=S(0)'
cp output-reshard.txt summary-reshard.txt
show verify resharded-3
show diff trained-2x2 resharded-3
cp output-diff.txt summary-diff-reshard.txt
show convert resharded-3 model.safetensors
show diff trained-2x2 model.safetensors

count() { find "$1" -name "$2" | wc -l; }
bytes() { du -sb "$1" | cut -f1; }
printf '\nWhat happened:\n'
printf '1. PyTorch had left %s files (%s bytes) of a model on a 2x2 mesh; inspect: %s\n' "$(count trained-2x2 '__*')" \
  "$(bytes trained-2x2)" "$(grep -m1 -i tensors summary-source.txt | sed 's/^ *//')"
printf '2. verify read every chunk: %s\n' "$(tail -n 1 output-verify.txt)"
printf '3. reshard wrote the same state for 3 ranks: %s files, %s bytes\n' "$(count resharded-3 '__*')" "$(bytes resharded-3)"
printf '4. diff of both, bit for bit: %s\n' "$(tail -n 1 summary-diff-reshard.txt)"
printf '5. convert wrote model.safetensors (%s bytes); diff against the original: %s\n' "$(stat -c %s model.safetensors)" \
  "$(tail -n 1 output-diff.txt)"
