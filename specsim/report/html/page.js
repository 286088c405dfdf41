// Unpacks the charting library, draws every chart in the colours of the page, draws anew when the
// scheme, the width or the medium changes. Without it the tables below the charts say the same.
(() => {
  "use strict";
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const figures = JSON.parse(byId("figures").textContent);
  const roles = new Set(JSON.parse(byId("roles").textContent));
  const NARROW = 560;
  const PRINT_WIDTH = 680;

  const unpack = async () => {
    const bytes = Uint8Array.from(atob(byId("plotly").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    script.remove();
    if (!window.Plotly) throw new Error("the charting library did not start");
  };

  // "@name" is a colour role; everything else stays as it is.
  const coloured = (value, style) => {
    if (typeof value === "string") {
      return value[0] === "@" && roles.has(value.slice(1))
        ? style.getPropertyValue("--" + value.slice(1)).trim() : value;
    }
    if (Array.isArray(value)) return value.map((item) => coloured(item, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, coloured(v, style)]));
    }
    return value;
  };

  const draw = (id, printing) => {
    const box = byId(id);
    const { data, layout } = coloured(figures[id], getComputedStyle(root));
    const width = printing ? PRINT_WIDTH : box.clientWidth;
    if (!width) return;
    layout.width = width;
    layout.height = box.clientHeight;
    layout.dragmode = window.matchMedia("(pointer: coarse)").matches ? false : "zoom";
    if (width < NARROW) {
      layout.margin = { ...layout.margin, l: 44, r: 8 };
      layout.font = { ...layout.font, size: 11 };
      for (const axis of [layout.xaxis, layout.yaxis]) if (axis) axis.nticks = 6;
      if (data.every((trace) => trace.type === "heatmap")) for (const t of data) t.showscale = false;
    }
    window.Plotly.react(box, data, layout, {
      displaylogo: false, displayModeBar: width < NARROW ? false : "hover", responsive: false,
      // Named one by one: the library's own set has a button that would send the chart away.
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
      toImageButtonOptions: { format: "svg", filename: id },
    });
  };

  const drawAll = (printing) => { for (const id of Object.keys(figures)) draw(id, printing); };
  const pause = () => new Promise((resolve) => setTimeout(resolve, 0));

  const start = async () => {
    try {
      await unpack();
    } catch (error) {
      root.classList.add("no-charts");
      for (const item of document.querySelectorAll("figure details")) item.open = true;
      root.dataset.ready = "no";
      return;
    }
    for (const id of Object.keys(figures)) {
      draw(id, false);
      await pause();
    }
    let width = window.innerWidth;
    let timer = 0;
    window.addEventListener("resize", () => {
      if (window.innerWidth === width) return;
      width = window.innerWidth;
      clearTimeout(timer);
      timer = setTimeout(() => drawAll(false), 150);
    });
    window.matchMedia("(prefers-color-scheme: dark)")
      .addEventListener("change", () => drawAll(false));
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
