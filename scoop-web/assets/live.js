// Keeps the part of the page with the id `live` up to date: when the server tells that something has changed, the page is
// read again, and that part replaced. Without this script everything works after a reload.
"use strict";
(() => {
  const region = document.getElementById("live");
  const state = document.getElementById("live-state");
  if (!region || !region.dataset.live || !window.EventSource) return;

  const INTERVAL = 10_000;
  let busy = false;
  let again = false;
  let paused = false;
  let missed = false;
  // A click is lost if its element is replaced between press and release: an update waits for the release.
  let pressed = false;
  const press = (event) => {
    pressed = event.buttons > 0;
    if (pressed || !missed) return;
    missed = false;
    refresh();
  };
  for (const type of ["pointerdown", "pointermove", "pointerup", "pointercancel"]) addEventListener(type, press);

  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Pause updates";
  state.after(button);
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Resume updates" : "Pause updates";
    button.setAttribute("aria-pressed", String(paused));
    if (!paused) refresh();
  });

  const tell = (text) => {
    if (state.textContent !== text) state.textContent = text;
    state.hidden = !text;
  };

  // The element that has the focus is found again by its address or its id.
  const name = (element) => element.getAttribute("href") ?? element.id;
  const focused = () => {
    const element = document.activeElement;
    return element && region.contains(element) ? name(element) : "";
  };

  const summary = (details) => details.querySelector("summary")?.textContent;

  const replace = (html) => {
    const next = new DOMParser().parseFromString(html, "text/html").getElementById("live");
    if (!next) return;
    const focus = focused();
    const checked = new Set([...region.querySelectorAll("input:checked")].map((it) => it.id));
    const opened = new Map([...region.querySelectorAll("details")].map((it) => [summary(it), it.open]));
    region.replaceChildren(...next.childNodes);
    for (const it of region.querySelectorAll("details")) it.open = opened.get(summary(it)) ?? it.open;
    for (const it of region.querySelectorAll("input[type=checkbox]")) it.checked = checked.has(it.id);
    if (!focus) return;
    for (const element of region.querySelectorAll("a[href], button, input")) {
      if (name(element) === focus) { element.focus({ preventScroll: true }); break; }
    }
  };

  // The script that plays a hierarchy marks the region, and says when it is done.
  const isHeld = () => paused || document.hidden || "played" in region.dataset;
  document.addEventListener("played", () => refresh());

  const refresh = async () => {
    if (isHeld()) return;
    if (busy) { again = true; return; }
    busy = true;
    try {
      const response = await fetch(location.href, { cache: "no-store" });
      const html = await response.text();
      if (pressed || isHeld()) missed = true;
      else if (response.ok) { replace(html); tell("live"); } else tell("not up to date");
    } catch { tell("not up to date"); }
    busy = false;
    if (again) { again = false; setTimeout(refresh, 500); }
  };

  const source = new EventSource(region.dataset.live);
  source.addEventListener("open", () => tell("live"));
  source.addEventListener("changed", refresh);
  source.addEventListener("error", () => { if (source.readyState === EventSource.CLOSED) tell("not live"); });
  document.addEventListener("visibilitychange", refresh);
  setInterval(refresh, INTERVAL);
})();
