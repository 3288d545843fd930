module;
#include <memory>
module shardmesh.layout;
namespace shardmesh {}
