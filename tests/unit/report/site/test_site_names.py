"""File names of the site's pages: safe, and never shared."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.report.site.look import page_names


def test_a_name_that_is_safe_stays_as_it_is():
    assert page_names(["dgx-spark", "qwen3-0.6b"]) == {
        "dgx-spark": "dgx-spark",
        "qwen3-0.6b": "qwen3-0.6b",
    }


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "..",
        ".",
        "",
        "a/b",
        "a\\b",
        "<script>alert(1)</script>",
        "con:aux",
        "Qwen3",
        "name\x00",
        "モデル",
        "x" * 500,
        "index",
        "\ud800",
        ".hidden",
    ],
)
def test_any_other_name_gets_a_hash_and_stays_inside_the_folder(name):
    page = page_names([name])[name]
    assert re.fullmatch(r"[a-z0-9_-]{1,60}-[0-9a-f]{8}", page)


def test_names_that_differ_in_case_or_in_a_sign_have_pages_of_their_own():
    names = ["Qwen3", "qwen3", "QWEN3", "qwen3!", "qwen3?", "qwen 3"]
    pages = page_names(names)
    assert len({page.lower() for page in pages.values()}) == len(names)


def test_a_name_that_looks_like_the_page_of_another_does_not_take_it():
    (page,) = page_names(["Model"]).values()
    pages = page_names(["Model", page])
    assert len(set(pages.values())) == 2


@given(st.sets(st.text(), max_size=20))
def test_no_two_names_share_a_page_on_any_file_system(names):
    pages = page_names(names)
    assert set(pages) == names
    assert len({page.casefold() for page in pages.values()}) == len(names)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9._-]*", page) for page in pages.values())
    assert not any(".." in page or page == "index" for page in pages.values())


@given(st.text(), st.sets(st.text(), max_size=5))
def test_other_names_do_not_change_the_page_of_a_name(name, others):
    assert page_names([name])[name] == page_names([name, *others])[name]
