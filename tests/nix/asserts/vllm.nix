{
  lib,
  pkgs,
  evaluate,
  ...
}:
let
  node = address: settings: {
    nixwulf = {
      cluster.nodes = [
        {
          name = "a";
          addresses.cable = "10.10.0.1";
        }
        {
          name = "b";
          addresses.cable = "10.10.0.2";
        }
        {
          name = "c";
          addresses.office = "192.168.1.3";
        }
      ];
      fabrics.cable = {
        inherit address;
        kind = "usb4-rdma";
        interface = "thunderbolt0";
        prefixLength = 24;
        mtu = 9000;
        speedGbps = 40;
        rdmaDevice = "usb4_rdma0";
        gidIndex = 1;
      };
      vllm = {
        enable = true;
        fabric = "cable";
        model = "/models/a model";
      }
      // settings;
    };
  };
  head = evaluate [
    (node "10.10.0.1" {
      transport = "rdma";
      toolbox = "vllm";
    })
    { nixwulf.toolboxes.names = [ "vllm" ]; }
  ];
  worker = evaluate [
    (node "10.10.0.2" {
      mode = "mp";
      autoStart = true;
      gpuMemoryUtilization = 0.7;
      extraArguments = [ "--max-num-seqs=8" ];
      package = pkgs.writeShellScriptBin "vllm" "";
    })
  ];
  fetching = evaluate [
    (node "10.10.0.2" {
      mode = "mp";
      model = lib.mkForce "Qwen/Qwen3-8B";
      package = pkgs.writeShellScriptBin "vllm" "";
    })
  ];
  rayWorker = evaluate [
    (node "10.10.0.2" { package = pkgs.writeShellScriptBin "vllm" ""; })
  ];
  serviceOf = config: config.systemd.services.vllm;
  textOf = config: config.systemd.units."vllm.service".text;
  # Without the quotes that systemd takes away.
  commandOf =
    config:
    let
      words = lib.splitString " " (lib.replaceString "\"" "" (serviceOf config).serviceConfig.ExecStart);
      withToken = lib.hasSuffix "/with-ray-token" (lib.head words);
    in
    lib.concatStringsSep " " (lib.drop (if withToken then 2 else 1) words);
  interface = config: config.networking.firewall.interfaces.thunderbolt0;
  ephemeral = {
    from = 32768;
    to = 60999;
  };
