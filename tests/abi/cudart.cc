// Compiled against the CUDA headers of the installed wheel: our declarations must be theirs.
#include "vgpu/abi/cudart.h"

#include <cuda_runtime_api.h>

namespace abi = prism::abi;

#define SAME_SIZE(ours, theirs) static_assert(sizeof(abi::ours) == sizeof(theirs), #ours)
#define SAME_FIELD(ours, field, theirs, their_field)                           \
  static_assert(offsetof(abi::ours, field) == offsetof(theirs, their_field) && \
                    sizeof(abi::ours::field) == sizeof(theirs::their_field),   \
                #ours "." #field)
#define SAME_NUMBER(ours, theirs) \
  static_assert(static_cast<long>(abi::ours) == static_cast<long>(theirs), #ours)

static_assert(abi::cuda_version / 1000 == CUDART_VERSION / 1000);

SAME_NUMBER(success, cudaSuccess);
SAME_NUMBER(invalid_value, cudaErrorInvalidValue);
SAME_NUMBER(memory_allocation, cudaErrorMemoryAllocation);
SAME_NUMBER(invalid_configuration, cudaErrorInvalidConfiguration);
SAME_NUMBER(invalid_symbol, cudaErrorInvalidSymbol);
SAME_NUMBER(missing_configuration, cudaErrorMissingConfiguration);
SAME_NUMBER(invalid_device_function, cudaErrorInvalidDeviceFunction);
SAME_NUMBER(invalid_device, cudaErrorInvalidDevice);
SAME_NUMBER(invalid_resource_handle, cudaErrorInvalidResourceHandle);
SAME_NUMBER(not_ready, cudaErrorNotReady);
SAME_NUMBER(host_memory_already_registered, cudaErrorHostMemoryAlreadyRegistered);
SAME_NUMBER(host_memory_not_registered, cudaErrorHostMemoryNotRegistered);
SAME_NUMBER(not_supported, cudaErrorNotSupported);
SAME_NUMBER(unknown, cudaErrorUnknown);
SAME_NUMBER(unregistered, cudaMemoryTypeUnregistered);
SAME_NUMBER(host, cudaMemoryTypeHost);
SAME_NUMBER(device, cudaMemoryTypeDevice);
SAME_NUMBER(capture_none, cudaStreamCaptureStatusNone);
SAME_NUMBER(entry_point_found, cudaDriverEntryPointSuccess);
SAME_NUMBER(entry_point_missing, cudaDriverEntryPointSymbolNotFound);
SAME_NUMBER(stream_non_blocking, cudaStreamNonBlocking);
SAME_NUMBER(event_disable_timing, cudaEventDisableTiming);
SAME_NUMBER(pool_reuse_first, cudaMemPoolReuseFollowEventDependencies);
SAME_NUMBER(pool_reuse_last, cudaMemPoolReuseAllowInternalDependencies);
SAME_NUMBER(pool_release_threshold, cudaMemPoolAttrReleaseThreshold);
SAME_NUMBER(pool_reserved_current, cudaMemPoolAttrReservedMemCurrent);
SAME_NUMBER(pool_reserved_high, cudaMemPoolAttrReservedMemHigh);
SAME_NUMBER(pool_used_current, cudaMemPoolAttrUsedMemCurrent);
SAME_NUMBER(pool_used_high, cudaMemPoolAttrUsedMemHigh);

SAME_SIZE(Dim3, dim3);
SAME_SIZE(DeviceProperties, cudaDeviceProp);
SAME_SIZE(PointerAttributes, cudaPointerAttributes);
SAME_SIZE(FunctionAttributes, cudaFuncAttributes);
SAME_SIZE(LaunchConfig, cudaLaunchConfig_t);

#define PROPERTY(ours, theirs) SAME_FIELD(DeviceProperties, ours, cudaDeviceProp, theirs)
PROPERTY(name, name);
PROPERTY(uuid, uuid);
PROPERTY(luid, luid);
PROPERTY(total_memory, totalGlobalMem);
PROPERTY(shared_per_block, sharedMemPerBlock);
PROPERTY(registers_per_block, regsPerBlock);
PROPERTY(warp_size, warpSize);
PROPERTY(max_pitch, memPitch);
PROPERTY(max_threads_per_block, maxThreadsPerBlock);
PROPERTY(max_block, maxThreadsDim);
PROPERTY(max_grid, maxGridSize);
PROPERTY(constant_memory, totalConstMem);
PROPERTY(major, major);
PROPERTY(minor, minor);
PROPERTY(texture_alignment, textureAlignment);
PROPERTY(texture_pitch_alignment, texturePitchAlignment);
PROPERTY(sms, multiProcessorCount);
PROPERTY(integrated, integrated);
PROPERTY(can_map_host_memory, canMapHostMemory);
PROPERTY(surface_alignment, surfaceAlignment);
PROPERTY(concurrent_kernels, concurrentKernels);
PROPERTY(ecc, ECCEnabled);
PROPERTY(pci_bus, pciBusID);
PROPERTY(pci_device, pciDeviceID);
PROPERTY(pci_domain, pciDomainID);
PROPERTY(tcc_driver, tccDriver);
PROPERTY(copy_engines, asyncEngineCount);
PROPERTY(unified_addressing, unifiedAddressing);
PROPERTY(memory_bus_bits, memoryBusWidth);
PROPERTY(l2_bytes, l2CacheSize);
PROPERTY(persisting_l2_bytes, persistingL2CacheMaxSize);
PROPERTY(max_threads_per_sm, maxThreadsPerMultiProcessor);
PROPERTY(stream_priorities, streamPrioritiesSupported);
PROPERTY(global_l1, globalL1CacheSupported);
PROPERTY(local_l1, localL1CacheSupported);
PROPERTY(shared_per_sm, sharedMemPerMultiprocessor);
PROPERTY(registers_per_sm, regsPerMultiprocessor);
PROPERTY(managed_memory, managedMemory);
PROPERTY(multi_gpu_board, isMultiGpuBoard);
PROPERTY(multi_gpu_board_group, multiGpuBoardGroupID);
PROPERTY(host_atomics, hostNativeAtomicSupported);
PROPERTY(pageable_access, pageableMemoryAccess);
PROPERTY(concurrent_managed_access, concurrentManagedAccess);
PROPERTY(compute_preemption, computePreemptionSupported);
PROPERTY(host_pointer_for_registered, canUseHostPointerForRegisteredMem);
PROPERTY(cooperative_launch, cooperativeLaunch);
PROPERTY(shared_per_block_optin, sharedMemPerBlockOptin);
PROPERTY(max_blocks_per_sm, maxBlocksPerMultiProcessor);
PROPERTY(access_policy_window, accessPolicyMaxWindowSize);
PROPERTY(reserved_shared_per_block, reservedSharedMemPerBlock);
PROPERTY(host_register, hostRegisterSupported);
PROPERTY(memory_pools, memoryPoolsSupported);
PROPERTY(pool_handle_types, memoryPoolSupportedHandleTypes);
PROPERTY(deferred_mapping, deferredMappingCudaArraySupported);
PROPERTY(ipc_events, ipcEventSupported);
PROPERTY(cluster_launch, clusterLaunch);

SAME_FIELD(PointerAttributes, type, cudaPointerAttributes, type);
SAME_FIELD(PointerAttributes, device, cudaPointerAttributes, device);
SAME_FIELD(PointerAttributes, device_pointer, cudaPointerAttributes, devicePointer);
SAME_FIELD(PointerAttributes, host_pointer, cudaPointerAttributes, hostPointer);

SAME_FIELD(FunctionAttributes, shared_bytes, cudaFuncAttributes, sharedSizeBytes);
SAME_FIELD(FunctionAttributes, constant_bytes, cudaFuncAttributes, constSizeBytes);
SAME_FIELD(FunctionAttributes, local_bytes, cudaFuncAttributes, localSizeBytes);
SAME_FIELD(FunctionAttributes, max_threads_per_block, cudaFuncAttributes, maxThreadsPerBlock);
SAME_FIELD(FunctionAttributes, registers, cudaFuncAttributes, numRegs);
SAME_FIELD(FunctionAttributes, ptx_version, cudaFuncAttributes, ptxVersion);
SAME_FIELD(FunctionAttributes, binary_version, cudaFuncAttributes, binaryVersion);
SAME_FIELD(FunctionAttributes, cache_mode, cudaFuncAttributes, cacheModeCA);
SAME_FIELD(FunctionAttributes, max_dynamic_shared_bytes, cudaFuncAttributes,
           maxDynamicSharedSizeBytes);
SAME_FIELD(FunctionAttributes, shared_carveout, cudaFuncAttributes, preferredShmemCarveout);

SAME_FIELD(LaunchConfig, grid, cudaLaunchConfig_t, gridDim);
SAME_FIELD(LaunchConfig, block, cudaLaunchConfig_t, blockDim);
SAME_FIELD(LaunchConfig, shared_bytes, cudaLaunchConfig_t, dynamicSmemBytes);
SAME_FIELD(LaunchConfig, stream, cudaLaunchConfig_t, stream);
SAME_FIELD(LaunchConfig, attributes, cudaLaunchConfig_t, attrs);
SAME_FIELD(LaunchConfig, num_attributes, cudaLaunchConfig_t, numAttrs);

#define SAME_ATTRIBUTE(ours, theirs) SAME_NUMBER(attribute::ours, cudaDevAttr##theirs)
SAME_ATTRIBUTE(max_threads_per_block, MaxThreadsPerBlock);
SAME_ATTRIBUTE(max_block_x, MaxBlockDimX);
SAME_ATTRIBUTE(max_block_y, MaxBlockDimY);
SAME_ATTRIBUTE(max_block_z, MaxBlockDimZ);
SAME_ATTRIBUTE(max_grid_x, MaxGridDimX);
SAME_ATTRIBUTE(max_grid_y, MaxGridDimY);
SAME_ATTRIBUTE(max_grid_z, MaxGridDimZ);
SAME_ATTRIBUTE(shared_per_block, MaxSharedMemoryPerBlock);
SAME_ATTRIBUTE(constant_memory, TotalConstantMemory);
SAME_ATTRIBUTE(warp_size, WarpSize);
SAME_ATTRIBUTE(max_pitch, MaxPitch);
SAME_ATTRIBUTE(registers_per_block, MaxRegistersPerBlock);
SAME_ATTRIBUTE(clock_khz, ClockRate);
SAME_ATTRIBUTE(texture_alignment, TextureAlignment);
SAME_ATTRIBUTE(overlap, GpuOverlap);
SAME_ATTRIBUTE(sms, MultiProcessorCount);
SAME_ATTRIBUTE(can_map_host_memory, CanMapHostMemory);
SAME_ATTRIBUTE(concurrent_kernels, ConcurrentKernels);
SAME_ATTRIBUTE(ecc, EccEnabled);
SAME_ATTRIBUTE(pci_bus, PciBusId);
SAME_ATTRIBUTE(memory_clock_khz, MemoryClockRate);
SAME_ATTRIBUTE(memory_bus_bits, GlobalMemoryBusWidth);
SAME_ATTRIBUTE(l2_bytes, L2CacheSize);
SAME_ATTRIBUTE(max_threads_per_sm, MaxThreadsPerMultiProcessor);
SAME_ATTRIBUTE(copy_engines, AsyncEngineCount);
SAME_ATTRIBUTE(unified_addressing, UnifiedAddressing);
SAME_ATTRIBUTE(major, ComputeCapabilityMajor);
SAME_ATTRIBUTE(minor, ComputeCapabilityMinor);
SAME_ATTRIBUTE(stream_priorities, StreamPrioritiesSupported);
SAME_ATTRIBUTE(global_l1, GlobalL1CacheSupported);
SAME_ATTRIBUTE(local_l1, LocalL1CacheSupported);
SAME_ATTRIBUTE(shared_per_sm, MaxSharedMemoryPerMultiprocessor);
SAME_ATTRIBUTE(registers_per_sm, MaxRegistersPerMultiprocessor);
SAME_ATTRIBUTE(single_to_double, SingleToDoublePrecisionPerfRatio);
SAME_ATTRIBUTE(compute_preemption, ComputePreemptionSupported);
SAME_ATTRIBUTE(cooperative_launch, CooperativeLaunch);
SAME_ATTRIBUTE(shared_per_block_optin, MaxSharedMemoryPerBlockOptin);
SAME_ATTRIBUTE(host_register, HostRegisterSupported);
SAME_ATTRIBUTE(max_blocks_per_sm, MaxBlocksPerMultiprocessor);
SAME_ATTRIBUTE(reserved_shared_per_block, ReservedSharedMemoryPerBlock);
SAME_ATTRIBUTE(memory_pools, MemoryPoolsSupported);
SAME_ATTRIBUTE(cluster_launch, ClusterLaunch);
