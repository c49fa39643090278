"""What a node prints of its power is read as it is documented, and no text breaks the reading.

The outputs below are written after the documents that samples.py names;
that of an H200 is what it printed.
"""

import os
import shutil
import subprocess
from collections import Counter
from importlib import resources
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nixwulf.nodes.power import parse, unwrapped
from stand_in import put
from tool_outputs import fixture

SAMPLER = Path(str(resources.files("nixwulf"))) / "nodes" / "power" / "sampler.sh"
# no output: lines of our own sampler.sh, which a test below runs on a tree of files
LINUX = """\
# boot 6fa1
# range rapl:0 262143328850
# sensor hwmon3 k10temp
# sensor thermal_zone0 INT3400 Thermal
# unreadable rapl:1
# ready
100.00 rapl:0 262143000000 amdgpu:hwmon4 61000000
100.00 temp:hwmon3 71250 temp:thermal_zone0 -5000
100.00 khz 3450000 khz_limit 5187000
100.00 count:core_throttle 3 count:package_throttle 0
100.20 rapl:0 8671150 amdgpu:hwmon4 63000000
"""
# hand-made: a GPU without watts is not at hand (form: nvidia-smi --help-query-gpu and
# https://docs.nvidia.com/deploy/nvidia-smi/index.html)
NVIDIA = """\
# have nvidia-smi
# ready
7.31 nvidia 0, 61.23, 45, 1980, 2100, 0x0000000000000004
7.32 nvidia 1, [N/A], 44, 1970, 2100, 0x0000000000000000
7.51 nvidia 0, [Unknown Error], 45, 1980, 2100, 0x0000000000000000
7.52 nvidia No devices were found
"""
# hand-made: no Raspberry Pi is at hand
# (form: https://www.raspberrypi.com/documentation/computers/os.html#vcgencmd)
PI = """\
# have vcgencmd
# ready
50.01 vcgencmd throttled=0x50005
50.01 vcgencmd temp=48.3'C
50.01 pmic    3V3_SYS_A current(1)=0.05000000A
50.01 pmic    VDD_CORE_A current(7)=2.50000000A
50.01 pmic    3V3_SYS_V volt(9)=3.30000000V
50.01 pmic    VDD_CORE_V volt(15)=0.80000000V
50.01 pmic    EXT5V_V volt(24)=5.15141000V
"""
# hand-made: no Mac is at hand (form: powermetrics(1), and what
# driver/nixwulf/nodes/power/__init__.py names)
MAC = """\
# boot 11-22
# have powermetrics
# ready
Machine model: Mac15,14
*** Sampled system activity (Sat Jan  3 10:00:00 2026 +0100) (203.44ms elapsed) ***

**** Processor usage ****
CPU Power: 1000 mW
GPU Power: 23000 mW
ANE Power: 0 mW
Combined Power (CPU + GPU + ANE): 24000 mW

**** GPU usage ****
GPU Power: 23000 mW

**** Thermal pressure ****
Current pressure level: Nominal
*** Sampled system activity (Sat Jan  3 10:00:00 2026 +0100) (200.00ms elapsed) ***
Combined Power (CPU + GPU + ANE): 26000 mW
Current pressure level: Heavy
"""
H200 = fixture("nvidia-smi/sampler-h200.txt")
OUTPUTS = [LINUX, NVIDIA, H200, PI, MAC]


def test_linux_files_are_read_in_joules_watts_degrees_and_megahertz():
    samples = parse(LINUX)
    assert samples.ready
    assert samples.reported("unreadable") == ["rapl:1"]
    assert samples.reported("sensor") == ["hwmon3 k10temp", "thermal_zone0 INT3400 Thermal"]
    (_, first), (moment, second) = samples.series["rapl:0"]
    assert moment == 100.2
    assert second - first == pytest.approx(9.0, abs=1e-5), "the counter started again"
    assert samples.series["amdgpu:hwmon4"] == [(100.0, 61.0), (100.2, 63.0)]
    assert samples.series["temp:hwmon3"] == [(100.0, 71.25)]
    assert samples.series["temp:thermal_zone0"] == [(100.0, -5.0)]
    assert samples.series["mhz:cpu"] == [(100.0, 3450.0)]
    assert samples.series["mhz_limit:cpu"] == [(100.0, 5187.0)]
    assert samples.series["count:core_throttle"] == [(100.0, 3.0)]
    assert samples.stamps[0] == (6, 100.0)


def test_of_a_gpu_that_reports_no_watts_the_rest_is_read():
    series = parse(NVIDIA).series
    assert series["nvidia:0"] == [(7.31, 61.23)]
    assert "nvidia:1" not in series
    assert series["temp:nvidia:1"] == [(7.32, 44.0)]
    assert series["mhz:nvidia:0"] == [(7.31, 1980.0), (7.51, 1980.0)]
    assert series["bits:nvidia:0"] == [(7.31, 4.0), (7.51, 0.0)]


