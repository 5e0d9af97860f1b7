// Plays a hierarchy: its events one after the other, in the tree and in the time line. The page has them as JSON: of each its
// place in the time line in per cent, the pause before it, its text, and rows of the tree with their states from then on. While
// it plays, the page is not updated. Without this script the page shows the hierarchy as it is.
"use strict";
(() => {
  const region = document.getElementById("live");
  const controls = document.getElementById("play");
  const [play, back, forward, leave] = controls.querySelectorAll("button");
  const [speed, place, text] = ["select", "input", "output"].map((it) => controls.querySelector(it));

  // The colors of states; of all others that of waiting.
  const TONES = {
    running: "busy", ready: "busy", completed: "good", committed: "good",
    failed: "bad", "child failed": "bad", "rollback failed": "bad", stuck: "bad",
    "rolling back": "undone", undone: "undone", "rolled back": "undone",
  };

  let moments = [];
  let rows = [];
  let at = 0;
  let timer = 0;

  const isPlayed = () => "played" in region.dataset;

  const stop = () => {
    clearTimeout(timer);
    timer = 0;
    play.textContent = "Play";
    text.ariaLive = "polite";
  };

  // What is on the page now, until it is left.
  const begin = () => {
    if (isPlayed()) return;
    moments = JSON.parse(document.getElementById("moments")?.textContent ?? "[]");
    rows = [...region.querySelectorAll(".tree tbody tr")];
    if (!moments.length) return;
    region.dataset.played = "";
    place.max = moments.length - 1;
    leave.hidden = false;
  };

  const mark = (row, state, isNow, hasFailed) => {
    const cell = row.cells[1];
    cell.className = TONES[state] ?? "idle";
    if (state) cell.dataset.state = state;
    else delete cell.dataset.state;
    row.toggleAttribute("data-begun", Boolean(state));
    row.toggleAttribute("data-now", isNow);
    row.toggleAttribute("data-failed", hasFailed);
  };

  const show = (next) => {
    begin();
    if (!moments.length) return;
    at = Math.max(0, Math.min(next, moments.length - 1));
    const changes = moments.slice(0, at + 1).flatMap((it) => it[3]);
    const states = new Map(changes.filter(([, state]) => state));
    const failed = new Set(changes.filter(([, state]) => state.endsWith("failed")).map(([row]) => row));
    const [percent, , words, now] = moments[at];
    rows.forEach((row, nth) => mark(row, states.get(nth), now.some(([it]) => it === nth), failed.has(nth)));
    region.style.setProperty("--moment", `${percent}%`);
    place.value = at;
    place.setAttribute("aria-valuetext", words);
    text.textContent = words;
  };

  const goOn = () => {
    if (at >= moments.length - 1) return stop();
    timer = setTimeout(() => { show(at + 1); goOn(); }, moments[at + 1][1] / speed.value);
  };

  const toggle = () => {
    if (timer) return stop();
    show(isPlayed() && at < moments.length - 1 ? at : 0);
    play.textContent = "Pause";
    // A reader would not keep up.
    text.ariaLive = "off";
    goOn();
  };

  const step = (by) => {
    stop();
    show(isPlayed() ? at + by : by > 0 ? 0 : Infinity);
  };

  play.addEventListener("click", toggle);
  back.addEventListener("click", () => step(-1));
  forward.addEventListener("click", () => step(1));
  place.addEventListener("input", () => { stop(); show(Number(place.value)); });
  leave.addEventListener("click", () => {
    stop();
    delete region.dataset.played;
    rows.forEach((row) => { mark(row, undefined, false, false); row.cells[1].className = ""; });
    text.textContent = "";
    leave.hidden = true;
    play.focus();
    document.dispatchEvent(new Event("played"));
  });
  controls.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.target === speed || !by && (event.key !== " " || event.target !== place)) return;
    event.preventDefault();
    if (by) step(by);
    else toggle();
  });
  controls.hidden = false;
})();
