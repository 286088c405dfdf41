// The charts of a page: unpacks the charting library, draws in the colours of the page.
const charts = (() => {
  "use strict";
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const roles = new Set(JSON.parse(byId("roles").textContent));
  const NARROW = 560;
  const PRINT_WIDTH = 680;
  // Named one by one: the library's own set has a button that would send the chart away. One list
  // for all: with a new one, the library would make a chart anew instead of changing it.
  const BUTTONS = [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]];

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

  // A long name beside a bar, in lines.
  const folded = (name) => (name.length > 18 ? name.replaceAll(", ", ",<br>") : name);

  // printing: at the width of paper; bar: with buttons where the pointer is.
  const draw = (id, figure, { printing = false, bar = true } = {}) => {
    const box = byId(id);
    const { data, layout } = coloured(figure, getComputedStyle(root));
    const width = printing ? PRINT_WIDTH : box.clientWidth;
    if (!width) return;
    layout.width = width;
    layout.height = box.clientHeight;
    layout.dragmode = window.matchMedia("(pointer: coarse)").matches ? false : "zoom";
    if (width < NARROW) {
      layout.margin = { ...layout.margin, l: 44, r: 8 };
      layout.font = { ...layout.font, size: 11 };
      for (const axis of [layout.xaxis, layout.yaxis]) if (axis) axis.nticks = 6;
      for (const t of data) if (t.orientation === "h") t.y = t.y.map(folded);
      if (data.every((trace) => trace.type === "heatmap")) for (const t of data) t.showscale = false;
    }
    window.Plotly.react(box, data, layout, {
      displaylogo: false, displayModeBar: bar && width >= NARROW ? "hover" : false, responsive: false,
      modeBarButtons: BUTTONS,
      toImageButtonOptions: { format: "svg", filename: id },
    });
    // Where the library measures texts: nothing to read.
    byId("js-plotly-tester").setAttribute("aria-hidden", "true");
  };

  // Calls `drawAll` when the width or the colour scheme changes.
  const watch = (drawAll) => {
    let width = window.innerWidth;
    let timer = 0;
    window.addEventListener("resize", () => {
      if (window.innerWidth === width) return;
      width = window.innerWidth;
      clearTimeout(timer);
      timer = setTimeout(drawAll, 150);
    });
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  };

  return { byId, draw, unpack, watch };
})();
