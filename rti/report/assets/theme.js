// Light and dark: the system's wish until the reader chooses; plots are told of a change.
const root = document.documentElement;
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const themed = [];

function remembered() {
  try {
    return localStorage.getItem("rti-report-theme");
  } catch {
    return null; // some browsers give files no storage
  }
}

function setTheme(name) {
  root.dataset.theme = name;
  document.getElementById("theme").textContent = name === "dark" ? "Light" : "Dark";
  for (const redraw of themed) redraw();
}

function startTheme() {
  setTheme(remembered() || (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => remembered() || setTheme(dark.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () => {
    const name = root.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("rti-report-theme", name);
    } catch {
      // then it holds until the page is closed
    }
    setTheme(name);
  });
}

// The value of a custom property now: a canvas knows no var().
function css(name) {
  return getComputedStyle(root).getPropertyValue(name).trim();
}
