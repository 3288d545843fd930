#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes a model as bfloat16 safetensors under shorter names, without optimizer state.
# Usage: rename_and_cast.sh CHECKPOINT NEW.safetensors
set -euo pipefail
shardmesh convert "$1" "$2" --no-optimizer --rename 'model\.(.*)=\1' --dtype bfloat16
shardmesh inspect "$2"
