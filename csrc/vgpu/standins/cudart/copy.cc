#include <algorithm>

#include "vgpu/standins/cudart/cudart.h"
#include "vgpu/standins/cudart/symbols.h"

using namespace prism;
using namespace prism::standins;
using vgpu::Runtime;

namespace {

Error copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                std::size_t width, std::size_t rows, void* stream, bool now) {
  if (width == 0 || rows == 0) return abi::success;
  // No size, and no place of a row, beyond what a signed number holds.
  std::size_t largest = 0;
  if (to == nullptr || from == nullptr || width > to_pitch || width > from_pitch ||
      __builtin_mul_overflow(std::max(to_pitch, from_pitch), rows, &largest) ||
      largest > std::size_t{INT64_MAX}) {
    return result(abi::invalid_value);
  }
  return result(Runtime::get().copy(
      stream,
      {to, from, static_cast<std::int64_t>(width), static_cast<std::int64_t>(rows),
       static_cast<std::int64_t>(to_pitch), static_cast<std::int64_t>(from_pitch)},
      now));
}

Error copy(void* to, const void* from, std::size_t bytes, void* stream, bool now) {
  return copy_rows(to, bytes, from, bytes, bytes, 1, stream, now);
}

Error set(void* to, int value, std::size_t bytes, void* stream, bool now) {
  if (bytes == 0) return abi::success;
  if (to == nullptr || bytes > std::size_t{INT64_MAX}) return result(abi::invalid_value);
  return result(Runtime::get().set(stream, to, static_cast<std::uint32_t>(value) & 0xff, 1,
                                   static_cast<std::int64_t>(bytes), now));
}

// The part of a device variable that a copy names; nullptr, with `error` set, if there is none.
char* part_of(const void* symbol, std::size_t bytes, std::size_t offset, Error& error) {
  const Symbol found = find_symbol(symbol);
  error = found.address == nullptr                               ? abi::invalid_symbol
          : offset > found.bytes || bytes > found.bytes - offset ? abi::invalid_value
                                                                 : abi::success;
  return error == abi::success ? static_cast<char*>(found.address) + offset : nullptr;
}

}  // namespace

// The direction that the two addresses imply is what counts (one address space): `kind`, the
// fourth argument, is not read.
PRISM_CUDART int cudaMemcpy(void* to, const void* from, std::size_t bytes, int) noexcept {
  return copy(to, from, bytes, nullptr, true);
}
PRISM_CUDART int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int,
                                 void* stream) noexcept {
  return copy(to, from, bytes, stream, false);
}
PRISM_CUDART int cudaMemcpyPeer(void* to, int, const void* from, int, std::size_t bytes) noexcept {
  return copy(to, from, bytes, nullptr, true);
}
PRISM_CUDART int cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes,
                                     void* stream) noexcept {
  return copy(to, from, bytes, stream, false);
}
PRISM_CUDART int cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t rows,
                              int) noexcept {
  return copy_rows(to, to_pitch, from, from_pitch, width, rows, nullptr, true);
}
PRISM_CUDART int cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                                   std::size_t from_pitch, std::size_t width, std::size_t rows, int,
                                   void* stream) noexcept {
  return copy_rows(to, to_pitch, from, from_pitch, width, rows, stream, false);
}
PRISM_CUDART int cudaMemset(void* to, int value, std::size_t bytes) noexcept {
  return set(to, value, bytes, nullptr, true);
}
PRISM_CUDART int cudaMemsetAsync(void* to, int value, std::size_t bytes, void* stream) noexcept {
  return set(to, value, bytes, stream, false);
}

PRISM_CUDART int cudaGetSymbolAddress(void** address, const void* symbol) noexcept {
  *address = find_symbol(symbol).address;
  return *address != nullptr ? abi::success : result(abi::invalid_symbol);
}
PRISM_CUDART int cudaGetSymbolSize(std::size_t* bytes, const void* symbol) noexcept {
  const Symbol found = find_symbol(symbol);
  *bytes = found.bytes;
  return found.address != nullptr ? abi::success : result(abi::invalid_symbol);
}
PRISM_CUDART int cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes,
                                    std::size_t offset, int) noexcept {
  Error error = abi::success;
  char* to = part_of(symbol, bytes, offset, error);
  return to != nullptr ? copy(to, from, bytes, nullptr, true) : result(error);
}
PRISM_CUDART int cudaMemcpyToSymbolAsync(const void* symbol, const void* from, std::size_t bytes,
                                         std::size_t offset, int, void* stream) noexcept {
  Error error = abi::success;
  char* to = part_of(symbol, bytes, offset, error);
  return to != nullptr ? copy(to, from, bytes, stream, false) : result(error);
}
PRISM_CUDART int cudaMemcpyFromSymbol(void* to, const void* symbol, std::size_t bytes,
                                      std::size_t offset, int) noexcept {
  Error error = abi::success;
  const char* from = part_of(symbol, bytes, offset, error);
  return from != nullptr ? copy(to, from, bytes, nullptr, true) : result(error);
}
