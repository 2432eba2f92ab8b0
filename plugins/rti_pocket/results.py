"""`rti pocket results`: docs/results.md from stored comparisons and the article's claims.

No figure on that page is typed by hand: numbers come from the `compare.json` files, and whether a
claim is replicated follows from a paired interval. Only reasons are prose, in claims.toml.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import fields_dict, frozen

from rti import ConfigError, RunError
from rti.checkpoint import write_text
from rti.compare import mean_interval

FEWEST_SEEDS = 5
"""Claims about fewer paired seeds than this are not judged."""


@frozen
class Claim:
    """One claim: two arms, a metric, and which way the difference of the first should lie.

    A metric is one of the last evaluation, or of another time: "before PPL" of the first
    evaluation, "first PPL" and "last PPL" of the first and last training steps (means of five).
    With `against`, the second arm's metric is another than the first's.
    """

    title: str
    article: str
    file: str
    first: str
    second: str
    expect: str
    metric: str = "pass@1"
    against: str = ""
    because: str = ""


def add_results(sub: Any) -> None:
    """Add the action to the sub-parsers of `rti pocket`."""
    parser: argparse.ArgumentParser = sub.add_parser(
        "results",
        help="write the page of results from stored comparisons",
        description="Write docs/results.md from docs/results/*.json, as `rti compare` made them, "
        "and docs/results/claims.toml. With --check only say whether the page is up to date.",
    )
    parser.add_argument("--folder", type=Path, default=Path("docs/results"), metavar="DIR")
    parser.add_argument("--out", type=Path, default=Path("docs/results.md"), metavar="FILE")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    parser.set_defaults(run=results)


def results(args: argparse.Namespace, registry: Any) -> int:
    """Write the page, or check it."""
    text = page(args.folder)
    if args.check:
        same = args.out.is_file() and args.out.read_text(encoding="utf-8") == text
        print(f"{args.out} is {'up to date' if same else 'stale: run rti pocket results'}")
        return 0 if same else 1
    write_text(args.out, text)
    print(f"wrote {args.out}")
    return 0


def page(folder: Path) -> str:
    """The whole page, from the files of `folder`.

    Raises:
        ConfigError: when a file is missing or not of the expected form.
    """
    told = _toml(folder / "claims.toml")
    claims = [_claim(row) for row in told.get("claim", [])]
    labs = {p.stem: _json(p) for p in sorted(folder.glob("*.json"))}
    intro = folder / "intro.txt"
    parts = [intro.read_text(encoding="utf-8").rstrip() if intro.is_file() else "# Results", ""]
    parts += ["## The article's claims", "", *_claims(claims, labs)]
    for name, lab in labs.items():
        if within := [other for other in labs if name != other and _holds(labs[other], lab)]:
            parts += ["", f"## {name}", "", f"Its runs are those of [{within[0]}](#{within[0]})."]
            continue
        parts += ["", f"## {name}", "", *_lab(lab)]
        if told.get("lottery", {}).get("file") == name:
            parts += ["", *_lottery(told["lottery"], lab)]
    outro = folder / "outro.txt"
    if outro.is_file():
        parts += ["", outro.read_text(encoding="utf-8").rstrip()]
    return "\n".join(parts) + "\n"


def _claim(row: Mapping[str, Any]) -> Claim:
    unknown = [key for key in row if key not in fields_dict(Claim)]
    lacking = [key for key in ("title", "article", "file", "first", "second") if key not in row]
    if unknown or lacking or row.get("expect") not in ("above", "below"):
        raise ConfigError(
            f"claim {row.get('title')!r}: unknown keys {unknown}, missing keys {lacking}; expect = "
            f'{row.get("expect")!r} must be "above" or "below".'
        )
    return Claim(**row)


# --- claims -------------------------------------------------------------------------------------


def _claims(claims: Sequence[Claim], labs: Mapping[str, Any]) -> Iterator[str]:
    yield "| claim | the article | here | replicated? |"
    yield "|---|---|---|---|"
    reasons: list[str] = []
    for claim in claims:
        lab = labs.get(claim.file)
        here, verdict = judged(claim, lab) if lab is not None else ("not run yet", "open")
        yield f"| {claim.title} | {claim.article} | {here} | {verdict} |"
        if verdict not in ("yes", "open") and claim.because:
            reasons.append(f"- *{claim.title}*: {' '.join(claim.because.split())}")
    if reasons:
        yield ""
        yield "Where a claim does not show here, the reason we believe:"
        yield ""
        yield from reasons


def judged(claim: Claim, lab: Mapping[str, Any]) -> tuple[str, str]:
    """What the comparison shows of a claim, and the word on it.

    "yes" when the whole 95 % interval of the paired difference lies on the claimed side of 0, "the
    opposite" when it lies on the other, "not shown" when it holds 0.
    """
    missing = [arm for arm in (claim.first, claim.second) if arm not in lab["arms"]]
    if missing:
        return f"no arm {' or '.join(missing)} yet", "open"
    one = _by_seed(lab, claim.first, claim.metric)
    other = _by_seed(lab, claim.second, claim.against or claim.metric)
    seeds = [seed for seed in one if seed in other]
    if len(seeds) < FEWEST_SEEDS:
        return f"{len(seeds)} paired seeds only", "open"
    mean, low, high = mean_interval([one[s] - other[s] for s in seeds])
    assert low is not None
    assert high is not None
    what = f"{claim.first} − {claim.second} in {claim.metric}"
    if claim.against:
        what = f"{claim.first}, {claim.metric} − {claim.against}"
    here = f"{what}: {_signed(mean)} ({_signed(low)} to {_signed(high)}, {len(seeds)} seeds)"
    up, down = low > 0, high < 0
    if not (up or down):
        return here, "not shown"
    return here, "yes" if up == (claim.expect == "above") else "the opposite"


_WHEN = {"before": ("before", None), "first": ("train", 0), "last": ("train", 1)}
"""Where a cell's record holds what was measured at another time than at the end."""


