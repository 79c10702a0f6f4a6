#include "graph/op.h"

namespace prism {

std::string_view name(OpKind kind) noexcept {
  switch (kind) {
    case OpKind::host_gap:
      return "host_gap";
    case OpKind::kernel:
      return "kernel";
    case OpKind::copy:
      return "copy";
    case OpKind::set:
      return "set";
    case OpKind::event_record:
      return "event_record";
    case OpKind::event_wait:
      return "event_wait";
    case OpKind::stream_sync:
      return "stream_sync";
    case OpKind::event_sync:
      return "event_sync";
    case OpKind::device_sync:
      return "device_sync";
    case OpKind::query:
      return "query";
    case OpKind::host_callback:
      return "host_callback";
    case OpKind::graph_launch:
      return "graph_launch";
    case OpKind::allocate:
      return "allocate";
    case OpKind::free:
      return "free";
    case OpKind::reserve:
      return "reserve";
    case OpKind::release:
      return "release";
    case OpKind::mark:
      return "mark";
    case OpKind::all_reduce:
      return "all_reduce";
    case OpKind::all_gather:
      return "all_gather";
    case OpKind::reduce_scatter:
      return "reduce_scatter";
    case OpKind::broadcast:
      return "broadcast";
    case OpKind::reduce:
      return "reduce";
    case OpKind::all_to_all:
      return "all_to_all";
    case OpKind::gather:
      return "gather";
    case OpKind::scatter:
      return "scatter";
    case OpKind::send:
      return "send";
    case OpKind::recv:
      return "recv";
  }
  return "unknown";
}

std::string_view name(Provenance provenance) noexcept {
  switch (provenance) {
    case Provenance::unknown:
      return "unknown";
    case Provenance::model:
      return "model";
    case Provenance::table:
      return "table";
    case Provenance::measured:
      return "measured";
  }
  return "unknown";
}

std::string_view name(DataType dtype) noexcept {
  switch (dtype) {
    case DataType::int8:
      return "int8";
    case DataType::uint8:
      return "uint8";
    case DataType::int32:
      return "int32";
    case DataType::uint32:
      return "uint32";
    case DataType::int64:
      return "int64";
    case DataType::uint64:
      return "uint64";
    case DataType::float16:
      return "float16";
    case DataType::float32:
      return "float32";
    case DataType::float64:
      return "float64";
    case DataType::bfloat16:
      return "bfloat16";
    case DataType::float8e4m3:
      return "float8e4m3";
    case DataType::float8e5m2:
      return "float8e5m2";
    case DataType::none:
      return "none";
  }
  return "none";
}

std::size_t size_of(DataType dtype) noexcept {
  switch (dtype) {
    case DataType::int32:
    case DataType::uint32:
    case DataType::float32:
      return 4;
    case DataType::int64:
    case DataType::uint64:
    case DataType::float64:
      return 8;
    case DataType::float16:
    case DataType::bfloat16:
      return 2;
    default:
      return 1;
  }
}

}  // namespace prism
