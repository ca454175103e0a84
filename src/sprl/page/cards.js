// A card: picture or features of a suspect, its labels, the verdict, and buttons for it.

/** How suspicious: the chance that the given label is wrong, or its rank where the verdict is not clear. */
const doubt = (suspect) => (about.clear ? chance(suspect.wrong) : `no. ${count(suspect.rank)}`);

function makeCard(suspect) {
  const sure = suspect.suggestion !== suspect.given;
  const card = make("li", { class: "card", "data-at": suspect.at });
  const sight = make("div", { class: "sight" });
  if (suspect.picture) {
    const picture = make("img", { src: suspect.picture, alt: "", decoding: "async", draggable: "false" });
    picture.addEventListener("load", () => picture.classList.toggle("tiny", Math.max(picture.naturalWidth, picture.naturalHeight) < 64));
    sight.append(picture);
  } else if (suspect.features?.length) {
    const cell = (tag, text) => make(tag, { title: shown(text), scope: tag === "th" && "row" }, make("bdi", {}, shown(text)));
    sight.append(make("table", {}, ...suspect.features.map(([name, value]) => make("tr", {}, cell("th", name), cell("td", value)))));
  } else sight.append(make("p", { class: "small" }, "no picture"));
  const name = (label) => make("bdi", { title: nameOf(label) }, nameOf(label));
  const labels = make(
    "dl",
    {},
    make("div", { class: "given" }, make("dt", {}, "given"), make("dd", {}, name(suspect.given))),
    make("div", { class: "seems" }, make("dt", {}, "seems"), make("dd", {}, sure ? name(suspect.suggestion) : "none clearly")),
  );
  const buttons = make("div", { class: "buttons" });
  for (const [act, word, title, enabled] of [
    ["accept", "Accept", `Accept the suggestion: ${nameOf(suspect.suggestion)} (Enter)`, sure],
    ["keep", "Keep", `Keep the given label: ${nameOf(suspect.given)} (Space)`, true],
    ["other", "Other", "Choose another class (o)", true],
    ["skip", "Skip", "Skip: cannot say (s)", true],
  ]) {
    const button = make("button", { type: "button", "data-act": act, title, disabled: enabled ? undefined : "" }, word);
    button.addEventListener("click", (event) => {
      event.stopPropagation();
      gallery.go(gallery.items.indexOf(suspect), false);
      if (button.getAttribute("aria-pressed") === "true" && act !== "other") takeBack(suspect);
      else judge(act, true);
    });
    buttons.append(button);
  }
  const meaning = about.clear ? "how likely the given label is wrong" : "its rank: no. 1 is the most suspicious";
  const odds = make("span", { class: "chance", title: meaning }, doubt(suspect));
  const id = make("bdi", { title: shown(suspect.id) }, shown(suspect.id));
  card.append(sight, make("p", { class: "id" }, id, odds), labels, make("p", { class: "verdict" }), buttons);
  card.addEventListener("click", () => gallery.go(gallery.items.indexOf(suspect), false));
  return card;
}

function dressCard(card, suspect) {
  const verdict = review.of(suspect);
  const words = verdict && ({ kept: "kept as given", skipped: "skipped" }[verdict.kind] ?? `now ${nameOf(verdict.label)}`);
  card.dataset.state = verdict?.kind ?? "open";
  card.querySelector(".verdict").textContent = words ?? "";
  const pressed = { accepted: "accept", kept: "keep", other: "other", skipped: "skip" }[verdict?.kind];
  for (const button of card.querySelectorAll("button")) button.setAttribute("aria-pressed", button.dataset.act === pressed);
  const seems = suspect.suggestion === suspect.given ? "no other class clearly" : nameOf(suspect.suggestion);
  card.setAttribute(
    "aria-label",
    `${shown(suspect.id)}: given ${nameOf(suspect.given)}, seems ${seems}, ${doubt(suspect)}${about.clear ? " likely wrong" : ""}, ${words ?? "open"}`,
  );
}
