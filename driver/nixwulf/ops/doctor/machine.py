"""Checks of a machine and its links; each function is found by its name, which is that of a check.

Links are PCIe, ports of networks, RoCE, cables, and what joins Macs. Of the machine itself: memory,
GPU, firmware, containers, and what outlives a login.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime

from nixwulf.core.text import GIB, format_significant
from nixwulf.inventory.fabrics import TRAINED_KINDS
from nixwulf.nodes.interfaces import AMD, ROCE_V2, ipv4_of_gid
from nixwulf.ops.doctor.findings import LOG, Check, Remark, Subject, functions_of
from nixwulf.plugins.gates import on_lab
from nixwulf.plugins.gates.kernel import is_older

_CLASSES = ("/sys/class/net/*", "/sys/class/drm/card*", "/sys/class/nvme/*")
_GPU, _NET = "/sys/class/drm/", "/sys/class/net/"
_WIRED = frozenset({"ethernet", "thunderbolt", "infiniband"})


def _devices(subject: Subject) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Network cards, GPUs and disks: the path, a name for people, its files.

    Wi-Fi is left out: its PCIe is far faster than its air, and saves power by training lower.
    """
    for pattern in _CLASSES:
        for path, files in subject.folders(pattern).items():
            if "DEVTYPE=wlan" not in subject.reading.lines.get(f"{path}/uevent", ()):
                yield path, path.rpartition("/")[2], files


def _width(text: str) -> int:
    """Lanes; 0 where the device tells none (the kernel has 0, 63 or 255 for that)."""
    return int(text) if re.fullmatch(r"[1-9][0-9]?", text) and int(text) <= 32 else 0  # noqa: PLR2004


def _speed(text: str) -> float:
    """GT/s of '16.0 GT/s PCIe'; 0 for 'Unknown'."""
    match = re.match(r"([0-9]{1,3}(?:\.[0-9])?) GT/s", text)
    return float(match[1]) if match else 0.0


def _at_most(files: Mapping[str, str], what: str) -> str:
    """The lesser of what a device can and what the port above it can, as the kernel writes it."""
    both = [files.get(f"device/{up}max_link_{what}", "") for up in ("", "../")]
    value = _width if what == "width" else _speed
    return min((text for text in both if value(text)), key=value, default="")


def _pcie_lanes(subject: Subject, check: Check) -> Iterator[Remark]:
    for _, name, files in _devices(subject):
        now = _width(files.get("device/current_link_width", ""))
        most = _width(_at_most(files, "width"))
        if now and most:
            yield check.when(now < most, f"{name} runs x{now}", f"x{most}, as both ends can")


def _pcie_speed(subject: Subject, check: Check) -> Iterator[Remark]:
    for path, name, files in _devices(subject):
        now = _speed(files.get("device/current_link_speed", ""))
        most = _speed(_at_most(files, "speed"))
        # An idle GPU trains down to save power, and up again under load.
        if now and most and not path.startswith(_GPU):
            read = f"{name} runs at {now:g} GT/s"
            yield check.when(now < most, read, f"{most:g} GT/s, as both ends can")


def _pcie_rate(subject: Subject, check: Check) -> Iterator[Remark]:
    """Compare the rates of interfaces that are one port of one card, since they share its link."""
    lanes = {float(key): value for key, value in check.numbers["lane_gbps"].items()}
    wanted = {end.interface: fabric.speed_gbps for fabric, end in subject.ends}
    # Of a platform whose slot is known a cluster file says what the link should carry.
    slot = any(port["kind"] == "pcie" for port in subject.platform.get("ports", ()))
    ports: dict[str, list[tuple[str, float, float]]] = {}
    folders = subject.folders(f"{_NET}*")
    for one in subject.interfaces:
        files = folders.get(f"{_NET}{one.name}", {})
        now = lanes.get(_speed(files.get("device/current_link_speed", "")), 0.0)
        rate = now * _width(files.get("device/current_link_width", ""))
        speed = one.speed_gbps if one.carrier else None
        judged = one.name in wanted or not slot
        if rate and speed and judged and one.medium in _WIRED:
            port = one.physical_port or one.name
            ports.setdefault(port, []).append(
                (one.name, rate, min(speed, wanted.get(one.name, speed)))
            )
    for members in ports.values():
        names = " and ".join(name for name, _, _ in members)
        rate, speed = sum(rate for _, rate, _ in members), max(speed for _, _, speed in members)
        read = f"PCIe carries {format_significant(rate)} Gbit/s to {names}"
        yield check.when(rate < speed, read, f"{speed:g} Gbit/s, as the link")


