// The names of NCCL that the door defines, with our own types. Every other name that NCCL exports
// is refused by a generated trampoline (csrc/vgpu/standins/exports/nccl.txt).
#pragma once

#include <cstddef>
#include <cstdint>

#include "intercept/communicator.h"
#include "intercept/rules.h"
#include "vgpu/abi/nccl.h"

extern "C" {

using PrismNcclResult = prism::abi::nccl::Result;
using PrismNcclHandle = prism::intercept::Handle;
using PrismNcclId = prism::abi::nccl::UniqueId;

PrismNcclResult ncclGetVersion(int* version);
PrismNcclResult ncclGetUniqueId(PrismNcclId* id);
const char* ncclGetErrorString(PrismNcclResult result);
const char* ncclGetLastError(PrismNcclHandle communicator);

PrismNcclResult ncclCommInitRank(PrismNcclHandle* made, int size, PrismNcclId id, int rank);
PrismNcclResult ncclCommInitRankConfig(PrismNcclHandle* made, int size, PrismNcclId id, int rank,
                                       const void* config);
PrismNcclResult ncclCommInitRankScalable(PrismNcclHandle* made, int size, int rank, int num_ids,
                                         const PrismNcclId* ids, const void* config);
PrismNcclResult ncclCommInitAll(PrismNcclHandle* made, int count, const int* devices);
PrismNcclResult ncclCommSplit(PrismNcclHandle parent, int color, int key, PrismNcclHandle* made,
                              const void* config);
PrismNcclResult ncclCommGetUniqueId(PrismNcclHandle communicator, PrismNcclId* id);
PrismNcclResult ncclCommCount(PrismNcclHandle communicator, int* size);
PrismNcclResult ncclCommUserRank(PrismNcclHandle communicator, int* rank);
PrismNcclResult ncclCommCuDevice(PrismNcclHandle communicator, int* device);
PrismNcclResult ncclCommGetAsyncError(PrismNcclHandle communicator, PrismNcclResult* error);
PrismNcclResult ncclCommFinalize(PrismNcclHandle communicator);
PrismNcclResult ncclCommRevoke(PrismNcclHandle communicator, int flags);
PrismNcclResult ncclCommSuspend(PrismNcclHandle communicator, int flags);
PrismNcclResult ncclCommResume(PrismNcclHandle communicator);
PrismNcclResult ncclCommDestroy(PrismNcclHandle communicator);
PrismNcclResult ncclCommAbort(PrismNcclHandle communicator);

PrismNcclResult ncclAllReduce(const void* from, void* to, std::size_t count, int dtype, int op,
                              PrismNcclHandle communicator, void* stream);
PrismNcclResult ncclReduce(const void* from, void* to, std::size_t count, int dtype, int op,
                           int root, PrismNcclHandle communicator, void* stream);
PrismNcclResult ncclReduceScatter(const void* from, void* to, std::size_t count, int dtype, int op,
                                  PrismNcclHandle communicator, void* stream);
PrismNcclResult ncclAllGather(const void* from, void* to, std::size_t count, int dtype,
                              PrismNcclHandle communicator, void* stream);
PrismNcclResult ncclAlltoAll(const void* from, void* to, std::size_t count, int dtype,
                             PrismNcclHandle communicator, void* stream);
PrismNcclResult ncclGather(const void* from, void* to, std::size_t count, int dtype, int root,
                           PrismNcclHandle communicator, void* stream);
PrismNcclResult ncclScatter(const void* from, void* to, std::size_t count, int dtype, int root,
                            PrismNcclHandle communicator, void* stream);
PrismNcclResult ncclBroadcast(const void* from, void* to, std::size_t count, int dtype, int root,
                              PrismNcclHandle communicator, void* stream);
PrismNcclResult ncclBcast(void* buffer, std::size_t count, int dtype, int root,
                          PrismNcclHandle communicator, void* stream);
PrismNcclResult ncclSend(const void* from, std::size_t count, int dtype, int peer,
                         PrismNcclHandle communicator, void* stream);
PrismNcclResult ncclRecv(void* to, std::size_t count, int dtype, int peer,
                         PrismNcclHandle communicator, void* stream);

PrismNcclResult ncclGroupStart();
PrismNcclResult ncclGroupEnd();
PrismNcclResult ncclGroupSimulateEnd(prism::abi::nccl::SimInfo* info);

PrismNcclResult ncclRedOpCreatePreMulSum(int* op, const void* scalar, int dtype, int residence,
                                         PrismNcclHandle communicator);
PrismNcclResult ncclRedOpDestroy(int op, PrismNcclHandle communicator);
PrismNcclResult ncclMemAlloc(void** address, std::size_t bytes);
PrismNcclResult ncclMemFree(void* address);
PrismNcclResult ncclCommRegister(PrismNcclHandle communicator, void* buffer, std::size_t bytes,
                                 void** handle);
PrismNcclResult ncclCommDeregister(PrismNcclHandle communicator, void* handle);

// Not NCCL's: see membership.h. members: world ranks in order of position; colour -1: the next
// split.
PrismNcclResult prism_nccl_announce_split(int color, const std::uint32_t* members,
                                          std::size_t count);
// See rules.h.
void prism_nccl_set_rules(prism::intercept::RuleMatch match, prism::intercept::RuleFill fill);
}
