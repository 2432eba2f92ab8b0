"""The telecom customer: hears what it is asked to do on its phone, does it, says what it saw.

Following tau2's guidelines for its simulated users it does one thing at a time, tells only what
the scenario or a tool told it, and hangs up when what it came for works or it is passed on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import define, field, frozen

from rti_tau2.customer import (
    MAY,
    NOTHING_HEARD,
    STOP,
    TRANSFER,
    Fragment,
    Scenario,
    Use,
    asked,
    first_person,
    fragments,
    goodbye,
    heard,
    passed_on,
)

PATIENCE = 2
"""Goodbyes it hears, its problem unsolved, before it hangs up."""


@frozen
class Request:
    """A tool that the agent asked for. `wanted` is the state a switch should end in, if told."""

    tool: str
    arguments: Mapping[str, Any] = field(factory=dict)
    wanted: bool | None = None
    missing: str = ""
    """What the agent must still say before it can be done."""


@frozen
class Switch:
    """Something on the phone that is on or off: its tool, its names, and how to see its state."""

    tool: str
    names: str
    reader: str
    shown: str


SWITCHES = (
    Switch("toggle_airplane_mode", r"(?:airplane|aeroplane|flight) mode", "check_network_status",
           r"Airplane Mode: (ON|OFF)"),
    Switch("toggle_data_saver_mode", r"data[- ]saver(?: mode)?", "check_data_restriction_status",
           r"Data Saver mode is (ON|OFF)"),
    Switch("toggle_roaming", r"(?:data )?roaming(?: mode)?", "check_network_status",
           r"Data Roaming Enabled: (Yes|No)"),
    Switch("toggle_data",
           r"(?:mobile|cellular) data(?! (?:usage|plan|limit|roaming|network|speed))",
           "check_network_status", r"Mobile Data Enabled: (Yes|No)"),
    Switch("toggle_wifi_calling", r"wi-?fi[- ]calling", "check_wifi_calling_status",
           r"Calling is currently turned (ON|OFF)"),
    Switch("toggle_wifi", r"wi-?fi(?![- ]calling)", "check_wifi_status",
           r"Wi-Fi is (?:turned )?(ON|OFF)"),
)  # fmt: skip

_MY = r"(?:(?:on|off|your|the|this|that|phone's|device's) +){0,3}"
_ON = r"(?:turn|switch)(?:ing)? +on|enabl(?:e|ing)|activat(?:e|ing)"
_OFF = r"(?:turn|switch)(?:ing)? +off|disabl(?:e|ing)|deactivat(?:e|ing)"
_LOOK = r"\b(?:check|verify|confirm|look at|look for|tell me|see|view|inspect|read)\b.{0,40}?"
_ASK = r"\b(?:is|are|does|do|what|which|how|can)\b.{0,40}?"
_MODE = r"network (?:mode(?: preference)?|type|preference)|preferred network"
_MMS = r"\b(?:mms|(?:picture|photo|multimedia|group) messages?)\b"

ACTS = (
    ("reseat_sim_card", r"(?:re-?seat|re-?insert|remove|take out|pull out|eject).{0,40}?\bsim\b"),
    ("reset_apn_settings", r"\breset.{0,30}?\b(?:apn|access point)"),
    ("disconnect_vpn", rf"(?:disconnect|{_OFF}).{{0,20}}?\bvpn\b|\bturn {_MY}vpn +off"),
    ("connect_vpn", rf"\b(?:connect(?:ing)?\b|{_ON}).{{0,20}}?\bvpn\b|\bturn {_MY}vpn +on"),
    ("reboot_device", r"\b(?:reboot|restart|power[- ]cycle)\w*"),
    ("make_payment", r"\b(?:make|complete|submit|proceed with) +(?:the|a|your|this) +payment"
                     r"|\bpay +(?:the|your|this|it|for|that)|\baccept.{0,12} payment request"),
    ("set_network_mode_preference",
     rf"\b(?:set|change|switch|select|choose|adjust)\w*.{{0,30}}?(?:{_MODE})"),
    ("grant_app_permission",
     r"\b(?:grant|give|allow|add|enable)\b.{0,50}?\b(?:permission|access\b)"),
)  # fmt: skip
READS = (
    ("check_status_bar", r"status bar"),
    ("check_payment_request", r"payment request"),
    ("check_network_mode_preference", _MODE),
    ("check_network_status", r"(?:network|connection) status|signal strength|network connection"),
    ("check_sim_status", r"\bsim\b"),
    ("check_apn_settings", r"\bapn\b|access point"),
    ("check_vpn_status", r"\bvpn\b"),
    ("check_data_restriction_status", r"data[- ](?:restriction|limit)"),
    ("check_app_permissions", r"\bpermissions?\b"),
    ("check_installed_apps", r"\bapps\b"),
    ("check_app_status", r"\bapp\b.{0,15}?\b(?:status|settings|details)"),
    ("can_send_mms", _MMS),
    ("run_speed_test", r"\bspeed"),
)
ALONE = (
    ("run_speed_test", r"speed ?test"),
    ("can_send_mms", rf"\b(?:send|sending|test)\b.{{0,30}}?{_MMS}"),
)

APPS = {"messaging": r"messag\w*|\btexting\b", "browser": r"\bbrowser\b"}
PERMISSION = r"\b(sms|storage|phone|network)\b"
MODES = (
    ("4g_5g_preferred", r"4g_5g_preferred|\b5g\b"),
    ("4g_only", r"4g_only|\b4g\b|\blte\b"),
    ("3g_only", r"3g_only|\b3g\b"),
    ("2g_only", r"2g_only|\b2g\b"),
)


@frozen
class Goal:
    """What a customer came for, told by the words of its reason for calling."""

    told: str
    tool: str
    reached: str


GOALS = (
    Goal(r"\bMMS\b", "can_send_mms", r"can send MMS"),
    Goal(r"internet speed", "run_speed_test", r"\(Excellent\)"),
    Goal(r"No Service", "check_status_bar", "📶"),
)

_FIXED = re.compile(
    r"(?:should|is|are|does|do|has|have|now)\b.{0,40}\b(?:work(?:s|ing)?|resolved|fixed|restored)\b"
    r"|\btry (?:it |that |this )?again\b|\bbetter now\b",
    re.I,
)
_WHO = re.compile(
    r"\b(?:name|phone number|number|date of birth|identity|customer id|account|location)\b"
    r"|where (?:are|is)|\babroad\b|travel",
    re.I,
)
_GIVE = re.compile(r"\b(?:provide|share|tell|give|confirm|verify|need|have|know)\b", re.I)
_WHAT = re.compile(r"(?:help|assist) you|(?:problem|issue|wrong|experiencing|describe)", re.I)
_MONEY = re.compile(r"refuel|\bgb\b|data usage|top[- ]?up|add(?:itional)? data", re.I)


@define
class TelecomCustomer:
    """A customer of the telecom desk. It holds to what `find_request` hears."""

    scenario: Scenario
    disappointments: int = 0
    goodbyes: int = 0

    def opening(self) -> str:
        """The reason for the call, and who it is unless that must be asked for."""
        reason = first_person(self.scenario.reason)
        if self.scenario.reticent:
            return f"Hello. {reason}"
        return f"Hello. {first_person(self.scenario.known)} {reason}"

    def state(self) -> tuple[Any, ...]:
        """How often it was disappointed, and told goodbye."""
        return self.disappointments, self.goodbyes

    @property
    def goal(self) -> Goal | None:
        """What must work before it is content."""
        return next((g for g in GOALS if re.search(g.told, self.scenario.reason)), None)

    def answer(self, text: str, use: Use) -> str:
        """Do the first thing asked, else answer what was asked, else say that it is lost."""
        words = heard(text)
        if not words:
            return NOTHING_HEARD
        if passed_on(words):
            return TRANSFER
        said = [self._who(words)]
        requests = list(find_requests(words, self.scenario.reason))
        if requests:
            said.append(self._do(requests[0], use))
            if any(other != requests[0] for other in requests[1:]):
                said.append("I can only do one thing at a time. What should I do next?")
        elif goodbye(words) or _FIXED.search(words):
            said.append(self._try(goodbye(words), use))
        else:
            said.append(self._consent(words))
        spoken = " ".join(part for part in said if part)
        if spoken:
            return spoken
        if _WHAT.search(words):
            return first_person(self.scenario.reason)
        return "Okay. What would you like me to do?"

    def _do(self, request: Request, use: Use) -> str:
        if request.missing:
            return f"I can do that, but {request.missing}?"
        if request.wanted is not None:
            switch = next(s for s in SWITCHES if s.tool == request.tool)
            shown = use(switch.reader, {})
            found = re.search(switch.shown, shown)
            if found and (found[1] in {"ON", "Yes"}) == request.wanted:
                return f"That is how it is already. I see: {shown}"
        shown = use(request.tool, request.arguments)
        if self.goal is not None and request.tool == self.goal.tool:
            return self._judge(shown)
        return f"I see: {shown}" if request.tool.startswith("check_") else f"I did that. {shown}"

    def _try(self, goodbye: bool, use: Use) -> str:
        """See whether what it came for works now; hang up after too many goodbyes."""
        self.goodbyes += goodbye
        told = self._judge(use(self.goal.tool, {})) if self.goal else ""
        if self.goodbyes >= PATIENCE and STOP not in told:
            return f"{told} I will try again another time. {STOP}".strip()
        return told

    def _judge(self, shown: str) -> str:
        assert self.goal is not None
        if re.search(self.goal.reached, shown):
            return f"{shown} That is what I needed, thank you! {STOP}"
        self.disappointments += 1
        mood = ", which is a little frustrating" if self.disappointments > 1 else ""
        return f"{shown} So my problem is not solved yet{mood}."

    def _who(self, words: str) -> str:
        for piece in fragments(words):
            wants = piece.question or _GIVE.search(piece.text)
            if wants and _WHO.search(piece.text):
                return first_person(self.scenario.known)
        return ""

    def _consent(self, words: str) -> str:
        willing = " ".join(
            first_person(sentence)
            for sentence in re.split(r"(?<=[.!?]) +", self.scenario.instructions)
            if re.match(r"You are willing|You do not want", sentence)
        )
        if _MONEY.search(words) and willing:
            return willing
        if re.search(r"\bplans?\b", words, re.I) and "plan" in willing:
            return willing
        return "Yes, please go ahead." if MAY.search(words) else ""


def find_requests(words: str, reason: str) -> Iterator[Request]:
    """What the agent's words ask the customer to do on its phone, in the order of mention.

    A tool that is called by its function name goes before everything said in plain words.
    Arguments come from the words alone; an app that is not named is the one in `reason`.
    """
    pieces = list(fragments(words))
    named = [r for piece in pieces for r in _by_name(piece, words, reason)]
    yield from named or [r for piece in pieces for r in _by_words(piece, words, reason)]


def _by_name(piece: Fragment, words: str, reason: str) -> Iterator[Request]:
    for found in re.finditer(r"\b([a-z]+(?:_[a-z]+)+)\b(?:\s*\(([^()]*)\))?", piece.text):
        if found[1] in TOOLS and asked(piece.text[: found.start()]):
            yield _request(found[1], found[2] or words, reason)


def _by_words(piece: Fragment, words: str, reason: str) -> Iterator[Request]:
    hits = [hit for hit in _hits(piece) if asked(piece.text[: hit[0].start()])]
    # By where a mention ends: "check the status bar for airplane mode" is about the status bar.
    for _, tool, wanted in sorted(hits, key=lambda hit: hit[0].end()):
        yield _request(tool, words, reason, wanted)


def _hits(piece: Fragment) -> Iterator[tuple[re.Match[str], str, bool | None]]:
    def find(pattern: str) -> re.Match[str] | None:
        return re.search(pattern, piece.text, re.IGNORECASE)

    look = rf"(?:{_LOOK}|{_ASK})" if piece.question else _LOOK
    for switch in SWITCHES:
        on_off = rf"{_MY}(?:{switch.names})(?: +mode)?"
        is_ = rf"(?:make sure|ensure)(?: that)? +{on_off} +is +(?:turned +|switched +|set to +)?"
        do = rf"\b(?:turn|switch|toggle|put|set) +{on_off} +(?:back +)?"
        if hit := find(rf"(?:{_ON}) +{on_off}|{do}on\b|{is_}(?:on|enabled)\b"):
            yield hit, switch.tool, True
        elif hit := find(rf"(?:{_OFF}) +{on_off}|{do}off\b|{is_}(?:off|disabled)\b"):
            yield hit, switch.tool, False
        elif hit := find(rf"\b(?:toggl(?:e|ing)|flip|switch) +{on_off}"):
            yield hit, switch.tool, None
        elif hit := find(rf"{look}(?:{switch.names})"):
            yield hit, switch.reader, None
    acted = False
    for tool, pattern in ACTS:
        if hit := find(pattern):
            acted = True
            yield hit, tool, None
    for tool, pattern in ALONE:
        if hit := find(pattern):
            yield hit, tool, None
    for tool, pattern in READS:
        # "Confirm and reset your APN settings" is one request, and it is to act.
        if not acted and (hit := find(rf"{look}(?:{pattern})")):
            yield hit, tool, None


TOOLS = frozenset(
    [tool for tool, _ in ACTS + READS + ALONE]
    + [name for switch in SWITCHES for name in (switch.tool, switch.reader)]
    + ["set_apn_settings"]
)


def _request(tool: str, words: str, reason: str, wanted: bool | None = None) -> Request:
    if tool in {"check_app_status", "check_app_permissions", "grant_app_permission"}:
        app = _app(words) or _app(reason)
        if app is None:
            return Request(tool, missing="for which app")
        if tool != "grant_app_permission":
            return Request(tool, {"app_name": app})
        permission = _permission(words)
        if permission is None:
            return Request(tool, missing="which permission should I give it")
        return Request(tool, {"app_name": app, "permission": permission})
    if tool == "set_network_mode_preference":
        # "from 2G to 5G": the mode to set comes last.
        wished = re.split(r"\bto\b", words, flags=re.IGNORECASE)[-1]
        for mode, pattern in MODES:
            if re.search(pattern, wished, re.IGNORECASE):
                return Request(tool, {"mode": mode})
        return Request(tool, missing="which network mode should I choose")
    if tool == "set_apn_settings":
        settings = _json_object(words)
        if settings is None:
            return Request(tool, missing="which settings exactly should I enter")
        return Request(tool, {"apn_settings": settings})
    return Request(tool, wanted=wanted)


def _app(words: str) -> str | None:
    for app, pattern in APPS.items():
        if re.search(pattern, words, re.IGNORECASE):
            return app
    return None


def _permission(words: str) -> str | None:
    close = (
        rf"{PERMISSION} +(?:access +)?permission|(?:permission|access) +(?:to|for) +{PERMISSION}"
    )
    found = re.search(close, words, re.IGNORECASE) or re.search(
        r"\b(sms|storage|network)\b", words, re.IGNORECASE
    )
    return next((group.lower() for group in found.groups() if group), None) if found else None


def _json_object(words: str) -> dict[str, Any] | None:
    start, stop = words.find("{"), words.rfind("}")
    try:
        settings = json.loads(words[start : stop + 1]) if start >= 0 else None
    except ValueError:
        return None
    return settings if isinstance(settings, dict) else None
