// Compiled, never run: our declarations of NCCL's boundary against the vendor's header.
#include "vgpu/abi/nccl.h"

#include <cstddef>
#include <type_traits>

#include "graph/op.h"

// Of the CUDA headers nccl.h needs a few names, and the wheels lack parts of them.
#define NCCL_OS_LINUX 1
#define __CUDA_RUNTIME_H__
#define __CUDA_FP16_H__
using cudaStream_t = struct CUstream_st*;
#include <nccl.h>

namespace ours = prism::abi::nccl;

static_assert(ours::version == NCCL_VERSION_CODE);
static_assert(int{ours::success} == ncclSuccess &&
              int{ours::unhandled_cuda_error} == ncclUnhandledCudaError);
static_assert(int{ours::system_error} == ncclSystemError &&
              int{ours::internal_error} == ncclInternalError);
static_assert(int{ours::invalid_argument} == ncclInvalidArgument &&
              int{ours::invalid_usage} == ncclInvalidUsage);
static_assert(int{ours::remote_error} == ncclRemoteError &&
              int{ours::in_progress} == ncclInProgress);
static_assert(int{ours::timeout} == ncclTimeout && ours::timeout + 1 == ncclNumResults);
static_assert(sizeof(ours::Result) == sizeof(ncclResult_t));

static_assert(ours::num_types == ncclNumTypes && ours::num_builtin_reductions == ncclNumOps);
static_assert(ours::max_reduction == ncclMaxRedOp);
static_assert(int{ours::scalar_device} == ncclScalarDevice);
static_assert(int{ours::scalar_host_immediate} == ncclScalarHostImmediate);
template <auto Ours, auto Theirs>
constexpr bool same = static_cast<int>(Ours) == static_cast<int>(Theirs);
using prism::DataType;
using prism::Reduction;
static_assert(same<DataType::int8, ncclInt8> && same<DataType::uint8, ncclUint8>);
static_assert(same<DataType::int32, ncclInt32> && same<DataType::uint32, ncclUint32>);
static_assert(same<DataType::int64, ncclInt64> && same<DataType::uint64, ncclUint64>);
static_assert(same<DataType::float16, ncclFloat16> && same<DataType::float32, ncclFloat32>);
static_assert(same<DataType::float64, ncclFloat64> && same<DataType::bfloat16, ncclBfloat16>);
static_assert(same<DataType::float8e4m3, ncclFloat8e4m3> &&
              same<DataType::float8e5m2, ncclFloat8e5m2>);
static_assert(same<Reduction::sum, ncclSum> && same<Reduction::prod, ncclProd>);
static_assert(same<Reduction::max, ncclMax> && same<Reduction::min, ncclMin> &&
              same<Reduction::avg, ncclAvg>);

static_assert(sizeof(ours::UniqueId) == sizeof(ncclUniqueId));
static_assert(std::is_trivially_copyable_v<ours::UniqueId>);  // passed by value
static_assert(ours::undefined_int == NCCL_CONFIG_UNDEF_INT &&
              ours::split_no_color == NCCL_SPLIT_NOCOLOR);
static_assert(ours::config_magic == NCCL_API_MAGIC);
static_assert(sizeof(ours::Config) == sizeof(ncclConfig_t));
#define SAME(mine, theirs) \
  static_assert(offsetof(ours::Config, mine) == offsetof(ncclConfig_t, theirs))
SAME(size, size);
SAME(magic, magic);
SAME(version, version);
SAME(blocking, blocking);
SAME(cga_cluster_size, cgaClusterSize);
SAME(min_ctas, minCTAs);
SAME(max_ctas, maxCTAs);
SAME(network, netName);
SAME(split_share, splitShare);
SAME(traffic_class, trafficClass);
SAME(name, commName);
SAME(collnet_enable, collnetEnable);
SAME(cta_policy, CTAPolicy);
SAME(shrink_share, shrinkShare);
SAME(nvls_ctas, nvlsCTAs);
SAME(channels_per_net_peer, nChannelsPerNetPeer);
SAME(nvlink_centric, nvlinkCentricSched);
SAME(graph_usage_mode, graphUsageMode);
SAME(num_rma_contexts, numRmaCtx);
SAME(max_p2p_peers, maxP2pPeers);
SAME(graph_stream_ordering, graphStreamOrdering);
#undef SAME
static_assert(sizeof(ours::SimInfo) == sizeof(ncclSimInfo_t));
static_assert(offsetof(ours::SimInfo, estimated_time) == offsetof(ncclSimInfo_t, estimatedTime));
