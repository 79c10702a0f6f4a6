"""Values that a foreign document may hold where others are expected, for hypothesis."""

from hypothesis import strategies as st

#: Whole numbers of any size, those around the limits of ranks, sizes and 64 bits more often.
integers = st.integers(-(2**70), 2**70) | st.sampled_from(
    [limit + more for limit in (0, 2**20, 2**24, 2**31, 2**32, 2**53, 2**63, 2**64) for more in (-1, 0, 1)]
)

#: Any value of JSON.
json_values = st.recursive(
    st.none() | st.booleans() | integers | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)

#: Plain values of Python's pickles, whose whole numbers have 64 bits here.
plain_values = st.recursive(
    st.none()
    | st.booleans()
    | integers.filter(lambda n: -(2**63) <= n < 2**64)
    | st.floats()
    | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)
