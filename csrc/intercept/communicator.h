// A communicator as the door knows it: size, own position, name; members where something told.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/op.h"
#include "intercept/real_communicator.h"
#include "vgpu/abi/nccl.h"

namespace prism::intercept {

// A reduction that pre-multiplies: its scalar lies on the device, or was read when it was made.
struct PremulReduction {
  DataType dtype = DataType::float32;
  const void* device_scalar = nullptr;
  std::array<std::byte, 8> scalar{};
  int real_op = 0;  // its number in the real NCCL, where that serves the communicator
};

class Communicator {
 public:
  enum class State : std::uint8_t { active, suspended, revoked, finalized };

  std::uint32_t slot = 0;
  std::uint32_t size = 1;
  std::uint32_t position = 0;
  std::int32_t device = 0;
  std::string name;
  std::vector<std::uint32_t> members;  // empty: not known
  std::atomic<State> state{State::active};
  // Of ranks that all run: the real NCCL's, which moves the bytes; nullptr: the door does.
  std::unique_ptr<RealCommunicator> real;

  std::string who() const;  // "default_pg:0 (rank 3 of 8)"

  int add_reduction(const PremulReduction& reduction);  // returns its number, from 5 on
  std::optional<PremulReduction> reduction(int op) const;
  bool remove_reduction(int op);

 private:
  mutable std::mutex mutex_;
  std::vector<std::optional<PremulReduction>> reductions_;
};

using CommunicatorPtr = std::shared_ptr<Communicator>;
// What a caller holds. Never dereferenced: looked up.
using Handle = const void*;

// nullptr: no such communicator, or destroyed.
CommunicatorPtr find(Handle handle);
bool forget(Handle handle);

// Opens a communicator in the record and returns its handle.
Handle open_communicator(std::string name, std::uint32_t size, std::uint32_t position,
                         std::string_view unique_id, std::vector<std::uint32_t> members = {},
                         std::unique_ptr<RealCommunicator> real = nullptr);

// Unique over the ranks and calls of a job; the door's own are the same in every run. Where a real
// NCCL stands behind the door the id is its, and `result` what it answered.
abi::nccl::UniqueId make_unique_id(abi::nccl::Result& result);
std::string_view text(const abi::nccl::UniqueId& id) noexcept;  // its 128 bytes

// The caller's configuration, read no further than the caller declares. nullopt: not one.
std::optional<abi::nccl::Config> read_config(const void* config) noexcept;

}  // namespace prism::intercept
