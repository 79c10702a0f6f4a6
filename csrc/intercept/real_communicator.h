// A communicator of the real NCCL: of ranks that all run. The door keeps its own beside it, which
// records; here calls go on with the arguments that the program gave.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "intercept/real_library.h"
#include "vgpu/abi/nccl.h"

namespace prism::intercept {

struct Call;

class RealCommunicator {
 public:
  // `ids`: one, or as many as the caller shares out among roots. `result` is NCCL's: in_progress
  // where the configuration says that init does not block. nullptr where it failed, which is told.
  static std::unique_ptr<RealCommunicator> open(const RealLibrary& library, int size, int rank,
                                                std::span<const abi::nccl::UniqueId> ids,
                                                const void* config, const std::string& who,
                                                abi::nccl::Result& result);
  // Every member of the parent must call it; nullptr with success: this rank has no part.
  std::unique_ptr<RealCommunicator> split(int color, int key, const void* config,
                                          abi::nccl::Result& result);
  ~RealCommunicator();  // aborts what was neither destroyed nor aborted
  RealCommunicator(const RealCommunicator&) = delete;
  RealCommunicator& operator=(const RealCommunicator&) = delete;

  // One call, inside a group of NCCL's or not.
  abi::nccl::Result launch(const Call& call);

  abi::nccl::Result async_error(abi::nccl::Result& found);
  abi::nccl::Result finalize();
  abi::nccl::Result revoke(int flags);
  abi::nccl::Result suspend(int flags);
  abi::nccl::Result resume();
  // The communicator is gone afterwards, whatever they return.
  abi::nccl::Result destroy();
  abi::nccl::Result abort();

  abi::nccl::Result add_reduction(int& op, const void* scalar, int dtype, int residence);
  abi::nccl::Result remove_reduction(int op);
  abi::nccl::Result add_buffer(void* buffer, std::size_t bytes, void*& handle);
  abi::nccl::Result remove_buffer(void* handle);

  const RealLibrary& library() const noexcept { return library_; }

 private:
  RealCommunicator(const RealLibrary& library, void* communicator, std::string who)
      : library_(library), communicator_(communicator), who_(std::move(who)) {}
  abi::nccl::Result told(std::string_view function, int result) const;
  template <class Function, class... Arguments>
  abi::nccl::Result ask(std::string_view name, Function* function, Arguments... arguments) const;

  const RealLibrary& library_;
  void* communicator_;
  std::string who_;  // for messages: name, rank and size
};

// NCCL's group of the calling thread, opened with the first launch that needs it: what
// communicators launch inside is one launch to NCCL, as it was to the program.
class RealGroup {
 public:
  RealGroup() = default;
  ~RealGroup() { end(); }
  RealGroup(const RealGroup&) = delete;
  RealGroup& operator=(const RealGroup&) = delete;

  abi::nccl::Result launch(RealCommunicator& communicator, const Call& call);
  abi::nccl::Result end() noexcept;  // the first failure of the group

 private:
  const RealLibrary* library_ = nullptr;
  abi::nccl::Result result_ = abi::nccl::success;
};

}  // namespace prism::intercept
