import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.core.errors import InputError
from nixwulf.core.query import matches, parse_query

KEYS = frozenset({"nodes", "model", "fabric"})


@pytest.mark.parametrize(
    ("query", "values", "holds"),
    [
        ("nodes=2", {"nodes": 2}, True),
        ("nodes<=2 model=tiny*", {"nodes": 2, "model": "tiny-moe"}, True),
        ("nodes>2", {"nodes": 2}, False),
        ("nodes<10", {"nodes": 2}, True),
        ("fabric!=gbe5", {"nodes": 1}, True),
        ("fabric=gbe5", {"nodes": 1}, False),
        ("model=TINY", {"model": "tiny"}, False),
        ("", {"nodes": 1}, True),
    ],
)
def test_all_terms_have_to_hold(query, values, holds):
    assert matches(parse_query(query, KEYS), values) is holds


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("nodes", "Cannot read 'nodes'"),
        ("node=2", "Unknown key 'node'"),
        ("nodes<two", "'two' in 'nodes<two' is not a number"),
        ("nodes = 2", "Cannot read 'nodes'"),
    ],
)
def test_a_bad_query_is_refused_with_the_word(query, message):
    with pytest.raises(InputError, match=message):
        parse_query(query, KEYS)


@given(st.text(max_size=30))
def test_no_query_gives_a_traceback(query):
    with contextlib.suppress(InputError):
        matches(parse_query(query, KEYS), {"nodes": 2})
