# HPL with a problem that fits: /etc/nixwulf/HPL.dat, the same on every node.
{
  config,
  lib,
  pkgs,
  utils,
  ...
}:
let
  inherit (lib) mkOption types;
  inherit (config.nixwulf.cluster) where nodes;
  cfg = config.nixwulf.hpl;
  hpl = import ../lib/hpl.nix { inherit lib; };
  fabricService = import ../lib/fabric-service.nix { inherit lib utils config; };
  fabric = fabricService.on cfg.fabric;
  inherit (fabricService.ranges) free;

  memories = map (node: node.memoryGiB) nodes;
  known = memories != [ ] && !lib.elem null memories;

  problem = {
    inherit (hpl.grid (cfg.nodes * cfg.ranksPerNode)) p q;
    inherit (cfg) nb;
    n = hpl.problemSize {
      inherit (cfg)
        memoryGiB
        nodes
        fraction
        nb
        ;
    };
  };
in
{
  imports = [ ./fabric-firewall.nix ];

  options.nixwulf.hpl = {
    enable = lib.mkEnableOption "HPL, and an input file for this cluster";
    blas = mkOption {
      type = types.enum [
        "openblas"
        "blis"
        "amd-blis"
      ];
      default = "openblas";
      description = ''
        The BLAS library, which is most of the result: 308 or 1915 Gflops on the same Framework Desktop
        (https://github.com/geerlingguy/top500-benchmark/issues/66 and 93). BLIS is packaged for x86_64 only.
      '';
    };
    package = mkOption {
      type = types.package;
      default = pkgs."hpl-${cfg.blas}";
      defaultText = lib.literalExpression ''pkgs."hpl-''${config.nixwulf.hpl.blas}"'';
      description = "The HPL to have on PATH, as `xhpl`.";
    };
    mpi = mkOption {
      type = types.package;
      default = pkgs.mpi;
      defaultText = lib.literalExpression "pkgs.mpi";
      description = "The MPI that the package is linked to, for its `mpirun`.";
    };
    fabric = mkOption {
      type = types.nullOr types.str;
      default = null;
      description = ''
        The fabric between the ranks; OpenMPI's ports are opened on it. Closed ports are a hang, not an error
        (https://github.com/geerlingguy/turing-pi-2-cluster/issues/1).
      '';
    };
    nodes = mkOption {
      type = types.ints.positive;
      default = lib.max 1 (lib.length nodes);
      defaultText = lib.literalMD "all of the cluster";
      description = "How many nodes take part.";
    };
    ranksPerNode = mkOption {
      type = types.ints.positive;
      default = 1;
      description = ''
        Ranks on each node; their BLAS threads use the other cores. The grid follows from this number and the nodes':
        where both are set by hand, ranks that are in no grid start and idle.
      '';
    };
    memoryGiB = mkOption {
      type = types.nullOr types.number;
      default = if known then lib.foldl' lib.min (lib.head memories) memories else null;
      defaultText = lib.literalMD "the smallest node's, where all platforms say";
      description = "Memory of the smallest node: every rank gets the same share of the matrix.";
    };
    fraction = mkOption {
      type = types.numbers.between 0.05 0.9;
      default = 0.75;
      description = "Share of the memory for the matrix, of whose order 0.9 is taken: 61 % of all memory by default.";
    };
    nb = mkOption {
      type = types.ints.between 1 4096;
      default = 256;
      description = "Block size.";
    };
    problem = mkOption {
      type = types.attrsOf types.int;
      internal = true;
      readOnly = true;
      default = problem;
      description = "N, NB, P and Q, of which HPL.dat is made.";
    };
  };

  config = lib.mkIf cfg.enable {
    assertions = [
      {
        assertion = cfg.memoryGiB != null;
        message = "${where}: HPL's problem needs the memory of the smallest node, which a platform does not say; set nixwulf.hpl.memoryGiB.";
      }
      {
        assertion = cfg.memoryGiB == null || problem.n > 0;
        message = "${where}: nixwulf.hpl.memoryGiB = ${toString cfg.memoryGiB} holds no block of ${toString cfg.nb}; give the memory of a node in GiB.";
      }
    ]
    ++ lib.optionals (cfg.fabric != null) (fabricService.known "nixwulf.hpl.fabric" cfg.fabric);

    environment = {
      systemPackages = [
        cfg.package
        cfg.mpi
      ];
      # Open MPI listens from port 1024 on by itself, where the firewall is closed: ranks wait for ever. mpirun hands
      # its OMPI_* on to the ranks of all nodes.
      sessionVariables = {
        OMPI_MCA_btl_tcp_port_min_v4 = toString free.from;
        OMPI_MCA_btl_tcp_port_range_v4 = toString (free.to - free.from + 1);
      };
      etc."nixwulf/HPL.dat" = lib.mkIf (cfg.memoryGiB != null) { text = hpl.dat problem; };
    };

    nixwulf.fabric-firewall = lib.mkIf (cfg.fabric != null) {
      ${cfg.fabric}.tcp = [ free ];
    };
  };
}
