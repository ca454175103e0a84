// The page: what it says, and what its buttons and keys do.

const $ = (id) => document.getElementById(id);
const about = JSON.parse($("about").textContent);
const suspects = JSON.parse($("suspects").textContent).map(([at, id, given, suggestion, wrong, picture, features]) => ({
  ...{ at, id, given, suggestion, wrong, picture, features },
  text: [id, about.classes[given], about.classes[suggestion]].join("\n").toLowerCase(),
}));
suspects.sort((a, b) => b.wrong - a.wrong); // stable: equal ones stay as they came
suspects.forEach((suspect, place) => (suspect.rank = place + 1));
const byPosition = new Map(suspects.map((suspect) => [suspect.at, suspect]));
for (const id of ["about", "suspects"]) $(id).remove();

const CHECKED = 50; // verdicts from which their precision is told
const WORDS = { accepted: "accepted", other: "other class", kept: "kept", skipped: "skipped" };

const review = new Review(about, suspects);
const gallery = new Gallery($("gallery"), makeCard, dressCard);
const matrix = new Matrix($("matrix"), $("pair"), about.classes, choosePair);
const view = { pair: null, search: "", state: "", sort: "wrong", threshold: about.above[50] > 0 ? 0.5 : 0 };
const nameOf = (label) => shown(about.classes[label]);

// ---- what is said

function say(text) {
  const status = $("status");
  status.textContent = text;
  status.classList.add("on");
  clearTimeout(say.timer);
  say.timer = setTimeout(() => status.classList.remove("on"), 5000);
}

function complain(text) {
  $("notice").hidden = !text;
  $("notice").firstElementChild.textContent = text;
}

function introduce() {
  const { title, total, flagged, rate, low, high, clear, command } = about;
  const [from, to] = [percent(low).replace("\u00a0%", ""), percent(high)];
  $("title").append(make("bdi", {}, shown(title)));
  $("estimate").textContent = clear
    ? `About ${percent(rate)} of ${several(total, "label")} are wrong (${from} to ${to}).`
    : `How many of ${several(total, "label")} are wrong cannot be told clearly (estimates: ${from} to ${to}, none of them sure).`;
  $("estimate").classList.toggle("unclear", !clear);
  const guess = flagged ? `${several(flagged, "label is", "labels are")} flagged, on a guess` : "No label is flagged";
  const looks = clear ? `${several(flagged, "label looks", "labels look")} wrong` : guess;
  const here = suspects.length < total ? `the ${count(suspects.length)} most suspicious are` : "all are";
  $("scope").textContent = `${looks}; ${here} on this page, the whole list in labels.csv.`;
  if (!clear) $("scope").append(" Review by rank: the most suspicious first, as far as it pays.");
  if (!clear) $("least").textContent = "Show labels with at least this score, which is not a probability";
  $("command").textContent = shown(command);
  if (about.curves.length && about.epochs.length > 1) drawCurves($("curves"), about.epochs, about.curves);
  else $("run").hidden = true;
}

function inScope() {
  return suspects.filter(({ wrong }) => wrong >= view.threshold);
}

function tellProgress() {
  const scope = inScope();
  const counts = review.count(scope);
  const done = KINDS.reduce((sum, kind) => sum + counts[kind], 0);
  const parts = KINDS.filter((kind) => counts[kind]).map((kind) => `${count(counts[kind])} ${WORDS[kind]}`);
  const words = ["reviewed", ...parts].join(", ").replace(",", ":");
  $("progress").replaceChildren(make("b", {}, `${count(done)} of ${count(scope.length)}`), ` ${words}`);
  $("track").replaceChildren(
    ...KINDS.map((kind) => {
      const part = make("span", { class: kind });
      part.style.width = `${(100 * counts[kind]) / Math.max(1, scope.length)}%`;
      return part;
    }),
  );
  $("export").textContent = review.size ? `Export ${count(review.size)}` : "Export";
  $("export").disabled = !review.size;
  $("unkept").hidden = review.kept;
  tellPrecision();
}

function tellPrecision() {
  const checked = suspects.filter((suspect) => !["skipped", undefined].includes(review.of(suspect)?.kind));
  const wrong = checked.filter((suspect) => review.of(suspect).kind !== "kept").length;
  const expected = checked.reduce((sum, suspect) => sum + suspect.wrong, 0) / checked.length;
  if (checked.length < CHECKED) {
    const more = `${several(CHECKED - checked.length, "verdict")} more, and this line tells how precise the list is.`;
    $("found").textContent = checked.length ? more : "";
    return;
  }
  const [share, low, high] = wilson(wrong, checked.length).map(percent);
  const interval = `${low.replace("\u00a0%", "")} to ${high}`;
  $("found").textContent =
    `Of ${count(checked.length)} checked, ${count(wrong)} were wrong: precision ${share} (${interval})` +
    (about.clear ? `; ${percent(expected)} was expected.` : ".");
}

