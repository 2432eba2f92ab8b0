// The transcript browser: a filtered list, and one look in full. `#turn-…` opens one.
const PAGE = 150;
const STAGES = {
  succeeded: "succeeded",
  failed: "resumed and failed",
  gated: "stopped by the gate",
  rejected: "rejected by a Verifier",
  vetoed: "diagnosis vetoed",
  uncorrected: "no correction",
  unforkable: "could not be forked",
  faulted: "infrastructure fault",
};
const { entries = [], histories = [] } = data.transcripts;
const filters = { arm: "", outcome: "", family: "", text: "" };
const reach = Math.max(
  0.01,
  ...entries.flatMap((e) => (e.weights || []).map((w) => Math.abs(w - 1))),
);
let matching = entries;
let shownItems = PAGE;
let current = null;
let address = null; // the last one followed
const haystacks = new Map();

function joined(segments) {
  return (segments || []).map(([, text]) => text).join("");
}

function haystack(entry) {
  if (!haystacks.has(entry)) {
    const parts = [
      entry.task,
      entry.family,
      entry.reason,
      entry.diagnosis,
      entry.after,
      histories[entry.history],
    ];
    parts.push(
      joined(entry.draft),
      joined(entry.correction),
      ...(entry.verdicts || []),
      ...(entry.gates || []),
    );
    haystacks.set(entry, parts.filter(Boolean).join("\n").toLowerCase());
  }
  return haystacks.get(entry);
}

function familyOf(entry) {
  return `${data.runs[entry.run].environment} / ${entry.family || "–"}`;
}

function outcomeFits(entry, wanted) {
  return !wanted || (wanted === "trained" ? entry.trained : entry.stage === wanted);
}

function fits(entry) {
  const words = filters.text.toLowerCase().split(/\s+/).filter(Boolean);
  return (
    (!filters.arm ||
      data.runs[entry.run].arm === filters.arm ||
      data.runs[entry.run].name === filters.arm) &&
    outcomeFits(entry, filters.outcome) &&
    (!filters.family || familyOf(entry) === filters.family) &&
    words.every((word) => haystack(entry).includes(word))
  );
}

function counted(key) {
  const counts = new Map();
  for (const entry of entries) counts.set(key(entry), (counts.get(key(entry)) || 0) + 1);
  return [...counts].sort(([a], [b]) => a.localeCompare(b, "en"));
}

const ui = {};

function drawTranscripts() {
  if (!entries.length) return;
  const set = (name) => (value) => ((filters[name] = value), filter());
  const option = ([value, n]) => [value, `${value} (${n})`];
  const stages = counted((e) => e.stage).map(([s, n]) => [s, `${STAGES[s] || s} (${n})`]);
  const trained = entries.filter((e) => e.trained).length;
  const controls = [];
  const add = (name, label, options) => {
    const [node, select] = choice(label, options, set(name));
    ui[name] = select;
    controls.push(node);
  };
  const withTurns = counted((e) => data.runs[e.run].name);
  if (data.kind === "compare") {
    const arms = counted((e) => data.runs[e.run].arm);
    const both = [...arms, ...withTurns.filter(([run]) => !arms.some(([arm]) => arm === run))];
    add("arm", "Arm or run", [["", "all"], ...both.map(option)]);
  }
  add("outcome", "Outcome", [["", "any"], ["trained", `trained on (${trained})`], ...stages]);
  const families = counted(familyOf);
  const shared = new Set(families.map(([f]) => f.split(" / ")[0])).size === 1;
  add("family", shared ? "Family" : "Environment / family", [
    ["", "all"],
    ...families.map(([f, n]) => [f, `${shared ? f.split(" / ").slice(1).join(" / ") : f} (${n})`]),
  ]);
  ui.text = el("input", {
    type: "search",
    placeholder: "words in any text",
    on: { input: () => set("text")(ui.text.value) },
  });
  controls.push(el("label", {}, "Search", ui.text));
  controls.push(el("button", { type: "button", on: { click: reset } }, "Reset"));
  ui.found = el("p", { class: "found", "aria-live": "polite" });
  ui.list = el("ol");
  ui.more = el("button", {
    type: "button",
    class: "more",
    on: { click: () => ((shownItems += PAGE), list()) },
  });
  ui.scroll = el("div", { class: "list" }, ui.list, ui.more);
  ui.card = el("article", { class: "card", tabindex: "-1", "aria-live": "polite" });
  const { total, trainedShown } = data.transcripts;
  const whole = entries.length === total;
  const cut = whole
    ? `All ${amount(total)} looks at a flagged turn.`
    : `${amount(entries.length)} of ${amount(total)} looks at a flagged turn are in this page, among them ${amount(trainedShown)} of the ${amount(data.transcripts.trained)} trained on: taken in turn from each outcome, evenly over training. events.jsonl has all.`;
  section(
    "transcripts",
    lead(cut),
    el(
      "p",
      { class: "lead keys" },
      el("kbd", {}, "j"),
      " ",
      el("kbd", {}, "k"),
      " next and previous, ",
      el("kbd", {}, "/"),
      " search; the address of the page links to the transcript.",
    ),
    el("div", { class: "controls" }, controls),
    ui.found,
    el("div", { class: "browser" }, ui.scroll, ui.card),
  );
  document.addEventListener("keydown", keys);
  // The event of a key's own move comes late: a search may have begun meanwhile.
  window.addEventListener("hashchange", () => address === location.hash || follow());
  filter();
  follow() || open(entries.find((e) => e.trained) || entries[0]);
}

