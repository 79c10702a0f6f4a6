// A launch on a communicator of which other members run too: what they hold is real, and goes
// between the processes. Every member that does not run holds what the first member that runs
// holds, so all that run come to one result; with one member that runs this is the uniform
// contract. All-to-alls are the exception, as there: a member that does not run gives back what it
// gets. (docs/decisions/0008-bytes-between-sandbox-ranks.md)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/exchange.h"
#include "intercept/device_port.h"
#include "intercept/launch.h"
#include "intercept/part.h"
#include "vgpu/device/company.h"

namespace prism::intercept {

// The bytes of one launch of this rank. Made when it is issued, which gives its messages their
// numbers; then stepped, in the order of its stream, until it is done: what this rank gives is left
// for the others as it is at the first step, and when all that it takes has come, the results are
// written.
class JointLaunch {
 public:
  // `local`: moves that need nobody, between the two.
  JointLaunch(std::shared_ptr<const vgpu::Company> company, std::span<const Call> calls,
              std::function<void()> local);

  vgpu::Lacks step();
  const std::vector<Touched>& touches() const noexcept { return touches_; }

 private:
  struct Given {  // encoded at the first step
    const void* from = nullptr;
    std::int64_t bytes = 0;
    std::optional<UniformReduction> reduction{};
    const void* device_scalar = nullptr;
    Part::Encoded encoded{};
  };
  struct Left {
    std::size_t given = 0;
    std::size_t to = 0;
    MessageKey key{};
  };
  struct Taken {
    std::optional<std::size_t> given{};  // own data: nothing to wait for
    // When the emulation ends while this is not there: as if the other held these own data, so that
    // a program that is still to say its last words goes on as in a collection.
    std::optional<std::size_t> fallback{};
    std::size_t from = 0;
    MessageKey key{};
    Part::Encoded encoded{};
  };
  struct Result {
    void* to = nullptr;
    std::int64_t bytes = 0;
    std::size_t first = 0, count = 0;  // of the taken
    std::optional<UniformReduction> reduction{};
  };

  void add(const Call& call, std::uint64_t number);
  void add_message(const Call& call);
  void reduce(const Call& call, const MessageKey& key);
  void gather(const Call& call, const MessageKey& key);
  void all_to_all(const Call& call, const MessageKey& key);
  void broadcast(const Call& call, const MessageKey& key);
  void scatter(const Call& call, const MessageKey& key);

  std::size_t give(const void* from, std::int64_t bytes);
  void leave(std::size_t given, std::uint32_t position, const MessageKey& key);
  void leave_to_others(std::size_t given, const MessageKey& key);
  void take(std::uint32_t position, const MessageKey& key,
            std::optional<std::size_t> fallback = std::nullopt);
  void take_own(std::size_t given);
  void result(void* to, std::int64_t bytes, std::size_t first, std::size_t count);
  std::optional<std::size_t> number_at(std::uint32_t position) const noexcept;

  void write(const Result& result) const;
  void write_reduced(const Result& result) const;

  std::shared_ptr<const vgpu::Company> company_;
  std::function<void()> local_;
  bool begun_ = false;
  std::vector<Given> given_;
  std::vector<Left> left_;
  std::vector<Taken> taken_;
  std::size_t waiting_ = 0;  // the first of the taken that has not come
  std::vector<Result> results_;
  std::vector<Touched> touches_;
};

}  // namespace prism::intercept
