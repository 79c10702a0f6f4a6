#include "intercept/check.h"

#include "intercept/device_port.h"
#include "intercept/failure.h"

namespace prism::intercept {

namespace {

const char* name_of(Communicator::State state) noexcept {
  switch (state) {
    case Communicator::State::active:
      break;
    case Communicator::State::suspended:
      return "suspended";
    case Communicator::State::revoked:
      return "revoked";
    case Communicator::State::finalized:
      return "finalized";
  }
  return "active";
}

}  // namespace

Check::Check(const char* function, Handle handle) : function_(function) {
  communicator_ = find(handle);
  if (communicator_ == nullptr) {
    fail(abi::nccl::invalid_argument, handle == nullptr
                                          ? "the communicator is null"
                                          : "the communicator was never created or is destroyed");
    return;
  }
  const Communicator::State state = communicator_->state.load();
  if (state != Communicator::State::active) {
    fail(abi::nccl::invalid_usage, std::string("the communicator is ") + name_of(state));
  }
}

Check& Check::fail(abi::nccl::Result result, const std::string& what) {
  if (!ok()) return *this;
  std::string message = function_;
  if (communicator_ != nullptr) message += " on " + communicator_->who();
  result_ = refuse(intercept::fail(result, message + ": " + what));
  return *this;
}

Check& Check::elements(std::size_t count, int dtype, std::uint64_t copies) {
  if (!ok()) return *this;
  if (dtype < 0 || dtype >= abi::nccl::num_types) {
    return fail(abi::nccl::invalid_argument, "data type " + std::to_string(dtype) +
                                                 ", expected 0 to " +
                                                 std::to_string(abi::nccl::num_types - 1));
  }
  dtype_ = static_cast<DataType>(dtype);
  std::size_t bytes = 0;
  std::size_t all = 0;
  if (__builtin_mul_overflow(count, size_of(dtype_), &bytes) ||
      __builtin_mul_overflow(bytes, copies, &all) || all > std::size_t{INT64_MAX}) {
    return fail(abi::nccl::invalid_argument, "count " + std::to_string(count) + " times " +
                                                 std::to_string(copies) +
                                                 " is more bytes than an address space holds");
  }
  bytes_ = static_cast<std::int64_t>(bytes);
  return *this;
}

Check& Check::buffer(const char* what, const void* address, std::uint64_t copies) {
  if (!ok() || bytes_ == 0) return *this;
  if (address == nullptr) return fail(abi::nccl::invalid_argument, std::string(what) + " is null");
  if (!device_port().is_device(address)) {
    return fail(abi::nccl::invalid_argument, std::string(what) + " is not device memory");
  }
  const std::int64_t bytes = bytes_ * static_cast<std::int64_t>(copies);
  if (!device_port().is_live(address, bytes)) {
    return fail(abi::nccl::invalid_argument, std::string(what) + " of " + std::to_string(bytes) +
                                                 " bytes reaches beyond its allocation");
  }
  return *this;
}

Check& Check::rank(const char* what, int rank) {
  if (!ok()) return *this;
  if (rank < 0 || static_cast<std::uint32_t>(rank) >= communicator_->size) {
    return fail(abi::nccl::invalid_argument, std::string(what) + " " + std::to_string(rank) +
                                                 ", expected 0 to " +
                                                 std::to_string(communicator_->size - 1));
  }
  return *this;
}

Check& Check::reduction(int op) {
  if (!ok()) return *this;
  uniform_.dtype = dtype_;
  uniform_.ranks = communicator_->size;
  if (op >= 0 && op < abi::nccl::num_builtin_reductions) {
    uniform_.op = static_cast<Reduction>(op);
    real_op_ = op;
  } else if (const auto made = communicator_->reduction(op)) {
    if (made->dtype != dtype_) {
      return fail(abi::nccl::invalid_argument, "the reduction was created for " +
                                                   std::string(name(made->dtype)) +
                                                   ", the data are " + std::string(name(dtype_)));
    }
    uniform_.op = Reduction::premul_sum;
    uniform_.scalar = made->scalar;
    device_scalar_ = made->device_scalar;
    real_op_ = made->real_op;
  } else {
    return fail(abi::nccl::invalid_argument,
                "reduction " + std::to_string(op) + " is neither built in (0 to " +
                    std::to_string(abi::nccl::num_builtin_reductions - 1) +
                    ") nor created on this communicator");
  }
  if (const char* why = why_illegal(dtype_, device_port().compute_capability())) {
    return fail(abi::nccl::invalid_argument,
                std::string("reduction of ") + std::string(name(dtype_)) + ": " + why);
  }
  return *this;
}

}  // namespace prism::intercept
