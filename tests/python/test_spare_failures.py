"""Failure traces as files."""

from __future__ import annotations

import pytest

from prismcore.errors import SpareError
from prismcore.spare.failures import FailureTrace


def test_failure_traces_are_read(tmp_path):
    path = tmp_path / "failures.csv"
    path.write_text("group,seconds\n3,1.5\n\n0,20\n")
    assert FailureTrace.read_csv(path).failures == ((3, 1_500_000_000), (0, 20_000_000_000))
    for text, word in (
        ("", "without failures"),
        ("0,1\n1\n", "row 2"),
        ("0,-4\n", "row 1"),
        ("0,x\n", "row 1"),
    ):
        path.write_text(text)
        with pytest.raises(SpareError, match=word):
            FailureTrace.read_csv(path)
    with pytest.raises(SpareError, match="cannot be read"):
        FailureTrace.read_csv(tmp_path / "absent.csv")


@pytest.mark.parametrize("row", ["1.5,5", "1;5", "x,5", "1,x", "-1", "1,1e300", "1,nan"])
def test_a_malformed_first_row_is_not_taken_for_names(tmp_path, row):
    file = tmp_path / "trace.csv"
    file.write_text(f"{row}\n2,6\n", encoding="utf-8")
    with pytest.raises(SpareError, match="row 1"):
        FailureTrace.read_csv(file)


@pytest.mark.parametrize("head", ["\ufeff", "group,seconds\n", "\ufeffgroup,seconds\n"])
def test_traces_with_names_and_byte_order_marks(tmp_path, head):
    file = tmp_path / "trace.csv"
    file.write_text(f"{head}1,5\n2,6\n", encoding="utf-8")
    assert FailureTrace.read_csv(file).failures == ((1, 5 * 10**9), (2, 6 * 10**9))
