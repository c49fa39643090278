"""Checks of a machine itself: memory, GPU, firmware, containers, and what outlives a login.

Each function is found by its name, which is that of a check.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime

from nixwulf.core.text import GIB
from nixwulf.nodes.interfaces import AMD
from nixwulf.ops.doctor.findings import LOG, Check, Remark, Subject
from nixwulf.plugins.gates.kernel import is_older

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
        if bad != "0":
            yield check.bad(read)
        else:
            yield check.bad(read, state="warning") if mended != "0" else check.ok(read)


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
    """Of each GPU its name, its clock and its highest one, MHz, and its load, percent."""
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
