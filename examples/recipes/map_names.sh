#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes a checkpoint as bfloat16 safetensors under another naming convention, by the rules of a TOML file.
# Usage: map_names.sh CHECKPOINT MAPPING.toml NEW.safetensors
set -euo pipefail
shardmesh map check "$1" --map "$2"  # every tensor has a rule, and every shape fits
shardmesh convert "$1" "$3" --map "$2" --dtype bfloat16
shardmesh inspect "$3"
