"""A wall meter that misbehaves: hostile_meter.py PORT NAME, a name of MISBEHAVIOURS.

It answers as Tasmota's does; 'honest' and what begins right report 88 W.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from hostile_http import ANSWERS, Answer, body, chosen, serve

WATTS = 88


def _reports(power: Any) -> Answer:
    text = power if isinstance(power, str) else json.dumps(power)
    return body(b'{"StatusSNS": {"ENERGY": {"Power": %s}}}' % text.encode())


_OWN = {
    "reports no number": _reports("NaN"),
    "reports infinity": _reports("Infinity"),
    "reports -5 W": _reports("-5"),
    "reports 1e308 W": _reports("1e308"),
    "reports 1e999 W": _reports("1e999"),
    "reports a text": _reports('"88"'),
    "reports true": _reports("true"),
    "reports a list in a list": _reports("[[88]]"),
    "reports 400 digits": _reports("9" * 400),
    "reports null": _reports("null"),
}
_HONEST = "honest"
_LATER = {
    "then drips": ANSWERS["drips its header"],
    "then never ends": ANSWERS["never ends its body"],
    "then reports 1e308 W": _OWN["reports 1e308 W"],
}
MISBEHAVIOURS: Mapping[str, Answer] = {**ANSWERS, **_OWN, **_LATER}


def main() -> None:
    """Answer for ever."""
    port, name, _ = chosen({**MISBEHAVIOURS, _HONEST: None})
    asked = itertools.count()

    def answer(_: object) -> Answer:
        right = name == _HONEST or (name in _LATER and next(asked) < 4)
        return _reports(WATTS) if right else MISBEHAVIOURS[name]

    serve(port, answer)


if __name__ == "__main__":
    main()
