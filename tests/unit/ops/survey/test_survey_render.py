"""The text of a cluster file."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from nixwulf.ops.survey.draft import Draft, render

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}", fullmatch=True)
TEXTS = st.text(min_size=1)
PLACES = st.dictionaries(
    NAMES,
    st.fixed_dictionaries(
        {"interface": TEXTS, "address": TEXTS},
        optional={"rdma_device": TEXTS, "gid_index": st.integers(0, 255)},
    ),
    min_size=1,
    max_size=3,
)
FABRICS = st.dictionaries(
    TEXTS,
    st.fixed_dictionaries(
        {
            "kind": TEXTS,
            "speed_gbps": st.integers(1, 400) | st.floats(0.001, 400),
            "mtu": st.integers(576, 65520),
            "subnet": TEXTS,
        }
    ),
    max_size=3,
)
NODES = st.lists(
    st.fixed_dictionaries(
        {"name": TEXTS, "platform": TEXTS, "ssh": TEXTS}, optional={"fabrics": PLACES}
    ),
    min_size=1,
    max_size=3,
)


@given(TEXTS, FABRICS, NODES, st.lists(st.text(), min_size=4, max_size=4))
def test_the_text_of_a_file_reads_back_as_what_it_was_made_of(name, fabrics, nodes, comments):
    document = {"name": name, "fabrics": fabrics, "nodes": nodes}
    above = [("fabrics", key) for key in fabrics] + [("fabrics", key, "mtu") for key in fabrics]
    above += [("nodes", 0, "platform"), ("nodes", 0, "disk")]
    made = Draft(document, dict.fromkeys(above, tuple(comments)), tuple(comments))
    assert tomllib.loads(render(made)) == document
