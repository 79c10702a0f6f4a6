"""Options of simulated lives that cannot be are refused with what was found and expected."""

from __future__ import annotations

import pytest

from prismcore.errors import SpareError
from prismcore.spare import placement as placements
from prismcore.spare.failures import FailureTrace
from prismcore.spare.life import LifeOptions, simulate


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mtbf_s": 0.0}, ["0", "1 ns or more"]),
        ({"mtbf_s": -1.0}, ["-1", "0 or more"]),
        ({"layer_s": 0.0}, ["0 ns", "1 to"]),
        ({"layer_s": float("nan")}, ["nan", "seconds"]),
        ({"restart_s": -3.0}, ["-3", "0 or more"]),
        ({"checkpoint_s": float("inf")}, ["inf", "seconds"]),
        ({"steps": 0}, ["steps 0", "1 to"]),
        ({"groups": 0}, ["groups 0", "1"]),
        ({"groups": 5, "redundancy": 6}, ["redundancy 6", "5"]),
        ({"policy": "replication", "groups": 5, "redundancy": 6}, ["redundancy 6", "1 to 5"]),
        ({"groups": 20, "redundancy": 9}, ["9", "20"]),
        ({"micro_batches": 0}, ["micro-batches 0", "1"]),
        ({"seeds": 0}, ["seeds 0", "1 to"]),
        ({"threads": 0}, ["threads 0", "1 to"]),
        ({"jitter": -0.1}, ["jitter -0.1", "0 to 1"]),
        ({"checkpoint_steps": -1}, ["-1", "0 to"]),
        ({"repair_s": -2.0}, ["-2", "0 or more"]),
        ({"spares": -1}, ["spares -1", "0 to"]),
        ({"domain_share": 1.5}, ["1.5", "0 to 1"]),
        ({"distribution": "uniform"}, ["uniform", "weibull:SHAPE"]),
        ({"distribution": "weibull:x"}, ["weibull:x", "weibull:SHAPE"]),
        ({"distribution": "weibull:0"}, ["shape 0", "0.1 to 100"]),
        ({"policy": "hope"}, ["hope", "spare"]),
        ({"model": "best"}, ["best", "published"]),
        ({"quirks": {"luck": True}}, ["luck", "one_layer_per_patch"]),
        ({"trace": FailureTrace(failures=())}, ["without failures", "one failure"]),
        ({"trace": FailureTrace(failures=((600, 1),))}, ["600", "0 to 599"]),
        ({"trace": FailureTrace(failures=((0, -1),))}, ["-1 ns", "0 or more"]),
        ({"limit_ratio": 0.0}, ["limit 0", "above 0"]),
        ({"first_seed": -1}, ["seed -1", "0 to"]),
    ],
)
def test_values_that_cannot_be(change, words):
    with pytest.raises(SpareError) as error:
        simulate(LifeOptions(**{"redundancy": 9, "steps": 10, "seeds": 1, **change}))
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_a_placement_of_another_size():
    with pytest.raises(SpareError, match=r"30 groups.*600 groups"):
        simulate(LifeOptions(redundancy=3, placement=placements.golomb(30, 3)))


@pytest.mark.parametrize("name", ["layer_s", "mtbf_s", "restart_s", "repair_s"])
def test_seconds_beyond_64_bits_are_refused(name):
    with pytest.raises(SpareError, match="1e\\+300 s found"):
        simulate(LifeOptions(**{name: 1e300}, steps=1))
