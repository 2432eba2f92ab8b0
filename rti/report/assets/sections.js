// What a run or a compare came to: facts, arms, budgets, tables.
function drawHead() {
  document.getElementById("kind").textContent =
    data.kind === "run" ? "rti report · run" : "rti report · compare";
  document.getElementById("title").textContent = data.title;
  document.querySelector(".head").append(
    el(
      "dl",
      { class: "facts" },
      data.facts.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))),
    ),
  );
  if (data.notes.length) {
    const shown =
      data.notes.length === 1
        ? data.notes[0]
        : el(
            "ul",
            {},
            data.notes.map((n) => el("li", {}, n)),
          );
    document.getElementById("notes").append(el("div", { class: "note" }, shown));
  }
  document
    .getElementById("tiles")
    .append(
      ...data.tiles.map((t) =>
        el(
          "div",
          { class: "tile" },
          el("b", {}, t.first ? el("i", {}, `${t.first} → `) : "", t.last),
          el("span", {}, t.words),
        ),
      ),
    );
  document.getElementById("made").textContent =
    `Made by rti ${data.rti}. Everything is in this file; it asks nothing of a network.`;
}

function drawArms() {
  const { armTable, pairs } = data;
  if (armTable) {
    const rows = armTable.rows.map((row) => [row.arm, ...row.cells.map((cell) => fine(cell))]);
    section("arms", lead(armTable.method), table(["arm", ...armTable.head], rows, 1));
  }
  if (!pairs.length) return;
  section(
    "arms",
    el("h3", {}, "Paired differences"),
    lead("Of runs with the same seed, so from the same start."),
  );
  const ends = pairs.flatMap((p) => [p.mean, p.low, p.high]).filter((v) => v !== null);
  const [least, most] = [Math.min(0, ...ends), Math.max(0, ...ends)];
  const at = (v) => `${(2 + (96 * (v - least)) / (most - least || 1)).toFixed(2)}%`;
  const wide = (low, high) => `${((96 * (high - low)) / (most - least || 1)).toFixed(2)}%`;
  const rows = pairs.map((p, i) => [
    `${p.name}${p.metric ? ` · ${p.metric}` : ""}`,
    p.words.mean,
    p.words.band,
    p.seeds === null ? "–" : String(p.seeds),
    el(
      "div",
      {
        class: "interval",
        vars: {
          "--zero": at(0),
          "--mean": at(p.mean),
          "--low": at(p.low ?? p.mean),
          "--wide": p.low === null || p.high === null ? "0" : wide(p.low, p.high),
          "--colour": colour(i),
        },
      },
      el("i"),
      el("b"),
    ),
  ]);
  section("arms", table(["difference", "mean", "95 % interval", "seeds", "0 is dashed"], rows, 1));
}

// A stacked bar an arm, to one scale; `names` in the order of their colours.
function stacks(rows, names, write) {
  const most = Math.max(
    ...rows.map((r) => names.reduce((s, n) => s + (r.values[n] || 0), 0)),
    1e-9,
  );
  const legend = el(
    "div",
    { class: "legend" },
    names.map((n, i) =>
      el(
        "span",
        { class: "plain" },
        el("span", { class: "swatch box", vars: { "--colour": colour(i) } }),
        n,
      ),
    ),
  );
  const bars = rows.map((row) => {
    const total = names.reduce((s, n) => s + (row.values[n] || 0), 0);
    const parts = names.map((n, i) => {
      const value = row.values[n] || 0;
      const part = el("span", { title: `${n}: ${write(value)}`, vars: { "--colour": colour(i) } });
      part.style.width = `${(100 * value) / most}%`;
      return value ? part : null;
    });
    return el(
      "div",
      { class: "row" },
      el("span", {}, row.name),
      el("div", { class: "stack" }, parts),
      el("span", { class: "value" }, write(total)),
    );
  });
  return el("div", {}, legend, el("div", { class: "budget" }, bars));
}

function seconds(value) {
  if (value < 90) return `${value < 10 ? amount(value) : Math.round(value)} s`;
  return value < 5400 ? `${(value / 60).toFixed(1)} min` : `${(value / 3600).toFixed(1)} h`;
}

function drawSpent() {
  const arms = Object.entries(data.spent);
  if (!arms.length) return;
  const single = data.kind === "run";
  const named = (kind) => arms.map(([arm, s]) => ({ name: single ? "run" : arm, values: s[kind] }));
  const times = [...new Set(arms.flatMap(([, s]) => Object.keys(s.time)))];
  const tokens = Object.keys(arms[0][1].tokens);
  const rows = [
    ...times.map((n) => [n, ...arms.map(([, s]) => (n in s.time ? seconds(s.time[n]) : "–"))]),
    ...tokens.map((n) => [`tokens ${n}`, ...arms.map(([, s]) => amount(s.tokens[n]))]),
  ];
  section(
    "spent",
    lead(
      `${single ? "Of the whole run" : "Mean over the runs of an arm"}. Sampled and scored tokens are what a token budget counts; prefilled ones are context that was computed.`,
    ),
    el(
      "div",
      { class: "plots two" },
      el("div", {}, el("h3", {}, "Time by phase"), stacks(named("time"), times, seconds)),
      el("div", {}, el("h3", {}, "Tokens"), stacks(named("tokens"), ["sampled", "scored"], amount)),
    ),
    el("h3", {}, "All counters"),
    table(["", ...arms.map(([arm]) => (single ? "run" : arm))], rows, 1),
  );
}

function drawRuns() {
  const { head, rows, text } = data.runTable;
  section(
    "runs",
    lead("At the first and at the last evaluation, where there are several."),
    table(
      head,
      rows.map((row) => row.map(fine)),
      text,
    ),
  );
}

function drawWords() {
  if (!data.words.length) return;
  const details = el(
    "details",
    {},
    el("summary", {}, `What ${data.words.length} steps learned from, or why nothing`),
  );
  const fill = () =>
    details.append(
      table(
        ["step", "words"],
        data.words.map(([step, said]) => [String(step), said]),
        2,
      ),
    );
  details.addEventListener("toggle", fill, { once: true });
  section("words", details);
}
