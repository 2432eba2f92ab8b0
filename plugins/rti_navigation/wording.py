"""What is said in words, in Chinese and in English: what users ask for, and what success is."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

LANGUAGES = ("zh", "en")

SYSTEM = {
    "zh": "你是导航助手。用户提到的地点都在用户所在的城市。用工具查到这些地点，"
    "再调用 direction 规划路线，最后用一句话回答用户问的全程距离或全程时间。"
    "如果其中某个地点在该城市不存在，就不要规划路线，直接说明哪个地点没有找到。",
    "en": "You are a navigation assistant. The places that a user names are in the city that the "
    "user is in. Look them up with the tools, plan the route with direction, and then answer in "
    "one sentence with what the user asks for: the total distance or the total duration. If one "
    "of the places does not exist in that city, plan no route and say which place was not found.",
}

_CUES = {
    "zh": {
        "said": ("我在{city}。", "我现在人在{city}。", "你好，我这会儿在{city}。"),
        "travel": (
            "我昨天还在{other}，今天一早刚到{city}。",
            "我后天才去{other}，现在还在{city}。",
            "我从{other}坐火车过来，刚在{city}下车。",
        ),
        "landmark": ("我住在{landmark}旁边。", "我现在就在{landmark}门口。"),
    },
    "en": {
        "said": ("I am in {city}.", "Hello, I am in {city} right now.", "I live in {city}."),
        "travel": (
            "I was in {other} until last night and have just arrived in {city}.",
            "I go to {other} the day after tomorrow, for now I am still in {city}.",
            "I took the train from {other} and have just got off in {city}.",
        ),
        "landmark": (
            "I am staying right next to {landmark}.",
            "I am standing in front of {landmark}.",
        ),
    },
}

_ROUTES = {
    "zh": {
        2: ("请规划从{0}到{1}的路线", "我想从{0}去{1}"),
        3: ("请规划从{0}出发、途经{1}、到{2}的路线", "我想从{0}出发，先去{1}，再到{2}"),
        4: (
            "请规划从{0}出发、依次途经{1}和{2}、到{3}的路线",
            "我想从{0}出发，先去{1}，再去{2}，最后到{3}",
        ),
    },
    "en": {
        2: ("Please plan a route from {0} to {1}", "I want to get from {0} to {1}"),
        3: (
            "Please plan a route from {0} via {1} to {2}",
            "I want to start at {0}, go to {1} first and then to {2}",
        ),
        4: (
            "Please plan a route from {0} via {1} and then {2} to {3}",
            "I want to start at {0}, go to {1} first, then to {2}, and finally to {3}",
        ),
    },
}

MODES = {
    "zh": {
        "driving": "开车",
        "walking": "步行",
        "bicycling": "骑自行车",
        "transit": "坐公共交通",
    },
    "en": {
        "driving": "by car",
        "walking": "on foot",
        "bicycling": "by bicycle",
        "transit": "by public transport",
    },
}
_BY_WEATHER = {
    "zh": "，如果那里今天下雨就{wet}，不下雨就{dry}。",
    "en": ", {wet} if it rains there today and {dry} if it does not. ",
}
_BY = {"zh": "，{dry}。", "en": ", {dry}. "}
_QUESTIONS = {
    "zh": {"distance": "全程有多远？", "duration": "全程要多长时间？"},
    "en": {"distance": "How far is it in all?", "duration": "How long does it take in all?"},
}


def request(
    rng: random.Random,
    language: str,
    cue: str,
    facts: Mapping[str, str],
    names: Sequence[str],
    modes: tuple[str, str],
    asks: str,
) -> str:
    """What the user says. `modes` are those for dry and for wet weather."""
    dry, wet = (MODES[language][mode] for mode in modes)
    by = _BY if dry == wet else _BY_WEATHER
    return "".join(
        (
            rng.choice(_CUES[language][cue]).format(**facts),
            "" if language == "zh" else " ",
            rng.choice(_ROUTES[language][len(names)]).format(*names),
            by[language].format(dry=dry, wet=wet),
            _QUESTIONS[language][asks],
        )
    )


SAY = {
    "zh": {
        "distance": "全程{distance_text}。",
        "duration": "全程需要{duration_text}。",
        "missing": "在{city}没有找到{name}，所以没有规划路线。",
        "lost": "抱歉，没能规划出路线。",
        "noop": "好的，请稍等。",
    },
    "en": {
        "distance": "The whole route is {distance_text}.",
        "duration": "The whole route takes {duration_text}.",
        "missing": "{name} was not found in {city}, so there is no route.",
        "lost": "Sorry, no route could be planned.",
        "noop": "Sure, one moment please.",
    },
}
"""What the scripted policies say."""

HINTS = {
    "zh": {
        "again": "还没查到“{name}”。不要选相近的。加上城市再搜一次。",
        "choose": "“{name}”已经查到。选正好这个名称的。要在用户的城市里。",
        "no-exact-match": "没有正好这个名称的结果。不要选相近的。加上城市再搜一次。",
        "stops": "地点的数目和顺序要对。",
        "mode": "出行方式不对。",
        "no-route": "还没有规划路线。先查到每个地点。",
        "distance": "只说全程距离。",
        "duration": "只说全程时间。",
        "look": "先搜“{name}”。要加上城市。",
        "missing": "那里没有“{name}”。不要规划路线。直接告诉用户。",
        "say": "没找到“{name}”。要这样说明。别的地点不要这样说。",
    },
    "en": {
        "again": "Not yet found: {name}. Take none that is similar. Search again with the city.",
        "choose": "Already listed: {name}. Take that exact name. It must be in the city.",
        "no-exact-match": "None has the exact name. Take none that is similar. Search again with "
        "the city.",
        "stops": "Mind which places come, and the order.",
        "mode": "The mode of travel is wrong.",
        "no-route": "There is no route yet. Find every place first.",
        "distance": "Give the total distance only.",
        "duration": "Give the total duration only.",
        "look": "First search {name}. Do so by city.",
        "missing": "There is no {name}. Plan no route. Tell the user.",
        "say": "It was not found: {name}. Say so. Say it of no other.",
    },
}
"""Directions by what is wrong. They reach the Corrector: only what the user said is in them.

They are declared in the evidence, so that a veto takes a long run of their words for wording that
has leaked: each sentence is short.
"""
