from typing import get_args

import jsonschema
import pytest

from nixwulf.core.schema import Kind, problems, schema

KINDS = get_args(Kind)


@pytest.mark.parametrize("kind", KINDS)
def test_every_schema_is_one_of_draft_2020_12(kind):
    assert schema(kind)["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_every_schema_refuses_a_key_that_it_does_not_know(kind):
    assert any("unknown key 'colour'" in problem for problem in problems({"colour": 1}, kind))


def test_the_record_schema_states_its_compatibility_rule():
    assert "a minor version only adds optional keys" in schema("record")["description"]


def test_a_key_that_is_nearly_right_is_suggested():
    document = {"name": "x", "models": {}, "matrix": {}, "repetition": 2}
    assert any("did you mean 'repetitions'?" in problem for problem in problems(document, "sweep"))


def test_a_misspelt_key_is_named_before_the_one_that_is_missing_for_it():
    fabric = {"kind": "ethernet", "speed_gbps": 10, "mtuu": 1500, "subnet": "10.0.0.0/24"}
    found = problems({"name": "x", "fabrics": {"lan": fabric}, "nodes": []}, "cluster")
    about = [one for one in found if "mtu" in one]
    assert "mtuu" in about[0]
