// Runs before the first paint, so that a chosen theme does not flash.
try {
  const chosen = localStorage.getItem("symbreak-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch (refused) {
  // Storage may be forbidden for files; the system's theme holds then.
}
