#include "intercept/real_communicator.h"

#include <utility>

#include "base/check.h"
#include "intercept/failure.h"
#include "intercept/launch.h"

namespace prism::intercept {

namespace {

using abi::nccl::Result;

bool went_through(int result) noexcept {
  return result == abi::nccl::success || result == abi::nccl::in_progress;
}

Result say(const RealLibrary& library, std::string_view function, const std::string& who,
           void* communicator, int result) {
  if (went_through(result)) return static_cast<Result>(result);
  const char* const text = library.GetLastError(communicator);
  std::string reason = text == nullptr || *text == '\0' ? "no reason given" : text;
  while (!reason.empty() && reason.back() == '\n') reason.pop_back();
  return fail(static_cast<Result>(result), std::string(function) + " on " + who +
                                               ": NCCL answered " + std::to_string(result) + ": " +
                                               reason);
}

}  // namespace

std::unique_ptr<RealCommunicator> RealCommunicator::open(const RealLibrary& library, int size,
                                                         int rank,
                                                         std::span<const abi::nccl::UniqueId> ids,
                                                         const void* config, const std::string& who,
                                                         Result& result) {
  PRISM_CHECK(!ids.empty());
  if (ids.size() > 1 && library.CommInitRankScalable == nullptr) {
    result = fail(abi::nccl::invalid_usage, "ncclCommInitRankScalable on " + who +
                                                ": the NCCL that is loaded does not have it");
    return nullptr;
  }
  void* made = nullptr;
  const int answer = ids.size() == 1
                         ? library.CommInitRankConfig(&made, size, ids[0], rank, config)
                         : library.CommInitRankScalable(
                               &made, size, rank, static_cast<int>(ids.size()), ids.data(), config);
  result = say(library, "ncclCommInitRank", who, nullptr, answer);
  if (!went_through(answer) || made == nullptr) return nullptr;
  return std::unique_ptr<RealCommunicator>(new RealCommunicator(library, made, who));
}

std::unique_ptr<RealCommunicator> RealCommunicator::split(int color, int key, const void* config,
                                                          Result& result) {
  void* made = nullptr;
  const int answer = library_.CommSplit(communicator_, color, key, &made, config);
  result = told("ncclCommSplit", answer);
  if (!went_through(answer) || made == nullptr) return nullptr;
  return std::unique_ptr<RealCommunicator>(
      new RealCommunicator(library_, made, "a split of " + who_));
}

RealCommunicator::~RealCommunicator() {
  if (communicator_ != nullptr) library_.CommAbort(communicator_);
}

Result RealCommunicator::told(std::string_view function, int result) const {
  return say(library_, function, who_, communicator_, result);
}

template <class Function, class... Arguments>
Result RealCommunicator::ask(std::string_view name, Function* function,
                             Arguments... arguments) const {
  if (function != nullptr) return told(name, function(arguments...));
  return fail(abi::nccl::invalid_usage,
              std::string(name) + " on " + who_ + ": the NCCL that is loaded does not have it");
}

Result RealCommunicator::launch(const Call& call) {
  const int dtype = static_cast<int>(call.op.dtype);
  const auto count = [&call](std::int64_t bytes) {
    return static_cast<std::size_t>(bytes) / size_of(call.op.dtype);
  };
  const std::size_t unit = count(call.unit_bytes);
  const int root = static_cast<int>(call.op.peer);
  const int peer = static_cast<int>(call.peer);
  void* const own = communicator_;
  void* const stream = call.stream;
  const auto all = [&](const char* name, auto* function, auto... more) {
    return ask(name, function, call.in, call.out, unit, dtype, more..., own, stream);
  };
  switch (call.op.kind) {
    case OpKind::all_reduce:
      return all("ncclAllReduce", library_.AllReduce, call.real_op);
    case OpKind::reduce:
      return all("ncclReduce", library_.Reduce, call.real_op, root);
    case OpKind::reduce_scatter:
      return all("ncclReduceScatter", library_.ReduceScatter, call.real_op);
    case OpKind::all_gather:
      return all("ncclAllGather", library_.AllGather);
    case OpKind::all_to_all:
      return all("ncclAlltoAll", library_.AlltoAll);
    case OpKind::gather:
      return all("ncclGather", library_.Gather, root);
    case OpKind::scatter:
      return all("ncclScatter", library_.Scatter, root);
    case OpKind::broadcast:
      return all("ncclBroadcast", library_.Broadcast, root);
    case OpKind::send:
      return ask("ncclSend", library_.Send, call.from, count(call.from_bytes), dtype, peer, own,
                 stream);
    case OpKind::recv:
      return ask("ncclRecv", library_.Recv, call.to, count(call.to_bytes), dtype, peer, own,
                 stream);
    default:
      PRISM_CHECK(false);
      return abi::nccl::internal_error;
  }
}

Result RealCommunicator::async_error(Result& found) {
  int error = abi::nccl::success;
  const Result result =
      ask("ncclCommGetAsyncError", library_.CommGetAsyncError, communicator_, &error);
  found = static_cast<Result>(error);
  return result;
}

Result RealCommunicator::finalize() {
  return ask("ncclCommFinalize", library_.CommFinalize, communicator_);
}

Result RealCommunicator::revoke(int flags) {
  return ask("ncclCommRevoke", library_.CommRevoke, communicator_, flags);
}

Result RealCommunicator::suspend(int flags) {
  return ask("ncclCommSuspend", library_.CommSuspend, communicator_, flags);
}

Result RealCommunicator::resume() {
  return ask("ncclCommResume", library_.CommResume, communicator_);
}

// The reason is asked of no communicator: this one is gone.
Result RealCommunicator::destroy() {
  return say(library_, "ncclCommDestroy", who_, nullptr,
             library_.CommDestroy(std::exchange(communicator_, nullptr)));
}

Result RealCommunicator::abort() {
  return say(library_, "ncclCommAbort", who_, nullptr,
             library_.CommAbort(std::exchange(communicator_, nullptr)));
}

Result RealCommunicator::add_reduction(int& op, const void* scalar, int dtype, int residence) {
  return ask("ncclRedOpCreatePreMulSum", library_.RedOpCreatePreMulSum, &op, scalar, dtype,
             residence, communicator_);
}

Result RealCommunicator::remove_reduction(int op) {
  return ask("ncclRedOpDestroy", library_.RedOpDestroy, op, communicator_);
}

Result RealCommunicator::add_buffer(void* buffer, std::size_t bytes, void*& handle) {
  return ask("ncclCommRegister", library_.CommRegister, communicator_, buffer, bytes, &handle);
}

Result RealCommunicator::remove_buffer(void* handle) {
  return ask("ncclCommDeregister", library_.CommDeregister, communicator_, handle);
}

Result RealGroup::launch(RealCommunicator& communicator, const Call& call) {
  if (library_ == nullptr) {
    library_ = &communicator.library();
    const int started = library_->GroupStart();
    if (started != abi::nccl::success) {
      library_ = nullptr;
      return fail(static_cast<Result>(started),
                  "ncclGroupStart: NCCL answered " + std::to_string(started));
    }
  }
  const Result result = communicator.launch(call);
  if (result_ == abi::nccl::success) result_ = result;
  return result;
}

Result RealGroup::end() noexcept {
  if (library_ == nullptr) return std::exchange(result_, abi::nccl::success);
  const RealLibrary& library = *std::exchange(library_, nullptr);
  const auto ended = static_cast<Result>(library.GroupEnd());
  const Result first = std::exchange(result_, abi::nccl::success);
  if (first != abi::nccl::success && first != abi::nccl::in_progress) return first;  // has said why
  if (went_through(ended)) return ended;
  try {
    return say(library, "ncclGroupEnd", "this thread's group", nullptr, ended);
  } catch (const std::bad_alloc&) {
    return ended;
  }
}

}  // namespace prism::intercept
