"use strict";
// Draws the charts of a report. Names are only ever set as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const toggle = document.getElementById("theme");
  const preferred = window.matchMedia("(prefers-color-scheme: dark)");
  const drawn = [];

  function colours() {
    const style = getComputedStyle(root);
    const axis = { gridcolor: style.getPropertyValue("--line"), linecolor: style.getPropertyValue("--line"),
      zerolinecolor: style.getPropertyValue("--line") };
    return { text: style.getPropertyValue("--text").trim(), axis };
  }

  function layout(own) {
    const { text, axis } = colours();
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: text, family: "system-ui, sans-serif", size: 13 },
      margin: { l: 60, r: 12, t: 8, b: 56 }, legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
      bargap: 0.35, ...own, xaxis: { automargin: true, ...axis, ...own.xaxis }, yaxis: { automargin: true, ...axis, ...own.yaxis },
    };
  }

  function draw(element, chart) {
    Plotly.newPlot(element, chart.data, layout(chart.layout), { responsive: true, displaylogo: false,
      displayModeBar: false });
    const known = drawn.find((one) => one.element === element);
    if (known) known.chart = chart; else drawn.push({ element, chart });
  }

  function setTheme(dark) {
    root.dataset.theme = dark ? "dark" : "light";
    toggle.setAttribute("aria-pressed", String(dark));
    for (const one of drawn) Plotly.relayout(one.element, layout(one.chart.layout));
  }

  function duration(seconds) {
    const hours = Math.floor(seconds / 3600), minutes = Math.floor(seconds / 60) % 60;
    const rest = (seconds % 60).toFixed(seconds < 60 ? 1 : 0);
    return (hours ? hours + "h" : "") + (hours || minutes ? minutes + "m" : "") + rest + "s";
  }

  function cell(row, text, tag) {
    const element = document.createElement(tag || "td");
    element.textContent = text;
    row.append(element);
  }

  function story(workload) {
    const place = document.getElementById("story");
    const heading = document.createElement("h3");
    heading.textContent = workload.name + (workload.queue ? " in ClusterQueue " + workload.queue : "");
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const name of ["time", "event", "explanation", "preemptor"]) cell(head, name, "th");
    const body = table.createTBody();
    for (const [at, what, text, preemptor] of workload.entries) {
      const row = body.insertRow();
      for (const each of [duration(at), what, text, preemptor]) cell(row, each);
    }
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    scroll.append(table);
    place.replaceChildren(heading, scroll);
  }

  function lanes(index) {
    const lane = data.lanes[index];
    const parts = [[], []], heights = [[], []], owners = [[], []];
    lane.workloads.forEach((workload, number) => {
      for (const [begin, end, admitted] of workload.spans) {
        const kind = admitted ? 1 : 0;
        parts[kind].push(begin / 3600, end / 3600, null);
        heights[kind].push(number, number, null);
        owners[kind].push(number, number, null);
      }
    });
    const names = ["pending", "with quota"];
    const traces = parts.map((x, kind) => ({ type: "scatter", mode: "lines", name: names[kind], x, y: heights[kind],
      customdata: owners[kind], line: { width: kind ? 5 : 3, color: kind ? lane.colour : "#9aa3b2" }, hoverinfo: "none" }));
    const element = document.getElementById("lanes");
    draw(element, { data: traces, layout: { hovermode: "closest", xaxis: { title: { text: "hours" } },
      yaxis: { title: { text: "workloads, in the order of their creation" }, autorange: "reversed", showticklabels: false } } });
    element.removeAllListeners("plotly_click");
    element.on("plotly_click", (event) => choose(lane.workloads[event.points[0].customdata]));
    const list = document.getElementById("workloads");
    list.replaceChildren(...lane.workloads.map((workload) => {
      const option = document.createElement("option");
      option.value = workload.name;
      return option;
    }));
    const first = lane.workloads.find((workload) => workload.entries.length > 3) || lane.workloads[0];
    if (first) choose(first);
  }

  function choose(workload) {
    document.getElementById("workload").value = workload.name;
    story(workload);
  }

  setTheme(preferred.matches);
  preferred.addEventListener("change", (event) => setTheme(event.matches));
  toggle.addEventListener("click", () => setTheme(root.dataset.theme !== "dark"));
  for (const element of document.querySelectorAll("[data-chart]")) draw(element, data.charts[element.dataset.chart]);
  const lane = document.getElementById("lane");
  if (lane) {
    lane.addEventListener("change", () => lanes(Number(lane.value)));
    document.getElementById("workload").addEventListener("change", (event) => {
      const found = data.lanes[Number(lane.value)].workloads.find((one) => one.name === event.target.value);
      if (found) story(found);
    });
    lanes(0);
  }
})();
