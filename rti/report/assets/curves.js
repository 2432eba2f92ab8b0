// Curves over training: held-out evaluations, and what is measured at every step.
const several = data.runs.length > data.arms.length;
const BAND = several
  ? " Lines are means over seeds; bands are Student's t intervals, 95 %, at each step that all runs of the arm have reached; one without any value is left out."
  : "";

function drawLearning() {
  const views = data.learning;
  if (!views.length) return;
  const place = el("div");
  const kinds = ["metric", "tasks", "over"];
  const state = Object.fromEntries(kinds.map((kind) => [kind, views[0][kind]]));
  const selects = {};
  // The options of a choice are those that go with the choices before it.
  function show() {
    let left = views;
    kinds.forEach((kind) => {
      const values = [...new Set(left.map((v) => v[kind]))];
      if (!values.includes(state[kind])) state[kind] = values[0];
      selects[kind].replaceChildren(...values.map((v) => el("option", { value: v }, v)));
      selects[kind].value = state[kind];
      left = left.filter((v) => v[kind] === state[kind]);
    });
    const [view] = left;
    const caption = `${view.metric} on held-out tasks (${view.tasks}) over ${view.over}`;
    const xLabel = view.over === "tokens" ? "tokens sampled and scored" : "steps done";
    place.replaceChildren(lineChart(view.plot, { caption, xLabel, yLabel: view.metric }));
  }
  const labels = kinds.map((kind) => {
    const name = { metric: "Metric", tasks: "Tasks", over: "Against" }[kind];
    const [label, select] = choice(name, [], (value) => ((state[kind] = value), show()));
    selects[kind] = select;
    return new Set(views.map((v) => v[kind])).size > 1 ? label : null;
  });
  section(
    "learning",
    lead(
      `Held-out evaluations, without intervention.${BAND} A name in the legend switches its line; drag to zoom, double-click to go back.`,
    ),
    el("div", { class: "controls" }, labels),
    place,
  );
  show();
}

function smoothed() {
  return data.window > 1 ? ` Smoothed over ${data.window} steps.` : "";
}

function drawTraining() {
  if (data.passG) {
    const beside = data.kind === "run" ? " A compare shows it beside plain GRPO's." : "";
    section(
      "pass-g",
      lead(
        `pass@G: the share of groups with at least one success, before any intervention. The others teach GRPO nothing.${smoothed()}${BAND}${beside}`,
      ),
      lineChart(data.passG, {
        caption: "pass@G before intervention over training",
        yLabel: "share of groups",
      }),
    );
  }
  if (data.ppl) {
    section(
      "ppl",
      lead(
        `Mean perplexity under the policy of corrected turns that reached the gate, at each step; dashed, the right turns of the fixed probe, which do not change over training.${smoothed()}${BAND}`,
      ),
      lineChart(data.ppl, {
        caption: "perplexity over training, logarithmic",
        y: "log",
        yLabel: "PPL",
      }),
    );
  }
  if (data.madeUp) {
    section(
      "made-up",
      lead(
        `The share of final ids, in a rollout's last tool call, that nothing had shown to the policy. It climbs when a short cut is learnt.${smoothed()}${BAND}`,
      ),
      lineChart(data.madeUp, {
        caption: "share of made-up final values over training",
        yLabel: "share",
      }),
    );
  }
}