def test_watts_degrees_clock_and_reasons_of_an_nvidia_gpu_are_read():
    series = parse(H200).series
    watts = [value for _, value in series["nvidia:0"]]
    assert (len(watts), watts[0], watts[-1]) == (23, 126.84, 392.26)
    assert series["temp:nvidia:0"][-1] == (77.48, 41.0)
    assert series["mhz:nvidia:0"][-1] == series["mhz_limit:nvidia:0"][-1] == (77.48, 1980.0)
    assert [moment for moment, bits in series["bits:nvidia:0"] if bits] == [73.21, 73.44]


def test_the_watts_of_a_pi_are_of_the_rails_that_have_volts_and_amperes():
    series = parse(PI).series
    assert series["pmic"] == [(50.01, pytest.approx(0.05 * 3.3 + 2.5 * 0.8))]
    assert series["bits:vcgencmd"] == [(50.01, float(0x50005))]
    assert series["temp:vcgencmd"] == [(50.01, 48.3)]


def test_powermetrics_has_watts_and_pressure_in_a_clock_of_its_own():
    samples = parse(MAC)
    assert [watts for _, watts in samples.series["powermetrics"]] == [24.0, 26.0]
    times = [moment for moment, _ in samples.series["powermetrics"]]
    assert times == pytest.approx([0.20344, 0.40344])
    assert [held for _, held in samples.series["pressure"]] == [0.0, 1.0]


def test_sudo_that_asks_for_a_password_is_no_sample():
    # hand-made: no Mac is at hand (form: sudo(8), "a password is required")
    samples = parse("# have powermetrics\n# ready\nsudo: a password is required\n")
    assert samples.series == {}


@pytest.mark.parametrize("text", OUTPUTS)
def test_a_line_that_is_cut_off_is_not_read(text):
    whole = parse(text)
    for length in range(len(text)):
        cut = parse(text[:length])
        for key, points in cut.series.items():
            if key != "pmic":  # of fewer rails
                assert [p[0] for p in points] == [p[0] for p in whole.series[key][: len(points)]]
                if key != "rapl:0" or len(points) > 1:
                    assert list(points) == list(whole.series[key][: len(points)])


@given(st.text())
def test_any_text_is_read(text):
    parse(text)
    # no output: a line of our own sampler.sh and any text
    parse(f"# have powermetrics\n{text}\n")


WORDS = (
    "1.5 9.25 # ready range rapl:0 12 -7 nvidia 0, [N/A], 0x4 vcgencmd throttled=0x1 pmic "
    "VDD_A current(1)=2A VDD_V volt(2)=1.5.5V khz temp= 99999999999999999999 ½ ²"
)


@given(st.lists(st.lists(st.sampled_from(WORDS.split())).map(" ".join)).map("\n".join))
def test_any_lines_of_the_samplers_own_words_are_read(text):
    parse(f"{text}\n")


@given(
    span=st.integers(2, 10**12),
    start=st.integers(0, 10**12),
    shares=st.lists(st.floats(0, 0.99), max_size=40),
)
def test_a_counter_that_starts_again_loses_nothing(span, start, shares):
    steps = [int(share * span) for share in shares]
    truth = [start]
    for step in steps:
        truth.append(truth[-1] + step)
    read = unwrapped([(float(i), float(value % span)) for i, value in enumerate(truth)], span)
    rises = [later - before for (_, before), (_, later) in pairwise(read)]
    assert rises == pytest.approx(steps, abs=1e-3)


