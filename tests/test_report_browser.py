"""`rti report` in headless Chromium, opened from the disk as a reader opens it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from report_cases import RUNS, changed, compare, embedded, long_run

from rti.report import write_report

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install it")
CHROMIUM = next(
    (p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="needs a browser: `apt-get install chromium` (Debian's)"
)

# Coloured pixels: axes and grid are grey, so these are lines, bands and bars.
COLOURED = """
(drawn) => {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [drawn.width, drawn.height];
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(drawn, 0, 0);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let i = 0; i < data.length; i += 4) {
    const [r, g, b, a] = data.subarray(i, i + 4);
    if (a > 100 && Math.max(r, g, b) - Math.min(r, g, b) > 60) found += 1;
  }
  return found;
}
"""

Show = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        # Root, as in a container, has no sandbox to offer.
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def show(browser: Any) -> Iterator[Show]:
    """Opens a report; anything on the console, any dialog or request fails the test."""
    faults: list[str] = []
    contexts = []

    def open_(path: Path, fragment: str = "", width: int = 1280, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)  # machines are shared
        page.on("console", lambda m: faults.append(f"console: {m.text}"))
        page.on("pageerror", lambda e: faults.append(f"error: {e}"))
        page.on("dialog", lambda d: (faults.append(f"dialog: {d.message}"), d.dismiss()))
        page.on("request", lambda r: None if r.url.startswith("file:") else faults.append(r.url))
        page.goto(f"{path.as_uri()}{fragment}")
        page.wait_for_function("document.querySelectorAll('.plot canvas').length > 0")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(RUNS / "rti-3", tmp_path_factory.mktemp("run") / "report.html").path


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(compare(tmp_path_factory.mktemp("lab") / "lab")).path


def all_drawn(page: Any) -> int:
    """How many plots there are; fails when one of them stays blank."""
    places = page.locator(".plot")
    for place in places.all():
        caption = place.get_attribute("aria-label")
        canvas = place.locator("canvas")
        for _ in range(50):  # a plot is drawn when the browser has laid it out
            if canvas.count() == 1 and canvas.evaluate(COLOURED) > 100:
                break
            page.wait_for_timeout(100)
        assert canvas.count() == 1, caption
        assert canvas.evaluate(COLOURED) > 100, caption
    return int(places.count())


def cards(page: Any) -> Any:
    return page.locator(".list a")


def test_a_run_opens_and_every_plot_has_drawn(show: Show, run: Path) -> None:
    page = show(run)
    assert page.locator("h1").inner_text() == "rti-3"
    assert page.title() == "rti-3 – rti report"
    assert all_drawn(page) == 6
    shown = page.locator("main > section:visible h2").all_inner_texts()
    assert shown == [
        "Learning curves", "Groups that give a signal by themselves",
        "How far corrections are from the policy", "Made-up values",
        "What became of interventions", "Time and tokens", "Runs", "Transcripts", "Step by step",
    ]  # fmt: skip


def test_a_compare_opens_and_every_view_draws(show: Show, lab: Path) -> None:
    page = show(lab)
    assert all_drawn(page) == 6
    assert page.locator("#arms tbody tr").count() == 3
    assert page.locator("#runs tbody tr").count() == 4
    learning = page.locator("#learning")
    for tasks, over in (("easy", "tokens"), ("AH", "steps"), ("all tasks", "tokens")):
        learning.get_by_label("Tasks", exact=True).select_option(tasks)
        if over != "steps":
            learning.get_by_label("Against", exact=True).select_option(over)
        assert all_drawn(page) == 6
    assert "tokens" in learning.locator(".plot").get_attribute("aria-label")


def test_a_line_can_be_switched_off(show: Show, lab: Path) -> None:
    page = show(lab)
    canvas = page.locator("#pass-g canvas")
    before = canvas.evaluate(COLOURED)
    page.locator("#pass-g .legend button", has_text="rti").click()
    page.wait_for_timeout(100)
    assert canvas.evaluate(COLOURED) < before


def test_filters_and_search(show: Show, lab: Path) -> None:
    page, told = show(lab), embedded(lab)
    entries, browser = told["transcripts"]["entries"], page.locator("#transcripts")

    def matched() -> int:
        return int(page.locator(".found").inner_text().split(" of ")[0].replace(",", ""))

    assert matched() == len(entries)
    browser.get_by_label("Outcome", exact=True).select_option("gated")
    gated = [e for e in entries if e["stage"] == "gated"]
    assert matched() == len(gated) > 0
    assert cards(page).first.locator(".badge").inner_text() == "stopped by the gate"
    browser.get_by_label("Family", exact=True).select_option("pocket / BH")
    assert matched() == len([e for e in gated if e["family"] == "BH"])
    browser.get_by_label("Arm or run", exact=True).select_option("rti-4")
    rti = next(i for i, r in enumerate(told["runs"]) if r["name"] == "rti-4")
    left = [e for e in gated if e["family"] == "BH" and e["run"] == rti]
    assert matched() == len(left) > 0
    task = left[0]["task"]
    browser.get_by_label("Search", exact=True).fill(task.upper())
    assert matched() == len([e for e in left if e["task"] == task])
    browser.get_by_label("Search", exact=True).fill("no such words anywhere")
    assert matched() == 0
    browser.get_by_role("button", name="Reset").click()
    assert matched() == len(entries)
    browser.get_by_label("Outcome", exact=True).select_option("trained")
    assert matched() == sum(e["trained"] for e in entries) > 0


def test_a_deep_link_opens_its_transcript(show: Show, run: Path) -> None:
    entries = embedded(run)["transcripts"]["entries"]
    wanted = next(e for e in reversed(entries) if e["trained"])
    page = show(run, f"#{wanted['id']}")
    card = page.locator(".card")
    assert wanted["task"] in card.locator("h3").inner_text()
    assert card.locator("h3").is_visible()
    assert page.evaluate("window.scrollY") > 500
    assert page.locator(".list a[aria-current=true]").get_attribute("href") == f"#{wanted['id']}"
    draft = "".join(text for _, text in wanted["draft"])
    assert card.locator(".text", has_text=draft.split(" . ")[0]).count() >= 1
    assert card.locator("del").all_inner_texts() == [t for c, t in wanted["draft"] if c]
    assert card.locator("ins").all_inner_texts() == [t for c, t in wanted["correction"] if c]
    assert wanted["after"].splitlines()[0] in card.inner_text()
    weights = card.locator(".tokens small").all_inner_texts()
    assert weights == [f"{w:.2f}" for w in wanted["weights"]]
    shades = card.locator(".tokens li").evaluate_all(
        "nodes => nodes.map(n => getComputedStyle(n).backgroundColor)"
    )
    heaviest = wanted["weights"].index(max(wanted["weights"]))
    lightest = min(range(len(shades)), key=lambda i: abs(wanted["weights"][i] - 1))
    assert shades[heaviest] != shades[lightest]
    # A link in an open page leads there too, through any filter.
    page.locator("#transcripts").get_by_label("Outcome", exact=True).select_option("vetoed")
    other = next(e for e in entries if e["stage"] == "gated")
    page.evaluate("id => { location.hash = id }", other["id"])
    page.wait_for_function(
        "t => document.querySelector('.card h3').textContent === t", arg=other["task"]
    )
    here = page.locator(".list a[aria-current=true]")
    assert here.get_attribute("href") == f"#{other['id']}"
    assert here.is_visible()
    page.evaluate("location.hash = 'turn-s99.nowhere.r0.a0'")
    page.locator(".card", has_text="is not among the transcripts in this page").wait_for()


def test_the_keyboard_walks_through_transcripts(show: Show, run: Path) -> None:
    page = show(run)
    links = [a.get_attribute("href") for a in cards(page).all()[:3]]
    cards(page).first.focus()
    page.keyboard.press("Enter")
    for key, at in (("j", 1), ("j", 2), ("k", 1)):
        page.keyboard.press(key)
        page.wait_for_function("h => location.hash === h", arg=links[at])
    page.keyboard.press("/")
    page.keyboard.type("jk")
    assert page.locator("#transcripts input").input_value() == "jk"
    assert page.evaluate("location.hash") == links[1]


def test_a_search_begun_right_after_a_key_is_kept(show: Show, run: Path) -> None:
    page = show(run)
    links = [a.get_attribute("href") for a in cards(page).all()[:2]]
    page.evaluate("h => { location.hash = h }", links[0])
    page.wait_for_function(
        "h => document.querySelector('.list a[aria-current=true]')?.hash === h", arg=links[0]
    )
    # All in one task: the browser tells of the new address only after it.
    page.evaluate(
        """() => new Promise((done) => {
          addEventListener("hashchange", () => setTimeout(done));
          document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "j", bubbles: true }));
          const input = document.querySelector("#transcripts input");
          input.value = "no such words";
          input.dispatchEvent(new Event("input"));
        })"""
    )
    assert page.locator("#transcripts input").input_value() == "no such words"
    assert page.evaluate("location.hash") == links[1]
    assert cards(page).count() == 0


def test_a_link_to_the_open_transcript_leads_to_it_again_and_again(show: Show, run: Path) -> None:
    page = show(run, width=390)
    link = page.locator(".list a[aria-current=true]")
    in_view = """() => {
      const { top } = document.querySelector(".card").getBoundingClientRect();
      return top >= 0 && top < innerHeight;
    }"""
    for _ in range(2):
        page.evaluate("scrollTo(0, 0)")
        assert not page.evaluate(in_view)
        link.click()
        page.wait_for_function(in_view)
        page.evaluate("location.hash = 'curves'")
        page.wait_for_function("location.hash === '#curves'")


EVIL = '<script>alert(1)</script></script><img src=x onerror="alert(2)">'


def test_what_looks_like_html_is_shown_as_text(show: Show, tmp_path: Path) -> None:
    def spoil(event: dict[str, Any]) -> dict[str, Any]:
        if event["event"] == "RunStarted":
            return {**event, "plugins": {**event["plugins"], "environment": EVIL}}
        if event["event"] == "StepDone":
            return {**event, "words": EVIL}
        if event["event"] == "Evaluated":
            return {
                **event,
                "families": {EVIL: event["families"]["AH"], "x": event["families"]["BH"]},
            }
        if event["event"] != "TurnRepaired":
            return event
        texts = {k: EVIL for k in ("task", "family", "reason", "history", "draft", "diagnosis",
                                   "correction", "after")}  # fmt: skip
        lists = {k: [EVIL] for k in ("verdicts", "gates", "tokens")}
        return {**event, **texts, **lists, "weights": [1.1], "provenance": {"plugin": EVIL}}

    page = show(write_report(changed(tmp_path / EVIL.replace("/", "-"), spoil)).path)
    assert page.locator("img").count() == 0
    assert page.locator("body script").count() == 3
    card = page.locator(".card")
    card.locator("summary").click()
    for place in ("h3", "details .text", ".sides .text", ".checks li", ".tokens li"):
        assert EVIL in card.locator(place).first.inner_text(), place
    assert EVIL in cards(page).first.inner_text()
    page.locator("#words summary").click()
    assert page.locator("#words td").nth(1).inner_text() == EVIL
    assert EVIL in page.locator("#transcripts").get_by_label("Family", exact=True).inner_text()
    assert EVIL in page.locator("#learning .legend").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(show: Show, run: Path, scheme: str) -> None:
    page = show(run, scheme=scheme)
    ground = "getComputedStyle(document.body).backgroundColor"
    before, other = page.evaluate(ground), {"light": "dark", "dark": "light"}[scheme]
    bright = sum(map(int, before.removeprefix("rgb(").rstrip(")").split(","))) > 380
    assert bright == (scheme == "light")
    page.get_by_role("button", name="Switch between light and dark").click()
    assert page.evaluate("document.documentElement.dataset.theme") == other
    assert page.evaluate(ground) != before
    assert all_drawn(page) == 6
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == other


@pytest.mark.parametrize("which", ["run", "lab"])
def test_a_phone_scrolls_in_one_direction(
    show: Show, which: str, request: pytest.FixtureRequest
) -> None:
    page = show(request.getfixturevalue(which), width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert all_drawn(page) == 6
    page.set_viewport_size({"width": 700, "height": 900})
    page.wait_for_timeout(100)
    assert page.locator(".plot canvas").first.evaluate("c => c.clientWidth") > 500


def test_200_steps_open_quickly(show: Show, tmp_path: Path) -> None:
    written = write_report(long_run(tmp_path / "made-up", 200))
    assert written.size < 3_000_000
    page = show(written.path)
    assert all_drawn(page) == 6
    shown, told = written.transcripts
    assert f"{shown:,} of {told:,} looks" in page.locator("#transcripts .lead").first.inner_text()
    page.locator(".more").click()
    assert cards(page).count() > 150
