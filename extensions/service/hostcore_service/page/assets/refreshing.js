// Does something again and again, one at a time, and only while the page is seen.

export class Refreshing {
  // work(signal): a promise of the seconds after which it is to be done again.
  constructor(work) {
    this.work = work;
    this.stopping = new AbortController();
    this.onSeen = () => { if (!document.hidden) this.now(); };
    document.addEventListener("visibilitychange", this.onSeen);
  }

  async now() {
    clearTimeout(this.timer);
    // What is under way may have begun too early to see what has changed.
    this.current?.abort();
    const mine = this.current = new AbortController();
    const signal = AbortSignal.any([mine.signal, this.stopping.signal]);
    let seconds = null;
    try {
      seconds = await this.work(signal);
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
    if (signal.aborted || this.current !== mine) return;
    this.timer = setTimeout(() => { if (!document.hidden) this.now(); }, (seconds ?? 5) * 1000);
  }

  close() {
    this.stopping.abort();
    clearTimeout(this.timer);
    document.removeEventListener("visibilitychange", this.onSeen);
  }
}