function reset() {
  for (const name of Object.keys(filters)) {
    filters[name] = "";
    if (ui[name]) ui[name].value = "";
  }
  filter();
}

function filter() {
  matching = entries.filter(fits);
  shownItems = PAGE;
  list();
}

function list() {
  ui.found.textContent = `${amount(matching.length)} of ${amount(entries.length)} match`;
  ui.list.replaceChildren(...matching.slice(0, shownItems).map(item));
  ui.more.hidden = matching.length <= shownItems;
  ui.more.textContent = `Show ${amount(Math.min(PAGE, matching.length - shownItems))} more`;
  point();
}

function badge(entry) {
  if (entry.trained) return el("span", { class: "badge good" }, "trained on");
  const good = entry.stage === "succeeded";
  return el(
    "span",
    { class: `badge ${good ? "good" : entry.stage === "failed" ? "bad" : ""}` },
    STAGES[entry.stage] || entry.stage,
  );
}

function item(entry) {
  const run = data.kind === "compare" ? `${data.runs[entry.run].name} · ` : "";
  const text = joined(entry.correction) || joined(entry.draft);
  return el(
    "li",
    {},
    el(
      "a",
      { href: `#${entry.id}`, "data-id": entry.id },
      el("span", { class: "where" }, el("span", { class: "task" }, entry.task), badge(entry)),
      el(
        "div",
        { class: "small" },
        `${run}step ${entry.step} · rollout ${entry.rollout} · attempt ${entry.attempt + 1}`,
      ),
      el("div", { class: "small" }, text.slice(0, 120)),
    ),
  );
}

function point() {
  for (const link of ui.list.querySelectorAll("a")) {
    const here = current && link.dataset.id === current.id;
    link.toggleAttribute("aria-current", false);
    if (here) {
      link.setAttribute("aria-current", "true");
      const [top, bottom] = [
        link.offsetTop - ui.scroll.offsetTop,
        link.offsetTop - ui.scroll.offsetTop + link.offsetHeight,
      ];
      if (top < ui.scroll.scrollTop) ui.scroll.scrollTop = top;
      else if (bottom > ui.scroll.scrollTop + ui.scroll.clientHeight)
        ui.scroll.scrollTop = bottom - ui.scroll.clientHeight;
    }
  }
}

// Opens what the address names. True when it names a transcript, here or not.
function follow() {
  address = location.hash;
  const id = address.slice(1);
  if (!id.startsWith("turn-")) return false;
  const entry = entries.find((e) => e.id === id);
  if (!entry) {
    current = null;
    ui.card.replaceChildren(
      el("p", { class: "none" }, `${id} is not among the transcripts in this page.`),
    );
  } else {
    if (!matching.includes(entry)) reset();
    while (matching.indexOf(entry) >= shownItems) shownItems += PAGE;
    open(entry);
    list();
  }
  (ui.scroll.offsetTop < ui.card.offsetTop
    ? ui.card
    : document.getElementById("transcripts")
  ).scrollIntoView();
  return true;
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === "Escape" && typing) event.target.blur();
  if (typing) return;
  if (event.key === "/") {
    event.preventDefault();
    ui.text.focus();
  }
  const move = { j: 1, k: -1 }[event.key];
  if (!move || !matching.length) return;
  // What the address names, since the event of a link that opens it may be on its way.
  const named = matching.findIndex((entry) => entry.id === location.hash.slice(1));
  const at = named < 0 ? matching.indexOf(current) : named;
  const next = matching[at < 0 ? 0 : Math.min(matching.length - 1, Math.max(0, at + move))];
  location.hash = next.id;
  follow();
}
