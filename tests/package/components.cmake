# SPDX-License-Identifier: Apache-2.0
# Run by ctest: tests each component alone, in a consumer that may look for nothing except the packages listed here.
set(base "core;std")
set(cut "${base};digest;layout")
set(moved "${cut};comm;kernels;transfer")
set(sums "ISAL;OpenSSL;Threads;fmt;xxHash")
set(files "${sums};RE2;ZLIB;zstd")
set(
  formats
  "${moved};checkpoint;checkpoint_core;dcp;deepspeed;gguf;nemo;npz;pickle;safetensors;storage;torch_checkpointing;torch_file;torchsnapshot;tree"
)
set(everything "${formats};collective_checkpoint;draw;fsdp;sharding;shardmesh;state;state_checkpoint")

function(expect components packages targets)
  if(NOT "${components}" STREQUAL "" AND NOT "${components}" IN_LIST BUILT)
    message(STATUS "skipped: this build has no component ${components}")
    return()
  endif()
  set(
    forbidden
    fmt
    nlohmann_json
    TomlPlusPlus
    range-v3
    simdjson
    ZLIB
    zstd
    OpenSSL
    xxHash
    ISAL
    RE2
    CURL
    pugixml
    MPIC
    Kokkos
    LibTorch
    CLI11
    Threads
  )
  set(arguments)
  foreach(package IN LISTS forbidden)
    list(FIND packages ${package} at)
    if(at EQUAL -1)
      list(APPEND arguments -DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
    endif()
  endforeach()
  execute_process(
    COMMAND
      ${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD} -G Ninja -DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM} -DCMAKE_CXX_COMPILER=${COMPILER}
      -DCMAKE_PREFIX_PATH=${PREFIX} -UCMAKE_DISABLE_FIND_PACKAGE_* "-DCOMPONENTS=${components}" ${arguments} ${ARGS}
    RESULT_VARIABLE status
    OUTPUT_VARIABLE text
    ERROR_VARIABLE text
  )
  list(SORT packages)
  list(SORT targets)
  set(wanted "answer: [${packages}] [${targets}]")
  string(FIND "${text}" "${wanted}\n" at)
  if(NOT status EQUAL 0 OR at EQUAL -1)
    message("${text}")
    message(FATAL_ERROR "components '${components}': status ${status}, expected ${wanted}")
  endif()
endfunction()

file(REMOVE_RECURSE ${BUILD})
expect("" "${files}" "${everything};conformance")
expect(shardmesh "${files}" "${everything}")
expect(std "" "std")
expect(core "Threads;fmt" "${base}")
expect(digest "ISAL;OpenSSL;fmt;xxHash" "std;digest")
expect(tree "Threads;fmt" "${base};tree")
expect(pickle "Threads;fmt" "${base};pickle")
expect(kernels "Threads;fmt" "${base};kernels")
expect(layout "${sums}" "${cut}")
expect(transfer "${sums}" "${moved}")
expect(conformance "${sums}" "${cut};comm;kernels;conformance")
expect(state "${sums}" "${moved};sharding;state;tree")
expect(storage "${files}" "${base};digest;storage")
expect(checkpoint "${files}" "${formats}")
expect(mapping "${files}" "${formats};collective_checkpoint;mapping")
expect(run "${files}" "${formats};collective_checkpoint;run")
expect(remote "${files};pugixml" "${base};digest;remote;storage")
expect(replicas "${files}" "${formats};collective_checkpoint;replicas;run")
expect(delta "${files}" "${formats};delta")
expect(simulation "${sums}" "${cut};comm;kernels;simulation")
expect(tools "" "tool")
expect(c_api "" "c_api")
expect(shared_memory "${sums}" "${cut};comm;kernels;shared_memory")
expect(cuda_kernels "" "cuda_kernels")
expect(cuda "${sums}" "${base};digest;cuda;kernels")
expect(nccl "${sums}" "${cut};comm;kernels;cuda;nccl")
expect(devices "${sums}" "${cut};comm;kernels;cuda;nccl;devices")
expect(mpi "${sums};MPIC" "${cut};comm;kernels;mpi")
expect(kokkos "Threads;fmt;Kokkos" "${base};kernels;kokkos")
expect(torch "${files};LibTorch" "${formats};collective_checkpoint;sharding;state;torch")