function tellThreshold() {
  const at = Math.round(100 * view.threshold);
  $("threshold").value = at;
  $("percent").textContent = `${at}\u00a0%`;
  const labels = several(about.above[at], "label is", "labels are");
  const expected = `about ${count(Math.round(about.expected[at]))} of them really wrong, by estimate`;
  $("above").textContent = `${labels} at or above it; ${about.clear ? expected : "how many of them are wrong cannot be told"}.`;
}

// ---- acts

/** A verdict on the current suspect, if it is in sight, and on to the next. */
function judge(act, seen = gallery.inSight) {
  const suspect = gallery.items[gallery.current];
  if (!suspect) return;
  if (!seen) return gallery.go(gallery.current);
  if (act === "other") return askOther(suspect);
  if (act === "accept" && suspect.suggestion === suspect.given) return say("No class is suggested here: keep the label, or choose another.");
  if (act === "accept") review.choose(suspect, suspect.suggestion);
  if (act === "keep") review.choose(suspect, suspect.given);
  if (act === "skip") review.give([[suspect, "skipped", -1]]);
  judged();
}

function judged() {
  const suspect = gallery.items[gallery.current];
  gallery.dress(gallery.current);
  tellProgress();
  if (view.state && !matches(suspect)) refresh(gallery.items[gallery.current + 1]);
  else gallery.move(1);
}

function takeBack(suspect) {
  review.give([[suspect]]);
  refresh();
}

function undo() {
  const places = review.undo();
  if (!places.length) return say("Nothing to undo.");
  const suspect = byPosition.get(places[0]);
  refresh(suspect);
  if (gallery.items.includes(suspect)) gallery.go(gallery.items.indexOf(suspect));
  say(places.length > 1 ? `${several(places.length, "verdict")} taken back.` : "Taken back.");
}

let asked = null;

function askOther(suspect) {
  asked = suspect;
  $("asked").replaceChildren(gallery.cards.get(gallery.current).querySelector(".sight").cloneNode(true));
  $("type").value = "";
  listChoices();
  $("other").showModal();
  $("type").focus();
}

function listChoices() {
  const typed = $("type").value.toLowerCase();
  const found = about.classes.map((name, label) => [name, label]).filter(([name]) => name.toLowerCase().includes(typed));
  const role = (label) => (label === asked.given ? "given" : label === asked.suggestion ? "suggested" : "");
  const likely = { suggested: 1, given: -1, "": 0 }; // Enter takes the first
  const rank = ([name, label]) => (typed ? name.toLowerCase().startsWith(typed) : likely[role(label)]);
  found.sort((a, b) => rank(b) - rank(a));
  const option = ([name, label]) => make("option", { value: label }, shown(name) + (role(label) && ` (${role(label)})`));
  $("choices").replaceChildren(...found.map(option));
  $("choices").selectedIndex = 0;
}

function chooseOther() {
  if ($("choices").value === "") return;
  const label = Number($("choices").value);
  $("other").close();
  review.choose(asked, label);
  judged();
}

function choosePair(pair) {
  const same = pair && view.pair && pair.given === view.pair.given && pair.suggestion === view.pair.suggestion;
  view.pair = same ? null : pair;
  refresh(null);
}

