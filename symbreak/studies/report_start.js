// The theme, and what happens when the page opens.
const darkness = matchMedia("(prefers-color-scheme: dark)");
byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : darkness.matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("symbreak-theme", root.dataset.theme);
  } catch (refused) {
    // Kept for this visit only.
  }
  drawAll();
});
darkness.addEventListener("change", drawAll);

setUpCharts();
setUpMaps();
document.documentElement.dataset.ready = "true";
