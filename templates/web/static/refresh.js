// Refreshes a page: fetches it again and replaces its live parts. Without this script the page is complete but static.
"use strict";

(() => {
  const seconds = Number(document.body.dataset.refresh);
  const note = document.getElementById("live");
  if (!seconds) return;

  const stylesheet = (page) => page.querySelector("link[rel=stylesheet]").getAttribute("href");

  let freshAt = new Date();
  let madeAt = freshAt;

  async function load() {
    const answer = await fetch(location.href, {
      headers: { Accept: "text/html" },
      cache: "no-store",
      signal: AbortSignal.timeout(10_000),
    });
    if (!answer.ok) throw new Error("no page", { cause: `answered ${answer.status}` });
    madeAt = new Date(Date.now() - 1000 * Number(answer.headers.get("Age")));
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  }

  // Keep the horizontal scroll position of each table.
  function replace(old, young) {
    const all = (part) => [part, ...part.querySelectorAll("section")];
    const places = all(old).map((each) => each.scrollLeft);
    old.replaceWith(young);
    if (places.some(Boolean)) all(young).forEach((each, n) => (each.scrollLeft = places[n] ?? 0));
  }

  function swap(fresh) {
    const focused = document.activeElement?.getAttribute("href");
    const place = document.activeElement?.closest("[data-live]")?.id ?? "main";
    const pairs = [...document.querySelectorAll("[data-live]")].map((old) => [old, fresh.getElementById(old.id)]);
    if (fresh.body.dataset.page === document.body.dataset.page && pairs.every(([, young]) => young)) {
      for (const [old, young] of pairs) replace(old, young);
    } else {
      document.getElementById("main").replaceWith(fresh.getElementById("main"));
      document.body.dataset.page = fresh.body.dataset.page;
    }
    document.title = fresh.title;
    if (focused) document.querySelector(`#${place} a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  function say(text, stale) {
    note.hidden = false;
    note.classList.toggle("stale", stale);
    if (note.textContent !== text) note.textContent = text;
  }

  // The page itself says when its content comes from memory, because the database is away.
  function sayLive() {
    const away = document.querySelector("#outage .banner");
    say(away ? "From memory" : "Live", Boolean(away));
  }

  async function refresh() {
    if (document.hidden) return;
    if (!getSelection().isCollapsed) return say(`As of ${freshAt.toLocaleTimeString()}: paused while text is selected`, false);
    try {
      const fresh = await load();
      if (stylesheet(fresh) !== stylesheet(document)) return location.reload();
      swap(fresh);
      freshAt = madeAt;
      sayLive();
    } catch (error) {
      say(`Not updated since ${freshAt.toLocaleTimeString()}: ${error.cause ?? "no answer"}`, true);
    }
  }

  async function run() {
    await refresh();
    setTimeout(run, seconds * 1000);
  }

  sayLive();
  document.addEventListener("visibilitychange", refresh);
  setTimeout(run, seconds * 1000);
})();
