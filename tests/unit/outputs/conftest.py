"""What an import makes of a text."""

import pytest

from nixwulf.results.importing import UserMetadata
from tool_outputs import FIXTURES, records_of

SAID = UserMetadata(("generic-x86_64",))


@pytest.fixture
def records(tmp_path):
    """The records of a text, or of one of our fixtures by its name."""

    def read(text, said=SAID, tool=None):
        path = FIXTURES / text
        if "\n" in text or text.startswith("{"):
            path = tmp_path / "output.txt"
            path.write_text(text)
        return records_of(path, said, tool)

    return read
