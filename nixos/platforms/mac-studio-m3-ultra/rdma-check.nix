# Says what is missing for RDMA over Thunderbolt, one sentence each; exits 0 when nothing is.
{ writeShellApplication }:
writeShellApplication {
  name = "nixwulf-rdma-check";
  text = ''
    problems=0
    problem() {
      echo "$1"
      problems=$((problems + 1))
    }

    version=$(/usr/bin/sw_vers -productVersion)
    oldest=$(printf '%s\n' 26.2 "$version" | sort -t. -k1,1n -k2,2n | head -n 1)
    [ "$oldest" = 26.2 ] || problem "macOS is '$version'; RDMA needs 26.2, and the same build on all nodes."

    devices=$(ibv_devices 2>/dev/null | grep -c rdma_en || true)
    [ "$devices" -gt 0 ] || problem "ibv_devices lists no rdma_en device, and rdma_ctl says \
    '$(rdma_ctl status 2>&1)'; start into recovery mode and run 'rdma_ctl enable' in its Terminal."

    active=$(ibv_devinfo 2>/dev/null | grep -c PORT_ACTIVE || true)
    [ "$active" -gt 0 ] || problem "No port is PORT_ACTIVE; connect a Mac that has RDMA enabled by a Thunderbolt 5 cable."

    if /sbin/ifconfig bridge0 2>/dev/null | grep -q 'status: active'; then
      problem "The Thunderbolt Bridge is on; delete it in System Settings, Network."
    fi

    [ "$problems" -gt 0 ] || echo "RDMA is enabled: $active of $devices ports active."
    exit $((problems > 0))
  '';
}
