"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const status = document.getElementById("status");
  const colours = ["#0b7a75", "#c1440e", "#3f51b5", "#8a6d00", "#9c27b0", "#2e7d32", "#ad1457", "#00639b", "#6d4c41", "#546e7a"];
  const kinds = { compiled: "#3f7fb5", recompiled: "#c1740e", failed: "#b3261e", limit: "#7b1fa2", skipped: "#7f8a96", retraced: "#7f8a96" };
  const config = { displayModeBar: false, responsive: true };

  function layout(extra) {
    const style = getComputedStyle(root);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), automargin: true };
    const base = {
      paper_bgcolor: colour("--back"), plot_bgcolor: colour("--back"), font: { color: colour("--text") },
      margin: { l: 60, r: 20, t: 20, b: 50 }, legend: { orientation: "h", y: 1.12 }, xaxis: { ...axis }, yaxis: { ...axis },
    };
    for (const [key, value] of Object.entries(extra)) base[key] = key.includes("axis") ? { ...axis, ...value } : value;
    return base;
  }

  function timeline() {
    if (!document.getElementById("timeline-chart")) return;
    const traces = Object.keys(kinds).map((kind) => {
      const some = data.compilations.filter((c) => c.kind === kind);
      return {
        type: "bar", orientation: "h", name: kind, marker: { color: kinds[kind] }, yaxis: "y",
        base: some.map((c) => c.start), x: some.map((c) => c.seconds), y: some.map((c) => c.name),
        text: some.map((c) => `${c.id}: ${c.seconds.toFixed(2)} s${c.why.length ? "<br>" + c.why.join("<br>") : ""}`),
        textposition: "none", hoverinfo: "text",
      };
    }).filter((t) => t.x.length);
    const ids = [...new Set(data.calls.map((c) => c[0]))];
    const last = Math.max(...data.calls.map((c) => c[1]), ...data.compilations.map((c) => c.start + c.seconds), 0.001);
    const width = last / 60;
    ids.forEach((id, i) => {
      const sums = new Map();
      for (const [, time, count] of data.calls.filter((c) => c[0] === id)) {
        const bin = Math.min(59, Math.floor(time / width));
        sums.set(bin, (sums.get(bin) || 0) + count);
      }
      traces.push({
        type: "bar", name: `calls of ${id}`, x: [...sums.keys()].map((bin) => (bin + 0.5) * width), y: [...sums.values()], width,
        yaxis: "y2", showlegend: ids.length < 9, marker: { color: colours[i % colours.length] },
      });
    });
    Plotly.react("timeline-chart", traces, layout({
      barmode: "stack", xaxis: { title: { text: "seconds since the start" }, anchor: "y2" },
      yaxis: { domain: [0.35, 1], type: "category" }, yaxis2: { domain: [0, 0.25], title: { text: "calls" } },
      showlegend: true,
    }), config);
  }

  const inFunction = () => {
    const name = document.getElementById("function").value;
    return data.points.filter((p) => (data.names[p[0]] || p[0]) === name);
  };

  function map() {
    if (!document.getElementById("map-chart")) return;
    const across = document.getElementById("axis-x").value;
    const up = document.getElementById("axis-y").value;
    const points = inFunction();
    const ids = [...new Set(points.map((p) => p[0]))];
    const traces = ids.map((id, i) => {
      const some = points.filter((p) => p[0] === id && across in p[1] && (up === "calls" || up in p[1]));
      return {
        type: "scatter", mode: "markers", name: `program ${id}`,
        x: some.map((p) => p[1][across]), y: some.map((p) => (up === "calls" ? p[2] : p[1][up])),
        text: some.map((p) => `${id}: ${p[2]} calls`), marker: { color: colours[i % colours.length], size: 9, symbol: i % 40 },
      };
    }).filter((t) => t.x.length);
    const lines = data.borders.flatMap((b) => {
      const dash = { color: "#8a94a0", dash: "dash", width: 1.5 };
      if (b.dim === across) return [{ type: "line", x0: b.at, x1: b.at, y0: 0, y1: 1, yref: "paper", line: dash }];
      if (b.dim === up) return [{ type: "line", y0: b.at, y1: b.at, x0: 0, x1: 1, xref: "paper", line: dash }];
      return [];
    });
    Plotly.react("map-chart", traces, layout({ xaxis: { title: { text: across } }, yaxis: { title: { text: up } }, shapes: lines, showlegend: true }), config);
  }

  function axes() {
    const first = document.getElementById("axis-x");
    const second = document.getElementById("axis-y");
    const points = inFunction();
    const varied = (dim) => new Set(points.map((p) => p[1][dim])).size;
    const dims = [...new Set(points.flatMap((p) => Object.keys(p[1])))].sort((a, b) => varied(b) - varied(a));
    first.replaceChildren(...dims.map((dim) => new Option(dim, dim)));
    second.replaceChildren(...["calls", ...dims].map((dim) => new Option(dim, dim)));
    if (dims.length > 1 && varied(dims[1]) > 1) second.value = dims[1];
  }

  function functions() {
    const chosen = document.getElementById("function");
    const counts = new Map();
    for (const [id] of data.points) {
      const name = data.names[id] || id;
      counts.set(name, (counts.get(name) || new Set()).add(id));
    }
    const names = [...counts.keys()].sort((a, b) => counts.get(b).size - counts.get(a).size);
    chosen.replaceChildren(...names.map((name) => new Option(name, name)));
    chosen.addEventListener("change", () => { axes(); map(); });
    for (const id of ["axis-x", "axis-y"]) document.getElementById(id).addEventListener("change", map);
  }

  function filter() {
    const words = (document.getElementById("search")?.value || "").toLowerCase();
    const wanted = new Set([...document.querySelectorAll(".severity:checked")].map((box) => box.value));
    let shown = 0;
    for (const card of document.querySelectorAll(".finding")) {
      const hide = !wanted.has(card.dataset.severity) || !card.textContent.toLowerCase().includes(words);
      card.hidden = hide;
      shown += hide ? 0 : 1;
    }
    const output = document.getElementById("shown");
    if (output) output.textContent = `${shown} shown`;
  }

  async function copy(event) {
    const text = event.currentTarget.parentElement.querySelector("pre").textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      event.currentTarget?.focus();
    }
    status.textContent = "Copied.";
  }

  const themes = ["auto", "light", "dark"];
  document.getElementById("theme").addEventListener("click", (event) => {
    root.dataset.theme = themes[(themes.indexOf(root.dataset.theme) + 1) % themes.length];
    const name = { auto: "automatic", light: "light", dark: "dark" }[root.dataset.theme];
    event.currentTarget.textContent = `Theme: ${name}`;
    event.currentTarget.setAttribute("aria-label", `Color theme: ${name}`);
    draw();
  });
  function draw() {
    if (!window.Plotly) return;
    timeline();
    map();
  }

  async function unpack() {
    const packed = Uint8Array.from(atob(document.getElementById("charts").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = `${await new Response(stream).text()}\nwindow.Plotly = window.Plotly || window.moduleName;`;
    document.head.append(script);
    draw();
  }

  // A link to a compilation opens it.
  function reveal() {
    const found = location.hash && document.getElementById(location.hash.slice(1));
    if (found instanceof HTMLDetailsElement) {
      found.open = true;
      found.scrollIntoView();
      found.querySelector("summary").focus();
    }
  }
  addEventListener("hashchange", reveal);
  document.getElementById("search")?.addEventListener("input", filter);
  document.querySelectorAll(".severity").forEach((box) => box.addEventListener("change", filter));
  document.querySelectorAll(".copy").forEach((button) => button.addEventListener("click", copy));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  if (document.getElementById("map-chart")) {
    functions();
    axes();
  }
  reveal();
  unpack().catch(() => document.querySelectorAll(".chart").forEach((chart) => { chart.textContent = "This browser cannot draw the chart; the tables have the same."; }));
})();
