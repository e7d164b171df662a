// Refreshes a page: fetches it again and replaces its live parts. Also filters the list during typing. Without this
// script the page is complete but static, and the filter has a button.
"use strict";

(() => {
  const seconds = Number(document.body.dataset.refresh);
  const note = document.getElementById("live");
  const gone = document.getElementById("gone");
  if (!seconds) return;

  const stylesheet = (page) => page.querySelector("link[rel=stylesheet]").getAttribute("href");

  let freshAt = new Date();
  let madeAt = freshAt;
  let askedAt = freshAt;

  async function load() {
    const answer = await fetch(location.href, {
      headers: { Accept: "text/html" },
      cache: "no-store",
      signal: AbortSignal.timeout(10_000),
    });
    // The page of a group that has left the list is a 404 with an explanation.
    if (!answer.ok && answer.status !== 404) throw new Error("no page", { cause: `answered ${answer.status}` });
    madeAt = new Date(Date.now() - 1000 * Number(answer.headers.get("Age")));
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  }

  // Keep the horizontal scroll position of each table, and what is unfolded.
  function replace(old, young) {
    for (const each of old.querySelectorAll("details[open]")) {
      const same = young.querySelector(`#${each.id}`);
      if (same) same.open = true;
    }
    const all = (part) => [part, ...part.querySelectorAll("section")];
    const places = all(old).map((each) => each.scrollLeft);
    old.replaceWith(young);
    if (places.some(Boolean)) all(young).forEach((each, n) => (each.scrollLeft = places[n] ?? 0));
  }

  // How to find the focused element in the fresh page.
  function wayTo(element) {
    if (element?.id) return `#${element.id}`;
    if (element?.matches("details > summary")) return `#${element.parentNode.id} > summary`;
    return element?.hasAttribute("href") ? `a[href="${CSS.escape(element.getAttribute("href"))}"]` : null;
  }

  function swap(fresh) {
    const focused = wayTo(document.activeElement);
    const top = document.activeElement?.getBoundingClientRect().top;
    const place = document.activeElement?.closest("[data-live]")?.id ?? "main";
    const pairs = [...document.querySelectorAll("[data-live]")].map((old) => [old, fresh.getElementById(old.id)]);
    if (fresh.body.dataset.page === document.body.dataset.page && pairs.every(([, young]) => young)) {
      for (const [old, young] of pairs) replace(old, young);
    } else {
      document.getElementById("main").replaceWith(fresh.getElementById("main"));
      document.body.dataset.page = fresh.body.dataset.page;
    }
    document.title = fresh.title;
    document.dispatchEvent(new Event("refreshed"));
    const link = focused && document.querySelector(`#${place} ${focused}`);
    if (!link) return;
    link.focus({ preventScroll: true });
    scrollBy(0, link.getBoundingClientRect().top - top); // content above may have grown
  }

  const utc = (time) => `${time.toISOString().slice(11, 19)} UTC`;

  // The two largest units, as on the server.
  function duration(seconds) {
    let left = Math.round(seconds);
    const parts = [];
    for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
      const number = Math.floor(left / length);
      left %= length;
      if (number || parts.length) parts.push(number ? `${number} ${unit}` : "");
    }
    return parts.slice(0, 2).filter(Boolean).join(" ") || "0 s";
  }

  function say(text, stale) {
    note.hidden = false;
    note.classList.toggle("stale", stale);
    if (note.textContent !== text) note.textContent = text;
  }

  // Karrot does not answer, so the claims of the page are old: say so in the headline and the title. Ages go on.
  function sayGone(reason) {
    const old = (Date.now() - freshAt) / 1000;
    say(`Not updated since ${utc(freshAt)}`, true);
    if (gone.hidden) document.title = `⚠ Not updated · ${document.title}`;
    gone.hidden = false;
    const [what, age] = gone.children; // a screen reader announces only the first, and only if it changes
    if (what.textContent !== `Karrot ${reason}.`) what.textContent = `Karrot ${reason}.`;
    age.textContent = `This page is ${duration(old)} old.`;
    document.body.classList.add("is-gone");
    for (const each of document.querySelectorAll("[data-age]")) each.textContent = duration(Number(each.dataset.age) + old);
  }

  // The page itself says when its content comes from memory, because the database is away, or can be old.
  function sayLive() {
    const outage = document.getElementById("outage");
    const doubt = outage.querySelector(".banner") ? "From memory" : outage.dataset.doubt;
    say(doubt || "Live", Boolean(doubt));
  }

  async function refresh() {
    if (document.hidden && Date.now() - askedAt < 60_000) return; // only the title of the tab is visible
    askedAt = new Date();
    if (document.querySelector("input[type=range]:active")) return; // somebody drags it
    if (!getSelection().isCollapsed) return say(`As of ${utc(freshAt)}: paused while text is selected`, false);
    const asked = location.href;
    try {
      const fresh = await load();
      if (location.href !== asked) return; // the filter has changed, and its own answer follows
      if (stylesheet(fresh) !== stylesheet(document)) return location.reload();
      swap(fresh);
      freshAt = madeAt;
      gone.hidden = true;
      document.body.classList.remove("is-gone");
      sayLive();
    } catch (error) {
      sayGone(error.cause ?? "does not answer");
    }
  }

  async function run() {
    await refresh();
    setTimeout(run, seconds * 1000);
  }

  let typed = 0;
  document.addEventListener("input", ({ target }) => {
    if (target.type !== "search") return;
    clearTimeout(typed);
    typed = setTimeout(() => {
      const asked = new URLSearchParams([...new FormData(target.form)].filter(([, value]) => value));
      history.replaceState(null, "", asked.size ? `?${asked}` : location.pathname);
      refresh();
    }, 200);
  });
  document.addEventListener("keydown", (event) => {
    const search = document.querySelector("input[type=search]");
    const elsewhere = event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select");
    if (!search || event.key !== "/" || elsewhere) return;
    event.preventDefault();
    search.select();
  });

  sayLive();
  document.addEventListener("visibilitychange", refresh);
  setTimeout(run, seconds * 1000);
})();
