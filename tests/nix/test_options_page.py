"""The page of the modules' options is what the flake says of them."""

import sys
from pathlib import Path

sys.path.append("tools/docs")
import options


def test_the_page_of_options_is_that_of_the_modules(flake):
    text = Path("docs/reference/options.md").read_text()
    assert text.partition("\n")[2] == options.pages()["options.md"], "Run 'make docs'."
