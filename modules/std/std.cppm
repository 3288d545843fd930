// SPDX-License-Identifier: Apache-2.0
// shardmesh.std: the parts of the standard library that interface units use, as one module, until every standard
// library that we support has `import std`. Interface units import this and include no standard header: a unit that
// includes <vector> carries a copy of its declarations, which each of its importers compares with all the other copies;
// with two hundred units that was more than half of the time of a build. A name that is missing here is to be added.
// Implementation units and tests include what they use: their declarations and these are the same entities.
export module shardmesh.std;

export import :containers;
export import :values;
