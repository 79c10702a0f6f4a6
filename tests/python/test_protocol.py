"""What a rank leaves behind, and messages that arrive whole."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismcore.launch.protocol import Channel, read_record, write_record

values = st.dictionaries(st.text(max_size=8), st.lists(st.binary(max_size=40), max_size=4), max_size=4)


@given(graph=st.binary(max_size=100), values=values, note=st.text(max_size=20))
def test_a_record_reads_as_it_was_written(graph, values, note):
    fd = os.memfd_create("record")
    try:
        write_record(fd, {"note": note}, graph, values)
        assert read_record(fd) == ({"note": note}, graph, values)
        whole = os.fstat(fd).st_size
        for size in {0, 7, whole // 2, whole - 1}:
            os.ftruncate(fd, size)
            found = read_record(fd)
            assert found is None
    finally:
        os.close(fd)


def test_messages_carry_descriptors():
    left, right = Channel.pair()
    read_end, write_end = os.pipe()
    left.send({"run": 3}, [write_end])
    os.close(write_end)
    received = right.receive()
    assert received is not None
    message, fds = received
    assert message == {"run": 3}
    os.write(fds[0], b"x")
    assert os.read(read_end, 1) == b"x"
    left.close()
    assert right.receive() is None
    right.close()
    for fd in (read_end, *fds):
        os.close(fd)
    with pytest.raises(OSError, match=r".*"):
        left.send({})
