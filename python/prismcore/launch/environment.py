"""The environment of a rank: what torchrun would set, and what the virtual GPU needs."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["job_environment", "rank_environment"]


def job_environment(caller: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Of the warm parent and so of every rank. The caller's own settings win over these defaults."""
    defaults = {
        # As torchrun does for several processes on a node.
        "OMP_NUM_THREADS": "1",
        # Megatron insists on it under tensor parallelism.
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        # One order of sets of strings: the same program on every rank and run.
        "PYTHONHASHSEED": "0",
        # Room for every communication launch of some iterations; call sites are read from there.
        "TORCH_FR_BUFFER_SIZE": "65536",
    }
    forced = {
        # Its heartbeat thread would use the store.
        "TORCH_NCCL_ENABLE_MONITORING": "0",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    }
    environment = {**defaults, **caller, **forced, **extra}
    environment.pop("CUDA_VISIBLE_DEVICES", None)  # it counts the devices of this machine
    return environment


def rank_environment(rank: int, world_size: int, gpus_per_node: int) -> dict[str, str]:
    """As torchrun's elastic agent sets it (torch 2.14, ``torch/distributed/elastic/agent``)."""
    local_world = min(gpus_per_node, world_size)
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(rank % local_world),
        "LOCAL_WORLD_SIZE": str(local_world),
        "GROUP_RANK": str(rank // local_world),
        "GROUP_WORLD_SIZE": str(-(-world_size // local_world)),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world_size),
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": "prism",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }
