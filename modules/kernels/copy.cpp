module shardmesh.kernels;
namespace shardmesh {}
