# A node is installed by nixos-anywhere onto an empty disk, boots from it, and the driver verifies it.
{
  desk,
  nixwulf,
  nixosSystem,
  pkgs,
  lib,
  ...
}:
let
  # The node as a cluster file would make it, on the VM's disk; the VM's test backdoor is all that is added.
  installed =
    (nixosSystem {
      modules = lib.attrValues nixwulf.nixosModules ++ [
        ../platforms/generic-x86_64
        "${pkgs.path}/nixos/modules/testing/test-instrumentation.nix"
        "${pkgs.path}/nixos/modules/profiles/qemu-guest.nix"
        {
          nixpkgs.pkgs = pkgs;
          networking.hostName = "target";
          networking.usePredictableInterfaceNames = false;
          nixwulf.disk.device = "/dev/vdb";
          nixwulf.cluster.sshKeys = [
            (import "${pkgs.path}/nixos/tests/ssh-keys.nix" pkgs).snakeOilPublicKey
          ];
          nixwulf.fabrics.switch = {
            kind = "ethernet";
            interface = "eth0";
            address = "192.168.1.2";
            prefixLength = 24;
            mtu = 1500;
            speedGbps = 1;
          };
        }
      ];
    }).config;
in
{
  nodes = {
    desk = {
      imports = [ desk ];
      environment.systemPackages = [ pkgs.nixos-anywhere ];
      # The machine has no network but this one: everything that is installed has to be here already.
      system.extraDependencies = [
        installed.system.build.diskoScriptNoDeps
        installed.system.build.toplevel
      ];
    };
    # What an installer image is to nixos-anywhere: a NixOS whose os-release says installer.
    target = {
      system.nixos.variant_id = "installer";
      environment.systemPackages = [ pkgs.nixos-install-tools ];
      virtualisation.emptyDiskImages = [ 8192 ];
      virtualisation.memorySize = 2048;
    };
  };

  testScript = ''
    START = " ".join([
        "${pkgs.qemu_test}/bin/qemu-kvm -cpu max -m 2048",
        "-drive if=pflash,format=raw,unit=0,readonly=on,file=${pkgs.OVMF.firmware}",
        f"-drive file={target.state_dir}/empty0.qcow2,if=virtio,werror=report",
        "-device virtio-net-pci,netdev=switch,mac=52:54:00:12:01:02",
        "-netdev vde,id=switch,sock=$QEMU_VDE_SOCKET_1",
    ])

    start_all()
    for machine in machines:
        machine.wait_for_unit("multi-user.target")

    with subtest("nixos-anywhere partitions the empty disk and installs the node on it"):
        desk.succeed("ssh root@target lsblk /dev/vdb >&2")
        desk.succeed(
            "nixos-anywhere -i /etc/desk-key --copy-host-keys --phases disko,install "
            "--store-paths ${installed.system.build.diskoScriptNoDeps} ${installed.system.build.toplevel} "
            "root@target >&2"
        )
        target.shutdown()

    with subtest("the node boots from its disk, keeps its host key, and the driver verifies it"):
        node = create_machine(START, name="installed")
        node.start()
        node.wait_for_unit("multi-user.target")
        desk.succeed("sed 's/eth1/eth0/' /etc/cluster.toml >/tmp/cluster.toml")
        # StrictHostKeyChecking=accept-new: a key other than the installer's would be refused here.
        found = desk.succeed("nixwulf cluster check /tmp/cluster.toml")
        t.assertIn("All 1 nodes answer and are on their fabrics.", found)
        t.assertEqual(desk.succeed("ssh root@target uname -n").strip(), "target")
  '';
}
