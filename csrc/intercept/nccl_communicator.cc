// NCCL's communicators: made, split, asked, ended.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "base/hash.h"
#include "intercept/check.h"
#include "intercept/communicator.h"
#include "intercept/device_port.h"
#include "intercept/export.h"
#include "intercept/failure.h"
#include "intercept/membership.h"
#include "intercept/nccl.h"

using namespace prism::intercept;
namespace nccl = prism::abi::nccl;
using nccl::Result;
using State = Communicator::State;

namespace {

// The configured name, else one that all members find from what they share.
std::string name_of(const nccl::Config& config, std::string_view shared) {
  if (config.name != nullptr && *config.name != '\0') return config.name;
  return "nccl:" + prism::hash128(std::as_bytes(std::span(shared))).hex().substr(0, 12);
}

// A communicator of all ranks in which this one has its own place is the world. NCCL tells no more;
// the members of other communicators are told by the framework's groups.
std::vector<std::uint32_t> members_if_world(std::uint32_t size, std::uint32_t position) {
  const DevicePort& port = device_port();
  if (size != port.world_size() || position != port.rank()) return {};
  std::vector<std::uint32_t> members(size);
  std::iota(members.begin(), members.end(), 0U);
  return members;
}

Result make(const char* function, Handle* made, int size, std::span<const nccl::UniqueId> ids,
            int position, const void* config) {
  return guarded(function, [&]() -> Result {
    const auto wrong = [&](const std::string& what) {
      return refuse(fail(nccl::invalid_argument, std::string(function) + ": " + what));
    };
    if (made == nullptr) return wrong("no place for the communicator");
    *made = nullptr;
    if (size < 1 || position < 0 || position >= size) {
      return wrong("rank " + std::to_string(position) + " of " + std::to_string(size) +
                   ", expected a rank from 0 to below the size");
    }
    const auto read = read_config(config);
    if (!read) return wrong("the configuration was not made with NCCL_CONFIG_INITIALIZER");
    const auto ranks = static_cast<std::uint32_t>(size);
    const auto own = static_cast<std::uint32_t>(position);
    const std::string_view unique_id = text(ids.front());
    const std::string name = name_of(*read, unique_id);
    std::vector<std::uint32_t> members = members_if_world(ranks, own);
    std::unique_ptr<RealCommunicator> real;
    Result result = nccl::success;
    const RealLibrary* const library = device_port().real_nccl();
    if (library != nullptr && device_port().goes_straight(name, ranks, own, unique_id, members)) {
      const std::string who =
          name + " (rank " + std::to_string(position) + " of " + std::to_string(size) + ")";
      real = RealCommunicator::open(*library, size, position, ids, config, who, result);
      if (real == nullptr) return refuse(result);
    }
    *made = open_communicator(name, ranks, own, unique_id, std::move(members), std::move(real));
    return result;
  });
}

template <class Value, class F>
Result ask(const char* function, Handle handle, Value* value, F&& answer) {
  return guarded(function, [&]() -> Result {
    const CommunicatorPtr communicator = find(handle);
    if (communicator == nullptr || value == nullptr) {
      return fail(nccl::invalid_argument, std::string(function) +
                                              ": no such communicator, or no "
                                              "place for the answer");
    }
    *value = answer(*communicator);
    return nccl::success;
  });
}

template <class F>
Result change(const char* function, Handle handle, std::initializer_list<State> from, State to,
              F&& real_change) {
  return guarded(function, [&]() -> Result {
    const CommunicatorPtr communicator = find(handle);
    if (communicator == nullptr) {
      return fail(nccl::invalid_argument, std::string(function) + ": no such communicator");
    }
    const State before = communicator->state.load();
    if (std::find(from.begin(), from.end(), before) == from.end()) {
      return fail(nccl::invalid_usage, std::string(function) + " on " + communicator->who() +
                                           ": not allowed in its state (suspended, revoked or "
                                           "finalized before)");
    }
    Result result = nccl::success;
    if (communicator->real != nullptr) result = real_change(*communicator->real);
    if (result != nccl::success && result != nccl::in_progress) return result;
    if (to == State::finalized || to == State::revoked) device_port().end_communicator();
    communicator->state.store(to);
    return result;
  });
}

Result end(const char* function, Handle handle, Result (RealCommunicator::*real_end)()) {
  return guarded(function, [&]() -> Result {
    device_port().end_communicator();
    const CommunicatorPtr communicator = find(handle);
    if (handle == nullptr || forget(handle)) {
      const bool straight = communicator != nullptr && communicator->real != nullptr;
      return straight ? (communicator->real.get()->*real_end)() : nccl::success;
    }
    return fail(nccl::invalid_argument,
                std::string(function) + ": no such communicator, or destroyed before");
  });
}

Result split(Handle parent, int color, int key, Handle* made, const void* config) {
  const CommunicatorPtr source = find(parent);
  const auto wrong = [&](Result result, const std::string& what) {
    const std::string where = source == nullptr ? "" : " on " + source->who();
    return refuse(fail(result, "ncclCommSplit" + where + ": " + what));
  };
  if (source == nullptr) return wrong(nccl::invalid_argument, "no such communicator");
  if (made == nullptr) return wrong(nccl::invalid_argument, "no place for the communicator");
  *made = nullptr;
  const auto members = take_members(color);
  if (color == nccl::split_no_color) {
    Result result = nccl::success;  // NCCL's split waits for every member of the parent
    if (source->real != nullptr) source->real->split(color, key, config, result);
    return result;
  }
  if (color < 0) {
    return wrong(nccl::invalid_argument, "colour " + std::to_string(color) +
                                             ", expected -1 or "
                                             "from 0");
  }
  const State state = source->state.load();
  if (state == State::suspended || state == State::finalized) {
    return wrong(nccl::invalid_usage, "the communicator is suspended or finalized");
  }
  const auto read = read_config(config);
  if (!read) {
    return wrong(nccl::invalid_argument,
                 "the configuration was not made with NCCL_CONFIG_INITIALIZER");
  }
  if (!members) {
    return wrong(nccl::invalid_usage, "who else has colour " + std::to_string(color) +
                                          " is not known: absent ranks cannot tell, and no group "
                                          "of torch.distributed.new_group announced it");
  }
  const std::uint32_t own = source->position < source->members.size()
                                ? source->members[source->position]
                                : device_port().rank();
  const auto at = std::find(members->begin(), members->end(), own);
  const auto position = at - members->begin();
  if (at == members->end() || position != key) {
    return wrong(nccl::invalid_usage,
                 "rank " + std::to_string(own) + " asks for place " + std::to_string(key) +
                     " among the " + std::to_string(members->size()) + " ranks of colour " +
                     std::to_string(color) + ", which the announced group does not give it");
  }
  std::unique_ptr<RealCommunicator> real;
  Result result = nccl::success;
  if (source->real != nullptr) {
    real = source->real->split(color, key, config, result);
    if (real == nullptr) return refuse(result);
  }
  *made = open_communicator(name_of(*read, source->name + "/" + std::to_string(color)),
                            static_cast<std::uint32_t>(members->size()),
                            static_cast<std::uint32_t>(position), {}, *members, std::move(real));
  return result;
}

}  // namespace

