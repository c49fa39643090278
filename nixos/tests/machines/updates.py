def boots() -> list[str]:
    """The kernel parameters of the entry that the loader prefers; if it is not there, of those that it takes by
    default, and of all where there are none but the copies that an update made."""
    preferred = node1.succeed("sed -n 's/^preferred //p' /boot/loader/loader.conf").strip()
    # A name ends in +TRIES until the entry is known to be good.
    for entries in [f"{preferred.removesuffix('.conf')}*", "nixos-*", "*"]:
        status, options = node1.execute(f"sed -n 's/^options //p' /boot/loader/entries/{entries}.conf")
        if not status:
            break
    return [line for line in options.splitlines() if "init=" in line]


def runs(name: str) -> None:
    """Asserts that the node is on one system: it runs, the profile leads there, and the boot loader starts it next."""
    path = SYSTEMS[name]
    t.assertEqual(node1.succeed("readlink -f /run/current-system").strip(), path)
    t.assertEqual(node1.succeed("readlink -f /nix/var/nix/profiles/system").strip(), path)
    for options in boots():
        t.assertIn(f"init={path}/init", options.split())
    node1.fail("systemctl is-active nixwulf-rollback.timer nixwulf-rollback.service")


def begin(name: str | None, rollback_after_s: int) -> None:
    """Starts an update of the node, without a name to the generation before; /tmp/update gets its log and status."""
    what = f"--prebuilt /etc/systems/{name}.json" if name else "--rollback"
    desk.succeed(
        # A list of commands before '&' would keep the shell's output open until its end.
        "rm -rf /tmp/update; mkdir /tmp/update; (nixwulf update --cluster /etc/cluster.toml"
        f" {what} --rollback-after {rollback_after_s}"
        " && echo 0 >/tmp/update/status || echo $? >/tmp/update/status)"
        " >/tmp/update/log 2>&1 &"
    )


def ended() -> tuple[int, str]:
    """The exit status and the words of the update."""
    desk.wait_until_succeeds("test -s /tmp/update/status", timeout=limit(120))
    return int(desk.succeed("cat /tmp/update/status")), desk.succeed("cat /tmp/update/log")


def update(name: str | None, rollback_after_s: int = 900) -> tuple[int, str]:
    begin(name, rollback_after_s)
    return ended()


start_all()
install(node1)
boot_from_disk(node1)
for machine in machines:
    machine.wait_for_unit("multi-user.target", timeout=limit(60))
# multi-user.target does not wait for the interface's address.
desk.wait_until_succeeds("ssh -n root@node1 true", timeout=limit(60))
