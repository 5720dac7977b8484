"""The CEL functions of Kubernetes that the CEL library does not bring: quantities, addresses, formats, times.

Values of Kubernetes' own types (quantity, URL, IP address, CIDR, version, format) are maps here: CEL compares
maps by content, which is what equality of these types means.

Source: docs/reference/kubernetes-api-machinery.md, section 22.4, and the Kubernetes documentation of CEL.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, urlsplit

from pykueue.api.quantity import Quantity
from pykueue.api.quantity import parse as parse_quantity
from pykueue.api.regex import compile_regex

from .formats import FORMATS
from .functions import T, function, method

Map = dict[str, Any]


def _accepts(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check


# Quantities: {"quantity": nanos as text, so that no size is too large}


def quantity_map(value: Quantity) -> Map:
    return {"quantity": str(value.nanos)}


def _nanos(value: Any) -> int:
    if isinstance(value, dict) and "quantity" in value:
        return int(value["quantity"])
    if isinstance(value, int) and not isinstance(value, bool):
        return value * 10**9
    raise ValueError(f"{value!r} is not a quantity")


function("isQuantity", T.BOOL, T.STRING)(_accepts(parse_quantity))


@function("quantity", T.MAP, T.STRING)
def _quantity(text: str) -> Map:
    return quantity_map(parse_quantity(text))


@method("sign", T.INT, T.MAP)
def _sign(value: Map) -> int:
    nanos = _nanos(value)
    return (nanos > 0) - (nanos < 0)


@method("isInteger", T.BOOL, T.MAP)
def _is_integer(value: Map) -> bool:
    nanos = _nanos(value)
    return nanos % 10**9 == 0 and -(2**63) <= nanos // 10**9 < 2**63


@method("asInteger", T.INT, T.MAP)
def _as_integer(value: Map) -> int:
    if not _is_integer(value):
        raise ValueError("cannot convert value to integer")
    return _nanos(value) // 10**9


@method("asApproximateFloat", T.DOUBLE, T.MAP)
def _as_float(value: Map) -> float:
    return _nanos(value) / 10**9


@method("add", T.MAP, T.MAP, T.DYN)
def _add(left: Map, right: Any) -> Map:
    return {"quantity": str(_nanos(left) + _nanos(right))}


@method("sub", T.MAP, T.MAP, T.DYN)
def _sub(left: Map, right: Any) -> Map:
    return {"quantity": str(_nanos(left) - _nanos(right))}


# Semantic versions: {"major", "minor", "patch", "prerelease", "build"}

_NUMBER = r"(?:0|[1-9]\d*)"
_SEMVER: Final = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?",
    re.ASCII,
)


def parse_semver(text: str) -> Map:
    match = _SEMVER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a semantic version")
    major, minor, patch = (int(part) for part in match.groups()[:3])
    # Build metadata has no part in comparisons, equality included.
    return {"major": major, "minor": minor, "patch": patch, "prerelease": match[4] or ""}


function("semver", T.MAP, T.STRING)(parse_semver)
function("isSemver", T.BOOL, T.STRING)(_accepts(parse_semver))
for _part in ("major", "minor", "patch"):
    method(_part, T.INT, T.MAP)(lambda value, part=_part: value[part])


def _semver_order(value: Map) -> Any:
    identifiers = [
        (0, int(one), "") if one.isdigit() else (1, 0, one) for one in value["prerelease"].split(".") if one
    ]
    return (value["major"], value["minor"], value["patch"], not identifiers, identifiers)


def _compare(left: Map, right: Any) -> int:
    """Of two quantities or two versions."""
    one: Any
    other: Any
    if "major" in left and isinstance(right, dict) and "major" in right:
        one, other = _semver_order(left), _semver_order(right)
    else:
        one, other = _nanos(left), _nanos(right)
    return int(one > other) - int(one < other)


method("compareTo", T.INT, T.MAP, T.DYN)(_compare)
method("isGreaterThan", T.BOOL, T.MAP, T.DYN)(lambda left, right: _compare(left, right) > 0)
method("isLessThan", T.BOOL, T.MAP, T.DYN)(lambda left, right: _compare(left, right) < 0)


# Addresses: {"ip": text} and {"cidr": text as written}


def _parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address.scope_id):
        raise ValueError(f"{text!r}: IPv4-mapped addresses and zones are not allowed")
    return address


def _ip_of(value: Any) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return _parse_ip(value["ip"] if isinstance(value, dict) else value)


def _parse_cidr(text: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    if "/" not in text or not text.rpartition("/")[2].isdigit():
        raise ValueError(f"{text!r} is not a CIDR")
    _parse_ip(text.rpartition("/")[0])
    return ipaddress.ip_interface(text)


def _cidr_of(value: Any) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    return _parse_cidr(value["cidr"] if isinstance(value, dict) else value)


function("isIP", T.BOOL, T.STRING)(_accepts(_parse_ip))
function("isCIDR", T.BOOL, T.STRING)(_accepts(_parse_cidr))
function("ip", T.MAP, T.STRING)(lambda text: {"ip": str(_parse_ip(text))})
function("cidr", T.MAP, T.STRING)(lambda text: {"cidr": str(_parse_cidr(text))})
function("ip.isCanonical", T.BOOL, T.STRING)(lambda text: str(_parse_ip(text)) == text)


def _routable(value: Map) -> bool:
    address = _ip_of(value)
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or str(address) == "255.255.255.255"
    )


method("family", T.INT, T.MAP)(lambda value: _ip_of(value).version)
method("isUnspecified", T.BOOL, T.MAP)(lambda value: _ip_of(value).is_unspecified)
method("isLoopback", T.BOOL, T.MAP)(lambda value: _ip_of(value).is_loopback)
method("isLinkLocalUnicast", T.BOOL, T.MAP)(lambda value: _ip_of(value).is_link_local)
method("isGlobalUnicast", T.BOOL, T.MAP)(_routable)


@method("isLinkLocalMulticast", T.BOOL, T.MAP)
def _is_link_local_multicast(value: Map) -> bool:
    address = _ip_of(value)
    network = "224.0.0.0/24" if address.version == 4 else "ff02::/16"
    return address in ipaddress.ip_network(network)


@method("containsIP", T.BOOL, T.MAP, T.DYN)
def _contains_ip(value: Map, address: Any) -> bool:
    return _ip_of(address) in _cidr_of(value).network


@method("containsCIDR", T.BOOL, T.MAP, T.DYN)
def _contains_cidr(value: Map, other: Any) -> bool:
    outer, inner = _cidr_of(value).network, _cidr_of(other).network
    return outer.version == inner.version and inner.subnet_of(outer)  # type: ignore[arg-type]


method("ip", T.MAP, T.MAP)(lambda value: {"ip": str(_cidr_of(value).ip)})
method("masked", T.MAP, T.MAP)(lambda value: {"cidr": str(_cidr_of(value).network)})
method("prefixLength", T.INT, T.MAP)(lambda value: _cidr_of(value).network.prefixlen)
function("string", T.STRING, T.MAP)(lambda value: value.get("ip") or value["cidr"])


# URLs: {"url": text}


def _parse_url(text: str) -> SplitResult:
    """An absolute URI or an absolute path."""
    parsed = urlsplit(text)
    if not parsed.scheme and not text.startswith("/"):
        raise ValueError(f"{text!r} is not an absolute URL or path")
    if any(char.isspace() or ord(char) < 32 for char in text) or (text.find(":") == 0):
        raise ValueError(f"{text!r} is not a URL")
    _ = parsed.port
    return parsed


def _url_of(value: Map) -> SplitResult:
    return _parse_url(value["url"])


def _hostname(value: Map) -> str:
    host = _host(value)
    return host[: host.rindex("]")].lstrip("[") if host.startswith("[") else host.partition(":")[0]


def _host(value: Map) -> str:
    return _url_of(value).netloc.rpartition("@")[2]


def _port(value: Map) -> str:
    port = _url_of(value).port
    return "" if port is None else str(port)


def _url(text: str) -> Map:
    _parse_url(text)
    return {"url": text}


function("isURL", T.BOOL, T.STRING)(_accepts(_parse_url))
function("url", T.MAP, T.STRING)(_url)
method("getScheme", T.STRING, T.MAP)(lambda value: _url_of(value).scheme)
method("getHost", T.STRING, T.MAP)(_host)
method("getHostname", T.STRING, T.MAP)(_hostname)
method("getPort", T.STRING, T.MAP)(_port)
method("getEscapedPath", T.STRING, T.MAP)(lambda value: _url_of(value).path)
method("getQuery", T.MAP, T.MAP)(lambda value: parse_qs(_url_of(value).query, keep_blank_values=True))


# Regular expressions


@method("find", T.STRING, T.STRING, T.STRING)
def _find(text: str, pattern: str) -> str:
    found = compile_regex(pattern).find_all(text, 1)
    return found[0] if found else ""


@method("findAll", T.List(T.STRING), T.STRING, T.STRING)
def _find_all(text: str, pattern: str) -> list[str]:
    return compile_regex(pattern).find_all(text)


@method("findAll", T.List(T.STRING), T.STRING, T.STRING, T.INT)
def _find_some(text: str, pattern: str, limit: int) -> list[str]:
    return compile_regex(pattern).find_all(text, limit)


# Formats: {"format": name}; validate gives the faults, which `rewrite` makes an optional

_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_QUALIFIED_PART: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_1035: Final = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")


def _is_qualified(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    return _QUALIFIED_PART.fullmatch(name) is not None and (not slash or FORMATS["k8s-long-name"](prefix))


def _is_datetime(text: str) -> bool:
    try:
        return "T" in text.upper() and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _without_dash(check: Callable[[str], bool]) -> Callable[[str], bool]:
    """For prefixes of generated names, which may end in a dash."""
    return lambda text: check(text.removesuffix("-") if text.endswith("-") else text)


_NAMED: Final[dict[str, Callable[[str], bool]]] = {
    "dns1123Label": FORMATS["k8s-short-name"],
    "dns1123Subdomain": FORMATS["k8s-long-name"],
    "dns1035Label": lambda text: _LABEL_1035.fullmatch(text) is not None,
    "dns1123LabelPrefix": _without_dash(FORMATS["k8s-short-name"]),
    "dns1123SubdomainPrefix": _without_dash(FORMATS["k8s-long-name"]),
    "dns1035LabelPrefix": _without_dash(lambda text: _LABEL_1035.fullmatch(text) is not None),
    "qualifiedName": _is_qualified,
    "labelValue": lambda text: _LABEL_VALUE.fullmatch(text) is not None,
    "uri": _accepts(_parse_url),
    "uuid": FORMATS["uuid"],
    "byte": FORMATS["byte"],
    "date": FORMATS["date"],
    "datetime": _is_datetime,
}

for _name in _NAMED:
    function(f"format.{_name}", T.MAP)(lambda name=_name: {"format": name})


@function("format.named", T.MAP, T.STRING)
def _named_format(name: str) -> Map:
    return {"format": name} if name in _NAMED else {}


@method("validate", T.List(T.STRING), T.MAP, T.STRING)
def _validate(value: Map, text: str) -> list[str]:
    name = value["format"]
    return [] if _NAMED[name](text) else [f"{text!r} is not of the format {name}"]


_FORMAT_CALL: Final = re.compile(
    r"\bformat\.(?:named\(\s*('[^']*'|\"[^\"]*\")\s*\)(\.value\(\))?|\w+\(\s*\))"
)
_VALIDATE: Final = re.compile(r"\s*\.\s*validate\s*\(")


def rewrite(rule: str) -> str:
    """A rule with what formats answer made optional, since functions written in Python cannot answer so."""
    out, at = "", 0
    while match := _FORMAT_CALL.search(rule, at):
        out += rule[at : match.start()]
        call = match[0]
        if match[1]:
            call = f"format.named({match[1]})" if match[2] else f"optional.ofNonZeroValue({call})"
        end = match.end()
        validate = _VALIDATE.match(rule, end)
        if validate:
            close = _closing(rule, validate.end())
            if close < 0:  # it does not compile as it is
                return rule
            call = f"optional.ofNonZeroValue({call}.validate({rule[validate.end() : close]}))"
            end = close + 1
        out += call
        at = end
    return out + rule[at:]


def _closing(text: str, at: int) -> int:
    """Where the parenthesis opened before `at` closes, or -1."""
    depth, quote = 1, ""
    while at < len(text):
        char = text[at]
        if quote:
            if char == "\\":
                at += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return -1


# Times: fields of the format date-time reach rules as text, and are compared with timestamps


def _as_time(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


_COMPARISONS: Final[dict[str, Callable[[datetime, datetime], bool]]] = {
    "_<_": lambda left, right: left < right,
    "_<=_": lambda left, right: left <= right,
    "_>_": lambda left, right: left > right,
    "_>=_": lambda left, right: left >= right,
}

for _operator, _holds in _COMPARISONS.items():
    for _types in ([T.STRING, T.TIMESTAMP], [T.TIMESTAMP, T.STRING]):
        function(_operator, T.BOOL, *_types)(
            lambda left, right, holds=_holds: holds(_as_time(left), _as_time(right))
        )
