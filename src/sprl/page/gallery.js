// The cards of the suspects. Only those near the window are in the document, so that many thousands stay fluid.

const BEYOND = 2; // rows of cards drawn above and below the window
const PRINTED = 60; // rows of cards, on some pages of paper

class Gallery {
  constructor(list, card, dressed) {
    Object.assign(this, { list, card, dressed, items: [], current: 0, cards: new Map(), printing: false });
    addEventListener("scroll", () => this.soon(), { passive: true });
    new ResizeObserver(() => this.soon()).observe(list.parentElement);
  }

  soon() {
    this.waiting ??= requestAnimationFrame(() => {
      this.waiting = null;
      this.draw();
    });
  }

  /** These suspects from now on; the one that was current stays so if it is among them, else its place counts. */
  show(items, keep = this.items[this.current]) {
    const focused = this.list.contains(document.activeElement);
    this.items = items;
    const at = keep ? items.indexOf(keep) : -1;
    this.current = Math.max(0, Math.min(at >= 0 ? at : this.current, items.length - 1));
    this.list.replaceChildren();
    this.cards.clear();
    this.draw();
    if (focused) this.cards.get(this.current)?.focus({ preventScroll: true });
  }

  measure() {
    const style = getComputedStyle(this.list);
    return { columns: style.gridTemplateColumns.split(" ").length, pitch: parseFloat(style.gridAutoRows) + parseFloat(style.rowGap) };
  }

  print(printing) {
    this.printing = printing;
    this.draw();
  }

  draw() {
    const { columns, pitch } = this.measure();
    const rows = Math.ceil(this.items.length / columns);
    const above = -this.list.getBoundingClientRect().top;
    const first = this.printing ? 0 : Math.max(0, Math.min(rows - 1, Math.floor(above / pitch) - BEYOND));
    const last = Math.min(rows, this.printing ? PRINTED : Math.ceil((above + innerHeight) / pitch) + BEYOND);
    this.list.style.paddingTop = `${first * pitch}px`;
    this.list.style.paddingBottom = `${Math.max(0, rows - Math.max(first, last)) * pitch}px`;
    const [start, end] = [first * columns, Math.min(this.items.length, last * columns)];
    for (const [place, card] of this.cards) {
      if (place >= start && place < end) continue;
      card.remove();
      this.cards.delete(place);
    }
    let next = null;
    for (let place = end - 1; place >= start; place--) {
      let card = this.cards.get(place);
      if (!card) {
        card = this.card(this.items[place], place);
        card.setAttribute("aria-setsize", this.items.length);
        card.setAttribute("aria-posinset", place + 1);
        this.cards.set(place, card);
        this.list.insertBefore(card, next); // never moves those that are there: they may have the focus
      }
      this.dress(place);
      next = card;
    }
  }

  dress(place) {
    const card = this.cards.get(place);
    if (!card) return;
    card.tabIndex = place === this.current ? 0 : -1;
    for (const button of card.querySelectorAll("button")) button.tabIndex = card.tabIndex;
    if (place === this.current) card.setAttribute("aria-current", "true");
    else card.removeAttribute("aria-current");
    this.dressed(card, this.items[place]);
  }

  /** Whether most of the current card can be seen: nobody should judge what is out of sight. */
  get inSight() {
    const card = this.cards.get(this.current)?.getBoundingClientRect();
    return card !== undefined && card.top > -card.height / 2 && card.bottom < innerHeight + card.height / 2;
  }

  go(place, scroll = true) {
    const before = this.current;
    this.current = Math.max(0, Math.min(place, this.items.length - 1));
    if (!this.items.length) return;
    const { columns, pitch } = this.measure();
    const top = scrollY + this.list.getBoundingClientRect().top + Math.floor(this.current / columns) * pitch;
    const covered = parseFloat(getComputedStyle(this.list).scrollMarginTop);
    const cut = top - covered < scrollY || top + pitch > scrollY + innerHeight;
    if (scroll && cut) scrollTo(0, top - covered); // what comes next is then in sight, too
    this.draw();
    this.dress(before);
    this.cards.get(this.current)?.focus({ preventScroll: true });
  }

  /** By cards, or by rows of them. */
  move(cards, rows = 0) {
    const to = this.current + cards + rows * this.measure().columns;
    this.go(to < 0 ? this.current : to);
  }
}
