// SPDX-License-Identifier: Apache-2.0
module;
#include <string_view>
module shardmesh.pickle;

import :opcode;

namespace shardmesh::pickle {

std::string_view opcode_name(unsigned char opcode) {
  struct named {
    char opcode;
    std::string_view name;
  };
  static constexpr named names[] = {{'(', "MARK"},
                                    {'.', "STOP"},
                                    {'0', "POP"},
                                    {'1', "POP_MARK"},
                                    {'2', "DUP"},
                                    {'F', "FLOAT"},
                                    {'I', "INT"},
                                    {'J', "BININT"},
                                    {'K', "BININT1"},
                                    {'L', "LONG"},
                                    {'M', "BININT2"},
                                    {'N', "NONE"},
                                    {'P', "PERSID"},
                                    {'Q', "BINPERSID"},
                                    {'R', "REDUCE"},
                                    {'S', "STRING"},
                                    {'T', "BINSTRING"},
                                    {'U', "SHORT_BINSTRING"},
                                    {'V', "UNICODE"},
                                    {'X', "BINUNICODE"},
                                    {'a', "APPEND"},
                                    {'b', "BUILD"},
                                    {'c', "GLOBAL"},
                                    {'d', "DICT"},
                                    {'}', "EMPTY_DICT"},
                                    {'e', "APPENDS"},
                                    {'g', "GET"},
                                    {'h', "BINGET"},
                                    {'i', "INST"},
                                    {'j', "LONG_BINGET"},
                                    {'l', "LIST"},
                                    {']', "EMPTY_LIST"},
                                    {'o', "OBJ"},
                                    {'p', "PUT"},
                                    {'q', "BINPUT"},
                                    {'r', "LONG_BINPUT"},
                                    {'s', "SETITEM"},
                                    {'t', "TUPLE"},
                                    {')', "EMPTY_TUPLE"},
                                    {'u', "SETITEMS"},
                                    {'G', "BINFLOAT"},
                                    {'B', "BINBYTES"},
                                    {'C', "SHORT_BINBYTES"},
                                    {'\x80', "PROTO"},
                                    {'\x81', "NEWOBJ"},
                                    {'\x82', "EXT1"},
                                    {'\x83', "EXT2"},
                                    {'\x84', "EXT4"},
                                    {'\x85', "TUPLE1"},
                                    {'\x86', "TUPLE2"},
                                    {'\x87', "TUPLE3"},
                                    {'\x88', "NEWTRUE"},
                                    {'\x89', "NEWFALSE"},
                                    {'\x8a', "LONG1"},
                                    {'\x8b', "LONG4"},
                                    {'\x8c', "SHORT_BINUNICODE"},
                                    {'\x8d', "BINUNICODE8"},
                                    {'\x8e', "BINBYTES8"},
                                    {'\x8f', "EMPTY_SET"},
                                    {'\x90', "ADDITEMS"},
                                    {'\x91', "FROZENSET"},
                                    {'\x92', "NEWOBJ_EX"},
                                    {'\x93', "STACK_GLOBAL"},
                                    {'\x94', "MEMOIZE"},
                                    {'\x95', "FRAME"},
                                    {'\x96', "BYTEARRAY8"},
                                    {'\x97', "NEXT_BUFFER"},
                                    {'\x98', "READONLY_BUFFER"}};
  for (const named& entry : names)
    if (static_cast<unsigned char>(entry.opcode) == opcode) return entry.name;
  return "an unknown opcode";
}

}  // namespace shardmesh::pickle
