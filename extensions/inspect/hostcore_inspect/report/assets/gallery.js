"use strict";
// The plots of a page and the controls that they share. Draws what can be seen, when it has changed. Shared by the page
// of the service and the report of a run; needs picture.js.
const { Gallery } = (() => {
  class Gallery {
    // controls: the fields from, to, smoothing, log, reset and find.
    constructor(view, controls) {
      this.view = view;
      this.controls = controls;
      this.pictures = [];
      this.visible = new Set();
      this.pictureOf = new Map();
      this.seen = new IntersectionObserver((entries) => {
        for (const entry of entries) {
          this.visible[entry.isIntersecting ? "add" : "delete"](this.pictureOf.get(entry.target));
        }
        this.drawVisible();
      }, { rootMargin: "300px" });
      this.sized = new ResizeObserver((entries) => {
        for (const entry of entries) {
          const one = this.pictureOf.get(entry.target);
          if (Math.round(one.svg.clientWidth) !== one.width) one.stale = true;
        }
        this.drawVisible();
      });
      this.listen();
      this.tellSteps();
    }

    add(figure, plot) {
      const picture = new Picture(figure, plot, this.view, (from, to) => this.enlarge(from, to));
      this.pictures.push(picture);
      this.pictureOf.set(figure, picture);
      this.seen.observe(figure);
      this.sized.observe(figure);
      this.find();
      return picture;
    }

    remove(picture) {
      this.seen.unobserve(picture.figure);
      this.sized.unobserve(picture.figure);
      this.visible.delete(picture);
      this.pictures.splice(this.pictures.indexOf(picture), 1);
    }

    close() {
      this.seen.disconnect();
      this.sized.disconnect();
    }

    listen() {
      const { from, to, smoothing, log, reset, find } = this.controls, view = this.view;
      view.smoothing = Number(smoothing.value);
      smoothing.addEventListener("input", () => { view.smoothing = Number(smoothing.value); this.drawAnew(); });
      log.addEventListener("change", () => { view.log = log.checked; this.drawAnew(); });
      for (const field of [from, to]) {
        field.addEventListener("change", () => this.enlarge(Number(from.value), Number(to.value) || view.last));
      }
      reset.addEventListener("click", () => this.enlarge(0, view.last));
      find.addEventListener("input", () => this.find());
    }

    find() {
      const wanted = this.controls.find.value.trim().toLowerCase();
      for (const { figure, plot } of this.pictures) {
        const names = [plot.title, ...plot.curves.map((curve) => curve.name)];
        figure.hidden = !names.some((name) => name.toLowerCase().includes(wanted));
      }
    }

    drawVisible() { for (const one of this.visible) if (one.stale) one.draw(); }

    drawAnew() {
      for (const one of this.pictures) one.stale = true;
      this.drawVisible();
    }

    drawAll() { for (const one of this.pictures) if (one.stale) one.draw(); }

    enlarge(from, to) {
      const { view } = this;
      view.from = Math.max(0, Math.min(from, view.last - 1));
      view.to = Math.min(view.last, Math.max(to, view.from + 1));
      this.tellSteps();
      this.drawAnew();
    }

    // The run has come to a later step; a view of all steps shows it too.
    growTo(last) {
      const { view } = this, isWhole = view.from === 0 && view.to === view.last;
      view.last = Math.max(1, last);
      if (isWhole || view.to > view.last) Object.assign(view, { from: 0, to: view.last });
      this.tellSteps();
    }

    tellSteps() {
      const { from, to } = this.controls, { view } = this;
      for (const field of [from, to]) field.max = view.last;
      // Not while the user types there.
      if (document.activeElement !== from) from.value = view.from;
      if (document.activeElement !== to) to.value = view.to;
    }
  }

  return { Gallery };
})();
