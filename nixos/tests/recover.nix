# `nixwulf nodes` reboots, shuts down and recovers machines; one that hangs or panics comes back without it.
{ desk, ... }:
{
  nodes = {
    inherit desk;
    node1.virtualisation.qemu.options = [
      "-device i6300esb"
      "-action watchdog=reset"
    ];
    node2 = { };
  };

  testScript = ''
    def boot_of(machine: BaseMachine) -> str:
        return machine.succeed("cat /proc/sys/kernel/random/boot_id")

    def nodes(command: str) -> tuple[int, str]:
        verb, _, options = command.partition(" ")
        done = desk.execute(f"nixwulf nodes {verb} --cluster /etc/cluster.toml {options} 2>&1", timeout=limit(120))
        print(done[1])
        return done

    def comes_back(machine: QemuMachine, before: str) -> None:
        """It was booted again, with nothing but what it does itself, and answers as before."""
        machine.connected = False
        machine.wait_for_unit("multi-user.target", timeout=limit(120))
        t.assertNotEqual(boot_of(machine), before)
        t.assertEqual(machine.succeed("systemctl is-system-running --wait").strip(), "running")
        recovered = desk.wait_until_succeeds(
            f"nixwulf nodes recover --cluster /etc/cluster.toml --node {machine.name} --up-to stop", timeout=limit(60)
        )
        t.assertEqual(recovered, f"{machine.name}: recovered by 'stop'.\n")

    node1.start(allow_reboot=True)
    start_all()
    for machine in machines:
        machine.wait_for_unit("multi-user.target", timeout=limit(60))

    with subtest("status says since when each node is up"):
        # A machine without KVM may take longer for its first session than the driver waits for an answer.
        words = desk.wait_until_succeeds("nixwulf preflight --only status --cluster /etc/cluster.toml", timeout=limit(30))
        t.assertRegex(words, r"node1: up for \d+ .*\nnode2: up for \d+ ")

    with subtest("reboot ends when the node answers from another boot, and leaves the others alone"):
        before, other = boot_of(node1), boot_of(node2)
        status, words = nodes(f"reboot --node node1 --timeout {limit(120)}")
        t.assertEqual((status, words.splitlines()), (0, ["node1: goes down", "node1: is back"]))
        comes_back(node1, before)
        t.assertEqual(boot_of(node2), other)

    with subtest("systemd keeps the hardware watchdog from resetting the node"):
        node1.wait_until_succeeds("grep -x active /sys/class/watchdog/watchdog0/state", timeout=limit(10))
        t.assertEqual(node1.succeed("cat /sys/class/watchdog/watchdog0/identity").strip(), "i6300ESB timer")

    with subtest("a node on which nothing runs any more is reset by its watchdog"):
        before = boot_of(node1)
        # Above the priority of all else, for ever and without the share that the kernel keeps for ordinary processes.
        node1.succeed(
            "echo -1 >/proc/sys/kernel/sched_rt_runtime_us",
            "for cpu in /sys/kernel/debug/sched/fair_server/cpu*; do echo 0 >$cpu/runtime; done",
            "systemd-run --on-active=2 --timer-property=AccuracySec=1s -p CPUSchedulingPolicy=fifo"
            " -p CPUSchedulingPriority=99 sh -c 'while :; do :; done'",
        )
        node1.connected = False
        desk.wait_until_fails("nixwulf preflight --only status --cluster /etc/cluster.toml --node node1", timeout=limit(30))
        comes_back(node1, before)
        # WDIOF_CARDRESET of linux/watchdog.h.
        t.assertEqual(node1.succeed("cat /sys/class/watchdog/watchdog0/bootstatus").strip(), "32")

    with subtest("a node that panics comes back"):
        before = boot_of(node1)
        node1.succeed("systemd-run --on-active=2 --timer-property=AccuracySec=1s sh -c 'echo c >/proc/sysrq-trigger'")
        wait_for_console(node1, "Kernel panic - not syncing: sysrq triggered crash", 1, limit(30))
        comes_back(node1, before)

    with subtest("shutdown ends when the node is silent; status and reboot say so, and reboot touches no other node"):
        before = boot_of(node1)
        status, words = nodes("shutdown --node node2 --yes")
        t.assertEqual((status, words.splitlines()), (0, ["node2: goes down"]))
        node2.wait_for_shutdown()
        status, words = nodes("status")
        t.assertEqual(status, 3)
        t.assertIn("node2: does not answer: ", words)
        status, words = nodes("reboot")
        t.assertEqual(status, 1)
        t.assertIn("Node 'node1' is not rebooted: nothing was done, because node2 is silent", words)
        t.assertEqual(boot_of(node1), before)

    with subtest("a node that is off and has no power switch is not recovered, and the reason is said"):
        status, words = nodes(f"recover --node node2 --timeout {limit(10)}")
        t.assertEqual(status, 1)
        t.assertIn("node2: does not answer, and may be booting: waiting up to ", words)
        t.assertIn("node2: power: no power_switch in the cluster file for node2", words)
        t.assertIn("node2: not recovered: Node 'node2' did not answer", words)
  '';
}
