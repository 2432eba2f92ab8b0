"""Names made up by rule: two characters and a type, in Chinese and in English.

A stem is a pair of characters, and its English form their sounds: 海澜 is Hailan. A place is called
by its stem and its type (海澜广场, Hailan Plaza), one that is easily taken for it has a word in
between (海澜文化广场, Hailan Culture Plaza) or one behind (海澜广场停车场). All lists are ours.
"""

from __future__ import annotations

import random
import unicodedata
import zlib
from collections.abc import Iterator

from attrs import frozen

SPLITS = ("train", "test")

_SOUNDS = """东dong 南nan 北bei 西xi 云yun 青qing 白bai 金jin 银yin 长chang 宁ning 安an 和he 平ping
山shan 海hai 江jiang 湖hu 泉quan 石shi 沙sha 林lin 松song 柏bo 竹zhu 梅mei 澜lan 桂gui 枫feng 柳liu
桃tao 鹭lu 龙long 马ma 雁yan 星xing 月yue 明ming 涌chong 光guang 春chun 秋qiu 夏xia 雪xue 雨yu
天tian 永yong 福fu 寿shou 康kang 瑞rui 嘉jia 德de 仁ren 礼li 景jing 望wang 高gao 千qian 双shuang
古gu 塔ta 岭ling 坡po 洲zhou 浦pu 营ying 堡bao"""
SOUNDS = {entry[0]: entry[1:] for entry in _SOUNDS.split()}

TYPES = (
    ("广场", "Plaza", "210100"),
    ("公园", "Park", "210200"),
    ("医院", "Hospital", "210300"),
    ("图书馆", "Library", "210400"),
    ("博物馆", "Museum", "210500"),
    ("体育馆", "Stadium", "210600"),
    ("酒店", "Hotel", "210700"),
    ("大厦", "Tower", "210800"),
    ("车站", "Station", "210900"),
    ("市场", "Market", "211000"),
    ("剧院", "Theatre", "211100"),
    ("码头", "Pier", "211200"),
)
"""Chinese, English, and a typecode of our own."""

MODIFIERS = (
    ("文化", "Culture"),
    ("凤凰", "Phoenix"),
    ("国际", "International"),
    ("时代", "Times"),
    ("中央", "Central"),
    ("滨江", "Riverside"),
    ("阳光", "Sunshine"),
    ("世纪", "Century"),
    ("万象", "Mosaic"),
    ("花园", "Garden"),
    ("人民", "People's"),
    ("创新", "Innovation"),
)

ANNEXES = (("停车场", "Car Park"), ("西门", "West Gate"), ("售票处", "Ticket Office"))


@frozen
class Name:
    """A name in both languages. `words` are those that a search finds it by."""

    zh: str
    en: str
    words: tuple[str, ...] = ()

    def within(self, language: str) -> str:
        """The name in `language`, "zh" or "en"."""
        return self.zh if language == "zh" else self.en

    def then(self, *parts: tuple[str, str]) -> Name:
        """The name with more words behind it."""
        chinese = [self.zh, *(zh for zh, _ in parts)]
        english = " ".join([self.en, *(en for _, en in parts)])
        return Name("".join(chinese), english, (*chinese, english))


def stems(seed: int, split: str) -> Iterator[Name]:
    """All stems of a split, each once, in an order of the seed.

    Which split a pair of characters belongs to is the same for every seed, so that what was learned
    on one seed's training cities meets no known name in another's test cities.
    """
    pairs = [
        a + b
        for a in SOUNDS
        for b in SOUNDS
        if a != b and zlib.crc32((a + b).encode()) % len(SPLITS) == SPLITS.index(split)
    ]
    random.Random(f"{seed}/{split}/stems").shuffle(pairs)
    heard: set[str] = set()
    for pair in pairs:
        sound = "".join(SOUNDS[c] for c in pair)
        if sound not in heard:  # xi + an and xia + n would be one word
            heard.add(sound)
            yield Name(pair, sound.capitalize())


def fold(text: str) -> str:
    """Text in which only letters and digits count, for comparing names."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(c for c in folded if c.isalnum())