function exportCorrections() {
  const address = URL.createObjectURL(new Blob([review.export()], { type: "text/csv;charset=utf-8" }));
  make("a", { href: address, download: "corrections.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
  review.exported = true;
  say(`corrections.csv holds ${several(review.size, "verdict")}.`);
}

async function importCorrections(file) {
  try {
    const { taken, elsewhere, unknown, senseless } = review.import(await file.text());
    const notes = [`${several(taken, "verdict")} taken in.`];
    if (elsewhere) notes.push(`${several(elsewhere, "row is", "rows are")} not on this page: kept, and exported again.`);
    if (unknown) notes.push(`${several(unknown, "id is", "ids are")} not among these labels: left out.`);
    if (senseless) notes.push(`${several(senseless, "row makes", "rows make")} no sense here: left out.`);
    complain(unknown + senseless ? notes.join(" ") : "");
    say(notes.join(" "));
    refresh();
  } catch (error) {
    complain(error.message);
  }
}

// ---- the view

function matches(suspect) {
  const { pair, search, state, threshold } = view;
  return (
    suspect.wrong >= threshold &&
    (!pair || (suspect.given === pair.given && suspect.suggestion === pair.suggestion)) &&
    (!search || suspect.text.includes(search)) &&
    (!state || (review.of(suspect)?.kind ?? "open") === state)
  );
}

const ORDERS = {
  given: (a, b) => a.given - b.given,
  suggestion: (a, b) => a.suggestion - b.suggestion,
  file: (a, b) => a.at - b.at,
};

/** Everything anew after a change of the view; null: begin with the first suspect. */
function refresh(keep) {
  const found = suspects.filter(matches);
  if (view.sort !== "wrong") found.sort(ORDERS[view.sort]);
  if (keep === null) gallery.current = 0;
  gallery.show(found, keep === null ? found[0] : keep);
  matrix.draw(inScope(), view.pair && `${view.pair.suggestion} ${view.pair.given}`);
  $("empty").hidden = found.length > 0;
  $("clear").hidden = !view.pair;
  if (view.pair) $("clear").textContent = `✕ ${nameOf(view.pair.suggestion)} given as ${nameOf(view.pair.given)}`;
  tellThreshold();
  tellProgress();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = theme === "dark" ? "Light" : "Dark";
}

// ---- wiring

const KEYS = {
  j: () => gallery.move(1),
  k: () => gallery.move(-1),
  ArrowRight: () => gallery.move(1),
  ArrowLeft: () => gallery.move(-1),
  ArrowDown: () => gallery.move(0, 1),
  ArrowUp: () => gallery.move(0, -1),
  a: () => judge("accept"),
  Enter: () => judge("accept"),
  x: () => judge("keep"),
  " ": () => judge("keep"),
  o: () => judge("other"),
  s: () => judge("skip"),
  u: undo,
  "?": () => $("help").showModal(),
  "/": () => $("search").focus(),
  Escape: () => view.pair && choosePair(null),
};

document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
  const slider = target.id === "threshold" && /^[a-z?/]$/i.test(key); // it has no use for letters
  if (target.closest("input, select") && key !== "Escape" && !slider) return;
  if (["Enter", " "].includes(key) && target.closest("button, summary, a")) return; // their own
  const act = KEYS[key.length === 1 ? key.toLowerCase() : key];
  if (!act) return;
  event.preventDefault();
  act();
});

for (const name of ["search", "state", "sort"]) {
  $(name).addEventListener("input", () => {
    view[name] = name === "search" ? $(name).value.trim().toLowerCase() : $(name).value;
    refresh(null);
  });
}
let pointed = false; // at a list of options: whoever chose from it by mouse goes on with keys that are not for the list
addEventListener("pointerdown", () => (pointed = true), true);
addEventListener("keydown", () => (pointed = false), true);
for (const name of ["state", "sort"]) $(name).addEventListener("change", () => pointed && $(name).blur());
$("search").addEventListener("keydown", (event) => event.key === "Enter" && gallery.go(gallery.current));
$("threshold").addEventListener("input", () => {
  view.threshold = Number($("threshold").value) / 100;
  requestAnimationFrame(() => refresh(null));
});
$("clear").addEventListener("click", () => choosePair(null));
$("keys").addEventListener("click", () => $("help").showModal());
$("export").addEventListener("click", exportCorrections);
$("import").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", async () => {
  if ($("file").files.length) await importCorrections($("file").files[0]);
  $("file").value = ""; // so that the same file can be chosen again
});
$("notice").querySelector("button").addEventListener("click", () => complain(""));
$("type").addEventListener("input", listChoices);
$("type").addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const choices = $("choices");
  choices.selectedIndex = Math.max(0, Math.min(choices.selectedIndex + step, choices.length - 1));
});
$("choices").addEventListener("dblclick", chooseOther);
$("other").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.target.closest("button")) return;
  event.preventDefault();
  chooseOther();
});
$("other").querySelector("[value=choose]").addEventListener("click", chooseOther);
for (const button of document.querySelectorAll("dialog [value=cancel]")) {
  button.addEventListener("click", () => button.closest("dialog").close());
}

addEventListener("dragover", (event) => {
  if (!event.dataTransfer.types.includes("Files")) return;
  event.preventDefault();
  document.body.classList.add("dropping");
});
addEventListener("dragleave", (event) => event.relatedTarget ?? document.body.classList.remove("dropping"));
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  if (event.dataTransfer.files.length) importCorrections(event.dataTransfer.files[0]);
});

addEventListener("storage", (event) => {
  if (event.key !== review.key) return;
  review.load(); // another window's verdicts
  refresh();
});
addEventListener("beforeunload", (event) => {
  if (!review.kept && !review.exported && review.size) event.preventDefault();
});
addEventListener("beforeprint", () => {
  for (const panel of document.querySelectorAll("details")) panel.open = true;
  gallery.print(true);
});
addEventListener("afterprint", () => gallery.print(false));

$("theme").addEventListener("click", () => {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  setTheme(theme);
  try {
    localStorage.setItem("sprl:theme", theme);
  } catch {} // then it is asked again
});
let theme = null;
try {
  theme = localStorage.getItem("sprl:theme");
} catch {} // then as the system has it
setTheme(theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));

if (matchMedia("(max-width: 900px)").matches) for (const panel of document.querySelectorAll("aside details")) panel.open = false;
introduce();
refresh(null);
