#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes a checkpoint of any format in four formats, and compares each with the source.
# Usage: convert_formats.sh CHECKPOINT
set -euo pipefail
for format in dcp safetensors hf pt; do
  shardmesh convert "$1" "copy.$format" --to "$format"
  shardmesh diff "$1" "copy.$format"
done
