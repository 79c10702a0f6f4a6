// Own declarations of what is read of CUPTI's activity API, version 13: prefixes of the record
// versions that it hands over (later ones append fields), numbers and signatures. Checked against
// the wheel's headers by tests/python/test_cupti_abi.py.
#pragma once

#include <cstddef>
#include <cstdint>

namespace prism::device::cupti::abi {

inline constexpr std::uint32_t least_version = 130000;

// Results
inline constexpr int success = 0;
inline constexpr int invalid_operation = 7;
inline constexpr int max_limit_reached = 12;  // no more records in a buffer
inline constexpr int not_compatible = 14;
inline constexpr int not_initialized = 15;
inline constexpr int invalid_kind = 21;  // a record is incomplete
inline constexpr int virtualized_device = 33;
inline constexpr int insufficient_privileges = 35;
inline constexpr int old_profiler_in_use = 36;
inline constexpr int other_subscriber = 39;

enum class Kind : std::uint32_t {
  memcpy = 1,
  memset = 2,
  driver = 4,
  runtime = 5,
  concurrent_kernel = 10,
  peer_memcpy = 22,
  cuda_event = 36,
  stream = 37,
  synchronization = 38,
  memory = 49,  // CUPTI_ACTIVITY_KIND_MEMORY2
};

inline constexpr std::uint32_t flush_forced = 1;
inline constexpr int thread_id_default = 0;
inline constexpr int thread_id_system = 1;
inline constexpr std::uint32_t invalid_value = 0xffffffff;  // of synchronisations: not applicable

enum class CopyKind : std::uint8_t {
  host_to_device = 1,
  device_to_host = 2,
  host_to_array = 3,
  array_to_host = 4,
  device_to_device = 8,
  host_to_host = 9,
};
inline constexpr std::uint8_t memory_pageable = 1;
inline constexpr std::uint32_t memory_device = 3;

enum class SyncType : std::uint32_t {
  event = 1,
  stream_wait = 2,
  stream = 3,
  context = 4,
};
enum class StreamFlag : std::uint32_t { blocking = 1, non_blocking = 2, null = 3 };
enum class MemoryOperation : std::uint32_t { allocation = 1, release = 2 };

struct Record {
  Kind kind;
};

struct Kernel {  // CUpti_ActivityKernel10
  Kind kind;
  std::uint8_t cache_config;
  std::uint8_t shared_config;
  std::uint16_t registers;
  std::uint32_t partitioned_requested;
  std::uint32_t partitioned_executed;
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t completed;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::int32_t grid[3];
  std::int32_t block[3];
  std::int32_t static_shared_bytes;
  std::int32_t dynamic_shared_bytes;
  std::uint32_t local_per_thread;
  std::uint32_t local_total;
  std::uint32_t correlation;
  std::int64_t grid_id;
  const char* name;
  void* reserved;
  std::uint64_t queued;
  std::uint64_t submitted;
  std::uint8_t launch_type;
  std::uint8_t carveout_requested;
  std::uint8_t carveout;
  std::uint8_t padding;
  std::uint32_t shared_executed;
  std::uint64_t graph_node;
  std::uint32_t shared_limit;
  std::uint32_t graph;
};

struct Memcpy {  // CUpti_ActivityMemcpy6
  Kind kind;
  CopyKind copy_kind;
  std::uint8_t source;
  std::uint8_t destination;
  std::uint8_t flags;
  std::uint64_t bytes;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint32_t correlation;
  std::uint32_t runtime_correlation;
  std::uint32_t padding;
  void* reserved;
  std::uint64_t graph_node;
  std::uint32_t graph;
};

struct PeerMemcpy {  // CUpti_ActivityMemcpyPtoP4
  Kind kind;
  CopyKind copy_kind;
  std::uint8_t source;
  std::uint8_t destination;
  std::uint8_t flags;
  std::uint64_t bytes;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint32_t source_device;
  std::uint32_t source_context;
  std::uint32_t destination_device;
  std::uint32_t destination_context;
  std::uint32_t correlation;
  void* reserved;
  std::uint64_t graph_node;
  std::uint32_t graph;
};

struct Memset {  // CUpti_ActivityMemset4
  Kind kind;
  std::uint32_t value;
  std::uint64_t bytes;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint32_t correlation;
  std::uint16_t flags;
  std::uint16_t memory_kind;
  std::uint32_t padding;
  void* reserved;
  std::uint64_t graph_node;
  std::uint32_t graph;
};

struct Api {  // CUpti_ActivityAPI: calls of the runtime and of the driver
  Kind kind;
  std::uint32_t callback;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t process;
  std::uint32_t thread;
  std::uint32_t correlation;
  std::uint32_t result;
};

struct Synchronization {  // CUpti_ActivitySynchronization2
  Kind kind;
  SyncType type;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t correlation;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint32_t event;
  std::uint64_t event_sync;  // which record of the event: that of a CudaEvent with the same
  std::uint32_t result;
};

struct CudaEvent {  // CUpti_ActivityCudaEvent2
  Kind kind;
  std::uint32_t correlation;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint32_t event;
  std::uint32_t padding;
  std::uint32_t device;
  std::uint32_t padding2;
  void* reserved;
  std::uint64_t device_timestamp;
  std::uint64_t event_sync;
};

struct Stream {  // CUpti_ActivityStream
  Kind kind;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint32_t priority;
  StreamFlag flag;
  std::uint32_t correlation;
};

struct Memory {  // CUpti_ActivityMemory4
  Kind kind;
  MemoryOperation operation;
  std::uint32_t memory_kind;
  std::uint32_t correlation;
  std::uint64_t address;
  std::uint64_t bytes;
  std::uint64_t timestamp;
};

extern "C" {
using BufferRequested = void (*)(std::uint8_t** buffer, std::size_t* size,
                                 std::size_t* max_records);
using BufferCompleted = void (*)(void* context, std::uint32_t stream, std::uint8_t* buffer,
                                 std::size_t size, std::size_t valid_size);
}

}  // namespace prism::device::cupti::abi
