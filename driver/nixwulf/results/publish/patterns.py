"""What private texts look like: serial numbers, addresses, and names of hosts and users."""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Iterator

from nixwulf.results.publish.pattern import Pattern, pattern
from nixwulf.results.publish.secrets import SECRETS

# Same-machine addresses are everybody's.
_NO_ADDRESSES = re.compile(r"127\..*|0\.0\.0\.0|255\.255\..*|::1?")
_NUMBERS = 4
_OF_A_GAP = len("::")
_NO_HOSTS = re.compile(r"sha256|entry|plt|GLIBC.*|GCC.*|CXXABI.*", re.IGNORECASE)
# A version of four numbers cannot be distinguished from an address,
# nor an address behind a version.
_DOT = r"(?:\.|\[\.\]|\(\.\))"
_IPV4 = re.compile(rf"(?<!\d)(?:\d{{1,3}}{_DOT}){{3,}}\d{{1,3}}(?!\d)")
_COLONS = re.compile(r"[0-9A-Fa-f:]*:[0-9A-Fa-f:]*")
_PRIVATE = (
    r"local|lan|home|internal|localdomain|intranet|intra|corp|private|home\.arpa|fritz\.box|ts\.net"
)
# Top-level domains of hosts, but those that are endings of files or of names in programs too.
_PUBLIC = (
    r"com|net|org|edu|gov|mil|info|biz|eu|de|at|ch|li|uk|ie|fr|nl|be|lu|it|es|pt|se|fi|dk|cz|pl|hu|gr"
    r"|ru|ua|us|ca|mx|br|ar|cl|au|nz|jp|cn|kr|tw|hk|sg|za|il|tr|io|ai|dev|cloud|tech|xyz|online|site"
    r"|space|host|network|systems|computer|science|university|zone|link|click|us\.com"
)
# Where software and numbers come from: everybody's.
_SITES = re.compile(
    r"(?i)(?:.+\.)?(?:github|githubusercontent|gitlab|huggingface|hf|ghcr|quay|docker|nvcr|nixos|cachix|pypi"
    r"|pythonhosted|python|pytorch|kernel|debian|ubuntu|fedoraproject|freedesktop|nvidia|amd|intel"
    r"|apple|arm|qualcomm|broadcom|mellanox|microsoft|google|anthropic|openai|mistral|qwen|meta"
    r"|arxiv|netlib|open-mpi|iperf|gnu|w3|json-schema|llvm|ray|vllm|sglang|lmsys|exolabs|modelscope"
    r"|ollama|usenix|z|ggml|hellas|youtubesummary|route179|conselara|reddit|youtube|wikipedia|localscore|jeffgeerling|geerlingguy|frame|stackoverflow"
    r"|nixwulf|mlcommons|spec|hpcc|osu|ohio-state|linux-rdma|conda|anaconda|npmjs|crates|rust-lang"
    r"|apache|cloudflare|r2|amazonaws|windows|phoronix|servethehome|level1techs|framework)"
    r"\.(?:com|org|net|io|ai|co|dev|eu|cn|edu|fr|work|computer)"
)
_USER_AT_HOST = re.compile(r"(?<![\w.+-])[\w.+-]+@(?P<host>\[host\]|[A-Za-z0-9][\w.-]*)")

