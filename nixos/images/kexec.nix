# An installer that any running Linux starts by kexec, as the tarball that nixos-anywhere's --kexec takes. All of it is in
# the memory of the machine, which downloads nothing.
{
  config,
  lib,
  pkgs,
  modulesPath,
  ...
}:
let
  inherit (config.system) build;
  # In the initrd, where run.sh puts what the machine keeps.
  kept = "/kept";
in
{
  imports = [
    "${modulesPath}/installer/netboot/netboot.nix"
    "${modulesPath}/profiles/installation-device.nix"
    "${modulesPath}/profiles/minimal.nix"
    ./installer.nix
  ];

  # A NIC without its firmware would take the machine off the network half-way.
  hardware.enableRedistributableFirmware = lib.mkForce true;
  # All of it is in memory: what builds systems is not needed, nor is what a user at the console would want.
  system.extraDependencies = lib.mkForce [ ];
  security.polkit.enable = lib.mkForce false;
  # Strix Halo's, which takes polkit; an installer measures nothing.
  services.tuned.enable = lib.mkForce false;
  security.sudo.enable = lib.mkForce false;

  # The initrd has no disk to find: it brings the system with it.
  hardware.enableAllHardware = lib.mkForce false;
  netboot.squashfsCompression = "zstd -Xcompression-level 6";
  system.stateVersion = lib.mkDefault lib.trivial.release;

  # An installer that does not come up would leave the machine in a shell that nobody sees; the disk is still whole, and a
  # reboot brings the old system back.
  boot.kernelParams = [
    "panic=30"
    "boot.panic_on_fail"
  ];

  boot.initrd.systemd.services.keep-from-before-kexec = {
    description = "What this machine keeps from before kexec";
    wantedBy = [ "initrd.target" ];
    before = [
      "initrd.target"
      "initrd-nixos-activation.service"
    ];
    unitConfig = {
      DefaultDependencies = false;
      RequiresMountsFor = "/sysroot";
      ConditionPathExists = kept;
    };
    serviceConfig.Type = "oneshot";
    script = ''
      cp --recursive --preserve=mode ${kept}/root/. /sysroot/
      mkdir -p /run/systemd/network
      cp ${kept}/network/* /run/systemd/network/
      # What runs as a user of its own reads them.
      chmod 644 /run/systemd/network/*
      chmod 755 /sysroot /sysroot/etc /sysroot/etc/ssh
    '';
  };

  system.build.image =
    let
      folder = pkgs.linkFarm "kexec" [
        {
          name = "kexec/run";
          path = pkgs.writeScript "run" (builtins.readFile ./kexec/run.sh);
        }
        {
          name = "kexec/keep-network";
          path = pkgs.writeScript "keep-network" (builtins.readFile ./kexec/keep-network.sh);
        }
        {
          name = "kexec/kexec";
          # The machine may run any distribution, so that it must need no library.
          path = lib.getExe' pkgs.pkgsStatic.kexec-tools "kexec";
        }
        {
          name = "kexec/cmdline";
          path = pkgs.writeText "cmdline" "init=${build.toplevel}/init ${toString config.boot.kernelParams}";
        }
        {
          name = "kexec/bzImage";
          path = "${build.kernel}/${config.system.boot.loader.kernelFile}";
        }
        {
          name = "kexec/initrd";
          path = "${build.netbootRamdisk}/initrd";
        }
      ];
    in
    lib.mkForce (
      pkgs.runCommand "nixwulf-kexec.tar"
        {
          passthru.contents = folder;
          nativeBuildInputs = [ pkgs.gnutar ];
          # The tarball stands alone: a desk that is given it needs nothing else.
          __structuredAttrs = true;
          unsafeDiscardReferences.out = true;
        }
        ''
          tar --create --file "$out" --directory ${folder} --dereference --mode=u+w \
            --sort=name --mtime=@1 --owner=0 --group=0 --numeric-owner kexec
        ''
    );
}
