{
  lib,
  pkgs,
  evaluate,
  ...
}:
let
  hpl = import ../../../lib/hpl.nix { inherit lib; };
  sizeOf =
    memoryGiB: nodes:
    hpl.problemSize {
      inherit memoryGiB nodes;
      fraction = 0.75;
      nb = 256;
    };
  config = evaluate [
    {
      nixwulf.cluster.nodes = [
        {
          name = "a";
          memoryGiB = 16;
        }
        {
          name = "b";
          memoryGiB = 8;
        }
        {
          name = "c";
          memoryGiB = 16;
        }
      ];
      nixwulf.fabrics.switch = {
        kind = "ethernet";
        interface = "enp1s0";
        address = "192.168.1.31";
        prefixLength = 24;
        mtu = 1500;
        speedGbps = 2.5;
      };
      nixwulf.hpl = {
        enable = true;
        ranksPerNode = 4;
        fabric = "switch";
      };
    }
  ];
  lines = lib.splitString "\n" config.environment.etc."nixwulf/HPL.dat".text;
  numbers = map (line: lib.head (lib.splitString " " line)) lines;
  inherit (config.networking) firewall;
in
{
  "a square root is exact, also where floats are not" = {
    expected = [
      0
      1
      1
      1
      2
      2
      3
      94906266
      94906265
      3037000499
    ];
    actual = map hpl.isqrt [
      0
      1
      2
      3
      4
      8
      9
      9007199326062756
      9007199326062755
      9223372030926249001
    ];
  };
  "the problem is floor(sqrt(bytes * 0.75 / 8) * 0.9), down to a multiple of NB" = {
    # 25540.1, 88473.6 and 204321.0 by Python's decimals.
    expected = [
      25344
      88320
      204288
    ];
    actual = [
      (sizeOf 8 1)
      (sizeOf 16 6)
      (sizeOf 128 4)
    ];
  };
  "the grid is the squarest with P <= Q" = {
    expected = [
      "1x1"
      "1x2"
      "1x3"
      "2x2"
      "2x4"
      "3x4"
      "1x13"
      "5x8"
      "8x8"
    ];
    actual =
      map
        (
          ranks:
          let
            grid = hpl.grid ranks;
          in
          "${toString grid.p}x${toString grid.q}"
        )
        [
          1
          2
          3
          4
          8
          12
          13
          40
          64
        ];
  };
  "the problem is the smallest node's memory times the nodes, the grid all ranks" = {
    expected = {
      n = 44032;
      nb = 256;
      p = 3;
      q = 4;
    };
    actual = config.nixwulf.hpl.problem;
  };
  "HPL.dat has the values where HPL reads them" = {
    expected = {
      "5" = "44032";
      "7" = "256";
      "10" = "3";
      "11" = "4";
    };
    actual = lib.genAttrs [ "5" "7" "10" "11" ] (line: lib.elemAt numbers (lib.toInt line));
  };
  "HPL.dat has the 31 lines that HPL 2.3 reads" = {
    expected = 31;
    actual = lib.length (lib.remove "" lines);
  };
  "xhpl and its mpirun are on PATH" = {
    expected = [ ];
    actual = lib.subtractLists config.environment.systemPackages [
      pkgs.hpl-openblas
      pkgs.mpi
    ];
  };
  "MPI listens where the firewall is open: its 28,232 ports from 32,768 on are those up to 60,999" = {
    expected = {
      OMPI_MCA_btl_tcp_port_min_v4 = "32768";
      OMPI_MCA_btl_tcp_port_range_v4 = "28232";
    };
    actual = lib.filterAttrs (name: _: lib.hasPrefix "OMPI_" name) config.environment.variables;
  };
  "MPI's ports are open to the nodes of the fabric and nowhere else" = {
    expected = {
      nodes.switch = {
        tcp = [
          {
            from = 32768;
            to = 60999;
          }
        ];
        ipv6 = false;
        udp = [ ];
      };
      interfaces = [ ];
      everywhere = [ ];
    };
    actual = {
      nodes = config.nixwulf.fabric-firewall;
      interfaces = lib.attrNames firewall.interfaces;
      everywhere = firewall.allowedTCPPortRanges;
    };
  };
}
