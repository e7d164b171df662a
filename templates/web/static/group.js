// On a group's page: shows the values of the curves at a moment, by pointer or keyboard, and copies the summary.
"use strict";

(() => {
  const shown = {}; // the text of the moment of each slider, so that it stays after a refresh

  function equip(slider) {
    const plots = slider.parentNode.querySelector(".plots");
    const cross = plots.querySelector(".cross");
    const points = plots.dataset.points.split("\n").map((line) => [parseFloat(line), line.slice(line.indexOf(" ") + 1)]);
    const show = (number) => {
      const [at, text] = points[number];
      cross.hidden = false;
      cross.style.left = `${at}%`;
      cross.classList.toggle("late", at > 50);
      cross.firstElementChild.textContent = text;
      slider.value = number;
      slider.setAttribute("aria-valuetext", text);
      shown[slider.id] = text;
    };
    const hide = () => {
      cross.hidden = document.activeElement !== slider;
    };
    slider.hidden = false;
    slider.setAttribute("aria-valuetext", points[slider.value][1]);
    slider.addEventListener("input", () => show(slider.value));
    slider.addEventListener("focus", () => show(slider.value));
    slider.addEventListener("blur", hide);
    plots.addEventListener("pointerleave", hide);
    plots.addEventListener("pointermove", (event) => {
      const box = plots.getBoundingClientRect();
      const place = (100 * (event.clientX - box.left)) / box.width;
      show(points.reduce((best, [at], n) => (Math.abs(at - place) < Math.abs(points[best][0] - place) ? n : best), 0));
    });
    const again = points.findIndex(([, text]) => text === shown[slider.id]);
    if (again < 0) return;
    show(again);
    cross.hidden = !plots.matches(":hover");
  }

  function equipAll() {
    document.querySelectorAll("input[type=range]").forEach(equip);
    const button = document.getElementById("copy");
    if (button) button.hidden = false;
  }

  async function copy(button) {
    const summary = document.getElementById("summary");
    let done = true;
    try {
      await navigator.clipboard.writeText(summary.value);
    } catch {
      // Without HTTPS, browsers have no clipboard for scripts. The older command needs a selection.
      summary.hidden = false;
      summary.select();
      done = document.execCommand("copy");
      summary.hidden = done;
      if (done) button.focus();
    }
    const said = document.getElementById("copied");
    said.textContent = done ? "Copied" : "Copy the marked text";
    setTimeout(() => (said.textContent = ""), 5000);
  }

  document.addEventListener("click", ({ target }) => target.id === "copy" && copy(target));
  document.addEventListener("refreshed", equipAll);
  equipAll();
})();