@pytest.fixture
def tree(tmp_path):
    """Files of a machine as the kernel documents them, with what must not be counted."""

    def write(path, *contents):
        target = tmp_path / "root" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(f"{line}\n" for line in contents))

    write("proc/sys/kernel/random/boot_id", "6fa1")
    names = {"0": "package-0", "0:0": "core", "1": "package-1", "2": "psys"}
    for zone, name in names.items():
        write(f"sys/class/powercap/intel-rapl:{zone}/name", name)
        write(f"sys/class/powercap/intel-rapl:{zone}/energy_uj", "1234")
        write(f"sys/class/powercap/intel-rapl:{zone}/max_energy_range_uj", "262143328850")
    write("sys/class/powercap/intel-rapl/enabled", "1")
    for sensor, name in {"0": "amdgpu", "1": "amdgpu", "2": "nvme", "3": "k10temp"}.items():
        write(f"sys/class/hwmon/hwmon{sensor}/name", name)
        write(f"sys/class/hwmon/hwmon{sensor}/temp1_input", "40000")
    write("sys/class/hwmon/hwmon0/power1_average", "15000000")
    write("sys/class/hwmon/hwmon0/power1_input", "99000000")
    write("sys/class/hwmon/hwmon1/power1_input", "16000000")
    write("sys/class/thermal/thermal_zone0/type", "acpitz")
    write("sys/class/thermal/thermal_zone0/temp", "20000")
    for cpu, khz in {"0": 2000000, "1": 3000000}.items():
        write(f"sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_cur_freq", khz)
        write(f"sys/devices/system/cpu/cpufreq/policy{cpu}/cpuinfo_max_freq", 5000000)
        write(f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle/core_throttle_count", 2)
        write(f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle/package_throttle_count", 7)
    return tmp_path / "root"


def sampled(root, folder, shell="sh", **counts):
    """What the sampler printed until it ended, or each of these words had come so often.

    Programs of FOLDER come first on its PATH.
    """
    process = subprocess.Popen(
        [shell, SAMPLER, root, "0.05"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": f"{folder}:{os.environ['PATH']}"},
        start_new_session=True,
    )
    lines, seen = [], Counter()
    for line in process.stdout:
        lines.append(line)
        seen.update([] if line.startswith("#") else line.split()[1::2])
        if counts and all(seen[word] >= count for word, count in counts.items()):
            os.killpg(process.pid, 15)
            break
    assert process.communicate()[1] == ""
    return parse("".join(lines))


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_sampler_reads_packages_and_gpus_once_each(tree, tmp_path, shell):
    samples = sampled(tree, tmp_path, shell, **{"count:core_throttle": 2})
    assert samples.reported("boot") == ["6fa1"]
    watts = {key for key in samples.series if key.startswith(("rapl", "amdgpu"))}
    assert watts == {"rapl:0", "rapl:1", "amdgpu:hwmon0", "amdgpu:hwmon1"}
    assert samples.series["rapl:0"][0][1] == pytest.approx(0.001234)
    assert samples.series["amdgpu:hwmon0"][0][1] == 15.0
    assert samples.series["amdgpu:hwmon1"][0][1] == 16.0
    temperatures = {key for key in samples.series if key.startswith("temp")}
    assert temperatures == {"temp:hwmon0", "temp:hwmon1", "temp:hwmon3", "temp:thermal_zone0"}
    assert samples.series["mhz:cpu"][0][1] == 2500.0
    assert samples.series["mhz_limit:cpu"][0][1] == 5000.0
    assert samples.series["count:core_throttle"][0][1] == 4
    assert samples.series["count:package_throttle"][0][1] == 14
    times = [moment for moment, _ in samples.series["rapl:0"]]
    assert all(after - before >= 0.04 for before, after in pairwise(times)), "it waits in between"


def test_the_sampler_says_which_counter_it_may_not_read(tree, tmp_path):
    # Root may read any file: a folder in the counter's place is refused to everyone.
    counter = tree / "sys/class/powercap/intel-rapl:0/energy_uj"
    counter.unlink()
    counter.mkdir()
    samples = sampled(tree, tmp_path, **{"rapl:1": 1})
    assert samples.reported("unreadable") == ["rapl:0"]
    assert "rapl:0" not in samples.series
    assert "rapl:1" in samples.series


def test_the_sampler_ends_at_once_where_there_is_nothing_to_sample(tmp_path):
    if shutil.which("nvidia-smi") or shutil.which("vcgencmd"):
        pytest.skip("This machine has something to sample.")
    samples = sampled(tmp_path, tmp_path)
    assert samples.ready
    assert samples.series == {}


def test_the_sampler_asks_the_programs_of_a_gpu_and_of_a_pi(tmp_path):
    """Both are stood in for by scripts that print what is documented: the plan, not the tools."""
    programs = {
        "nvidia-smi": 'case "$*" in *clocks_event*) exit 2 ;; *,nounits*) echo '
        '"0, 61.23, 45, 1980, 2100, 0x0000000000000004"; sleep 30 ;; esac',
        "vcgencmd": "case $1 in get_throttled) echo throttled=0x0 ;; measure_temp) "
        "echo \"temp=48.3'C\" ;; *) echo 'A_A current(0)=2A'; echo 'A_V volt(1)=3V' ;; esac",
    }
    for name, text in programs.items():
        # no output: a script
        put(tmp_path, name, f'echo "$*" >>{tmp_path}/asked\n{text}')
    samples = sampled(tmp_path, tmp_path, pmic=4, nvidia=1)
    assert samples.reported("have") == ["vcgencmd", "nvidia-smi"]
    assert samples.series["nvidia:0"][0][1] == 61.23
    assert samples.series["pmic"][0][1] == 6.0
    asked = (tmp_path / "asked").read_text()
    assert (
        "--query-gpu=index,power.draw,temperature.gpu,clocks.sm,clocks.max.sm,"
        "clocks_throttle_reasons.active --format=csv,noheader,nounits --loop-ms=50" in asked
    ), "an older driver has no clocks_event_reasons"


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not on this machine")
def test_shellcheck_finds_nothing_in_the_sampler():
    done = subprocess.run(
        ["shellcheck", "-s", "sh", SAMPLER], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
