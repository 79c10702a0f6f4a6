#include "intercept/communicator.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "intercept/device_port.h"
#include "intercept/failure.h"

namespace prism::intercept {

namespace {

struct Registry {
  std::mutex mutex;
  std::unordered_map<Handle, CommunicatorPtr> open;
};

Registry& registry() {
  static auto* registry = new Registry;  // watchdog threads may outlive static destruction
  return *registry;
}

}  // namespace

std::string Communicator::who() const {
  return name + " (rank " + std::to_string(position) + " of " + std::to_string(size) + ")";
}

int Communicator::add_reduction(const PremulReduction& reduction) {
  const std::lock_guard lock(mutex_);
  const auto unused = std::find(reductions_.begin(), reductions_.end(), std::nullopt);
  const auto index = static_cast<int>(unused - reductions_.begin());
  if (unused == reductions_.end()) {
    reductions_.emplace_back(reduction);
  } else {
    *unused = reduction;
  }
  return abi::nccl::num_builtin_reductions + index;
}

std::optional<PremulReduction> Communicator::reduction(int op) const {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::size_t>(op - abi::nccl::num_builtin_reductions);
  return op >= abi::nccl::num_builtin_reductions && index < reductions_.size() ? reductions_[index]
                                                                               : std::nullopt;
}

bool Communicator::remove_reduction(int op) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::size_t>(op - abi::nccl::num_builtin_reductions);
  if (op < abi::nccl::num_builtin_reductions || index >= reductions_.size() ||
      !reductions_[index]) {
    return false;
  }
  reductions_[index].reset();
  return true;
}

CommunicatorPtr find(Handle handle) {
  const std::lock_guard lock(registry().mutex);
  const auto it = registry().open.find(handle);
  return it == registry().open.end() ? nullptr : it->second;
}

bool forget(Handle handle) {
  const std::lock_guard lock(registry().mutex);
  return registry().open.erase(handle) != 0;
}

Handle open_communicator(std::string name, std::uint32_t size, std::uint32_t position,
                         std::string_view unique_id, std::vector<std::uint32_t> members,
                         std::unique_ptr<RealCommunicator> real) {
  auto made = std::make_shared<Communicator>();
  made->slot = device_port().add_communicator(name, size, position, unique_id);
  if (!members.empty()) device_port().set_members(made->slot, members);
  made->size = size;
  made->position = position;
  made->device = device_port().current_device();
  made->name = std::move(name);
  made->members = std::move(members);
  made->real = std::move(real);
  const Handle handle = made.get();
  const std::lock_guard lock(registry().mutex);
  registry().open.emplace(handle, std::move(made));
  return handle;
}

abi::nccl::UniqueId make_unique_id(abi::nccl::Result& result) {
  static std::atomic<std::uint64_t> made{0};
  abi::nccl::UniqueId id{};
  result = abi::nccl::success;
  if (const RealLibrary* const real = device_port().real_nccl()) {
    const int answer = real->GetUniqueId(&id);
    if (answer != abi::nccl::success) {
      const char* const reason = real->GetLastError(nullptr);
      result = fail(static_cast<abi::nccl::Result>(answer),
                    "ncclGetUniqueId: NCCL answered " + std::to_string(answer) + ": " +
                        (reason == nullptr ? "no reason given" : reason));
    }
    return id;
  }
  std::snprintf(id.internal, sizeof id.internal, "prismcore nccl rank %u id %llu",
                device_port().rank(), static_cast<unsigned long long>(made++));
  return id;
}

std::string_view text(const abi::nccl::UniqueId& id) noexcept {
  return {id.internal, sizeof id.internal};
}

std::optional<abi::nccl::Config> read_config(const void* config) noexcept {
  abi::nccl::Config read;
  if (config == nullptr) return read;
  constexpr std::size_t head = offsetof(abi::nccl::Config, blocking);
  std::memcpy(static_cast<void*>(&read), config, head);
  if (read.magic != abi::nccl::config_magic || read.size < head) return std::nullopt;
  std::memcpy(static_cast<void*>(&read), config, std::min(read.size, sizeof read));
  return read;
}

}  // namespace prism::intercept