def _pcie_errors(subject: Subject, check: Check) -> Iterator[Remark]:
    for path, name, _ in _devices(subject):
        totals: dict[str, int] = {}
        for kind in ("fatal", "nonfatal"):
            lines = subject.reading.lines.get(f"{path}/device/aer_dev_{kind}", ())
            count = re.search(r"^TOTAL_ERR_\w+ ([0-9]{1,18})$", "\n".join(lines), re.MULTILINE)
            if count:
                totals[kind] = int(count[1])
        if totals:
            read = f"{name} counts " + ", ".join(f"{n} {kind}" for kind, n in totals.items())
            yield check.when(any(totals.values()), read)


def _carrier(subject: Subject, check: Check) -> Iterator[Remark]:
    known = {one.name: one for one in subject.interfaces}
    for fabric, end in subject.ends:
        if end.interface in known:
            linked = known[end.interface].carrier
            read = f"{end.interface} of {fabric.name!r} has {'a' if linked else 'no'} link"
            yield check.when(not linked, read)


_MODE = re.compile(r"\b([0-9]{2,6})base\S+/")


def _modes(lines: Sequence[str]) -> set[int]:
    """Mbit/s of the modes below 'Supported link modes' of ethtool."""
    found: set[int] = set()
    inside = False
    for line in lines:
        key, colon, value = line.strip().partition(":")
        if colon:
            inside = key == "Supported link modes"
        if inside:
            found |= {int(mode) for mode in _MODE.findall(value if colon else line)}
    return found


def _port_rate(subject: Subject, check: Check) -> Iterator[Remark]:
    wanted = {end.interface: fabric.speed_gbps for fabric, end in subject.ends}
    folders = subject.reading.lines.get("@folders", ())
    for one in subject.interfaces:
        speed = one.speed_gbps if one.carrier and one.medium in {"ethernet", "infiniband"} else None
        # One that is no hardware, such as a veth or a bridge, has a rate in name only.
        if not speed or f"../../devices/virtual/net/{one.name}" in folders:
            continue
        read = f"{one.name} is linked at {speed:g} Gbit/s"
        modes = _modes(subject.reading.lines.get(f"@ethtool {one.name}", ()))
        if one.name in wanted:
            fault = speed < wanted[one.name]
            expected = f"{wanted[one.name]:g} Gbit/s, as the cluster file has it"
            yield check.bad(read, expected, "wrong") if fault else check.ok(read, expected)
        elif modes:
            most = max(modes) / 1000
            yield check.when(speed < most, read, f"{most:g} Gbit/s, its fastest mode")


# 200 Gbit/s and more are PAM4, which has no mode without error correction (IEEE 802.3cd).
_NEEDS_FEC_GBPS = 200


