"""What the command line promises: its flags, and the keys of what `--json` prints."""

FLAGS = {
    "collect": "--cluster --device --help --host --iterations --json --keep-partial --output --preload "
    "--ranks --routing --rules --slots --world-size -h -o",
    "import chakra": "--cluster --help --json --output -h -o",
    "import flight-recorder": "--cluster --help --json --output -h -o",
    "import kineto": "--help --json --output -h -o",
    "import pytorch-et": "--cluster --help --json --kineto --output -h -o",
    "import straggler": "--dp --help --json --meta --output --pp --steps --tp --typical --vpp -h -o",
    "info": "--help --json --ranks -h",
    "check": "--help --json -h",
    "replay": "--cluster --fail-ranks --help --jitter --json --profile --ranks --slow-link --slow-rank "
    "--threads -h",
    "emulate": "--clock --fail-ranks --help --jitter --json --on-divergence --preload --routing --rules "
    "--sandbox --silence --slow-link --slow-rank -h",
    "export perfetto": "--help --iteration --json --output --ranks -h -o",
    "export kineto": "--help --json --output --ranks -h -o",
    "export chakra": "--help --json --output --ranks -h -o",
    "export flight-recorder": "--fail-ranks --help --jitter --json --output --ranks --slow-link --slow-rank "
    "-h -o",
    "export memory-snapshot": "--help --json --output --rank -h -o",
    "stragglers": "--help --json -h",
    "calibrate": "--base --cluster --help --json --least-samples --output -h -o",
    "profile": "--base --cluster --device --gpus --help --json --minutes --output --repeats --shape -h -o",
    "spare place": "--groups --help --json --kind --rack-groups --redundancy --seed -h",
    "spare plan": "--allreduce-s --checkpoint-s --checkpoint-steps --distribution --gpus --groups --help "
    "--jitter --job --json --layer-s --load-s --micro-batches --model --mtbf-s --plot "
    "--rack-groups --rack-share --redundancy --rejoin-s --repair-s --restart-s --seeds "
    "--spares --steps --swap-s --threads --trace -h",
    "spare simulate": "--allreduce-s --checkpoint-s --checkpoint-steps --distribution --gpus --groups --help "
    "--jitter --job --json --layer-s --load-s --micro-batches --model --mtbf-s --policy "
    "--rack-groups --rack-share --redundancy --rejoin-s --repair-s --restart-s --seeds "
    "--spares --steps --swap-s --threads --trace -h",
    "spare watch": "--help --json --once --refresh-s --rows -h",
    "doctor": "--help --json -h",
}

IMPORT_KEYS = [
    "output",
    "world_size",
    "ranks",
    "iterations",
    "ops",
    "provenance",
    "untimed_launches",
    "file_bytes",
    "wall_time_s",
    "warnings",
]
STRAGGLER_KEYS = [
    "slowdown",
    "iteration_time_ns",
    "without_gaps_ns",
    "ideal_ns",
    "by_operation",
    "operations_left_out",
    "by_stage",
    "by_dp_rank",
    "slowest_workers",
    "m_slowest_workers",
    "m_last_stage",
    "provenance",
    "expected_error",
    "wall_time_s",
    "warnings",
]
CALIBRATE_KEYS = [
    "files",
    "base",
    "base_cluster",
    "device",
    "ranks",
    "matched",
    "kernels",
    "families",
    "collectives",
    "links",
    "copies",
    "host",
    "wall_time_s",
    "warnings",
]
# Beside those of calibrate.
PROFILE_KEYS = ["facts", "torch", "points", "dropped"]
WAIT_KEYS = {"communicator", "op", "number", "missing", "failed", "ranks"}

# The same package from any working directory.
INFO_KEYS = [
    "world_size",
    "classes",
    "ranks_run",
    "ranks_checked",
    "ranks_inferred",
    "communicators",
    "ops",
    "blocks",
    "iterations",
    "file_bytes",
    "device",
    "command",
    "rules",
    "provenance",
    "expected_error",
    "untimed_launches",
    "digest",
    "communication_digest",
    "spread",
]
INFO_RANK_KEYS = [
    "class",
    "inferred",
    "ops",
    "collectives",
    "bytes_sent",
    "peak_requested_bytes",
    "peak_allocated_bytes",
    "peak_reserved_bytes",
    "peak_device_bytes",
]
REPLAY_KEYS = [
    "iteration_time_ns",
    "median_iteration_time_ns",
    "compute_ns",
    "communication_ns",
    "exposed_communication_ns",
    "waiting_ns",
    "host_ns",
    "idle_ns",
    "peak_allocated_bytes",
    "events",
    "wall_time_s",
    "provenance",
    "expected_error",
    "untimed_launches",
    "warnings",
]
EMULATE_KEYS = [
    "sandbox",
    "median_iteration_time_ns",
    "replay_median_iteration_time_ns",
    "ghosts",
    "materialised_ghosts",
    "messages",
    "posts",
    "release_error_ns",
    "paced_answers",
    "overdue_answers",
    "diverged",
    "provenance",
    "expected_error",
    "bootstrap_s",
    "wall_time_s",
    "warnings",
]
EMULATE_RANK_KEYS = ["iteration_time_ns", "peak_allocated_bytes", "peak_reserved_bytes", "late_ns"]
CHECK_KEYS = ["ok", "file_bytes", "world_size", "ranks", "blocks", "communicators", "events", "error"]
WATCH_KEYS = [
    "groups",
    "alive",
    "step",
    "committed",
    "last_committed",
    "last_commit_s",
    "steps_per_s",
    "failures",
    "patches",
    "rejoins",
    "spares",
    "wipe_outs",
    "depth",
    "redundancy",
    "micro_batches",
    "epoch",
    "checkpoint",
    "lighthouse_lost",
    "states",
    "per_group",
    "events",
    "files",
    "damaged_lines",
    "problems",
]
WATCH_GROUP_KEYS = [
    "group",
    "state",
    "step",
    "last_committed",
    "parts",
    "loss",
    "step_ms",
    "age_s",
    "event",
    "said",
]
EXPORT_KEYS = ["output", "ranks", "iteration", "slices", "counter_values", "file_bytes"]
EXPORT_KINETO_KEYS = ["output", "ranks", "iterations", "events", "file_bytes"]
EXPORT_CHAKRA_KEYS = ["output", "ranks", "nodes", "file_bytes"]
EXPORT_FLIGHT_RECORDER_KEYS = ["output", "ranks", "entries", "unfinished", "file_bytes"]
EXPORT_MEMORY_KEYS = [
    "output",
    "rank",
    "allocations",
    "segments",
    "peak_allocated_bytes",
    "peak_reserved_bytes",
    "warnings",
    "file_bytes",
]
