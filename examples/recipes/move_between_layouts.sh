#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows what ranks would send each other, before a program exists: 4 ranks with rows, then a 2 x 2 mesh with columns.
set -euo pipefail
shardmesh plan --shape 10,7 --from-mesh 4 --from 'S(0)' --to-mesh 2,2 --to 'S(1),R'
shardmesh layout --shape 10,7 --mesh 2,2 --place 'S(1),R'
