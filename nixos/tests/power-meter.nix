# The benchmarks' user may read the energy counters as soon as a machine has switched to a system that lets it.
# No emulated processor has RAPL: a kernel module registers a zone like its own with the kernel's powercap class.
{ desk, ... }:
let
  counter = "/sys/class/powercap/intel-rapl:0/energy_uj";

  standIn =
    {
      lib,
      stdenv,
      kernel,
    }:
    stdenv.mkDerivation {
      pname = "powercap-stand-in";
      version = "1";
      src = ./power-meter;
      hardeningDisable = [ "pic" ];
      nativeBuildInputs = kernel.moduleBuildDependencies;
      buildPhase = ''
        make -C ${kernel.dev}/lib/modules/${kernel.modDirVersion}/build M=$PWD modules
      '';
      installPhase = ''
        install -D -m 644 -t $out/lib/modules/${kernel.modDirVersion}/extra powercap-stand-in.ko
      '';
      meta.license = lib.licenses.gpl2Only;
    };
in
{
  nodes = {
    inherit desk;
    node1 =
      { config, ... }:
      {
        boot.extraModulePackages = [ (config.boot.kernelPackages.callPackage standIn { }) ];
        boot.kernelModules = [ "powercap-stand-in" ];
        # The real one's name is taken.
        boot.blacklistedKernelModules = [
          "intel_rapl_common"
          "intel_rapl_msr"
        ];
        users.users.stranger = {
          isNormalUser = true;
          openssh.authorizedKeys.keys = config.nixwulf.cluster.sshKeys;
        };
        system.switch.enable = true;
        specialisation.metered.configuration.nixwulf.power-meter.enable = true;
      };
  };

  testScript = ''
    READ = "cat ${counter}"

    def reads(user: str) -> bool:
        return desk.execute(f"ssh {user}@node1 {READ}")[0] == 0

    start_all()
    for machine in machines:
        machine.wait_for_unit("multi-user.target")

    with subtest("only root may read the counter before"):
        t.assertGreater(int(node1.succeed(READ)), 0)
        desk.succeed("ssh bench@node1 true && ssh stranger@node1 true")
        t.assertFalse(reads("bench"))

    with subtest("right after the switch the benchmarks' user may read it, and no stranger may"):
        node1.succeed(
            "/run/booted-system/specialisation/metered/bin/switch-to-configuration test >&2"
        )
        t.assertTrue(reads("bench"))
        t.assertFalse(reads("stranger"))

    with subtest("so it is with a counter that comes later, with its module"):
        node1.succeed("rmmod powercap-stand-in && modprobe powercap-stand-in")
        node1.succeed("udevadm settle")
        t.assertTrue(reads("bench"))
        t.assertFalse(reads("stranger"))
  '';
}
