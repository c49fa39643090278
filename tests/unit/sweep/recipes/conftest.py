"""A text as a recipe: the sweep that it becomes, or the sentence that refuses it."""

import pytest
import yaml

from nixwulf.core.errors import InputError
from nixwulf.sweep.recipes.as_sweep import left_out, read_recipes, sweep_text


@pytest.fixture
def recipe(tmp_path):
    """A file of a recipe."""

    def write(text, name="recipe.txt"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def imported(recipe):
    """The block of the sweep of a text, and what it leaves out, as 'what: why'."""

    def read(text, name="recipe.txt", model=""):
        recipes = read_recipes(recipe(text, name), model)
        document = yaml.safe_load(sweep_text(recipes, "mine", "recipe.txt"))
        return document, [f"{one.what}: {one.why}" for one in left_out(recipes)]

    return read


@pytest.fixture
def refused(recipe):
    """The one sentence with which a text is refused, without the name of its file."""

    def read(text, name="recipe.txt"):
        path = recipe(text, name)
        with pytest.raises(InputError) as refusal:
            sweep_text(read_recipes(path), "mine", str(path))
        sentence = refusal.value.format_message()
        assert sentence.startswith(str(path))
        assert len(sentence.splitlines()) == 1
        return sentence.removeprefix(f"{path}: ")

    return read
