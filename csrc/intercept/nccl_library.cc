// NCCL's groups, created reductions, memory, texts; and what launchers tell the door.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "intercept/check.h"
#include "intercept/device_port.h"
#include "intercept/export.h"
#include "intercept/failure.h"
#include "intercept/launch.h"
#include "intercept/membership.h"
#include "intercept/nccl.h"
#include "intercept/rules.h"

using namespace prism::intercept;
namespace nccl = prism::abi::nccl;
using nccl::Result;
using prism::DataType;

// A name that is refused by its generated trampoline says so in ncclGetLastError too.
namespace prism::standins {
void on_refusal(const char* function) noexcept {
  fail(nccl::invalid_usage, std::string(function) +
                                ": not implemented by prismcore, which answers for absent ranks; "
                                "the call has no effect");
}
}  // namespace prism::standins

extern "C" {

PRISM_EXPORT Result ncclGetVersion(int* version) {
  if (version == nullptr) return fail(nccl::invalid_argument, "ncclGetVersion: no place for it");
  *version = nccl::version;
  return nccl::success;
}

PRISM_EXPORT const char* ncclGetErrorString(Result result) {
  static constexpr std::array<const char*, 9> texts{
      "no error",
      "unhandled cuda error",
      "unhandled system error",
      "internal error of prismcore's NCCL door",
      "invalid argument",
      "invalid usage",
      "remote process exited or there was a network error",
      "NCCL operation in progress",
      "operation timed out",
  };
  const auto index = static_cast<std::size_t>(result);
  return index < texts.size() ? texts[index] : "unknown result code";
}

PRISM_EXPORT const char* ncclGetLastError(Handle) { return last_failure(); }

PRISM_EXPORT Result ncclGroupStart() {
  group_start();
  return nccl::success;
}

PRISM_EXPORT Result ncclGroupEnd() {
  return guarded("ncclGroupEnd", [] { return group_end(); });
}

// The time of a group is replay's business; an empty group takes none, which NCCL says as -1.
PRISM_EXPORT Result ncclGroupSimulateEnd(nccl::SimInfo* info) {
  std::size_t calls = 0;
  const Result result = group_discard(calls);
  if (result != nccl::success) return result;
  if (info != nullptr && info->magic == nccl::sim_info_magic && info->size >= sizeof *info) {
    info->estimated_time = -1.0F;
  }
  if (calls == 0) return nccl::success;
  prism::standins::on_refusal("ncclGroupSimulateEnd");
  return nccl::invalid_usage;
}

PRISM_EXPORT Result ncclRedOpCreatePreMulSum(int* op, const void* scalar, int dtype, int residence,
                                             Handle handle) {
  return guarded("ncclRedOpCreatePreMulSum", [&] {
    Check check("ncclRedOpCreatePreMulSum", handle);
    check.elements(1, dtype);
    if (op == nullptr || scalar == nullptr) {
      check.fail(nccl::invalid_argument, "no scalar, or no place for the reduction");
    }
    if (residence != nccl::scalar_device && residence != nccl::scalar_host_immediate) {
      check.fail(nccl::invalid_argument,
                 "residence " + std::to_string(residence) + ", expected 0 or 1");
    }
    if (residence == nccl::scalar_device) check.buffer("the scalar", scalar);
    if (!check.ok()) return check.result();
    PremulReduction made;
    made.dtype = check.dtype();
    if (residence == nccl::scalar_device) {
      made.device_scalar = scalar;
    } else {
      std::memcpy(made.scalar.data(), scalar, static_cast<std::size_t>(check.bytes()));
    }
    Result result = nccl::success;
    RealCommunicator* const real = check.communicator()->real.get();
    if (real != nullptr) result = real->add_reduction(made.real_op, scalar, dtype, residence);
    if (result != nccl::success) return result;
    *op = check.communicator()->add_reduction(made);
    return check.result();
  });
}

PRISM_EXPORT Result ncclRedOpDestroy(int op, Handle handle) {
  return guarded("ncclRedOpDestroy", [&] {
    Check check("ncclRedOpDestroy", handle);
    if (!check.ok()) return check.result();
    const auto made = check.communicator()->reduction(op);
    if (!made || !check.communicator()->remove_reduction(op)) {
      return check
          .fail(nccl::invalid_argument,
                "reduction " + std::to_string(op) + " was not created on this communicator")
          .result();
    }
    RealCommunicator* const real = check.communicator()->real.get();
    return real == nullptr ? nccl::success : real->remove_reduction(made->real_op);
  });
}

PRISM_EXPORT Result ncclMemAlloc(void** address, std::size_t bytes) {
  return guarded("ncclMemAlloc", [&]() -> Result {
    if (address == nullptr || bytes == 0 || bytes > std::size_t{INT64_MAX}) {
      return fail(nccl::invalid_argument,
                  "ncclMemAlloc: " + std::to_string(bytes) + " bytes, or no place for the address");
    }
    *address = device_port().allocate(static_cast<std::int64_t>(bytes));
    if (*address != nullptr) return nccl::success;
    return fail(nccl::unhandled_cuda_error,
                "ncclMemAlloc: no " + std::to_string(bytes) + " bytes of device memory are left");
  });
}

PRISM_EXPORT Result ncclMemFree(void* address) {
  return guarded("ncclMemFree", [&]() -> Result {
    if (address == nullptr || device_port().release(address)) return nccl::success;
    return fail(nccl::invalid_argument, "ncclMemFree: not the address of an allocation");
  });
}

// Registration makes real transfers cheaper and changes nothing else.
PRISM_EXPORT Result ncclCommRegister(Handle communicator, void* buffer, std::size_t bytes,
                                     void** handle) {
  return guarded("ncclCommRegister", [&] {
    Check check("ncclCommRegister", communicator);
    if (handle == nullptr) check.fail(nccl::invalid_argument, "no place for the handle");
    if (!check.ok()) return check.result();
    *handle = buffer;
    RealCommunicator* const real = check.communicator()->real.get();
    return real == nullptr ? nccl::success : real->add_buffer(buffer, bytes, *handle);
  });
}

PRISM_EXPORT Result ncclCommDeregister(Handle communicator, void* handle) {
  return guarded("ncclCommDeregister", [&] {
    const Check check("ncclCommDeregister", communicator);
    if (!check.ok() || check.communicator()->real == nullptr) return check.result();
    return check.communicator()->real->remove_buffer(handle);
  });
}

PRISM_EXPORT Result prism_nccl_announce_split(int color, const std::uint32_t* members,
                                              std::size_t count) {
  return guarded("prism_nccl_announce_split", [&]() -> Result {
    if (color < -1 || members == nullptr || count == 0) {
      return fail(nccl::invalid_argument, "prism_nccl_announce_split: no colour or no members");
    }
    if (color == -1) {
      announce_next_split({members, count});
    } else {
      announce_split(color, {members, count});
    }
    return nccl::success;
  });
}

PRISM_EXPORT void prism_nccl_set_rules(RuleMatch match, RuleFill fill) { set_rules(match, fill); }

}  // extern "C"

PRISM_TWIN(ncclGetVersion)
PRISM_TWIN(ncclGetErrorString)
PRISM_TWIN(ncclGetLastError)
PRISM_TWIN(ncclGroupStart)
PRISM_TWIN(ncclGroupEnd)
PRISM_TWIN(ncclGroupSimulateEnd)
PRISM_TWIN(ncclRedOpCreatePreMulSum)
PRISM_TWIN(ncclRedOpDestroy)
PRISM_TWIN(ncclMemAlloc)
PRISM_TWIN(ncclMemFree)
PRISM_TWIN(ncclCommRegister)
PRISM_TWIN(ncclCommDeregister)
