(function () {
  "use strict";
  var tip = document.getElementById("tip");
  function show(event) {
    var part = event.target.closest ? event.target.closest("[data-tip]") : null;
    if (!part) { tip.className = ""; return; }
    tip.textContent = part.getAttribute("data-tip");
    tip.className = "shown";
    var room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = Math.max(8, Math.min(event.clientX + 14, room)) + "px";
    tip.style.top = Math.max(8, event.clientY - tip.offsetHeight - 14) + "px";
  }
  document.addEventListener("pointermove", show);
  document.addEventListener("click", show);

  // Parallel coordinates: of every axis the chosen values; no choice is every value.
  document.querySelectorAll(".rays").forEach(function (chart) {
    var chosen = {};
    function apply() {
      var axes = Object.keys(chosen).filter(function (axis) { return chosen[axis].length; });
      chart.querySelectorAll(".ray").forEach(function (ray) {
        var places = ray.getAttribute("data-places").split(",");
        var kept = axes.every(function (axis) { return chosen[axis].includes(places[axis]); });
        ray.classList.toggle("out", !kept);
      });
      chart.querySelectorAll(".pick").forEach(function (pick) {
        var on = (chosen[pick.dataset.axis] || []).includes(pick.dataset.place);
        pick.classList.toggle("on", on);
        pick.setAttribute("aria-pressed", String(on));
      });
    }
    function toggle(event) {
      var pick = event.target.closest(".pick");
      if (!pick) { return; }
      if (event.type === "keydown") {
        if (event.key !== "Enter") { if (event.key !== " ") { return; } }
        event.preventDefault();
      }
      var list = chosen[pick.dataset.axis] || [];
      var place = pick.dataset.place;
      chosen[pick.dataset.axis] = list.includes(place) ? list.filter(function (p) { return p !== place; }) : list.concat(place);
      apply();
    }
    chart.addEventListener("click", toggle);
    chart.addEventListener("keydown", toggle);
  });
})();
