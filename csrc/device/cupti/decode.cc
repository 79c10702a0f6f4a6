#include "device/cupti/decode.h"

#include <functional>
#include <string_view>

#include "base/hash.h"

namespace prism::device::cupti {
namespace {

// Arrays lie on the device.
CopyDirection direction_of(abi::CopyKind kind) noexcept {
  switch (kind) {
    case abi::CopyKind::host_to_device:
    case abi::CopyKind::host_to_array:
      return CopyDirection::host_to_device;
    case abi::CopyKind::device_to_host:
    case abi::CopyKind::array_to_host:
      return CopyDirection::device_to_host;
    case abi::CopyKind::host_to_host:
      return CopyDirection::host_to_host;
    default:
      return CopyDirection::device_to_device;
  }
}

template <class Record>
WorkRow work_of(const Record& record) noexcept {
  WorkRow row;
  row.start = record.start;
  row.end = record.end;
  row.stream = {record.context, record.stream};
  row.correlation = record.correlation;
  row.of_graph = record.graph_node != 0;
  return row;
}

template <class Record>
WorkRow copy_of(const Record& record) noexcept {
  WorkRow row = work_of(record);
  row.kind = OpKind::copy;
  row.bytes = static_cast<std::int64_t>(record.bytes);
  row.direction = direction_of(record.copy_kind);
  row.pageable =
      record.source == abi::memory_pageable || record.destination == abi::memory_pageable;
  return row;
}

template <class Record>
const Record& as(const abi::Record& record) noexcept {
  return reinterpret_cast<const Record&>(record);
}

}  // namespace

std::size_t Decoder::Hash::operator()(const KernelRow& kernel) const noexcept {
  const auto bytes = std::as_bytes(std::span(&kernel.shape, 1));
  return std::hash<std::string>{}(kernel.name) * 31 +
         std::hash<std::string_view>{}({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::uint32_t Decoder::kernel_id(const char* name, const KernelShape& shape) {
  looked_up_.name = name == nullptr ? "?" : name;
  looked_up_.shape = shape;
  const auto found = kernels_.find(looked_up_);
  if (found != kernels_.end()) return found->second;
  const auto id = static_cast<std::uint32_t>(rows_.kernels.size());
  rows_.kernels.push_back(looked_up_);
  kernels_.emplace(looked_up_, id);
  return id;
}

void Decoder::add_work(WorkRow row) {
  if (row.start == 0 || row.end < row.start) {
    ++rows_.without_times;
    row.start = row.end = 0;
  }
  rows_.work.push_back(row);
}

void Decoder::add_kernel(const abi::Kernel& kernel) {
  WorkRow row = work_of(kernel);
  KernelShape shape;
  for (std::size_t i = 0; i < 3; ++i) {
    shape.grid[i] = static_cast<std::uint32_t>(kernel.grid[i]);
    shape.block[i] = static_cast<std::uint32_t>(kernel.block[i]);
  }
  shape.shared_bytes = static_cast<std::uint32_t>(kernel.dynamic_shared_bytes);
  row.kernel = kernel_id(kernel.name, shape);
  add_work(row);
}

void Decoder::add(const abi::Record& record) {
  switch (record.kind) {
    case abi::Kind::runtime:
    case abi::Kind::driver: {
      const auto& call = as<abi::Api>(record);
      const CallSide side =
          record.kind == abi::Kind::runtime ? CallSide::runtime : CallSide::driver;
      rows_.calls.push_back({call.start, call.end, call.thread, call.correlation, call.result,
                             role_of(side, call.callback), side});
      return;
    }
    case abi::Kind::concurrent_kernel:
      return add_kernel(as<abi::Kernel>(record));
    case abi::Kind::memcpy:
      return add_work(copy_of(as<abi::Memcpy>(record)));
    case abi::Kind::peer_memcpy:
      return add_work(copy_of(as<abi::PeerMemcpy>(record)));
    case abi::Kind::memset: {
      const auto& set = as<abi::Memset>(record);
      WorkRow row = work_of(set);
      row.kind = OpKind::set;
      row.bytes = static_cast<std::int64_t>(set.bytes);
      return add_work(row);
    }
    case abi::Kind::synchronization: {
      const auto& sync = as<abi::Synchronization>(record);
      rows_.syncs.push_back(
          {sync.correlation, {sync.context, sync.stream}, sync.event_sync, sync.type});
      return;
    }
    case abi::Kind::cuda_event: {
      const auto& event = as<abi::CudaEvent>(record);
      rows_.events.push_back({event.correlation, {event.context, event.stream}, event.event_sync});
      return;
    }
    case abi::Kind::stream: {
      const auto& stream = as<abi::Stream>(record);
      rows_.streams.push_back({stream.correlation, {stream.context, stream.stream}, stream.flag});
      return;
    }
    case abi::Kind::memory: {
      const auto& memory = as<abi::Memory>(record);
      if (memory.memory_kind != abi::memory_device) return;
      rows_.memory.push_back({memory.correlation, static_cast<std::int64_t>(memory.bytes),
                              memory.operation == abi::MemoryOperation::release});
      return;
    }
    default:
      ++rows_.unknown_records;
  }
}

void Decoder::read(std::uint8_t* buffer, std::size_t valid_bytes) {
  bool damaged = false;
  for (abi::Record* record = nullptr; library_.next(buffer, valid_bytes, &record, damaged);) {
    add(*record);
  }
  rows_.damaged_buffers += damaged ? 1 : 0;
}

}  // namespace prism::device::cupti
