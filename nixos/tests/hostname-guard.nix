# A machine refuses the system of another: a wrong address in a cluster file must not make one node into the next.
{ ... }:
{
  nodes.node1 =
    { lib, ... }:
    {
      system.switch.enable = true;
      specialisation = {
        own.configuration.environment.etc."switched".text = "to its own next system";
        other.configuration.networking.hostName = lib.mkForce "node2";
      };
    };

  testScript = ''
    # Where the booted system has them: they themselves have no more.
    OWN = "/run/booted-system/specialisation/own/bin/switch-to-configuration"
    OTHER = "/run/booted-system/specialisation/other/bin/switch-to-configuration"

    def running() -> str:
        return node1.succeed("readlink /run/current-system; uname -n")

    node1.wait_for_unit("multi-user.target")

    with subtest("a system of another name is refused, with the sentence, and nothing changes"):
        before = running()
        for action in ["switch", "boot", "test"]:
            status, words = node1.execute(f"{OTHER} {action} 2>&1")
            t.assertNotEqual(status, 0, words)
            t.assertIn(
                "node 'node2': this machine is 'node1'; correct its ssh address, or run "
                "EXPECTED_HOSTNAME=node2 ",
                words,
            )
            t.assertIn(f"/bin/switch-to-configuration {action} on it to rename it.", words)
        t.assertEqual(running(), before)

    with subtest("its own next system passes, without any program on PATH"):
        node1.fail("test -e /etc/switched")
        node1.succeed(f"env -i {OWN} test >&2")
        node1.succeed("test -e /etc/switched")

    with subtest("another name passes where somebody says that it is to be the name"):
        node1.fail(f"EXPECTED_HOSTNAME=node3 {OTHER} test >&2")
        t.assertEqual(node1.succeed("cat /etc/hostname").strip(), "node1")
        node1.succeed(f"EXPECTED_HOSTNAME=node2 {OTHER} test >&2")
        t.assertEqual(node1.succeed("cat /etc/hostname").strip(), "node2")

    with subtest("it is what it was renamed to, though the kernel's name follows with the next boot"):
        t.assertEqual(node1.succeed("uname -n").strip(), "node1")
        node1.succeed(f"{OTHER} test >&2")
        node1.fail(f"{OWN} test >&2")
  '';
}