def _active_fec(subject: Subject, interface: str) -> str:
    text = "\n".join(subject.reading.lines.get(f"@fec {interface}", ()))
    match = re.search(r"^Active FEC encodings?: (.+)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def _fec(subject: Subject, check: Check) -> Iterator[Remark]:
    speeds = {one.name: one.speed_gbps or 0 for one in subject.interfaces if one.carrier}
    for interface, speed in speeds.items():
        ours = _active_fec(subject, interface)
        on = [fabric.name for fabric, end in subject.ends if end.interface == interface]
        theirs = {
            fec
            for other in subject.others
            for fabric, end in other.ends
            if fabric.name in on
            if (fec := _active_fec(other, end.interface))
        }
        read = f"{interface} has FEC {ours!r}"
        if ours and theirs - {ours}:
            yield check.bad(read, f"{sorted(theirs)[0]!r}, as the other end")
        elif ours and speed >= _NEEDS_FEC_GBPS:
            yield check.when(ours in {"Off", "None"}, read, "'RS'")
        elif ours:
            yield check.ok(read)


def _roce_gid(subject: Subject, check: Check) -> Iterator[Remark]:
    """Check ports outside a cluster file's fabrics; for the others gate 'gid' knows the index."""
    named = {name for _, end in subject.ends for name in end.rdma_devices}
    for name, device in subject.facts.hardware.rdma.items():
        layer = subject.first(f"/sys/class/infiniband/{name}/ports/1/link_layer")
        if layer != "Ethernet" or device.state != "ACTIVE" or name in named:
            continue
        of_addresses = [index for index, gid in device.gids.items() if ipv4_of_gid(gid)]
        right = [index for index in of_addresses if device.types.get(index) == ROCE_V2]
        kinds = ", ".join(sorted({device.types.get(index, "?") for index in of_addresses}))
        read = f"{name}: GIDs of IPv4 addresses are of type {kinds}" if kinds else f"{name}: none"
        yield check.when(not right, read)


def _roce_mtu(subject: Subject, check: Check) -> Iterator[Remark]:
    text = "\n".join(subject.reading.lines.get("@ibv", ()))
    for part in re.split(r"(?m)^hca_id:\s*", text)[1:]:
        name = part.split(maxsplit=1)[0]
        active = re.search(r"active_mtu:\s*([0-9]{3,5})\b", part)
        up = "PORT_ACTIVE" in part and re.search(r"link_layer:\s*Ethernet", part)
        software = f"/sys/class/infiniband/{name}/parent" in subject.reading.lines
        if active and up and not software:
            read = f"{name} has active_mtu {active[1]}"
            yield check.when(int(active[1]) < check.numbers["least"], read)


def _nic_firmware(subject: Subject, check: Check) -> Iterator[Remark]:
    for one in subject.interfaces:
        lines = subject.reading.lines.get(f"@driver {one.name}", ())
        told = dict(line.partition(":")[::2] for line in lines)
        floor = check.numbers["floors"].get(told.get("driver", "").strip())
        version = re.search(r"[0-9]+(?:\.[0-9]+)+", told.get("firmware-version", ""))
        if floor and version:
            old = is_older(version[0], floor["least"])
            read = f"{one.name} has firmware {version[0]}"
            state = check.state if old else "ok"
            yield Remark(state, read, f"{floor['least']} or newer", floor["source"])


def _crc_errors(subject: Subject, check: Check) -> Iterator[Remark]:
    for one in subject.interfaces:
        root = f"{_NET}{one.name}/statistics/rx"
        damaged, frames = subject.number(f"{root}_crc_errors"), subject.number(f"{root}_packets")
        if damaged is not None and frames and one.medium in _WIRED:
            read = f"{one.name} received {damaged} damaged of {frames} frames"
            yield check.when(damaged > frames * check.numbers["most_per_frame"], read)


def _one_subnet(subject: Subject, check: Check) -> Iterator[Remark]:
    links: dict[ipaddress.IPv4Network, list[str]] = {}
    for one in subject.interfaces:
        if one.carrier and one.medium in _WIRED:
            for network in {address.network for address in one.addresses}:
                links.setdefault(network, []).append(one.name)
    fabric = {end.interface for _, end in subject.ends}
    for network, names in links.items():
        if len(names) > 1:
            read = f"{' and '.join(names)} are both in {network}"
            yield check.bad(read, state="wrong" if fabric & set(names) else None)
    if links and all(len(names) == 1 for names in links.values()):
        yield check.ok(", ".join(f"{names[0]} in {network}" for network, names in links.items()))


def _moved_interface(subject: Subject, check: Check) -> Iterator[Remark]:
    known = {one.name for one in subject.interfaces}
    owners = {str(at.ip): one.name for one in subject.interfaces for at in one.addresses}
    for _, end in subject.ends:
        owner = owners.get(end.address)
        if end.interface not in known and owner:
            read = f"{end.address} is on {owner!r}, and no {end.interface!r} is there"
            yield check.bad(read, f"{end.interface!r}, as the cluster file has it")
        elif owner == end.interface:
            yield check.ok(f"{end.address} is on {owner!r}")


def _usb4_lanes(subject: Subject, check: Check) -> Iterator[Remark]:
    # The gate 'usb4' knows the platform's ports, and holds on no lab.
    if any(f.kind in TRAINED_KINDS for f, _ in subject.ends) and not on_lab(subject.node):
        return
    for name, link in subject.facts.hardware.links.items():
        if link is None:
            continue
        ways = (("sends", link.tx_gbps, link.tx_lanes), ("receives", link.rx_gbps, link.rx_lanes))
        words = ", ".join(f"{way} {lane:g} Gb/s x {lanes}" for way, lane, lanes in ways)
        slow = any(lane * lanes < check.numbers["least_gbps"] for _, lane, lanes in ways)
        yield check.when(slow, f"cable {name} {words}")


def _thunderbolt_bridge(subject: Subject, check: Check) -> Iterator[Remark]:
    if not subject.mac or not any(one.cable for one in subject.interfaces):
        return
    bridges = [
        one.name
        for one in subject.interfaces
        if one.name.startswith("bridge") and one.medium == "thunderbolt"
    ]
    read = f"{', '.join(bridges)} bridges Thunderbolt ports" if bridges else "none"
    yield check.when(bool(bridges), read)


def _metal_fast_synch(subject: Subject, check: Check) -> Iterator[Remark]:
    if subject.mac and any(one.cable for one in subject.interfaces):
        value = subject.first("@fast-synch")
        yield check.when(value != "1", f"MLX_METAL_FAST_SYNCH={value or '(unset)'}")


_MIB = 2**20


def _gib(count: float) -> str:
    return f"{count / GIB:.1f} GiB"


def _uma_carve_out(subject: Subject, check: Check) -> Iterator[Remark]:
    hardware = subject.facts.hardware
    if hardware.targets & set(check.numbers["targets"]):
        for gpu in hardware.gpus:
            if gpu.vendor == AMD and gpu.vram_bytes:
                fault = gpu.vram_bytes > check.numbers["most_gib"] * GIB
                yield check.when(fault, f"{_gib(gpu.vram_bytes)} are the GPU's alone")


def _cma(subject: Subject, check: Check) -> Iterator[Remark]:
    total, free = (subject.memory.get(name) for name in ("CmaTotal", "CmaFree"))
    if total is not None and free is not None:
        read = f"CmaTotal {total // 1024} kB, CmaFree {free // 1024} kB"
        yield check.when(free > total, read)


def _swap(subject: Subject, check: Check) -> Iterator[Remark]:
    total, free = subject.memory.get("SwapTotal"), subject.memory.get("SwapFree", 0)
    if total is not None:
        out, available = total - free, subject.facts.memory_available
        read = f"{_gib(out)} of {_gib(total)} of swap are used, {_gib(available)} are available"
        yield check.when(out > available, read)


def _swappiness(subject: Subject, check: Check) -> Iterator[Remark]:
    value = subject.number("/proc/sys/vm/swappiness")
    swaps = [line.split()[0] for line in subject.reading.lines.get("/proc/swaps", ())[1:] if line]
    on_disk = [place for place in swaps if "zram" not in place]
    if value is not None:
        read = f"{value}, swap on {', '.join(swaps) or 'nothing'}"
        yield check.when(bool(on_disk) and value > check.numbers["most"], read)


def _shared_memory(subject: Subject, check: Check) -> Iterator[Remark]:
    text = "\n".join(subject.reading.lines.get("@shm", ()))
    row = re.search(r"^.* +([0-9]{1,18}) +[0-9]{1,18} +[0-9]{1,18} +\S+ +/dev/shm$", text, re.M)
    if row:
        size = int(row[1]) * 1024
        fault = size < check.numbers["least_gib"] * GIB
        yield check.when(fault, f"{size / _MIB:.0f} MiB of /dev/shm")
    elif text:
        yield check.bad(text.splitlines()[-1])


def _huge_pages(subject: Subject, check: Check) -> Iterator[Remark]:
    free, size = (subject.memory.get(name) for name in ("HugePages_Free", "Hugepagesize"))
    if free is not None and size is not None:
        read = f"{free} free pages of {size // 1024} kB ({_gib(free * size)})"
        yield check.when(free > 0, read)


def _memory_errors(subject: Subject, check: Check) -> Iterator[Remark]:
    for folder, files in subject.folders("/sys/devices/system/edac/mc/mc*").items():
        name = folder.rpartition("/")[2]
        bad, mended = files.get("ue_count", "0"), files.get("ce_count", "0")
        read = f"{name} counts {bad} not corrected, {mended} corrected"
        state = check.state if bad != "0" else "warning" if mended != "0" else "ok"
        yield Remark(state, read)


def _wired_limit(subject: Subject, check: Check) -> Iterator[Remark]:
    text = subject.facts.other.get("iogpu.wired_limit_mb", "")
    if subject.mac and text.isdecimal():
        limit = int(text) * _MIB
        read = f"{text} of {subject.facts.memory_total // _MIB}"
        yield check.when(limit >= subject.facts.memory_total, read)


def _bios_date(subject: Subject, check: Check) -> Iterator[Remark]:
    text = subject.first("/sys/class/dmi/id/bios_date")
    product = subject.facts.other.get("product", "")
    try:
        made = datetime.strptime(text, "%m/%d/%Y").date()
    except ValueError:
        return
    for floor in check.numbers["floors"]:
        if re.search(floor["product"], product):
            old = made < date.fromisoformat(floor["least"])
            yield check.when(
                old, f"firmware of {made}", f"{floor['least']} or later: {floor['why']}"
            )


def _nvidia(subject: Subject) -> Iterator[dict[str, str]]:
    """Rows of what facts.sh asks nvidia-smi for, without the values that a GPU has not."""
    names = ("index", "name", "mhz", "most_mhz", "load", "limit", "default_limit", "errors")
    for line in subject.reading.lines.get("@nvidia", ()):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(names) and cells[0].isdecimal():
            known = dict(zip(names, cells, strict=True))
            yield {key: value for key, value in known.items() if not value.startswith("[")}


def _number(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?", text) else None


def _clocks(subject: Subject) -> Iterator[tuple[str, float | None, float | None, float | None]]:
    """Read each GPU's name, clock and highest clock, MHz, and load, percent."""
    for row in _nvidia(subject):
        name = f"GPU {row['index']} ({row.get('name', '?')})"
        yield name, _number(row.get("mhz")), _number(row.get("most_mhz")), _number(row.get("load"))
    for folder, files in subject.folders("/sys/class/drm/card*").items():
        lines = subject.reading.lines.get(f"{folder}/device/pp_dpm_sclk", ())
        steps = [re.fullmatch(r"[0-9]+: ([0-9]{1,6})Mhz( \*)?\s*", line) for line in lines]
        clocks = [(float(step[1]), bool(step[2])) for step in steps if step]
        if clocks:
            now = next((mhz for mhz, chosen in clocks if chosen), None)
            load = _number(files.get("device/gpu_busy_percent"))
            yield folder.rpartition("/")[2], now, max(mhz for mhz, _ in clocks), load


def _gpu_clock(subject: Subject, check: Check) -> Iterator[Remark]:
    for name, now, most, load in _clocks(subject):
        if now is None or not most or load is None:
            continue
        read = f"{name} runs at {now:,.0f} of {most:,.0f} MHz with {load:g} % load"
        busy = load >= check.numbers["least_load_percent"]
        yield check.when(busy and now < check.numbers["least_share"] * most, read)


def _load_watts(subject: Subject, check: Check) -> Iterator[Remark]:
    """Judge what load.py sampled while the machine computed; without a load there is nothing."""
    chips = {row.get("name", "") for row in _nvidia(subject)} | subject.facts.hardware.targets
    floor = next((one for one in check.numbers["floors"] if one["chip"] in chips), None)
    for line in subject.reading.lines.get("@watts", ()):
        source, _, text = line.partition(" ")
        watts = _number(text)
        if watts is None:
            continue
        read = f"{source} takes {watts:g} W under load"
        if floor is None or not source.startswith(("amdgpu:", "nvidia:")):
            yield check.ok(read, "no figure is known of it")
            continue
        state = check.state if watts < floor["least"] else "ok"
        yield Remark(state, read, f"{floor['least']} W or more", floor["source"])


def _temperature(subject: Subject, check: Check) -> Iterator[Remark]:
    for files in subject.folders("/sys/class/hwmon/hwmon*").values():
        now, most = (_number(files.get(f"temp1_{part}")) for part in ("input", "crit"))
        if now and most:
            read = f"{files.get('name', 'a sensor')} has {now / 1000:.0f} of {most / 1000:.0f} °C"
            yield check.when(now / 1000 > most / 1000 - check.numbers["least_room_c"], read)


def _gpu_power_limit(subject: Subject, check: Check) -> Iterator[Remark]:
    limits = [
        (f"GPU {row['index']}", _number(row.get("limit")), _number(row.get("default_limit")))
        for row in _nvidia(subject)
    ]
    for folder, files in subject.folders("/sys/class/drm/card*/device/hwmon/hwmon*").items():
        now, made = (_number(files.get(name)) for name in ("power1_cap", "power1_cap_default"))
        limits.append((folder.split("/")[4], now and now / 1e6, made and made / 1e6))
    for name, now, made in limits:
        if now and made:
            yield check.when(now < made, f"{name} may take {now:g} W", f"{made:g} W, its default")


def _gpu_memory_errors(subject: Subject, check: Check) -> Iterator[Remark]:
    for row in _nvidia(subject):
        count = _number(row.get("errors"))
        if count is not None:
            yield check.when(count > 0, f"GPU {row['index']} counts {count:g} since the boot")


def _cuda_driver(subject: Subject, check: Check) -> Iterator[Remark]:
    driver = subject.facts.hardware.nvidia_driver
    # 'vllm nvidia_cuda_runtime_cu12-12.8.90.dist-info', 'vllm torch-2.9.0+cu130.dist-info'
    form = re.compile(r"(\S+) (?:nvidia_cuda_runtime\S*-([0-9]+)\.|torch-\S+\+cu([0-9]{2})[0-9])")
    for line in subject.reading.lines.get("@cuda", ()):
        match = form.match(line)
        floor = check.numbers["floors"].get(match[2] or match[3]) if match else None
        if match and floor and driver:
            read = f"driver {driver}, and {match[1]} has CUDA {match[2] or match[3]}"
            yield check.when(is_older(driver, floor), read, f"driver {floor} or newer")


def _container_gpu(subject: Subject, check: Check) -> Iterator[Remark]:
    driver = subject.facts.hardware.nvidia_driver
    have = {line.strip() for line in subject.reading.lines.get("@have", ())}
    runtimes = sorted(have & {"docker", "podman"})
    if not driver or not runtimes:
        return
    specs = subject.reading.lines.get("@cdi", [])
    for spec in specs:
        path, _, library = spec.partition(" ")
        version = library.removeprefix("libcuda.so.").strip()
        if version and version != "1":
            read = f"{path} is of driver {version}, and {driver} is loaded"
            yield check.bad(read, state="wrong") if version != driver else check.ok(read)
    if not specs and "podman" in have:
        yield check.bad(f"{', '.join(runtimes)}, and no CDI specification of the GPU")


def _docker_socket(subject: Subject, check: Check) -> Iterator[Remark]:
    have = {line.strip() for line in subject.reading.lines.get("@have", ())}
    sockets = subject.reading.lines.get("@docker", ())
    if sockets and "docker" in have and "podman" not in have:
        yield check.when("open" not in sockets, f"docker's socket is {sockets[0]} to this user")


_SYSTEM_USERS = 1000
"""The first user id of a person: logind leaves what belongs to those below it."""


def _remove_ipc(subject: Subject, check: Check) -> Iterator[Remark]:
    removes, linger = subject.first("@remove-ipc"), subject.first("@linger").lower()
    user = subject.number("@uid")
    if removes in {"b true", "b false"} and user is not None:
        person = user >= _SYSTEM_USERS
        read = f"RemoveIPC={removes[2:]}, {linger or 'Linger unknown'}, user {user}"
        yield check.when(removes == "b true" and person and linger == "linger=no", read)


def _kernel_log(subject: Subject, check: Check) -> Iterator[Remark]:
    if not subject.mac and subject.facts.system:
        there = LOG in subject.reading.lines
        yield check.ok("readable") if there else check.unknown("This user may not read it.")


def _tools(subject: Subject, check: Check) -> Iterator[Remark]:
    for name in sorted({line.strip() for line in subject.reading.lines.get("@absent", ())}):
        tells = check.numbers["tells"].get(name)
        yield check.unknown(f"no {name!r} on PATH" + (f", which tells {tells}" if tells else ""))


CHECKS = functions_of(sys.modules[__name__])