# Between the parts of a path: also as an address, a JSON text or Windows has them.
_SLASH = r"(?:/+|\\+/?|%2[Ff]|%5[Cc])"
_PART = r"[^/\\\s:'\",;()\[\]%<>|&]"
# Below these somebody's folder is found, or what everybody has.
_ROOTS = (
    r"mnt|media|[Vv]olumes|scratch\d*|nfs\d*|net|export|gpfs|lustre|beegfs|ceph|autofs|vol\d*|storage|srv"
    r"|data\d*|work\d*|afs|shared|raid\d*|people|u\d*"
)
_PLACES = (
    rf"(?:{_ROOTS}|nas\d*|disk\d*|ssd\d*|nvme\w*|sd[a-z]\d*|\w*users?|people|homes?[\w-]*|staff|students?"
    r"|projects?|groups?|u\d*|fast|slow|big|tank|pool\d*)"
)
_NOBODYS = re.compile(
    r"(?i)\.|\.\.|models?|llms?|ggufs?|weights|checkpoints|huggingface|hf|hub|cache|tmp|temp|bin|lib\w*"
    r"|share|src|opt|nix|store|root|nixos|nobody|ubuntu|debian|admin|user|runner|builder|public|datasets?|bench\w*|results?|runs?"
    r"|nixwulf|ollama|vllm|llama.*|mlx.*|exo|containers?|images?|downloads?|www|git|http|boot|efi|data|swap|wsl|[a-z]"
    r"|.*\.[a-z0-9]{1,12}"
)
_SYSTEM_USERS = re.compile(
    r"(?i)root|nobody|nogroup|daemon|sys|adm|wheel|sudo|users|user|video|render|docker|tty|disk|kvm|libvirt|audio|input"
    r"|plugdev|cdrom|dialout|lpadmin|netdev|staff|nixbld.*|nixos|ubuntu|debian|admin|_.*|systemd-.*"
)

_MAC = r"[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}"
_MIXED = re.compile(r"(?=.*[a-fA-F])(?=.*\d)(?!\d+[eE]\d+$).*")
_CHANGES = 4
# Instruction sets, and what HPL calls its variants.
_NO_SERIALS = re.compile(r"AVX\w*|W[RC][0-9CLR]{6}")


def _no_serial(match: re.Match[str]) -> bool:
    return not any(char.isdecimal() for char in match["it"])


def _no_bare_serial(match: re.Match[str]) -> bool:
    """Serial numbers change between letters and digits more often than names of models do."""
    text = match[0]
    changes = sum(a.isdecimal() != b.isdecimal() for a, b in itertools.pairwise(text))
    return changes < _CHANGES or bool(_NO_SERIALS.fullmatch(text))


def _no_login(match: re.Match[str]) -> bool:
    host = match["host"]
    return bool(_NO_HOSTS.fullmatch(host)) or (
        host[0].isdecimal() and not _IPV4.fullmatch(host.rstrip("."))
    )


def _no_ipv4(match: re.Match[str]) -> bool:
    numbers = [number.lstrip("0") or "0" for number in re.findall(r"\d+", match[0])]
    text = ".".join(numbers)
    return bool(_NO_ADDRESSES.fullmatch(text)) or (len(numbers) == _NUMBERS and not _is_ip(text))


def _no_other_ipv4(match: re.Match[str]) -> bool:
    """Octal and hexadecimal parts, or dashes: an address where it is a private one or long."""
    parts = re.split(r"[.\-_]", match[0])
    try:
        numbers = [int(p, 0 if p[:2].lower() == "0x" else 8 if p[0] == "0" else 10) for p in parts]
        address = ipaddress.IPv4Address(".".join(map(str, numbers)))
    except ValueError:
        return True
    return not address.is_private or bool(_NO_ADDRESSES.fullmatch(str(address)))


def _no_number_of_ipv4(match: re.Match[str]) -> bool:
    """Eight hexadecimal digits are an address where they are a private one, in either order."""
    number = bytes.fromhex(match["it"])
    orders = (number, number[::-1]) if match["port"] else (number,)
    places = [ipaddress.IPv4Address(order) for order in orders]
    return not any(p.is_private and not p.is_loopback and p.packed[0] for p in places)


def _no_fqdn(match: re.Match[str]) -> bool:
    return bool(_SITES.fullmatch(match[0].rstrip(".")))


def _no_persons(match: re.Match[str]) -> bool:
    return bool(_NOBODYS.fullmatch(match["it"]) or _SYSTEM_USERS.fullmatch(match["it"]))


def _no_user(match: re.Match[str]) -> bool:
    return bool(_SYSTEM_USERS.fullmatch(match["it"]))


def _no_mac(match: re.Match[str]) -> bool:
    return not _MIXED.fullmatch(match["it"])


_LS = r"(?m)^[^\n]*?[dlbcps-](?:[r-][w-][xsStT-]){3}[.+@]?\s+\d+\s+"
_LATITUDE = r"[+-]?\d{1,2}\.\d{4,8}"
_LONGITUDE = r"[+-]?1?\d{1,2}\.\d{4,8}"

