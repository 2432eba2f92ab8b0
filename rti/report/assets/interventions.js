// The funnel with its losses, perplexities against δ, token weights: of one arm at a time.
function drawInterventions() {
  const arms = Object.keys(data.inside);
  if (!arms.length) return;
  const place = el("div");
  const show = (arm) => place.replaceChildren(...inside(data.inside[arm], arm));
  const [label, select] = choice(
    "Arm",
    arms.map((a) => [a, a]),
    show,
  );
  const first = arms.find((arm) => arm === "rti") || arms[0];
  select.value = first;
  section("interventions", arms.length > 1 ? el("div", { class: "controls" }, label) : null, place);
  show(first);
}

function inside({ funnel, unread, ppl, weights }, arm) {
  const of = data.arms.length > 1 ? ` (${arm})` : "";
  const nodes = [];
  if (funnel.length) {
    nodes.push(
      lead(
        `Over whole training, ${data.kind === "run" ? "all steps" : "all runs of the arm"}. Red lines say what was lost on the way, and why.`,
      ),
      drawFunnel(funnel),
    );
    const odd = Object.entries(unread);
    if (odd.length) {
      nodes.push(
        el(
          "p",
          { class: "lead" },
          `Answers of roles that could not be read: ${odd.map(([k, n]) => `${k} ${n}`).join(", ")}.`,
        ),
      );
    }
  }
  const plots = [];
  if (ppl) {
    const past = ppl.open ? " The last bar holds all above, too." : "";
    const none = ppl.deltas.length
      ? ppl.deltas.includes(0)
        ? " δ = 0 stops every correction."
        : ""
      : " No finite δ: the gate let everything through.";
    plots.push(
      el(
        "div",
        {},
        el("h3", {}, "Perplexity at the gate"),
        lead(
          `${amount(ppl.looks)} corrections under the policy that was to learn them.${past}${none}`,
        ),
        barChart(
          {
            edges: ppl.edges,
            log: true,
            layers: [
              { label: "let through", colour: 0, counts: ppl.admitted },
              { label: "stopped", colour: 1, counts: ppl.stopped },
            ],
            // δ = 0, which stops everything, has no place on a logarithmic axis.
            marks: ppl.deltas.filter((d) => d > 0).map((d) => ({ at: d, words: `δ = ${d}` })),
            ticks: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].filter(
              (t) => t >= ppl.edges[0] && t <= ppl.edges.at(-1),
            ),
          },
          {
            caption: `histogram of perplexities at the gate${of}`,
            xLabel: "PPL (logarithmic)",
            yLabel: "corrections",
          },
        ),
      ),
    );
  }
  if (weights) {
    const [low, high] = [weights.edges[0], weights.edges.at(-1)];
    const step = (high - low) / 4;
    plots.push(
      el(
        "div",
        {},
        el("h3", {}, "Token weights"),
        lead(
          `${amount(weights.tokens)} tokens of corrections: ${share(weights.above, weights.tokens)} weigh more than 1, ${share(weights.below, weights.tokens)} less; the rest are within ${weights.neutral} of 1.`,
        ),
        barChart(
          {
            edges: weights.edges,
            layers: [{ label: "tokens", colour: 3, counts: weights.counts }],
            marks: [{ at: 1, words: "1" }],
            ticks: [0, 1, 2, 3, 4].map((i) => low + i * step),
          },
          { caption: `histogram of token weights${of}`, xLabel: "weight", yLabel: "tokens" },
        ),
      ),
    );
  }
  if (plots.length) nodes.push(el("div", { class: "plots two" }, plots));
  return nodes;
}

function drawFunnel(rows) {
  const top = {};
  for (const row of rows) top[row.unit] = Math.max(top[row.unit] || 0, row.count);
  const cells = [];
  let unit = "";
  for (const row of rows) {
    if (row.unit !== unit) {
      unit = row.unit;
      cells.push(
        el(
          "div",
          { class: "unit" },
          { looks: "looks at a turn", rollouts: "rollouts", groups: "groups" }[unit] || unit,
        ),
      );
    }
    if (row.lost.length) cells.push(el("span"), el("div", { class: "losses" }, row.lost.map(loss)));
    const bar = el("span", { class: "bar" });
    bar.style.width = `${(100 * row.count) / (top[row.unit] || 1)}%`;
    cells.push(
      el("div", { class: "step" }, row.name, el("small", {}, row.words)),
      el(
        "div",
        { class: "amount" },
        el("div", { class: "track" }, bar),
        el(
          "div",
          { class: "count" },
          el("b", {}, amount(row.count)),
          ` · ${share(row.count, top[row.unit])}`,
        ),
      ),
    );
  }
  return el("div", { class: "funnel" }, cells);
}

function loss({ words: what, count, reasons }) {
  const head = `− ${amount(count)} ${what}`;
  if (!reasons.length) return el("p", {}, head);
  return el(
    "details",
    { open: reasons.length < 4 },
    el("summary", {}, head),
    el(
      "ul",
      {},
      reasons.map(([reason, n]) => el("li", {}, `${reason}: ${amount(n)}`)),
    ),
  );
}
