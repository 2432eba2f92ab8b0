// Draw everything, in the order of the page; then the links to what there is.
startTheme();
drawHead();
drawArms();
drawLearning();
drawTraining();
drawInterventions();
drawSpent();
drawRuns();
drawTranscripts();
drawWords();
document.getElementById("nav").append(
  el(
    "ul",
    {},
    [...document.querySelectorAll("main > section:not([hidden])")].map((s) =>
      el(
        "li",
        {},
        el("a", { href: `#${s.id}` }, s.dataset.short || s.querySelector("h2").textContent),
      ),
    ),
  ),
);
