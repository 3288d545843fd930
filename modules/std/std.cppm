// SPDX-License-Identifier: Apache-2.0
// shardmesh.std: the parts of the standard library that interface units use, as one module, until every standard
// library that we support has `import std`. Interface units import this module and include no standard header. A unit
// that includes <vector> carries a copy of its declarations, and each importer compares that copy with all others. With
// two hundred units, that took more than half of the build time. Add names that are missing here. Implementation units
// and tests include the headers that they use; both kinds of declarations are the same entities.
export module shardmesh.std;

export import :containers;
export import :values;
