// SPDX-License-Identifier: Apache-2.0
// Not exported: the opcodes that `writer` emits.
module shardmesh.pickle:written_opcode;

import shardmesh.std;

namespace shardmesh::pickle::op {

inline constexpr std::uint8_t mark = '(', stop = '.', pop = '0', pop_mark = '1', none = 'N', binint = 'J',
                              binint1 = 'K', binint2 = 'M', long1 = 0x8a, binfloat = 'G', newtrue = 0x88,
                              newfalse = 0x89, short_text = 0x8c, text = 'X', text8 = 0x8d, short_bytes = 'C',
                              bytes = 'B', bytes8 = 0x8e, bytearray8 = 0x96, empty_tuple = ')', tuple1 = 0x85,
                              tuple = 't', empty_list = ']', appends = 'e', empty_dict = '}', setitems = 'u',
                              empty_set = 0x8f, additems = 0x90, frozenset = 0x91, reduce = 'R', newobj = 0x81,
                              newobj_ex = 0x92, build = 'b', obj = 'o', binpersid = 'Q', binget = 'h',
                              long_binget = 'j', binput = 'q', long_binput = 'r', tuple2 = 0x86, tuple3 = 0x87,
                              global = 'c', memoize = 0x94, stack_global = 0x93, proto = 0x80, ext1 = 0x82, ext2 = 0x83,
                              ext4 = 0x84;

}  // namespace shardmesh::pickle::op
