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
#include "vgpu/abi/nccl.h"

namespace prism::intercept {

// A reduction that pre-multiplies: its scalar lies on the device, or was read when it was made.
struct PremulReduction {
  DataType dtype = DataType::float32;
  const void* device_scalar = nullptr;
  std::array<std::byte, 8> scalar{};
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
                         std::string_view unique_id, std::vector<std::uint32_t> members = {});

// Unique over the ranks and calls of a job, and the same in every run.
abi::nccl::UniqueId make_unique_id();
std::string_view text(const abi::nccl::UniqueId& id) noexcept;  // its 128 bytes

// The caller's configuration, read no further than the caller declares. nullopt: not one.
std::optional<abi::nccl::Config> read_config(const void* config) noexcept;

}  // namespace prism::intercept
