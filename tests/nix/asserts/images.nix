{
  lib,
  failures,
  nixwulf,
  outputs,
  ...
}:
let
  key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOtsI/KbJ3SOM7yvQ/ALfJkIxcQnNVreivtTz3x2IvPi test";
  installer =
    platform:
    nixwulf.cluster.installer {
      inherit platform;
      sshKeys = [ key ];
    };
  iso = (installer "generic-x86_64").config;
  sd = (installer "raspberry-pi-cm5").config;
  ssh = iso.services.openssh;

  # Of each platform that a running system installs by kexec: its installer, and the first node of it among the examples.
  kexecPlatforms = lib.filter (
    name: (nixwulf.platformFacts.${name}.install.method or null) == "kexec"
  ) (lib.attrNames nixwulf.platformFacts);
  kexecOf =
    platform:
    (nixwulf.cluster.installer {
      inherit platform;
      sshKeys = [ key ];
      kind = "kexec";
    }).config;
  nodes = {
    fevm-fa-ex9 = "fa-ex9-2-fae1";
    framework-desktop = "framework-2-fw1";
    generic-x86_64 = "mini-3-mini1";
    minisforum-ms-s1-max = "ms-s1-max-4-ms1";
  };
  kernelOf = config: config.boot.kernelPackages.kernel.outPath;
  kexec = kexecOf "generic-x86_64";
  deployment = builtins.fromJSON (
    builtins.unsafeDiscardStringContext outputs.legacyPackages.x86_64-linux.deployments.mini-3.text
  );
  mini1 = outputs.nixosConfigurations.mini-3-mini1.config;
in
{
  "an installer lets in the keys and nobody by password" = {
    expected = {
      enable = true;
      atBoot = true;
      password = false;
      interactive = false;
      root = "prohibit-password";
      keys = [ key ];
    };
    actual = {
      inherit (ssh) enable;
      atBoot = lib.elem "multi-user.target" iso.systemd.services.sshd.wantedBy;
      password = ssh.settings.PasswordAuthentication;
      interactive = ssh.settings.KbdInteractiveAuthentication;
      root = ssh.settings.PermitRootLogin;
      inherit (iso.users.users.root.openssh.authorizedKeys) keys;
    };
  };
  "nixos-anywhere takes it for an installer, and so does not try kexec" = {
    expected = [
      "installer"
      "installer"
    ];
    actual = map (config: config.system.nixos.variant_id) [
      iso
      sd
    ];
  };
  "every port asks for an address, and one is enough" = {
    expected = {
      networkd = true;
      dhcp = true;
      any = true;
      manager = false;
    };
    actual = {
      networkd = iso.networking.useNetworkd;
      dhcp = iso.networking.useDHCP;
      any = iso.systemd.network.wait-online.anyInterface;
      manager = iso.networking.networkmanager.enable;
    };
  };
  "a machine without a keyboard boots it" = {
    expected = 3;
    actual = iso.boot.loader.timeout;
  };
  "the SD card's firmware partition has the kernel, for which there is room" = {
    expected = true;
    actual =
      lib.hasPrefix "${sd.boot.loader.external.installHook} " sd.sdImage.populateFirmwareCommands
      && sd.sdImage.firmwareSize >= 256;
  };
  "an installer's assertions hold" = {
    expected = [ ];
    actual = failures iso ++ failures sd;
  };
  "a Mac has no image, and its facts say why" = {
    expected = {
      image = false;
      reason = true;
    };
    actual = {
      image = (builtins.tryEval (installer "mac-studio-m3-ultra")).success;
      reason = nixwulf.platformFacts.mac-studio-m3-ultra.install ? reason;
    };
  };
  "every platform of an example cluster that can be imaged has an image" = {
    expected = [ ];
    actual = lib.subtractLists (lib.concatMap lib.attrNames (lib.attrValues outputs.packages)) (
      [
        "image-dgx-spark"
        "image-generic-x86_64"
        "image-raspberry-pi-cm5"
      ]
      ++ map (name: "kexec-${name}") kexecPlatforms
    );
  };
  "an installer for kexec has the platform's own kernel, and all firmware" = {
    expected = lib.genAttrs kexecPlatforms (_: {
      kernel = true;
      firmware = true;
    });
    actual = lib.genAttrs kexecPlatforms (
      platform:
      let
        config = kexecOf platform;
      in
      {
        kernel = kernelOf config == kernelOf outputs.nixosConfigurations.${nodes.${platform}}.config;
        firmware = config.hardware.enableRedistributableFirmware;
      }
    );
  };
  "it lets in the keys of the cluster, is an installer to nixos-anywhere, and its assertions hold" = {
    expected = {
      keys = [ key ];
      variant = "installer";
      failures = [ ];
    };
    actual = {
      inherit (kexec.users.users.root.openssh.authorizedKeys) keys;
      variant = kexec.system.nixos.variant_id;
      failures = failures kexec;
    };
  };
  "its tarball has what nixos-anywhere starts, and needs nothing of the machine's store" = {
    expected = {
      run = true;
      static = true;
      alone = true;
      plain = true;
    };
    actual =
      let
        tarball = kexec.system.build.image;
        entries = tarball.contents.entries;
      in
      {
        run = lib.hasPrefix "#!/bin/sh\n" entries."kexec/run".text;
        static = lib.hasInfix "-static-" "${entries."kexec/kexec"}";
        alone = tarball.unsafeDiscardReferences.out;
        # By its name nixos-anywhere knows how it is compressed.
        plain = lib.hasSuffix ".tar" tarball.name;
      };
  };
  "a machine whose installer does not come up boots what it had" = {
    expected = [ ];
    actual = lib.subtractLists kexec.boot.kernelParams [
      "panic=30"
      "boot.panic_on_fail"
    ];
  };
  "what the machine keeps across kexec is there before anything reads it" = {
    expected = {
      before = true;
      condition = "/kept";
    };
    actual =
      let
        unit = kexec.boot.initrd.systemd.services.keep-from-before-kexec;
      in
      {
        before = lib.elem "initrd-nixos-activation.service" unit.before;
        condition = unit.unitConfig.ConditionPathExists;
      };
  };
  "a deployment has what is installed on each node, and what the driver compares with its facts" = {
    expected = {
      cluster = "mini-3";
      nodes = [
        "mini1"
        "mini2"
        "mini3"
      ];
      system = mini1.system.build.toplevel.outPath;
      disks = [ mini1.nixwulf.disk.device ];
      nvme = true;
      interfaces = [ ];
      kexec = outputs.packages.x86_64-linux.kexec-generic-x86_64.outPath;
    };
    actual = {
      inherit (deployment) cluster;
      nodes = lib.attrNames deployment.nodes;
      inherit (deployment.nodes.mini1) system kexec;
      inherit (deployment.nodes.mini1.layout) disks interfaces;
      nvme = lib.elem "nvme" deployment.nodes.mini1.layout.modules;
    };
  };
}
