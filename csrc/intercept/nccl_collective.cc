// NCCL's collectives and messages: arguments checked, made into one Call each.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "intercept/check.h"
#include "intercept/device_port.h"
#include "intercept/export.h"
#include "intercept/failure.h"
#include "intercept/launch.h"
#include "intercept/nccl.h"

using namespace prism::intercept;
using prism::DataType;
using prism::Op;
using prism::OpKind;
using prism::abi::nccl::Result;

namespace {

// Gathers of records this small move although many ranks make them long: object collectives of a
// large world read every member's record.
constexpr std::int64_t small_record = 64 << 10;
constexpr std::int64_t long_gather = 64;  // times the limit

bool moves(std::int64_t own_bytes, std::int64_t all_bytes) {
  const std::int64_t limit = device_port().real_bytes_limit();
  return all_bytes <= limit || (own_bytes <= small_record && all_bytes <= long_gather * limit);
}

// bytes: what the op is counted with, the larger of the two buffers of a rank (rooted gather and
// scatter: of the root, so that all members record the same).
Call call_of(const Check& check, OpKind kind, std::int64_t bytes, void* stream) {
  Call call;
  call.communicator = check.communicator();
  call.stream = stream;
  call.op.kind = kind;
  call.op.dtype = check.dtype();
  call.op.ref = call.communicator->slot;
  call.op.bytes = bytes;
  return call;
}

void reduce_into(Call& call, const void* from, void* to, std::int64_t bytes) {
  call.effect = Effect::reduce;
  call.from = from;
  call.to = to;
  call.from_bytes = bytes;
  call.to_bytes = bytes;
}

void spread_into(Call& call, const void* from, std::int64_t from_bytes, void* to,
                 std::int64_t to_bytes) {
  call.effect = Effect::spread;
  call.from = from;
  call.from_bytes = from_bytes;
  call.to = to;
  call.to_bytes = to_bytes;
}

void give(Call& call, const Check& check, const void* in, void* out) {
  call.in = in;
  call.out = out;
  call.unit_bytes = check.bytes();
}

void set_reduction(Call& call, const Check& check) {
  call.op.detail = static_cast<std::uint8_t>(check.uniform().op);
  call.reduction = check.uniform();
  call.device_scalar = check.device_scalar();
  call.real_op = check.real_op();
}

std::uint32_t size_of_group(const Check& check) {
  return check.ok() ? check.communicator()->size : 1;
}

const void* chunk(const void* base, std::int64_t bytes, std::uint32_t index) {
  return static_cast<const std::byte*>(base) + bytes * index;
}

bool is_root(const Check& check, int root) {
  return check.ok() && check.communicator()->position == static_cast<std::uint32_t>(root);
}

Result broadcast(const char* function, const void* from, void* to, std::size_t count, int dtype,
                 int root, Handle handle, void* stream) {
  return guarded(function, [&] {
    Check check(function, handle);
    check.elements(count, dtype).rank("root", root);
    if (is_root(check, root)) check.buffer("the send buffer", from);
    check.buffer("the receive buffer", to);
    if (!check.ok()) return check.result();
    Call call = call_of(check, OpKind::broadcast, check.bytes(), stream);
    give(call, check, from, to);
    call.op.peer = static_cast<std::uint32_t>(root);
    // A rank that is not the root keeps what it has: by the contract the root has the same.
    if (is_root(check, root)) spread_into(call, from, check.bytes(), to, check.bytes());
    call.moves = moves(check.bytes(), check.bytes());
    return submit(std::move(call));
  });
}

Result message(const char* function, OpKind kind, const void* from, void* to, std::size_t count,
               int dtype, int peer, Handle handle, void* stream) {
  return guarded(function, [&] {
    Check check(function, handle);
    check.elements(count, dtype)
        .rank("peer", peer)
        .buffer(kind == OpKind::send ? "the send buffer" : "the receive buffer",
                kind == OpKind::send ? from : to);
    if (!check.ok()) return check.result();
    Call call = call_of(check, kind, check.bytes(), stream);
    const std::uint32_t size = call.communicator->size;
    call.peer = static_cast<std::uint32_t>(peer);
    call.op.peer = (call.peer + size - call.communicator->position) % size;
    call.moves = moves(check.bytes(), check.bytes());
    if (kind == OpKind::send) {
      call.effect = Effect::send;
      call.from = from;
      call.from_bytes = check.bytes();
    } else {
      call.effect = Effect::receive;
      call.to = to;
      call.to_bytes = check.bytes();
    }
    return submit(std::move(call));
  });
}

}  // namespace

