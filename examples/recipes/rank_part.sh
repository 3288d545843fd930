#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes a checkpoint for a mesh of 3: each rank's rows in a file of its own. Usage: rank_part.sh CHECKPOINT NEW
set -euo pipefail
shardmesh reshard "$1" "$2" --mesh 3 --place '.*=S(0)'
shardmesh inspect "$2" --map --only 'model\..*' --limit 2
shardmesh diff "$1" "$2"
