#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Examines a checkpoint from an untrusted source, and keeps only its weights. Runs nothing in it.
# Usage: untrusted.sh CHECKPOINT WEIGHTS.safetensors
set -euo pipefail
shardmesh inspect "$1" --limit 5                 # its entries, and the number of names in its pickles
shardmesh verify "$1" --strict                   # exits with 1 for damage, and for unknown or dangerous names
shardmesh convert "$1" "$2" --skip-objects       # tensors only; safetensors files have no pickle
