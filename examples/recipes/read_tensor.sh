#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows one tensor of a checkpoint: its dtype, its shape, and the place of its bytes.
# Usage: read_tensor.sh CHECKPOINT KEY
set -euo pipefail
shardmesh inspect "$1" --key "$2"
shardmesh inspect "$1" --key "$2" --json
