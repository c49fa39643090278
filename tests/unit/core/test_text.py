"""Numbers and texts as reports show them."""

import pytest

from nixwulf.core.text import format_significant, with_deviation


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (0.01234, "0.0123"), (9.996, "10.0"), (55.73, "55.7"), (1234.5, "1234")],
)
def test_a_figure_has_three_significant_digits_and_more_only_before_the_point(value, shown):
    assert format_significant(value) == shown


def test_the_largest_number_there_is_has_a_figure():
    """Its three digits, rounded up, are more than a double holds."""
    assert format_significant(1.7976931348623157e308).startswith("17976931348623157")
    assert "±" in with_deviation(1.7976931348623157e308, 1.0)
