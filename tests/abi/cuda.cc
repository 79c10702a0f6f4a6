// Compiled against the CUDA headers of the installed wheel: our declarations must be theirs.
#include <cuda.h>

#include <cstddef>

#include "vgpu/abi/cudart.h"
#include "vgpu/abi/driver.h"

namespace driver = prism::abi::driver;

#define SAME_NUMBER(ours, theirs) \
  static_assert(static_cast<long>(ours) == static_cast<long>(theirs), #ours)
#define SAME_FIELD(ours, field, theirs, their_field) \
  static_assert(offsetof(driver::ours, field) == offsetof(theirs, their_field), #ours "." #field)

SAME_NUMBER(driver::success, CUDA_SUCCESS);
SAME_NUMBER(driver::invalid_value, CUDA_ERROR_INVALID_VALUE);
SAME_NUMBER(driver::out_of_memory, CUDA_ERROR_OUT_OF_MEMORY);
SAME_NUMBER(driver::invalid_device, CUDA_ERROR_INVALID_DEVICE);
SAME_NUMBER(driver::invalid_context, CUDA_ERROR_INVALID_CONTEXT);
SAME_NUMBER(driver::invalid_handle, CUDA_ERROR_INVALID_HANDLE);
SAME_NUMBER(driver::not_found, CUDA_ERROR_NOT_FOUND);
SAME_NUMBER(driver::not_ready, CUDA_ERROR_NOT_READY);
SAME_NUMBER(driver::not_supported, CUDA_ERROR_NOT_SUPPORTED);

SAME_NUMBER(driver::pointer_memory_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME_NUMBER(driver::pointer_device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
SAME_NUMBER(driver::pointer_host, CU_POINTER_ATTRIBUTE_HOST_POINTER);
SAME_NUMBER(driver::pointer_is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME_NUMBER(driver::pointer_device_ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME_NUMBER(driver::pointer_range_start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
SAME_NUMBER(driver::pointer_range_size, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
SAME_NUMBER(driver::memory_host, CU_MEMORYTYPE_HOST);
SAME_NUMBER(driver::memory_device, CU_MEMORYTYPE_DEVICE);

SAME_NUMBER(driver::function_max_threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME_NUMBER(driver::function_registers, CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME_NUMBER(driver::function_ptx_version, CU_FUNC_ATTRIBUTE_PTX_VERSION);
SAME_NUMBER(driver::function_binary_version, CU_FUNC_ATTRIBUTE_BINARY_VERSION);
SAME_NUMBER(driver::function_max_dynamic_shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);

SAME_NUMBER(prism::abi::attribute::virtual_memory,
            CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME_NUMBER(prism::abi::attribute::sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_NUMBER(prism::abi::attribute::cluster_launch, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH);

static_assert(sizeof(driver::AllocationProperties) == sizeof(CUmemAllocationProp));
SAME_FIELD(AllocationProperties, type, CUmemAllocationProp, type);
SAME_FIELD(AllocationProperties, location_type, CUmemAllocationProp, location.type);
SAME_FIELD(AllocationProperties, location_id, CUmemAllocationProp, location.id);

static_assert(sizeof(driver::LaunchConfig) == sizeof(CUlaunchConfig));
SAME_FIELD(LaunchConfig, grid, CUlaunchConfig, gridDimX);
SAME_FIELD(LaunchConfig, block, CUlaunchConfig, blockDimX);
SAME_FIELD(LaunchConfig, shared_bytes, CUlaunchConfig, sharedMemBytes);
SAME_FIELD(LaunchConfig, stream, CUlaunchConfig, hStream);
SAME_FIELD(LaunchConfig, attributes, CUlaunchConfig, attrs);
SAME_FIELD(LaunchConfig, num_attributes, CUlaunchConfig, numAttrs);
