"""Quantities of Kubernetes: `500m`, `1Gi`, `2e3`. Pure. Source: API reference, Quantity."""

from __future__ import annotations

import re
from fractions import Fraction

_DECIMAL = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_NUMBER = re.compile(rf"({_DECIMAL})(?:[eE]({_DECIMAL}))?([a-zA-Z]*)\Z")
# The largest quantity; Kubernetes replaces larger quantities by it.
_MOST = Fraction(2**63 - 1)
# Further digits on either side of the point do not change a quantity, whatever its exponent is.
_DIGITS = 60
_PREFIXES = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_SCALES = {
    **{prefix: Fraction(1000) ** (power - 3) for power, prefix in enumerate(_PREFIXES)},
    **{f"{prefix}i": Fraction(1024) ** power for power, prefix in enumerate("KMGTPE", 1)},
}


def quantity(text: str) -> Fraction:
    """The value of a Kubernetes quantity, 2^63 - 1 at most. Raises ValueError."""
    found = _NUMBER.match(text)
    if not found or found[3] not in _SCALES:
        raise ValueError(f"must be a quantity such as 500m, 1Gi or 2e3, not {text!r}")
    digits, exponent, suffix = found.groups()
    # Kubernetes uses 18 digits; larger exponents do not change a comparison.
    power = max(-40, min(int(_number(exponent or "0")), 40))
    return max(-_MOST, min(_number(digits) * Fraction(10) ** power * _SCALES[suffix], _MOST))


def _number(text: str) -> Fraction:
    """The value of a decimal number.

    Python rejects integers with more than some thousand digits, so a longer number is truncated.
    """
    integer, _, part = text.lstrip("+-").partition(".")
    integer = integer.lstrip("0") or "0"
    found = Fraction(10) ** _DIGITS if len(integer) > _DIGITS else Fraction(f"{integer}.{part[:_DIGITS] or 0}")
    return -found if text.startswith("-") else found