extern "C" {

PRISM_EXPORT Result ncclAllReduce(const void* from, void* to, std::size_t count, int dtype, int op,
                                  Handle handle, void* stream) {
  return guarded("ncclAllReduce", [&] {
    Check check("ncclAllReduce", handle);
    check.elements(count, dtype).reduction(op);
    check.buffer("the send buffer", from).buffer("the receive buffer", to);
    if (!check.ok()) return check.result();
    Call call = call_of(check, OpKind::all_reduce, check.bytes(), stream);
    give(call, check, from, to);
    set_reduction(call, check);
    reduce_into(call, from, to, check.bytes());
    call.moves = moves(check.bytes(), check.bytes());
    return submit(std::move(call));
  });
}

PRISM_EXPORT Result ncclReduce(const void* from, void* to, std::size_t count, int dtype, int op,
                               int root, Handle handle, void* stream) {
  return guarded("ncclReduce", [&] {
    Check check("ncclReduce", handle);
    check.elements(count, dtype).reduction(op).rank("root", root);
    check.buffer("the send buffer", from);
    if (is_root(check, root)) check.buffer("the receive buffer", to);
    if (!check.ok()) return check.result();
    Call call = call_of(check, OpKind::reduce, check.bytes(), stream);
    give(call, check, from, to);
    set_reduction(call, check);
    call.op.peer = static_cast<std::uint32_t>(root);
    if (is_root(check, root)) reduce_into(call, from, to, check.bytes());
    call.moves = moves(check.bytes(), check.bytes());
    return submit(std::move(call));
  });
}

PRISM_EXPORT Result ncclReduceScatter(const void* from, void* to, std::size_t count, int dtype,
                                      int op, Handle handle, void* stream) {
  return guarded("ncclReduceScatter", [&] {
    Check check("ncclReduceScatter", handle);
    const std::uint32_t size = size_of_group(check);
    check.elements(count, dtype, size).reduction(op);
    check.buffer("the send buffer", from, size).buffer("the receive buffer", to);
    if (!check.ok()) return check.result();
    const std::int64_t all = check.bytes() * check.communicator()->size;
    Call call = call_of(check, OpKind::reduce_scatter, all, stream);
    give(call, check, from, to);
    set_reduction(call, check);
    reduce_into(call, chunk(from, check.bytes(), check.communicator()->position), to,
                check.bytes());
    call.moves = moves(check.bytes(), all);
    return submit(std::move(call));
  });
}

PRISM_EXPORT Result ncclAllGather(const void* from, void* to, std::size_t count, int dtype,
                                  Handle handle, void* stream) {
  return guarded("ncclAllGather", [&] {
    Check check("ncclAllGather", handle);
    const std::uint32_t size = size_of_group(check);
    check.elements(count, dtype, size);
    check.buffer("the send buffer", from).buffer("the receive buffer", to, size);
    if (!check.ok()) return check.result();
    const std::int64_t all = check.bytes() * check.communicator()->size;
    Call call = call_of(check, OpKind::all_gather, all, stream);
    give(call, check, from, to);
    spread_into(call, from, check.bytes(), to, all);
    call.moves = moves(check.bytes(), all);
    return submit(std::move(call));
  });
}

// By the contract chunk j of the answer is the own chunk j: counts that were exchanged this way
// fit the payload exchange that follows them.
PRISM_EXPORT Result ncclAlltoAll(const void* from, void* to, std::size_t count, int dtype,
                                 Handle handle, void* stream) {
  return guarded("ncclAlltoAll", [&] {
    Check check("ncclAlltoAll", handle);
    const std::uint32_t size = size_of_group(check);
    check.elements(count, dtype, size);
    check.buffer("the send buffer", from, size).buffer("the receive buffer", to, size);
    if (!check.ok()) return check.result();
    const std::int64_t all = check.bytes() * check.communicator()->size;
    Call call = call_of(check, OpKind::all_to_all, all, stream);
    give(call, check, from, to);
    spread_into(call, from, all, to, all);
    call.moves = moves(check.bytes(), all);
    return submit(std::move(call));
  });
}

PRISM_EXPORT Result ncclGather(const void* from, void* to, std::size_t count, int dtype, int root,
                               Handle handle, void* stream) {
  return guarded("ncclGather", [&] {
    Check check("ncclGather", handle);
    const std::uint32_t size = size_of_group(check);
    check.elements(count, dtype, size).rank("root", root);
    check.buffer("the send buffer", from);
    if (is_root(check, root)) check.buffer("the receive buffer", to, size);
    if (!check.ok()) return check.result();
    const std::int64_t all = check.bytes() * check.communicator()->size;
    Call call = call_of(check, OpKind::gather, all, stream);
    give(call, check, from, to);
    call.op.peer = static_cast<std::uint32_t>(root);
    if (is_root(check, root)) spread_into(call, from, check.bytes(), to, all);
    call.moves = moves(check.bytes(), all);
    return submit(std::move(call));
  });
}

PRISM_EXPORT Result ncclScatter(const void* from, void* to, std::size_t count, int dtype, int root,
                                Handle handle, void* stream) {
  return guarded("ncclScatter", [&] {
    Check check("ncclScatter", handle);
    const std::uint32_t size = size_of_group(check);
    check.elements(count, dtype, size).rank("root", root);
    if (is_root(check, root)) check.buffer("the send buffer", from, size);
    check.buffer("the receive buffer", to);
    if (!check.ok()) return check.result();
    const std::int64_t all = check.bytes() * check.communicator()->size;
    Call call = call_of(check, OpKind::scatter, all, stream);
    give(call, check, from, to);
    call.op.peer = static_cast<std::uint32_t>(root);
    if (is_root(check, root)) {
      spread_into(call, chunk(from, check.bytes(), static_cast<std::uint32_t>(root)), check.bytes(),
                  to, check.bytes());
    } else {
      spread_into(call, nullptr, 0, to, check.bytes());  // only the root knows: zeros
    }
    call.moves = moves(check.bytes(), check.bytes());
    return submit(std::move(call));
  });
}

PRISM_EXPORT Result ncclBroadcast(const void* from, void* to, std::size_t count, int dtype,
                                  int root, Handle handle, void* stream) {
  return broadcast("ncclBroadcast", from, to, count, dtype, root, handle, stream);
}

PRISM_EXPORT Result ncclBcast(void* buffer, std::size_t count, int dtype, int root, Handle handle,
                              void* stream) {
  return broadcast("ncclBcast", buffer, buffer, count, dtype, root, handle, stream);
}

PRISM_EXPORT Result ncclSend(const void* from, std::size_t count, int dtype, int peer,
                             Handle handle, void* stream) {
  return message("ncclSend", OpKind::send, from, nullptr, count, dtype, peer, handle, stream);
}

PRISM_EXPORT Result ncclRecv(void* to, std::size_t count, int dtype, int peer, Handle handle,
                             void* stream) {
  return message("ncclRecv", OpKind::recv, nullptr, to, count, dtype, peer, handle, stream);
}

}  // extern "C"

PRISM_TWIN(ncclAllReduce)
PRISM_TWIN(ncclReduce)
PRISM_TWIN(ncclReduceScatter)
PRISM_TWIN(ncclAllGather)
PRISM_TWIN(ncclAlltoAll)
PRISM_TWIN(ncclGather)
PRISM_TWIN(ncclScatter)
PRISM_TWIN(ncclBroadcast)
PRISM_TWIN(ncclBcast)
PRISM_TWIN(ncclSend)
PRISM_TWIN(ncclRecv)
