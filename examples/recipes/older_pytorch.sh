#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Rewrites a DCP folder so that PyTorch before version 2.15 also loads it. Usage: older_pytorch.sh CHECKPOINT NEW
set -euo pipefail
shardmesh convert "$1" "$2" --to dcp
shardmesh diff "$1" "$2"
