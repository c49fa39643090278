"""Bad input to 'cluster new': one sentence, the exit code, the next command."""

import pytest
from click.testing import CliRunner

from nixwulf.cli.main import cli
from nixwulf.nodes.ssh import hosts_of
from stand_in import put

UNREACHABLE = "echo 'ssh: connect to host fw2 port 22: No route to host' >&2; exit 255"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The command line, with an ssh that reaches nobody."""
    monkeypatch.setenv("PATH", str(put(tmp_path / "bin", "ssh", UNREACHABLE).parent), prepend=":")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def call(*arguments, **options):
        return CliRunner().invoke(cli, ["cluster", *map(str, arguments)], **options)

    return call


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "Name the machines, such as you@192.168.1.21, or give --from."),
        (("fw1", "fw1"), 2, "'fw1' is named twice; a machine is one node."),
        (("-oProxyCommand=true",), 2, "No such option"),
        (("--", "-oProxyCommand=true"), 2, "'-oProxyCommand=true' is no host, expected a host"),
        (("fw1;reboot",), 2, "'fw1;reboot' is no host, expected a host name, an alias of"),
        (("--from", "nowhere"), 2, "nowhere: no such file."),
        (("--check", "mine.toml", "fw1"), 2, "--check reads a file and its nodes; leave out all"),
        (("--check", "mine.toml"), 2, "No mine.toml; "),
        (("--output", ".", "fw1"), 2, "'.' is a folder; give a file such as 'mine.toml'."),
        (
            ("fw2",),
            3,
            "Node 'fw2' cannot be reached: ssh: connect to host fw2 port 22: No route to host; try "
            "'ssh fw2 true'.",
        ),
    ],
)
def test_what_cannot_be_asked_is_named(run, arguments, code, words):
    result = run("new", *arguments)
    assert result.exit_code == code, result.output
    assert words in result.output


@pytest.mark.usefixtures("runtime")
def test_all_machines_that_do_not_answer_are_named_at_once(run):
    result = run("new", "fw1", "fw2", "fw3")
    assert result.exit_code == 3
    for host in ("fw1", "fw2", "fw3"):
        assert f"try 'ssh {host} true'" in result.output


def test_a_file_that_exists_is_not_overwritten_without_being_asked_for(run, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("mine")
    result = run("new", "fw1", "--output", file)
    assert result.exit_code == 2
    assert f"'{file}' exists. Overwrite it? [y/N]:" in result.output
    assert (
        "There is no terminal to answer at; add --force, or give another --output." in result.output
    )
    assert file.read_text() == "mine"


@pytest.mark.usefixtures("runtime")
def test_it_asks_and_no_is_an_answer(run, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("mine")
    no = run("new", "fw1", "--output", file, input="n\n")
    assert "exists. Overwrite it? [y/N]" in no.output
    assert "Nothing was done: the answer is no." in no.output
    assert no.exit_code == 1
    yes = run("new", "fw1", "--output", file, input="y\n")
    assert yes.exit_code == 3
    assert run("new", "fw1", "--output", file, "--force").exit_code == 3
    assert file.read_text() == "mine"


def test_the_hosts_of_an_ssh_config_are_its_plain_names_also_of_files_that_it_includes(
    run, tmp_path
):
    config = tmp_path / ".ssh" / "config"
    config.parent.mkdir()
    # no output: an ssh config
    config.write_text(
        "Include more/*.conf\n# Host not-me\nHost fw1 fw2 *.lan !fw9\n  User me\n"
        'Host="fw 3" fw3\nMatch host fw4\nHost *\n  Compression yes\n'
    )
    more = tmp_path / ".ssh" / "more" / "spark.conf"
    more.parent.mkdir()
    more.write_text("host spark1\n  HostName 10.0.0.1\n")
    assert hosts_of(config) == ["spark1", "fw1", "fw2", "fw 3", "fw3"]
    # no output: an ssh config
    config.write_text("Host *\n  User me\n")
    result = run("new", "--from", config)
    assert result.exit_code == 2
    assert "names no host, for a pattern such as 'Host *' is none" in result.output


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize(
    "words",
    [
        ("bench", "smoke"),
        ("deploy",),
        ("engines", "install"),
        ("models", "push", "x"),
        ("nodes", "exec", "--", "true"),
        ("predict", "--model", "x"),
        ("preflight",),
        ("preflight", "--only", "file"),
        ("reproduce",),
        ("tune", "--model", "x"),
        ("update",),
    ],
)
def test_every_command_that_lacks_its_cluster_file_names_the_command_that_writes_one(words):
    before = words.index("--") if "--" in words else len(words)
    arguments = [*words[:before], "--cluster", "nope.toml", *words[before:]]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2, result.output
    assert result.output.startswith("Error: No nope.toml; known: ")
    assert result.output.endswith("by 'nixwulf cluster new HOST... --output nope.toml'.\n")
    assert result.output.count("\n") == 1
