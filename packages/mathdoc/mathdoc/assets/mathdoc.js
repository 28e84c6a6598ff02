// Hovering a symbol lights up its variable and the other way round. Everything else on the page works without this.
(function () {
  "use strict";
  document.documentElement.classList.add("has-js");
  var tip = document.createElement("div");
  tip.className = "mathdoc-tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.body.appendChild(tip);
  var pinned = null;
  var current = null;

  document.querySelectorAll("[data-sym][title]").forEach(function (element) {
    element.dataset.meaning = element.title;
    element.removeAttribute("title");
  });

  function all(name) {
    return document.querySelectorAll('[data-sym="' + CSS.escape(name) + '"]');
  }

  function light(name) {
    document.querySelectorAll(".lit").forEach(function (element) { element.classList.remove("lit"); });
    if (name) all(name).forEach(function (element) { element.classList.add("lit"); });
  }

  function hide() {
    current = null;
    tip.hidden = true;
  }

  function show(element) {
    var told = element.dataset.meaning;
    if (!told) return;
    current = element;
    var at = told.lastIndexOf(" · ");
    tip.textContent = told.slice(0, at) + " ";
    var code = document.createElement("code");
    code.textContent = told.slice(at + 3);
    tip.appendChild(code);
    tip.hidden = false;
    var box = element.getBoundingClientRect();
    var left = Math.min(box.left, window.innerWidth - tip.offsetWidth - 8);
    var above = box.top - tip.offsetHeight - 6;
    tip.style.left = Math.max(8, left) + "px";
    tip.style.top = (above > 8 ? above : box.bottom + 6) + "px";
  }

  document.addEventListener("mouseover", function (event) {
    var element = event.target.closest("[data-sym]");
    if (pinned) return;
    light(element && element.dataset.sym);
    if (element) show(element); else hide();
  });

  document.addEventListener("click", function (event) {
    var copy = event.target.closest(".formula .copy");
    if (copy) {
      copied(copy, copy.dataset.tex);
      return;
    }
    var element = event.target.closest("[data-sym]");
    pinned = element && pinned !== element.dataset.sym ? element.dataset.sym : null;
    light(pinned);
    if (pinned) show(element); else hide();
  });

  document.addEventListener("scroll", function () { if (current) show(current); }, { passive: true, capture: true });

  // arrow keys go through the symbols of the formula that has the focus; the tip is a live region, so it is read out
  function step(rendered, forward) {
    var symbols = Array.from(rendered.querySelectorAll(".katex-html [data-sym]"));
    if (!symbols.length) return;
    var at = symbols.indexOf(current) + (forward ? 1 : -1);
    if (at < 0) at = forward ? 0 : symbols.length - 1;
    var symbol = symbols[at % symbols.length];
    pinned = symbol.dataset.sym;
    light(pinned);
    symbol.scrollIntoView({ block: "nearest", inline: "nearest" });
    show(symbol);
  }

  function leave() {
    pinned = null;
    light(null);
    hide();
  }

  document.addEventListener("focusout", function (event) {
    if (event.target.closest(".formula .rendered")) leave();
  });

  document.addEventListener("keydown", function (event) {
    var figure = event.target.closest && event.target.closest(".formula");
    if (!figure || event.ctrlKey || event.metaKey || event.altKey) return;
    var rendered = event.target.closest(".rendered");
    if (rendered && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
      event.preventDefault();
      step(rendered, event.key === "ArrowRight");
    }
    if (event.key === "Escape") leave();
    var button = figure.querySelector(".copy");
    if (event.key === "c") copied(button, button.dataset.tex);
    if (event.key === "l") copied(button, location.href.split("#")[0] + "#" + figure.id);
  });

  function copied(button, text) {
    var done = function () {
      var before = "copy LaTeX";
      button.textContent = "copied";
      setTimeout(function () { button.textContent = before; }, 1200);
    };
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, function () { fallback(text); done(); });
    else { fallback(text); done(); }
  }

  function fallback(text) {
    var area = document.createElement("textarea");
    area.value = text;
    document.body.appendChild(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
})();
