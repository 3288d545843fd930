// SPDX-License-Identifier: Apache-2.0
// libcudart's calls about errors: texts, and the last error of each thread.
#include "streams.hpp"

#include <utility>

using namespace gpu_double;

namespace {

struct error_words {
  const char* name;
  const char* text;
};

error_words words_of(int error) {
  switch (error) {
    case 0:
      return {"cudaSuccess", "no error"};
    case 1:
      return {"cudaErrorInvalidValue", "invalid argument"};
    case 2:
      return {"cudaErrorMemoryAllocation", "out of memory"};
    case 12:
      return {"cudaErrorInvalidPitchValue", "invalid pitch argument"};
    case 17:
      return {"cudaErrorInvalidDevicePointer", "invalid device pointer"};
    case 21:
      return {"cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"};
    case 35:
      return {"cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"};
    case 46:
      return {"cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"};
    case 100:
      return {"cudaErrorNoDevice", "no CUDA-capable device is detected"};
    case 101:
      return {"cudaErrorInvalidDevice", "invalid device ordinal"};
    case 200:
      return {"cudaErrorInvalidKernelImage", "device kernel image is invalid"};
    case 400:
      return {"cudaErrorInvalidResourceHandle", "invalid resource handle"};
    case 500:
      return {"cudaErrorSymbolNotFound", "named symbol not found"};
    case 600:
      return {"cudaErrorNotReady", "device not ready"};
    case 700:
      return {"cudaErrorIllegalAddress", "an illegal memory access was encountered"};
    case 702:
      return {"cudaErrorLaunchTimeout", "the launch timed out and was terminated"};
    case 704:
      return {"cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"};
    case 705:
      return {"cudaErrorPeerAccessNotEnabled", "peer access has not been enabled"};
    case 712:
      return {"cudaErrorHostMemoryAlreadyRegistered", "part or all of the requested memory range is already mapped"};
    case 713:
      return {"cudaErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region"};
    case 719:
      return {"cudaErrorLaunchFailure", "unspecified launch failure"};
    case 800:
      return {"cudaErrorNotPermitted", "operation not permitted"};
    case 801:
      return {"cudaErrorNotSupported", "operation not supported"};
    case 999:
      return {"cudaErrorUnknown", "unknown error"};
    default:
      return {"unrecognized error code", "unrecognized error code"};
  }
}

}  // namespace

const char* cudaGetErrorString(int error) {
  return words_of(error).text;
}

const char* cudaGetErrorName(int error) {
  return words_of(error).name;
}

int cudaGetLastError() {
  return std::exchange(last_error(), 0);
}

int cudaPeekAtLastError() {
  return last_error();
}
