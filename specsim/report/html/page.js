// Draws every chart, and draws anew when the scheme, the width or the medium changes. Without the
// charting library the tables below the charts say the same.
(() => {
  "use strict";
  const root = document.documentElement;
  const figures = JSON.parse(charts.byId("figures").textContent);

  const drawAll = (printing) => {
    for (const [id, figure] of Object.entries(figures)) charts.draw(id, figure, { printing });
  };
  const pause = () => new Promise((resolve) => setTimeout(resolve, 0));

  const start = async () => {
    try {
      await charts.unpack();
    } catch (error) {
      root.classList.add("no-charts");
      for (const item of document.querySelectorAll("figure details")) item.open = true;
      root.dataset.ready = "no";
      return;
    }
    for (const [id, figure] of Object.entries(figures)) {
      charts.draw(id, figure);
      await pause();
    }
    charts.watch(() => drawAll(false));
    let opened = [];
    window.addEventListener("beforeprint", () => {
      root.classList.add("printing");
      opened = [...document.querySelectorAll("details.short:not([open])")];
      for (const item of opened) item.open = true;
      drawAll(true);
    });
    window.addEventListener("afterprint", () => {
      root.classList.remove("printing");
      for (const item of opened) item.open = false;
      drawAll(false);
    });
    root.dataset.ready = "yes";
  };
  start();
})();