PATTERNS = (
    *SECRETS,
    pattern("serial number", r"/dev/disk/by-(?:id|uuid|partuuid)/(?P<it>[^\s,;'\"\[]+)"),
    pattern(
        "serial number",
        r"(?<![A-Za-z0-9])(?:(?:nvme|ata|scsi|usb|mmc)-[\w.:+-]*_[\w.:+-]*"
        r"|wwn-0x[0-9a-f]+|(?:eui|naa)\.[0-9a-f]{16,})",
    ),
    pattern(
        "serial number",
        r"(?<![0-9A-Za-z])[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}(?![0-9A-Za-z])",
    ),
    # Of libp2p, and so of exo: a node's identity for as long as its key lasts.
    pattern("serial number", r"12D3KooW[1-9A-HJ-NP-Za-km-z]{44}"),
    pattern("serial number", r"(?<![0-9A-Za-z])[0-9a-f]{32}(?![0-9A-Za-z])"),
    pattern(
        "serial number",
        r"(?<![A-Za-z])(?i:serial(?:[ _-]?(?:number|num|no\.?))?|s/n|sn|(?:asset|service)[ _-]?tag"
        r"|imei|iccid|imsi|part[ _-]?(?:number|no\.?)|board[ _-]?id)"
        r"[\"']?(?:\s*[:=#]\s*|\s+(?:is\s+)?)[\"'/]?(?P<it>[A-Za-z0-9][\w-]{4,}(?:/[\w-]+)*)",
        _no_serial,
    ),
    # Of a disk formatted as FAT.
    pattern("serial number", r"(?i)\buuid[=: ]\s*[\"']?(?P<it>[0-9a-f]{4}-[0-9a-f]{4})(?![\w-])"),
    pattern("serial number", r"(?<![\w.+/-])[A-Z0-9]{8,24}(?![\w.+-])", _no_bare_serial),
    Pattern("user name", _USER_AT_HOST, "[user]@[host]", _no_login),
    pattern(
        "user name",
        rf"(?:{_SLASH}(?:homes?\d*|[Uu]sers|run{_SLASH}media|media|var{_SLASH}(?:spool{_SLASH})?mail|cron{_SLASH}crontabs){_SLASH})"
        rf"(?:\.ecryptfs{_SLASH}|\w*users?{_SLASH}|(?P<initial>\w){_SLASH}(?=(?P=initial)))*"
        rf"(?P<it>(?!\.){_PART}+)",
        _no_user,
    ),
    pattern(
        "user name",
        rf"(?<![\w.]){_SLASH}(?:{_ROOTS}){_SLASH}(?:{_PLACES}{_SLASH})*(?P<it>{_PART}+)",
        _no_persons,
    ),
    pattern("user name", r"\bHOME[\"']?\s?[=:]\s?[\"']?(?P<it>(?!/root\b)/[^\s\"',;:\[]+)"),
    # A person before an address, a repository of one after it, and a name in a directory.
    pattern(
        "user name", r"(?P<it>[^\W\d_][\w.'-]*(?: [^\W\d_][\w.'-]*){1,3})(?= <\[user\]@\[host\]>)"
    ),
    pattern("user name", r"\[user\]@\[host\]:(?P<it>[\w.-]+)(?=/[\w.-]+\.git\b)"),
    pattern("user name", r"(?i)(?<!\w)(?:(?:uid|cn|ou|dc|o)=[^,=\s]+,\s?)+dc=[^,=\s]+"),
    pattern("user name", r"(?<![\w~/.)-])~(?P<it>[A-Za-z_][\w.-]*)(?=[/\s:;,'\")]|\Z)", _no_user),
    pattern("user name", r"(?<=[=,])\d+\((?P<it>[A-Za-z_][\w.-]*)\)", _no_user),
    pattern("user name", _LS + r"(?P<it>[A-Za-z_][\w.-]*)", _no_user),
    pattern("user name", _LS + r"\S+\s+(?P<it>[A-Za-z_][\w.-]*)", _no_user),
    pattern(
        "user name",
        r"(?m)^(?P<it>[a-z_][\w.-]*)\s+\d+\s+\d+\.\d\s+\d+\.\d\s",
        _no_user,
    ),
    pattern(
        "user name",
        r"(?<![\w.-])(?P<it>[a-z_][\w.-]*)\s+(?:on\s+)?(?:pts/\d|tty\d)",
        _no_user,
    ),
    pattern("user name", r"(?m)(?<![\w.-])(?P<it>[a-z_][\w.-]*):[x*!]?:\d+:\d+:", _no_user),
    pattern("user name", r"(?<=:)[x*!]?:\d+:\d+:(?P<it>[^:\n]+):/"),
    pattern(
        "user name",
        r"\b(?:[Uu]ser(?:name)?(?:=|: ?)|(?i:for|by|of|invalid) (?:invalid )?(?i:user) "
        r"|logged in as |Accepted \w+ for |chown (?:-\w+ )*|login:? |[Oo]wner(?:: ?|=| is | )"
        r"|(?:sudo(?: -\w)*|runuser|setpriv|su|crontab|ssh) (?:-u|--user|-l|-) ?)"
        r"(?P<it>[A-Za-z_][\w.-]*)",
        _no_user,
    ),
    # As sudo's rules and lists of sessions have them.
    pattern("user name", r"(?m)^(?P<it>[a-z_][\w.-]*)\s+ALL\s?=", _no_user),
    pattern("user name", r"(?m)(?:^|\s)\d+\s+\d{3,6}\s+(?P<it>[a-z_][\w.-]*)\s+seat\d", _no_user),
    # A share of Windows: its machine, then a folder that is mostly somebody's.
    pattern("host name", r"(?<![\w\\:])\\{2,4}(?P<it>[A-Za-z][\w.-]+)\\{1,2}(?=[A-Za-z])"),
    pattern(
        "user name",
        r"(?<![\w\\:])\\{2,4}(?:\[host\]|[A-Za-z][\w.-]+)\\{1,2}(?P<it>[A-Za-z][\w.-]*)",
        _no_persons,
    ),
    pattern(
        "host name",
        rf"(?i)(?<![a-z0-9])(?:[a-z0-9_](?:[a-z0-9_-]*[a-z0-9])?\.)+(?:{_PRIVATE})(?![a-z0-9])",
    ),
    pattern(
        "host name",
        rf"(?i)(?<![\w.@$-])(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)*(?=[a-z0-9-]*[a-z])[a-z0-9-]+\.(?:{_PUBLIC})\.?(?![\w(.-])",
        _no_fqdn,
    ),
    # The same below domains that are also endings of files or names in programs.
    pattern(
        "host name",
        r"(?i)(?<![\w.@$-])(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z0-9-]+\.(?:app|me|co|cc|tv|im)\.?(?![\w(.-])",
        _no_fqdn,
    ),
    pattern("host name", r"(?i)(?<![\w.-])[a-z0-9][\w-]*(?:\.[\w-]+)*\.consul(?![\w.-])"),
    # What a cloud calls a store, an account and a machine.
    pattern("host name", r"\b(?:s3a?|gs|gcs|abfss?|wasbs?|hdfs)://(?P<it>[\w.-]+)"),
    pattern("serial number", r"\barn:aws[\w-]*:[\w-]*:[\w-]*:(?P<it>\d{12})"),
    pattern("serial number", r"(?<![\w-])(?:i|vol|eni|ami|vpc|subnet)-[0-9a-f]{17}(?!\w)"),
    pattern("host name", r"(?<![A-Za-z0-9])ip(?:-\d{1,3}){4}(?!\d)"),
    pattern("host name", r"nixos-system-(?P<it>[^\s/\[]+?)-\d\d\.\d\d"),
    pattern("host name", r"(?<![\w])(?:CN|OU|emailAddress)\s?=\s?(?P<it>[^,/\n\[\"]+)"),
    # Four groups and more, whatever is around: IPv6, MAC and InfiniBand addresses, GUIDs, and GIDs,
    # which perftest writes as sixteen decimal numbers, the IPv4 address in them too.
    pattern("address", r"(?:[0-9A-Fa-f]{1,4}:){3,}[0-9A-Fa-f:]*"),
    pattern(
        "address",
        r"(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{2}[-_ ]){5,19}[0-9A-Fa-f]{2}(?![0-9A-Fa-f])",
        lambda match: match[0].replace(" ", "").isdecimal(),
    ),
    pattern("address", r"(?<![A-Za-z0-9])(?:enx|wlx|wwx)(?P<it>[0-9a-f]{12})(?![0-9A-Za-z])"),
    pattern("address", rf"(?<![\w.]){_MAC}(?![\w.])"),
    pattern("address", r"(?<![\w./-])(?:0x)?(?P<it>[0-9A-Fa-f]{12})(?![\w.-])", _no_mac),
    pattern("address", r"(?<![\w.])[0-9a-fA-F]{4}\.(?P<it>[0-9A-Fa-f]{12})(?![\w.])"),
    pattern(
        "address",
        r"(?<![\w.])(?P<it>(?:[0-9A-Fa-f]{2}\.){5}[0-9A-Fa-f]{2})(?![\w.])",
        lambda match: match[0].replace(".", "").isdecimal(),
    ),
    pattern("address", r"(?<!\w)(?:0x[0-9A-Fa-f]{1,2}[:, ]\s?){5,19}0x[0-9A-Fa-f]{1,2}(?!\w)"),
    pattern("address", r"(?<!\w)0x(?P<it>(?!0000|ffff|FFFF)[0-9A-Fa-f]{16})(?!\w)", _no_mac),
    pattern("address", r"(?<![\w-])(?P<it>(?!0000)[0-9a-f]{16})(?![\w-])", _no_mac),
    pattern(
        "address",
        r"(?<![\w.-])(?:0[xX])?(?P<it>[0-9A-Fa-f]{8})(?P<port>(?<!0x........):[0-9A-F]{4})?(?![\w.-])",
        _no_number_of_ipv4,
    ),
    pattern(
        "address",
        r"(?<![\w.])(?:0[xX][0-9A-Fa-f]{1,2}|0[0-7]{1,3})(?:\.(?:0[xX][0-9A-Fa-f]{1,2}|0[0-7]{0,3})){3}(?![\w.])",
        _no_other_ipv4,
    ),
    pattern(
        "address", r"(?<![\d.])(?<!\d[-_])\d{1,3}(?:[-_]\d{1,3}){3}(?![\d]|[-_]\d)", _no_other_ipv4
    ),
    Pattern("address", _IPV4, "[address]", _no_ipv4),
    pattern(
        "address",
        r"(?<![\d.])(?:192\.168|10\.\d{1,3}|172\.(?:1[6-9]|2\d|3[01]))\.(?:\d{1,3}|[xX*])\.[xX*](?!\w)",
    ),
    # Where the machines are: networks by their names, and degrees.
    pattern(
        "address",
        r"(?i)(?<![a-z])(?:[eb]?ssid|wi-?fi(?: network)?|wlan)[\"']?\s*(?:[:=]|\bis\b|(?=[\"']))\s*"
        r"(?!true|false)(?P<it>\"[^\"\n]+\"|'[^'\n]+'|[^\n,;\[]+)",
    ),
    pattern("address", r"(?i)(?<![a-z])[eb]?ssid\s+(?P<it>[^\s,;:=\[]{2,})"),
    pattern(
        "address",
        r"(?i)(?<![a-z])(?:lat(?:itude)?|lon(?:gitude)?|lng|gps|geo|coordinates?|location)[\"']?\s*[:=]?\s*"
        r"(?P<it>[+-]?\d{1,3}\.\d{2,}(?:\s*[,; ]\s*[+-]?\d{1,3}\.\d{2,})?)",
    ),
    pattern(
        "address",
        r"[+-]?\d{1,3}(?:\.\d+)?\s?°(?:\s?\d+(?:\.\d+)?\s?['\u2032])?(?:\s?\d+(?:\.\d+)?\s?(?:\"|\u2033|''))?\s?[NSEWO]\b",
    ),
    pattern(
        "address",
        rf"(?<![\d.,])(?<!\d[,;] )(?<!\d ){_LATITUDE}[,;]\s?{_LONGITUDE}(?!\d|\s*[,;]?\s*[\d.])",
    ),
)
"""In the order in which they are applied, IPv6 addresses after them."""

