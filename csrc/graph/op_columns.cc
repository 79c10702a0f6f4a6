#include "graph/op_columns.h"

namespace prism {
namespace {

template <class T, class Get>
void append_column(Buffer<T>& column, std::span<const Op> ops, Get get) {
  T* out = column.extend(ops.size());
  for (const Op& op : ops) *out++ = get(op);
}

}  // namespace

void OpColumns::append(std::span<const Op> ops) {
  append_column(kind_, ops, [](const Op& op) { return static_cast<std::uint8_t>(op.kind); });
  append_column(flags_, ops, [](const Op& op) { return op.flags; });
  append_column(dtype_, ops, [](const Op& op) { return static_cast<std::uint8_t>(op.dtype); });
  append_column(detail_, ops, [](const Op& op) { return op.detail; });
  append_column(ref_, ops, [](const Op& op) { return op.ref; });
  append_column(stream_, ops, [](const Op& op) { return op.stream; });
  append_column(event_stream_, ops, [](const Op& op) { return op.event_stream; });
  append_column(peer_, ops, [](const Op& op) { return op.peer; });
  append_column(host_ns_, ops, [](const Op& op) { return op.host_ns; });
  append_column(tag_, ops, [](const Op& op) { return op.tag; });
  append_column(duration_ns_, ops, [](const Op& op) { return op.duration_ns; });
  append_column(bytes_, ops, [](const Op& op) { return op.bytes; });
}

Op OpColumns::op(std::size_t i) const noexcept {
  Op op;
  op.kind = static_cast<OpKind>(kind_[i]);
  op.flags = flags_[i];
  op.dtype = static_cast<DataType>(dtype_[i]);
  op.detail = detail_[i];
  op.ref = ref_[i];
  op.stream = stream_[i];
  op.event_stream = event_stream_[i];
  op.peer = peer_[i];
  op.host_ns = host_ns_[i];
  op.tag = tag_[i];
  op.duration_ns = duration_ns_[i];
  op.bytes = bytes_[i];
  return op;
}

bool OpColumns::equals(std::size_t at, std::span<const Op> ops) const noexcept {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (op(at + i) != ops[i]) return false;
  }
  return true;
}

void OpColumns::sources(Sources& sources) const {
  const auto set = [&](format::Section section, std::span<const std::byte> bytes) {
    sources[static_cast<std::size_t>(section)] = bytes;
  };
  set(format::Section::op_kind, kind_.raw());
  set(format::Section::op_flags, flags_.raw());
  set(format::Section::op_dtype, dtype_.raw());
  set(format::Section::op_detail, detail_.raw());
  set(format::Section::op_ref, ref_.raw());
  set(format::Section::op_stream, stream_.raw());
  set(format::Section::op_event_stream, event_stream_.raw());
  set(format::Section::op_peer, peer_.raw());
  set(format::Section::op_host_ns, host_ns_.raw());
  set(format::Section::op_tag, tag_.raw());
  set(format::Section::op_duration_ns, duration_ns_.raw());
  set(format::Section::op_bytes, bytes_.raw());
}

void OpColumns::release(format::Section section) noexcept {
  switch (section) {
    case format::Section::op_kind:
      return kind_.release();
    case format::Section::op_flags:
      return flags_.release();
    case format::Section::op_dtype:
      return dtype_.release();
    case format::Section::op_detail:
      return detail_.release();
    case format::Section::op_ref:
      return ref_.release();
    case format::Section::op_stream:
      return stream_.release();
    case format::Section::op_event_stream:
      return event_stream_.release();
    case format::Section::op_peer:
      return peer_.release();
    case format::Section::op_host_ns:
      return host_ns_.release();
    case format::Section::op_tag:
      return tag_.release();
    case format::Section::op_duration_ns:
      return duration_ns_.release();
    case format::Section::op_bytes:
      return bytes_.release();
    default:
      return;
  }
}

}  // namespace prism
