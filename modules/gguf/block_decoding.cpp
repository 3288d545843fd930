// SPDX-License-Identifier: Apache-2.0
module;
#include <cstdint>
module shardmesh.gguf;

import :block_decoding;

namespace shardmesh::gguf {

block_decoder decoder_of(tensor_type type) {
  switch (type) {
    case tensor_type::q4_0:
      return decode_q4_0;
    case tensor_type::q4_1:
      return decode_q4_1;
    case tensor_type::q5_0:
      return decode_q5_0;
    case tensor_type::q5_1:
      return decode_q5_1;
    case tensor_type::q8_0:
      return decode_q8_0;
    case tensor_type::q2_k:
      return decode_q2_k;
    case tensor_type::q3_k:
      return decode_q3_k;
    case tensor_type::q4_k:
      return decode_q4_k;
    case tensor_type::q5_k:
      return decode_q5_k;
    case tensor_type::q6_k:
      return decode_q6_k;
    case tensor_type::tq1_0:
      return decode_tq1_0;
    case tensor_type::tq2_0:
      return decode_tq2_0;
    case tensor_type::iq4_nl:
      return decode_iq4_nl;
    case tensor_type::iq4_xs:
      return decode_iq4_xs;
    case tensor_type::mxfp4:
      return decode_mxfp4;
    case tensor_type::nvfp4:
      return decode_nvfp4;
    default:
      return nullptr;
  }
}

}  // namespace shardmesh::gguf
