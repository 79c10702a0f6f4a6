"""Who computes what, as every member works it out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prismcore.spare.placement import golomb
from prismcore.spare.runtime.layout import Layout


@given(st.data())
def test_counts_are_the_holders_whatever_was_called(data: st.DataObject) -> None:
    """What counts() keeps is never that of another layout."""
    layout = Layout(golomb(7, 3), data.draw(st.sampled_from([1, 2])))
    for _ in range(data.draw(st.integers(0, 8))):
        down = sorted(set(range(7)) - set(layout.survivors))
        call = data.draw(st.sampled_from(["fail", "rejoin", "commit", "look"]))
        if call == "fail":
            if layout.fail([data.draw(st.sampled_from(layout.survivors))]).wipe_out:
                return
        elif call == "rejoin" and down:
            layout.rejoin([data.draw(st.sampled_from(down))])
        elif call == "commit":
            layout.commit()
        holders = layout.holders()
        for group in range(7):
            counted = layout.counts(group)
            assert counted == sorted(part for part, holder in holders.items() if holder == group)
            counted.clear()  # what was given out is the caller's
        again = Layout(golomb(7, 3), layout.micro_batches, layout.history)
        assert again.holders() == holders
        assert again.digest == layout.digest