extern "C" {

PRISM_EXPORT Result ncclGetUniqueId(nccl::UniqueId* id) {
  return guarded("ncclGetUniqueId", [&]() -> Result {
    if (id == nullptr) return fail(nccl::invalid_argument, "ncclGetUniqueId: no place for the id");
    Result result = nccl::success;
    *id = make_unique_id(result);
    return result;
  });
}

PRISM_EXPORT Result ncclCommInitRank(Handle* made, int size, nccl::UniqueId id, int rank) {
  return make("ncclCommInitRank", made, size, {&id, 1}, rank, nullptr);
}

PRISM_EXPORT Result ncclCommInitRankConfig(Handle* made, int size, nccl::UniqueId id, int rank,
                                           const void* config) {
  return make("ncclCommInitRankConfig", made, size, {&id, 1}, rank, config);
}

PRISM_EXPORT Result ncclCommInitRankScalable(Handle* made, int size, int rank, int num_ids,
                                             const nccl::UniqueId* ids, const void* config) {
  if (ids == nullptr || num_ids < 1 || num_ids > std::max(size, 1)) {
    return refuse(
        fail(nccl::invalid_argument, "ncclCommInitRankScalable: " + std::to_string(num_ids) +
                                         " ids, expected one up to the size"));
  }
  return make("ncclCommInitRankScalable", made, size, {ids, static_cast<std::size_t>(num_ids)},
              rank, config);
}

PRISM_EXPORT Result ncclCommInitAll(Handle* made, int count, const int* devices) {
  if (made == nullptr || count < 1) {
    return refuse(fail(nccl::invalid_argument, "ncclCommInitAll: " + std::to_string(count) +
                                                   " devices, expected at least one"));
  }
  if (count > 1 && device_port().real_nccl() != nullptr) {
    return refuse(fail(nccl::invalid_usage,
                       "ncclCommInitAll: " + std::to_string(count) +
                           " communicators in one process, expected a process for each rank on a "
                           "real GPU"));
  }
  Result answer = nccl::success;
  const nccl::UniqueId id = make_unique_id(answer);
  if (answer != nccl::success) return refuse(answer);
  for (int i = 0; i < count; ++i) {
    const Result result = make("ncclCommInitAll", &made[i], count, {&id, 1}, i, nullptr);
    if (result != nccl::success) return result;
    find(made[i])->device = devices == nullptr ? i : devices[i];
  }
  return nccl::success;
}

PRISM_EXPORT Result ncclCommSplit(Handle parent, int color, int key, Handle* made,
                                  const void* config) {
  return guarded("ncclCommSplit", [&] { return split(parent, color, key, made, config); });
}

// For growing a communicator, which is refused; the id itself is harmless.
PRISM_EXPORT Result ncclCommGetUniqueId(Handle handle, nccl::UniqueId* id) {
  Result result = nccl::success;
  const Result asked = ask("ncclCommGetUniqueId", handle, id,
                           [&result](Communicator&) { return make_unique_id(result); });
  return asked == nccl::success ? result : asked;
}

PRISM_EXPORT Result ncclCommCount(Handle handle, int* size) {
  return ask("ncclCommCount", handle, size,
             [](Communicator& c) { return static_cast<int>(c.size); });
}

PRISM_EXPORT Result ncclCommUserRank(Handle handle, int* rank) {
  return ask("ncclCommUserRank", handle, rank,
             [](Communicator& c) { return static_cast<int>(c.position); });
}

PRISM_EXPORT Result ncclCommCuDevice(Handle handle, int* device) {
  return ask("ncclCommCuDevice", handle, device, [](Communicator& c) { return c.device; });
}

// What the door answers completes at once: nothing can fail later.
PRISM_EXPORT Result ncclCommGetAsyncError(Handle handle, Result* error) {
  Result result = nccl::success;
  const Result asked = ask("ncclCommGetAsyncError", handle, error, [&result](Communicator& c) {
    Result found = nccl::success;
    if (c.real != nullptr) result = c.real->async_error(found);
    return found;
  });
  return asked == nccl::success ? result : asked;
}

PRISM_EXPORT Result ncclCommFinalize(Handle handle) {
  return change("ncclCommFinalize", handle, {State::active}, State::finalized,
                [](RealCommunicator& real) { return real.finalize(); });
}

PRISM_EXPORT Result ncclCommRevoke(Handle handle, int flags) {
  if (flags != 0) {
    return fail(nccl::invalid_argument,
                "ncclCommRevoke: flags " + std::to_string(flags) + ", expected 0");
  }
  return change("ncclCommRevoke", handle, {State::active, State::revoked}, State::revoked,
                [flags](RealCommunicator& real) { return real.revoke(flags); });
}

PRISM_EXPORT Result ncclCommSuspend(Handle handle, int flags) {
  return change("ncclCommSuspend", handle, {State::active}, State::suspended,
                [flags](RealCommunicator& real) { return real.suspend(flags); });
}

PRISM_EXPORT Result ncclCommResume(Handle handle) {
  return change("ncclCommResume", handle, {State::suspended}, State::active,
                [](RealCommunicator& real) { return real.resume(); });
}

PRISM_EXPORT Result ncclCommDestroy(Handle handle) {
  return end("ncclCommDestroy", handle, &RealCommunicator::destroy);
}

PRISM_EXPORT Result ncclCommAbort(Handle handle) {
  return end("ncclCommAbort", handle, &RealCommunicator::abort);
}

}  // extern "C"

PRISM_TWIN(ncclGetUniqueId)
PRISM_TWIN(ncclCommInitRank)
PRISM_TWIN(ncclCommInitRankConfig)
PRISM_TWIN(ncclCommInitRankScalable)
PRISM_TWIN(ncclCommInitAll)
PRISM_TWIN(ncclCommSplit)
PRISM_TWIN(ncclCommGetUniqueId)
PRISM_TWIN(ncclCommCount)
PRISM_TWIN(ncclCommUserRank)
PRISM_TWIN(ncclCommCuDevice)
PRISM_TWIN(ncclCommGetAsyncError)
PRISM_TWIN(ncclCommFinalize)
PRISM_TWIN(ncclCommRevoke)
PRISM_TWIN(ncclCommSuspend)
PRISM_TWIN(ncclCommResume)
PRISM_TWIN(ncclCommDestroy)
PRISM_TWIN(ncclCommAbort)
