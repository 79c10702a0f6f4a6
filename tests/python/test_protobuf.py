import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from hypothesis import given
from hypothesis import strategies as st

from prismcore.report import protobuf


@pytest.fixture(scope="module")
def probe_class():
    """A message of the protobuf package's own, as oracle: u, s, t, m, f are fields 1, 2, 300, 4, 47."""
    file = descriptor_pb2.FileDescriptorProto(name="probe.proto", package="probe", syntax="proto3")
    message = file.message_type.add(name="Probe")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, number, kind in (
        ("u", 1, kinds.TYPE_UINT64),
        ("s", 2, kinds.TYPE_INT64),
        ("t", 300, kinds.TYPE_STRING),
        ("m", 4, kinds.TYPE_BYTES),
        ("f", 47, kinds.TYPE_FIXED64),
    ):
        message.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    pool = DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("probe.Probe"))


@given(
    u=st.integers(0, 2**64 - 1),
    s=st.integers(-(2**63), 2**63 - 1),
    t=st.text(st.characters(exclude_categories=["Cs"])),
    m=st.binary(max_size=300),
    f=st.integers(0, 2**64 - 1),
)
def test_bytes_read_back_with_the_protobuf_package(probe_class, *, u, s, t, m, f):
    wire = protobuf.uint(1, u) + protobuf.sint(2, s) + protobuf.text(300, t) + protobuf.message(4, m)
    probe = probe_class.FromString(wire + protobuf.fixed64(47, f))
    assert (probe.u, probe.s, probe.t, probe.m, probe.f) == (u, s, t, m, f)


def test_worked_values():
    # 150 and "testing" as in protobuf's encoding guide
    assert protobuf.uint(1, 150) == b"\x08\x96\x01"
    assert protobuf.text(2, "testing") == b"\x12\x07testing"
    assert protobuf.sint(1, -2) == b"\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"


@pytest.mark.parametrize("value", [-1, 2**64])
def test_unsigned_range(value):
    with pytest.raises(ValueError, match="unsigned"):
        protobuf.varint(value)
    with pytest.raises(ValueError, match="unsigned"):
        protobuf.fixed64(1, value)


@pytest.mark.parametrize("value", [-(2**63) - 1, 2**63])
def test_signed_range(value):
    with pytest.raises(ValueError, match="signed"):
        protobuf.sint(1, value)
