// Set and get of numbered attributes, as every cuBLASLt descriptor offers them: a table says where
// in the descriptor an attribute lies and how long it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "vgpu/abi/cublas.h"

namespace prism::standins::cublaslt {

struct Attribute {
  int id;
  std::uint16_t offset;
  std::uint16_t size;
};

#define PRISM_ATTRIBUTE(id, type, member) \
  Attribute { id, offsetof(type, member), sizeof(type::member) }

inline const Attribute* find(std::span<const Attribute> table, int id) noexcept {
  for (const Attribute& row : table) {
    if (row.id == id) return &row;
  }
  return nullptr;
}

// INVALID_VALUE for an unknown attribute, a null buffer or a buffer of another size.
inline abi::cublas::Status set(std::span<const Attribute> table, void* object, int id,
                               const void* buffer, std::size_t size) noexcept {
  const Attribute* row = find(table, id);
  if (object == nullptr || row == nullptr || buffer == nullptr || size != row->size) {
    return abi::cublas::invalid_value;
  }
  std::memcpy(static_cast<std::byte*>(object) + row->offset, buffer, size);
  return abi::cublas::success;
}

// With size 0 only the length is told.
inline abi::cublas::Status get(std::span<const Attribute> table, const void* object, int id,
                               void* buffer, std::size_t size, std::size_t* written) noexcept {
  const Attribute* row = find(table, id);
  if (object == nullptr || row == nullptr) return abi::cublas::invalid_value;
  if (written != nullptr) *written = row->size;
  if (size == 0 && written != nullptr) return abi::cublas::success;
  if (buffer == nullptr || size < row->size) return abi::cublas::invalid_value;
  std::memcpy(buffer, static_cast<const std::byte*>(object) + row->offset, row->size);
  return abi::cublas::success;
}

}  // namespace prism::standins::cublaslt