HOST_TEXTS = tuple(
    re.compile(expression, re.MULTILINE)
    for expression in (
        r"\b(?i:local host|remote host|hostname)[\"']?\s*[:=]\s*[\"']?([A-Za-z0-9][\w.-]*)",
        r"^([A-Za-z0-9][\w.-]*):\d+:\d+ \[\d+\] NCCL",
        r"nixos-system-([^\s/\[]+?)-\d\d\.\d\d",
        r"(?<!\w)[A-Za-z_][\w.+-]*@(?!entry|plt|sha256|GLIBC)([A-Za-z][\w-]*)(?![\w.-])",
        r"(?:connect to host|resolve (?:host ?name|host)) ([A-Za-z][\w.-]*)",
        r"^\[([A-Za-z][\w.-]*):\d{3,}\]",
        r"^(?:uname: ?)?Linux ([A-Za-z][\w.-]*) \d+\.\d+",
        r"^(?:[A-Z][a-z]{2} [ \d]\d (?:\d\d:){2}\d\d|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)?)"
        r" ([A-Za-z][\w.-]*) [\w.()/-]+(?:\[\d+\])?:",
        r"^([A-Za-z][\w-]*) kernel: \[",
        r"\bserver ([A-Za-z][\w.-]*) (?:not responding|OK$)",
        r"^(?://)?([A-Za-z][\w.-]+):?/\S* on / ?\S+ type ",
        r"^PING ([A-Za-z][\w.-]*) \(",
    )
)
"""Where programs print the names of hosts: Open MPI, HPCC, NCCL, NixOS, ssh, logs and prompts."""

