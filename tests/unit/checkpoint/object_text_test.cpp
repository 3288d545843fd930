// SPDX-License-Identifier: Apache-2.0
// Tests the readable text of objects: the tags of objects.json become Python's notation.
#include <catch2/catch_test_macros.hpp>

#include <limits>
#include <string>

import shardmesh.checkpoint;

using namespace shardmesh;

TEST_CASE("a float is written with the shortest digits that read back as the same number") {
  CHECK(float_text(0.001) == "0.001");
  CHECK(float_text(1) == "1.0");
  CHECK(float_text(-0.0) == "-0.0");
  CHECK(float_text(100000) == "100000.0");
  CHECK(float_text(0.1 + 0.2) == "0.30000000000000004");
  CHECK(float_text(1e-7) == "1e-07");
  CHECK(float_text(1e22) == "1e+22");
  CHECK(float_text(std::numeric_limits<double>::infinity()) == "inf");
  CHECK(float_text(-std::numeric_limits<double>::quiet_NaN()) == "nan");
}

TEST_CASE("values are written as Python prints them") {
  CHECK(object_text(R"({"$float":"0x1.0624dd2f1a9fcp-10"})") == "0.001");
  CHECK(object_text(R"({"$float":"-inf"})") == "-inf");
  CHECK(object_text("null") == "None");
  CHECK(object_text("[true,false,null,-3,\"it's\"]") == R"([True, False, None, -3, 'it\'s'])");
  CHECK(object_text(R"({"$int":"12345678901234567890"})") == "12345678901234567890");
  CHECK(object_text(R"({"$tuple":[]})") == "()");
  CHECK(object_text(R"({"$tuple":[{"$float":"0x1.ccccccccccccdp-1"}]})") == "(0.9,)");
  CHECK(object_text(R"({"$tuple":[1,{"$tuple":[2,3]}]})") == "(1, (2, 3))");
  CHECK(object_text(R"({"$dict":[["lr",{"$float":"0x1.999999999999ap-4"}],[1,[2]],[{"$tuple":[1]},{"$dict":[]}]]})") ==
        "{'lr': 0.1, 1: [2], (1,): {}}");
  CHECK(object_text(R"({"a":1,"b":{}})") == "{'a': 1, 'b': {}}");
  CHECK(object_text(R"({"$odict":[["a",1]]})") == "OrderedDict({'a': 1})");
  CHECK(object_text(R"({"$set":[1,2]})") == "{1, 2}");
  CHECK(object_text(R"({"$frozenset":[1]})") == "frozenset({1})");
  CHECK(object_text(R"({"$size":[2,3]})") == "torch.Size([2, 3])");
  CHECK(object_text(R"({"$complex":["0x1.0000000000000p+0","-0x1.8000000000000p+1"]})") == "(1.0-3.0j)");
  CHECK(object_text(R"({"$complex":["0x1.0000000000000p+0","0x1.8000000000000p+1"]})") == "(1.0+3.0j)");
  CHECK(object_text(R"({"$dtype":"bfloat16"})") == "torch.bfloat16");
  CHECK(object_text(R"({"$device":"cuda:0"})") == "cuda:0");
  CHECK(object_text(R"({"$bytes":"6869ff1b"})") == R"(b'hi\xff\x1b')");
  CHECK(object_text(R"({"$other":"argparse.Namespace"})") == "<argparse.Namespace>");
  CHECK(object_text(R"([{"$other":"numpy.ndarray","dtype":"<f4","shape":[2],"data":"0000"},1])") ==
        "[<numpy.ndarray dtype='<f4' shape=[2]>, 1]");
  CHECK(object_text(R"([{"$ref":1}])") == "[...]");
  CHECK(object_text(R"({"$tensor":{"dtype":"float32","shape":[2]}})") == "tensor({'dtype': 'float32', 'shape': [2]})");
}

TEST_CASE("long values are cut, and nothing of them reaches a terminal unescaped") {
  std::string list = "[0";
  for (int i = 0; i < 100000; ++i) list += ",1";
  CHECK(object_text(list + "]") == "[0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,...");
  CHECK(object_text(std::string(300000, '[')).size() == 60);
  CHECK(object_text(R"("\u001b[31m\u202e\u009b")") == R"('\x1b[31m\xe2\x80\xae\xc2\x9b')");
  CHECK(object_text(R"({"$other":"a\nb"})") == R"(<a\nb>)");
  CHECK(object_text(R"("äääääää")", 10).size() <= 10);
}
