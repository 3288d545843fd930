#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Rewrites a DCP folder so that PyTorch versions before 2.15 load it, too. Usage: older_pytorch.sh CHECKPOINT NEW
set -euo pipefail
shardmesh convert "$1" "$2" --to dcp
shardmesh diff "$1" "$2"
