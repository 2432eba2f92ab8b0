// One look at one turn, in full.
function open(entry) {
  current = entry;
  point();
  const run = data.runs[entry.run];
  const corrected = Boolean(entry.correction);
  const where = [
    data.kind === "compare" ? run.name : "",
    `step ${entry.step}`,
    entry.family ? `family ${entry.family}` : "",
    `rollout ${entry.rollout}`,
    `attempt ${entry.attempt + 1}`,
    entry.turn === undefined ? "" : `turn ${entry.turn}`,
  ];
  ui.card.replaceChildren(
    el(
      "div",
      { class: "line" },
      el("h3", {}, entry.task),
      badge(entry),
      el("a", { href: `#${entry.id}` }, "link"),
    ),
    el("p", { class: "meta" }, where.filter(Boolean).join(" · ")),
    entry.reason ? el("p", { class: "meta" }, `It ended here: ${entry.reason}`) : "",
    history(entry),
    part("Diagnosis", entry.diagnosis ? prose(entry.diagnosis) : none("None on record.")),
    el(
      "div",
      { class: "sides" },
      part("Draft", marked(entry.draft, "del")),
      part("Correction", corrected ? marked(entry.correction, "ins") : none("None was written.")),
    ),
    ...judged(entry),
    ...weighed(entry),
    ...afterwards(entry, corrected),
    entry.by ? el("p", { class: "meta" }, `Written by ${entry.by}`) : "",
  );
}

function part(title, ...nodes) {
  return el("div", {}, el("h4", {}, title), ...nodes);
}

function none(text) {
  return el("p", { class: "none" }, text);
}

function prose(text, long) {
  return el("p", { class: long ? "text long" : "text" }, text);
}

function history(entry) {
  const text = histories[entry.history];
  if (!text) return "";
  const details = el(
    "details",
    {},
    el("summary", {}, `History: what the policy had seen, ${amount(text.length)} characters`),
  );
  details.append(el("p", { class: "text long", tabindex: "0" }, text));
  return details;
}

// Text with what the other side does not have marked.
function marked(segments, tag) {
  if (!joined(segments)) return none("Empty.");
  return el(
    "p",
    { class: "text" },
    segments.map(([changed, text]) => (changed ? el(tag, {}, text) : text)),
  );
}

function judged(entry) {
  const side = (text, no) => (no.test(text) ? "no" : "yes");
  const verdicts = (entry.verdicts || []).map((v) => el("li", { class: side(v, /: rejected/) }, v));
  const gates = (entry.gates || []).map((g) => el("li", { class: side(g, /refused/) }, g));
  if (!gates.length && entry.ppl !== undefined)
    gates.push(el("li", { class: "dot" }, `PPL ${entry.ppl}`));
  const nodes = [];
  if (verdicts.length) nodes.push(part("Verdicts", el("ul", { class: "checks" }, verdicts)));
  if (gates.length) {
    const ppl =
      entry.ppl === undefined
        ? ""
        : ` · PPL ${amount(entry.ppl)}${entry.delta === undefined ? "" : `, δ = ${entry.delta}`}`;
    nodes.push(part(`Gate${ppl}`, el("ul", { class: "checks" }, gates)));
  }
  return nodes.length ? [el("div", { class: "sides" }, nodes)] : [];
}

// Each token of the correction, shaded by how far its weight is from 1.
function weighed(entry) {
  const { tokens = [], weights = [] } = entry;
  if (!tokens.length) return [];
  if (!weights.length)
    return [
      part("Tokens", none(`${tokens.length} tokens, not weighed: it did not come that far.`)),
    ];
  const chips = tokens.map((token, i) => {
    const weight = weights[i];
    const strength = Math.round((55 * Math.min(reach, Math.abs(weight - 1))) / reach);
    const shade = `color-mix(in srgb, var(--${weight > 1 ? "up" : "down"}) ${strength}%, transparent)`;
    const vars = strength ? { "--shade": shade } : {};
    return el("li", { vars }, visible(token), el("small", {}, weight.toFixed(2)));
  });
  const scale = el(
    "p",
    { class: "scale" },
    (1 - reach).toFixed(2),
    el("i"),
    (1 + reach).toFixed(2),
  );
  return [part("Token weights", el("ul", { class: "tokens" }, chips), scale)];
}

function visible(token) {
  return token.replace(/\n/g, "↵").replace(/^ +| +$/g, (s) => "␣".repeat(s.length)) || "∅";
}

function afterwards(entry, corrected) {
  if (!corrected && !entry.after) return [];
  const outcome = entry.outcome === undefined ? "" : ` · outcome ${amount(entry.outcome)}`;
  const title = `What happened after${outcome}`;
  if (entry.after) return [part(title, prose(entry.after, true))];
  const resumed = entry.outcome !== undefined;
  return [
    part(
      title,
      none(
        resumed
          ? "The rollout went on; its words are not on record."
          : "The rollout was not resumed.",
      ),
    ),
  ];
}