USER_TEXTS = tuple(
    re.compile(expression)
    for expression in (
        r"[/\\](?:home|Users)[/\\](?:\w*users?[/\\])?([A-Za-z_][\w.-]*)",
        r"\b(?:USER|LOGNAME|USERNAME)=([A-Za-z_][\w.-]*)",
        r"(?<!\w)([A-Za-z_][\w.+-]*)@(?!entry|plt|sha256|GLIBC)[A-Za-z][\w-]*(?![\w.-])",
    )
)
"""Where the names of users stand."""

SERIAL_TEXTS = tuple(
    p.expression
    for p in PATTERNS
    if p.kind == "serial number" and "it" in p.expression.groupindex and p.spare is _no_serial
)
"""Where serial numbers are labelled as such."""


def ipv6_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where a text has short IPv6 addresses, such as fe80::1, but for ::1 and ::.

    Colons in other things, such as std::add, are recognised by the letters beside them.
    """
    for match in _COLONS.finditer(text):
        begin, end = match.span()
        if begin and text[begin - 1].isalnum():
            begin = _after_colons(text, begin, end)
        if end < len(text) and text[end].isalnum():
            end = _before_colons(text, begin, end)
        while begin < end and not _is_ip(text[begin:end]):
            if text[end - 1] == ":":
                end -= 1
            elif text[begin] == ":":
                begin += 1
            else:
                break
        if _is_ip(text[begin:end]) and not _NO_ADDRESSES.fullmatch(text[begin:end]):
            yield begin, end


def _after_colons(text: str, begin: int, end: int) -> int:
    """Past the first word, which belongs to what is before, and the colons after it.

    Of three colons and more, two belong to an address.
    """
    colons = re.compile(":+").search(text, begin, end)
    if colons is None:
        return end
    return colons.end() - (_OF_A_GAP if len(colons[0]) > _OF_A_GAP else 0)


def _before_colons(text: str, begin: int, end: int) -> int:
    """The same from the other end."""
    colons = list(re.compile(":+").finditer(text, begin, end))
    if not colons:
        return begin
    return colons[-1].start() + (_OF_A_GAP if len(colons[-1][0]) > _OF_A_GAP else 0)


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
