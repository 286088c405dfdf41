// Asks the server what the fields say with every change, and draws what it answers. A change ends
// the request before it. The address keeps the settings behind '#', which no server sees.
(() => {
  "use strict";
  const { byId, draw } = charts;
  const root = document.documentElement;
  const form = byId("choices");
  const token = new URLSearchParams(location.search).get("token") || "";
  const SETTLED_MS = 350; // without a change: then what takes longer is asked for
  const HOVER_MS = 60;
  const figures = { charts: {}, steps: {} }; // by the box they are in
  const shown = new Map(); // by chart, the figure that is drawn
  let pinned = null;
  let lastField = "model";
  let asking = null;
  let settling = 0;
  let hovering = 0;
  let changes = 0;
  let leftOut = "";

  // --- settings ---------------------------------------------------------------------------
  const fields = () => [...form.elements].filter((item) => item.name);
  const choice = () => Object.fromEntries(fields()
    .map((item) => [item.name, item.type === "checkbox" ? (item.checked ? "true" : "") : item.value.trim()])
    .filter(([, text]) => text !== ""));
  // What no field can hold is said once; the server judges all else.
  const fill = (given) => {
    const rest = new Set(Object.keys(given));
    for (const item of fields()) {
      const text = given[item.name] || "";
      if (item.type === "checkbox") item.checked = text === "true";
      else {
        if (item.tagName === "SELECT" && ![...item.options].some((o) => o.value === text)) {
          item.add(new Option(text, text));
        }
        item.value = text;
      }
      const held = item.type === "checkbox" ? text === (item.checked ? "true" : "") : item.value === text;
      if (held) rest.delete(item.name);
    }
    const told = [...rest].map((name) => `${name.slice(0, 40)} = ${JSON.stringify(given[name].slice(0, 40))}`);
    leftOut = told.length ? `Left out of this link, as no field can hold it: ${told.slice(0, 5).join(", ")}` : "";
  };
  const fragment = () => {
    const all = new URLSearchParams(choice());
    for (const [name, text] of Object.entries(pinned || {})) all.append("pinned." + name, text);
    return "#" + all;
  };
  const fromAddress = () => {
    const given = Object.create(null); // names of a link are anybody's
    const other = Object.create(null);
    for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
      if (name.startsWith("pinned.")) other[name.slice(7)] = text;
      else given[name] = text;
    }
    pinned = Object.keys(other).length ? other : null;
    fill(Object.keys(given).length ? given : JSON.parse(byId("start").textContent));
  };

  // --- asking -----------------------------------------------------------------------------
  const post = async (path, body, signal) => {
    const response = await fetch(path + "?token=" + encodeURIComponent(token), {
      method: "POST", headers: { "Content-Type": "application/json" }, priority: "high",
      body: JSON.stringify(body), signal,
    });
    const found = await response.json();
    if (!response.ok) throw Object.assign(new Error(found.error.message), { field: found.error.param });
    return found;
  };
  const clearFault = () => {
    byId("fault").textContent = "";
    for (const item of form.querySelectorAll("[aria-invalid]")) item.removeAttribute("aria-invalid");
    for (const item of form.querySelectorAll(".fault")) item.textContent = "";
  };
  const fail = (error) => {
    if (error.name === "AbortError") return;
    clearFault();
    const field = form.elements[error.field] || form.elements[lastField];
    const lost = error instanceof TypeError;
    byId("fault").textContent = lost ? "The server does not answer: it may have ended." : error.message;
    if (!lost && field) {
      field.setAttribute("aria-invalid", "true");
      byId(field.name + "-fault").textContent = error.message;
      for (let at = field.parentElement; at !== form; at = at.parentElement) {
        if (at.tagName === "DETAILS") at.open = true;
      }
    }
    root.classList.add("stale");
    byId("main").setAttribute("aria-busy", "false");
    root.dataset.drawn = String(changes);
  };

  // --- drawing ----------------------------------------------------------------------------
  const painted = () => new Promise((done) => { requestAnimationFrame(() => setTimeout(done)); });
  const inView = (id) => {
    const place = byId(id).getBoundingClientRect();
    return place.bottom > 0 && place.top < window.innerHeight;
  };
  // What is in view first, the rest in the frame after; a chart that stays the same stays.
  const drawAll = async (name) => {
    const found = figures[name];
    if (root.dataset.ready !== "yes") return;
    const put = (id) => {
      shown.set(id, JSON.stringify(found[id]));
      draw(id, found[id], { bar: false });
    };
    const due = Object.keys(found)
      .filter((id) => !byId(id).data || shown.get(id) !== JSON.stringify(found[id]));
    const later = due.filter((id) => !inView(id));
    due.filter((id) => !later.includes(id)).forEach(put);
    if (!later.length) return;
    await painted();
    if (figures[name] === found) later.forEach(put);
  };
  // New markup around the charts that are there, which are drawn anew, not made anew; and first,
  // while nothing else has moved.
  const place = (name, html, found) => {
    const box = byId(name);
    const next = document.createElement("template");
    next.innerHTML = html;
    const fresh = [...next.content.querySelectorAll("figure")];
    const old = [...box.querySelectorAll("figure")];
    const kept = fresh.length === old.length;
    if (!kept) box.replaceChildren(next.content);
    figures[name] = found;
    const rest = drawAll(name);
    if (!kept) return rest;
    old.forEach((figure, i) => {
      for (const part of ["figcaption", "details > .scroll"]) {
        const [was, is] = [figure, fresh[i]].map((item) => item.querySelector(part));
        if (was.innerHTML !== is.innerHTML) was.replaceWith(is);
      }
      const [was, is] = [figure, fresh[i]].map((item) => item.querySelector(".plot"));
      was.setAttribute("aria-label", is.getAttribute("aria-label"));
    });
    return rest;
  };
  const follow = (name) => {
    const box = byId(name);
    if (!box || !box.on || box.dataset.followed) return;
    box.dataset.followed = "yes";
    box.on("plotly_hover", (event) => {
      const at = event.points[0] && event.points[0].pointIndex;
      if (at === undefined || String(at) === byId("load").value || at >= byId("load").length) return;
      clearTimeout(hovering);
      hovering = setTimeout(() => { byId("load").value = String(at); step(); }, HOVER_MS);
    });
  };
  const show = (found) => {
    const rest = place("charts", found.charts, found.figures);
    byId("above").innerHTML = found.above;
    byId("said").textContent = [...document.querySelectorAll("#above .lead + .verdict")]
      .map((line) => line.textContent).join("; ");
    clearFault();
    byId("fault").textContent = leftOut;
    leftOut = "";
    root.classList.remove("stale");
    const select = byId("load");
    const before = select.value;
    select.replaceChildren(...found.loads.map((text, i) => new Option(text, String(i))));
    select.value = before && Number(before) < found.loads.length ? before : "0";
    byId("main").setAttribute("aria-busy", "false");
    return rest.then(() => Object.keys(found.figures).forEach(follow));
  };

  let stepping = null;
  const step = async () => {
    if (stepping) stepping.abort();
    stepping = new AbortController();
    try {
      const found = await post("step", { choice: choice(), point: Number(byId("load").value) }, stepping.signal);
      place("steps", found.charts, found.figures);
    } catch (error) {
      if (error.name === "AbortError") return;
      figures.steps = {};
      byId("steps").textContent = error.message;
    }
  };
  const share = async () => {
    if (!byId("share").querySelector("details").open) return;
    byId("link").value = location.href;
    try {
      const found = await post("share", { choice: choice(), pinned });
      byId("markdown").value = found.markdown;
      byId("command").value = found.command;
    } catch (error) { fail(error); }
  };
  const settled = async (mine) => {
    try {
      const found = await post("details", { choice: choice(), pinned }, asking.signal);
      if (mine === changes) byId("below").innerHTML = found.below;
    } catch (error) { fail(error); return; }
    share();
  };
  const change = async () => {
    const mine = ++changes;
    const mark = "change " + mine;
    performance.mark(mark);
    if (asking) asking.abort();
    clearTimeout(settling);
    asking = new AbortController();
    byId("exchange").hidden = byId("unpin").hidden = !pinned;
    byId("main").setAttribute("aria-busy", "true");
    history.replaceState(null, "", fragment());
    try {
      const found = await post("predict", { choice: choice(), pinned }, asking.signal);
      if (mine !== changes) return;
      performance.measure("answer", mark);
      const rest = show(found);
      requestAnimationFrame(() => performance.measure("redraw", mark)); // the frame that shows it
      await rest;
    } catch (error) { fail(error); return; }
    if (mine !== changes) return;
    performance.measure("whole", mark); // with the charts out of view
    root.dataset.drawn = String(mine);
    settling = setTimeout(() => { step(); settled(mine); }, SETTLED_MS);
  };

  // --- starting ---------------------------------------------------------------------------
  const start = async () => {
    try {
      await charts.unpack();
      root.dataset.ready = "yes";
    } catch (error) {
      root.classList.add("no-charts");
      root.dataset.ready = "no";
    }
    fromAddress();
    form.addEventListener("input", (event) => { lastField = event.target.name || lastField; change(); });
    form.addEventListener("submit", (event) => event.preventDefault());
    window.addEventListener("hashchange", () => { fromAddress(); change(); });
    byId("pin").addEventListener("click", () => { pinned = choice(); change(); });
    byId("unpin").addEventListener("click", () => { pinned = null; change(); byId("pin").focus(); });
    byId("exchange").addEventListener("click", () => {
      const other = pinned;
      pinned = choice();
      fill(other);
      change();
    });
    byId("load").addEventListener("change", step);
    byId("share").querySelector("details").addEventListener("toggle", share);
    for (const button of document.querySelectorAll("[data-copies]")) {
      button.addEventListener("click", async () => {
        const box = byId(button.dataset.copies);
        box.select();
        try {
          await navigator.clipboard.writeText(box.value);
          button.textContent = "Copied";
          setTimeout(() => { button.textContent = "Copy"; }, 1500);
        } catch (error) { box.focus(); }
      });
    }
    charts.watch(() => {
      shown.clear();
      Object.keys(figures).forEach(drawAll);
    });
    change();
  };
  start();
})();