in
{
  "the first node starts Ray and serves, in one container" = {
    expected =
      "bash -c ray start '--node-ip-address=10.10.0.1' '--num-gpus=1' --disable-usage-stats --head '--port=6379' '--include-dashboard=false'"
      + " && exec vllm serve '/models/a model' --tensor-parallel-size 2 --gpu-memory-utilization 0.9 --host 10.10.0.1 --port 8000"
      + " --enforce-eager --distributed-executor-backend ray";
    actual = commandOf head;
  };
  "another node joins the first one's Ray and stays in the foreground" = {
    expected = "ray start --node-ip-address=10.10.0.2 --num-gpus=1 --disable-usage-stats --address=10.10.0.1:6379 --block";
    actual = lib.removePrefix "vllm " (commandOf rayWorker);
  };
  "without Ray every node has its rank, and only the head an API" = {
    expected =
      "vllm serve /models/a model --tensor-parallel-size 2 --gpu-memory-utilization 0.7 --host 10.10.0.2 --port 8000"
      + " --enforce-eager --nnodes 2 --node-rank 1 --master-addr 10.10.0.1 --master-port 29501 --headless --max-num-seqs=8";
    actual = commandOf worker;
  };
  "Ray's nodes show each other a token, which systemd reads from a file" = {
    expected = lib.replicate 2 {
      mode = "token";
      credential = true;
      program = true;
    };
    actual =
      map
        (config: {
          mode = (serviceOf config).environment.RAY_AUTH_MODE;
          credential = lib.hasInfix "LoadCredential=ray-token:/var/lib/nixwulf/ray-token\n" (textOf config);
          program = lib.hasInfix "/bin/with-ray-token" (serviceOf config).serviceConfig.ExecStart;
        })
        [
          head
          rayWorker
        ];
  };
  "without Ray there is no token" = {
    expected = [
      false
      false
    ];
    actual = [
      ((serviceOf worker).environment ? RAY_AUTH_MODE)
      (lib.hasInfix "LoadCredential" (textOf worker))
    ];
  };
  "rdma names the device exactly and its GID" = {
    expected = {
      NCCL_IB_DISABLE = "0";
      NCCL_IB_HCA = "=usb4_rdma0";
      NCCL_IB_GID_INDEX = "1";
    };
    actual = { inherit ((serviceOf head).environment) NCCL_IB_DISABLE NCCL_IB_HCA NCCL_IB_GID_INDEX; };
  };
  "tcp forbids InfiniBand" = {
    expected = [
      "1"
      false
    ];
    actual = [
      (serviceOf worker).environment.NCCL_IB_DISABLE
      ((serviceOf worker).environment ? NCCL_IB_HCA)
    ];
  };
  "traffic is told the fabric's interface and address" = {
    expected = {
      VLLM_HOST_IP = "10.10.0.2";
      NCCL_SOCKET_IFNAME = "=thunderbolt0";
      GLOO_SOCKET_IFNAME = "thunderbolt0";
      NCCL_NET_GDR_LEVEL = "0";
      PYTHONFAULTHANDLER = "1";
    };
    actual = {
      inherit ((serviceOf worker).environment)
        VLLM_HOST_IP
        NCCL_SOCKET_IFNAME
        GLOO_SOCKET_IFNAME
        NCCL_NET_GDR_LEVEL
        PYTHONFAULTHANDLER
        ;
    };
  };
  "nothing starts it but a person or the driver, unless asked to" = {
    expected = [
      false
      "no"
      true
      "on-failure"
    ];
    actual =
      lib.concatMap
        (config: [
          (lib.hasInfix "ENV{SYSTEMD_WANTS}+=\"vllm.service\"" config.services.udev.extraRules)
          (serviceOf config).serviceConfig.Restart
        ])
        [
          head
          worker
        ];
  };
  "memory may be locked, in a toolbox and outside" = {
    expected = [
      true
      true
    ];
    actual = map (config: lib.hasInfix "LimitMEMLOCK=infinity\n" (textOf config)) [
      head
      worker
    ];
  };
  "outside a toolbox it is nobody, with the devices of a GPU and of RDMA" = {
    expected = [ ];
    actual = lib.filter (line: !lib.hasInfix line (textOf worker)) [
      "DynamicUser=true"
      "ProtectSystem=strict"
      "DeviceAllow=char-kfd"
      "DeviceAllow=char-nvidia*"
      "DeviceAllow=char-infiniband*"
      "ProtectHome=tmpfs"
      "BindReadOnlyPaths=\"/models/a model\""
    ];
  };
  "the API and what the nodes say to each other are open to the nodes only" = {
    expected = {
      ray = [
        8000
        6379
        ephemeral
        {
          from = 10002;
          to = 19999;
        }
      ];
      mp = [
        8000
        29501
        ephemeral
      ];
    };
    actual = {
      # perftest's port is open there as well, because the fabric has RDMA.
      ray = lib.remove 18515 head.nixwulf.fabric-firewall.cable.tcp;
      mp = lib.remove 18515 worker.nixwulf.fabric-firewall.cable.tcp;
    };
  };
  "packets from elsewhere are dropped, but where the model is fetched or podman makes the sandbox" = {
    expected = [
      [
        "10.10.0.2"
        "10.10.0.1"
        "localhost"
      ]
      false
      false
    ];
    actual = [
      worker.systemd.services.vllm.serviceConfig.IPAddressAllow
      (fetching.systemd.services.vllm.serviceConfig ? IPAddressAllow)
      (head.systemd.services.vllm.serviceConfig ? IPAddressAllow)
    ];
  };
  "a toolbox reads the folder of the model" = {
    expected = true;
    actual = lib.elem "/models/a model" head.nixwulf.toolboxes.folders;
  };
  "the firewall opens nowhere else" = {
    expected = [
      [ ]
      [ ]
      [ ]
    ];
    actual = [
      (lib.attrNames (
        lib.filterAttrs (
          _: open: open.allowedTCPPorts != [ ] || open.allowedTCPPortRanges != [ ]
        ) head.networking.firewall.interfaces
      ))
      (lib.intersectLists [ 6379 8000 29501 ] head.networking.firewall.allowedTCPPorts)
      head.networking.firewall.allowedTCPPortRanges
    ];
  };
}
