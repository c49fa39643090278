# The firmware starts each platform's installer image, as the flake gives it to users, from a USB stick.
platform:
{ nixwulf, pkgs, ... }:
let
  installer = import ../machines/live-installer.nix { inherit nixwulf pkgs; } { inherit platform; };
  qemu = import (pkgs.path + "/nixos/lib/qemu-common.nix") { inherit (pkgs) lib stdenv; };
  address = "192.168.1.50";

  stick = pkgs.lib.concatStringsSep " " (
    [
      "exec ${pkgs.qemu_test}/bin/qemu-kvm -machine accel=kvm:tcg -cpu max -m 2048"
      "-drive if=pflash,format=raw,unit=0,readonly=on,file=${pkgs.OVMF.firmware}"
      "-drive if=pflash,format=raw,unit=1,file=efi-variables.fd"
      "-drive if=none,id=stick,format=raw,snapshot=on,file=${installer.config.system.build.image}/${installer.config.image.filePath}"
      "-device qemu-xhci -device usb-storage,drive=stick,bootindex=1"
    ]
    ++ installer.drive
    # In a slot of its own, so that the interface has one name: ens16.
    ++ map (pkgs.lib.replaceString "virtio-net-pci," "virtio-net-pci,addr=0x10,") (
      qemu.qemuNICFlags 1 1 2
    )
  );
in
{
  nodes.desk = {
    imports = [ installer.desk ];
    # The LAN's router, which has one address to give.
    systemd.network.networks."20-switch" = {
      networkConfig = {
        DHCP = pkgs.lib.mkForce "no";
        DHCPServer = true;
      };
      dhcpServerConfig = {
        PoolOffset = 50;
        PoolSize = 1;
      };
    };
    networking.firewall.interfaces.eth1.allowedUDPPorts = [ 67 ];
  };

  testScript = ''
    INSTALLER = "${address}"
    ${installer.script}

    node = create_machine(${builtins.toJSON stick}, name="node")
    shutil.copy("${pkgs.OVMF.variables}", node.state_dir / "efi-variables.fd")
    (node.state_dir / "efi-variables.fd").chmod(0o600)
    give_drive(node)
    before = checksum_of_drive(node)
    # With those that are ended with the test.
    machines_qemu.append(node)
    desk.start()
    node.start()
    desk.wait_for_unit("multi-user.target", timeout=limit(60))

    with subtest("the firmware starts the image from a USB stick, and DHCP gives it an address"):
        wait_for_installer()
        on_installer("test -d /sys/firmware/efi")
        of_iso = on_installer("realpath /sys/class/block/$(basename $(findmnt -no SOURCE /iso))")
        t.assertIn("/usb", of_iso)

    with subtest("the interface has the name that it has on a node"):
        t.assertIn(INSTALLER, on_installer("ip -4 -o address show dev ens16"))

    with subtest("a key that is not the cluster's is let in as nobody, nor is a password"):
        t.assertEqual([refused("root"), refused("nixos")], ["publickey", "publickey"])

    with subtest("the machine's disk is as it was"):
        on_installer("sync")
        t.assertEqual(checksum_of_drive(node), before)

    with subtest("disko formats the disk, and a system can be copied onto it"):
        install_a_file()

    with subtest("the screen says how to reach it"):
        t.assertIn("ssh root@${address}", on_installer("cat /dev/vcs1"))
  '';
}