def _by_seed(lab: Mapping[str, Any], arm: str, metric: str) -> dict[int, float]:
    when, _, name = metric.partition(" ")
    if name and when in _WHEN:
        return _at(lab, arm, name, *_WHEN[when])
    row = lab["arms"][arm].get(metric)
    if row is None:
        known = ", ".join(lab["arms"][arm])
        raise ConfigError(f"arm {arm!r} has no metric {metric!r}; it has {known}.")
    pairs = zip(lab["arms"][arm]["seeds"], row["seeds"], strict=True)
    return {seed: value for seed, value in pairs if value is not None}


def _at(
    lab: Mapping[str, Any], arm: str, name: str, place: str, end: int | None
) -> dict[int, float]:
    found = {}
    for seed in lab["arms"][arm]["seeds"]:
        kept = lab["cells"][f"{arm}-{seed}"][place]
        if name not in kept:
            raise ConfigError(f"arm {arm!r} has no metric {name!r}; it has {', '.join(kept)}.")
        value = kept[name] if end is None else kept[name][end]
        if value is not None:
            found[seed] = value
    return found


# --- one comparison -----------------------------------------------------------------------------

_COLUMNS = ("pass@1", "pass@8", "pass^8", "easy/pass@1", "made_up", "tokens")


def _holds(lab: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether every run of `other` is a run of `lab` too, with the same outcome."""
    mine: Mapping[str, Any] = lab["cells"]
    return all(
        cell in mine and mine[cell]["metrics"] == row["metrics"]
        for cell, row in other["cells"].items()
    ) and len(mine) > len(other["cells"])


def _lab(lab: Mapping[str, Any]) -> Iterator[str]:
    columns = [c for c in _COLUMNS if any(c in arm for arm in lab["arms"].values())]
    yield f"| arm | {' | '.join(columns)} |"
    yield "|---|" + "---|" * len(columns)
    for arm, row in lab["arms"].items():
        yield f"| {arm} | {' | '.join(_cell(row.get(c)) for c in columns)} |"
    yield ""
    versions = ", ".join(f"{package} {version}" for package, version in lab["versions"].items())
    yield f"{lab['method']} {len(lab['cells'])} runs with {versions}."
    yield ""
    yield from _curves(lab)
    seeds = list(dict.fromkeys(seed for row in lab["arms"].values() for seed in row["seeds"]))
    yield f"| pass@1 of each seed | {' | '.join(map(str, seeds))} |"
    yield "|---|" + "---|" * len(seeds)
    for arm in lab["arms"]:
        mine = _by_seed(lab, arm, "pass@1")
        cells = [f"{mine[s]:.3f}" if s in mine else "" for s in seeds]
        yield f"| {arm} | {' | '.join(cells)} |"
    yield ""
    yield "| paired difference in pass@1 | mean | 95 % interval |"
    yield "|---|---|---|"
    for pair, row in lab["paired"].items():
        ends = "one seed: none"
        if row["low"] is not None:
            ends = f"{_signed(row['low'])} to {_signed(row['high'])}"
        yield f"| {pair} | {_signed(row['mean'])} | {ends} |"


def _curves(lab: Mapping[str, Any]) -> Iterator[str]:
    """Mean pass@1 at the steps at which every run of an arm was evaluated."""
    curves = {
        arm: [dict(lab["cells"][f"{arm}-{seed}"]["curve"]) for seed in row["seeds"]]
        for arm, row in lab["arms"].items()
    }
    common = {arm: set.intersection(*map(set, of)) for arm, of in curves.items() if of}
    steps = sorted({step for found in common.values() for step in found})
    if len(steps) < 2:
        return
    yield f"| pass@1 after steps | {' | '.join(map(str, steps))} |"
    yield "|---|" + "---|" * len(steps)
    for arm, found in common.items():
        of = curves[arm]
        means = [f"{sum(c[s] for c in of) / len(of):.3f}" if s in found else "" for s in steps]
        yield f"| {arm} | {' | '.join(means)} |"
    yield ""


def _lottery(rule: Mapping[str, Any], lab: Mapping[str, Any]) -> Iterator[str]:
    level = rule["level"]
    won = {arm: list(_by_seed(lab, arm, "pass@1").values()) for arm in rule["arms"]}
    counts = ", ".join(
        f"{arm} {sum(v >= level for v in values)} of {len(values)}" for arm, values in won.items()
    )
    yield (
        f"Runs without intervention that end at pass@1 ≥ {level:g}, since one rare success took "
        f"off (a lottery win, by a level fixed beforehand; counted, never left out): {counts}."
    )


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None or row["mean"] is None:
        return ""
    if abs(row["mean"]) >= 1000:
        return f"{row['mean']:,.0f}"
    whole, count = len(row["seeds"]), sum(v is not None for v in row["seeds"])
    of = "" if count == whole else f" ({count} of {whole})"
    if row["low"] is None:
        return f"{row['mean']:.3f}{of}"
    return f"{row['mean']:.3f} ± {row['high'] - row['mean']:.3f}{of}"


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}. It holds the claims, one [[claim]] each.") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: {error}. It should be what `rti compare` wrote.") from error
    if not isinstance(found, dict) or not {"arms", "paired", "config", "method"} <= found.keys():
        raise RunError(f"{path} is no compare.json: copy one that `rti compare` wrote.")
    return found
