"""No secret of a recipe is in its sweep or in a sentence, however it is written down."""

import pytest
import yaml

from nixwulf.core.secrets import is_secret, written

BENCH = "llama-bench -m /m/a.gguf\n"


def shown(document, named):
    return yaml.safe_dump(document) + "\n".join(named)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MONGO", "mongodb://me:Xw9pass@db:27017/x"),
        ("BROKER", "amqp://:Xw9pass@mq"),
        ("REPORTS", "https://Xw9passXw9pass@host.example/7"),
        ("AZURE_KEY_WEST", "Xw9pass"),
        ("MYKEY2B", "Xw9pass"),
        ("PW", "Xw9pass"),
        ("HEADER", "Authorization: Basic Xw9pass"),
    ],
)
def test_a_variable_with_a_secret_is_left_by_name(imported, name, value):
    document, named = imported(f"export {name}='{value}'\n{BENCH}")
    assert document["matrix"]["parameters"]["environment"] == [{name: None}]
    assert f"{name}=...: a sweep has no secret; export it where you run nixwulf" in named
    assert "Xw9pass" not in shown(document, named)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HUB", "https://git@host/x"),
        ("HOST", "tcp://$USER:$PASS@host"),
        ("MONKEY_MODE", "x"),
        ("KV_KEY_DTYPE", "q8_0"),
        ("TOP_KEY_COUNT", "9"),
        ("URL", "http://host:8000/v1"),
        ("SSH_KEY_FILE", "/x"),
    ],
)
def test_what_is_about_a_key_or_an_address_without_one_is_no_secret(name, value):
    assert not is_secret(name, value)


@pytest.mark.parametrize(
    "flag",
    [
        "--trace-to http://me:Xw9pass@host:4317",
        "--origins '[\"https://me:Xw9pass@host\"]'",
        "-hft Xw9pass",
        "--admin-token=Xw9pass",
        '--json \'{"password": "Xw9pass"}\'',
    ],
)
@pytest.mark.parametrize("program", ["llama-server -m /m/a.gguf", "vllm serve org/a"])
def test_a_flag_with_a_secret_is_left_out_by_name(imported, flag, program):
    document, named = imported(f"{program} --alias b {flag}")
    assert "Xw9pass" not in shown(document, named)
    assert any(one.startswith(f"{flag.split()[0].partition('=')[0]} ...: ") for one in named)


@pytest.mark.parametrize(
    "line",
    [
        "podman login -u me -p Xw9pass registry.example",
        "sshpass -p Xw9pass scp a b",
        "wget --user me:Xw9pass https://host/a.gguf",
        "curl -u me:Xw9pass https://host/a.gguf -o /m/a.gguf",
        "git clone https://me:Xw9pass@host/r",
        "gcloud config set api_key Xw9pass",
        "zerotier-cli join Xw9pass",
        "mysql -pXw9pass -e 'select 1'",
        "echo Xw9pass | sudo -S true",
        "mongosh mongodb://me:Xw9pass@host",
        "login Xw9pass; true",
        'HEADER="Authorization: Bearer Xw9pass" curl $(host)',
    ],
)
def test_a_command_that_starts_no_engine_is_named_without_its_arguments(imported, line):
    document, named = imported(f"{line}\n{BENCH}")
    assert "Xw9pass" not in shown(document, named)
    program = next(one for one in line.split() if "=" not in one and not one.endswith('"'))
    assert any(f"{program}" in one for one in named if "Bearer" not in line) or "HEADER" in line


@pytest.mark.parametrize(
    "line",
    [
        'A="Authorization: Bearer Xw9pass" vllm serve org/a -tp $(n)',
        "PASSPHRASE='horse Xw9pass staple' vllm serve org/a -tp $(n)",
        "sshpass -p Xw9pass ssh other vllm serve org/a -tp $(n)",
        "echo Xw9pass | sudo -S vllm serve org/a",
        "vllm serve org/a --key Xw9pass -tp $(n)",
        "curl -u me:Xw9pass host && vllm serve org/a -tp $(n)",
        "vllm serve https://me:Xw9pass@host/a",
        "vllm serve org/a rediss://:Xw9pass@host",
    ],
)
def test_a_refusal_shows_no_secret_of_its_line(refused, line):
    assert "Xw9pass" not in refused(line)


def test_a_secret_that_another_flag_repeats_is_no_argument(refused):
    sentence = refused("vllm serve org/a --api-key Xw9pass --alias Xw9pass")
    assert sentence.startswith("the sweep of vllm would have a secret of the file")


def test_a_key_of_a_file_that_is_a_secret_is_named_without_it(imported):
    text = (
        "models:\n  a:\n    cmd: llama-server -m /m/a.gguf --port ${PORT}\n"
        "hub_password: Xw9pass\nstore: 'redis://:Xw9pass@host'\n"
    )
    document, named = imported(text, "swap.yaml")
    assert "Xw9pass" not in shown(document, named)
    assert any(one.startswith("hub_password: ...: ") for one in named)


def test_an_address_keeps_all_but_its_user(imported):
    text = (
        "model_list:\n  - model_name: a\n    litellm_params:\n      model: openai/a\n"
        "      api_base: https://me:Xw9pass@host:8000/v1\n"
    )
    document, named = imported(text, "proxy.yaml")
    assert document["matrix"]["parameters"]["url"] == ["https://host:8000/v1"]
    assert any(one.startswith("the user and the password in --url: ") for one in named)
    assert "Xw9pass" not in shown(document, named)


def test_a_launcher_with_a_password_is_named_without_it(imported):
    document, named = imported(f"sshpass -p Xw9pass ssh other {BENCH}")
    assert "Xw9pass" not in shown(document, named)
    assert any(one.startswith("sshpass -p ... ssh other: ") for one in named)


def test_text_without_secrets_has_none():
    text = "llama-server -m /m/a.gguf -u 1000:1000 --alias 'a b' --set on\nname: a\nhttps://x.org/a"
    assert written(text) == set()
