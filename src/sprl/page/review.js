// The person's verdicts: given, taken back, kept by the browser, counted.

const KINDS = ["accepted", "other", "kept", "skipped"];

class Review {
  constructor(about, suspects) {
    this.about = about;
    this.suspects = suspects;
    this.key = `sprl:${about.run}:${about.labels}`;
    this.verdicts = new Map(); // position → { kind, label }, label being a class's number, or -1
    this.elsewhere = new Map(); // rows of imported files that are not on this page, as they stood there
    this.past = []; // what each act replaced, and by what: [position, verdict, verdict][]
    this.kept = this.write("sprl:trial", ""); // by the browser; not tried with the verdicts, as those of a moment ago may still be on their way
    this.exported = true;
    this.load();
  }

  load() {
    try {
      const { verdicts, elsewhere } = JSON.parse(localStorage.getItem(this.key) ?? '{"verdicts":[],"elsewhere":[]}');
      this.verdicts = new Map(verdicts.map(([at, kind, label]) => [at, { kind, label }]));
      this.elsewhere = new Map(elsewhere.map((row) => [row[0], row]));
    } catch {
      // forbidden, or not ours
    }
  }

  save() {
    const verdicts = [...this.verdicts].map(([at, { kind, label }]) => [at, kind, label]);
    this.kept = this.write(this.key, JSON.stringify({ verdicts, elsewhere: [...this.elsewhere.values()] }));
  }

  write(key, text) {
    try {
      localStorage.setItem(key, text);
      return true;
    } catch {
      return false;
    }
  }

  of(suspect) {
    return this.verdicts.get(suspect.at);
  }

  /** Verdicts [suspect, kind, label] as one act that can be undone; the kind undefined takes one back. */
  give(acts) {
    this.past.push(acts.map(([suspect, kind, label]) => [suspect.at, this.of(suspect), kind && { kind, label }]));
    for (const [at, , after] of this.past.at(-1)) this.set(at, after);
    this.exported = false;
    this.save();
  }

  /** The verdict that a class means for a suspect. */
  choose(suspect, label) {
    this.give([[suspect, label === suspect.given ? "kept" : label === suspect.suggestion ? "accepted" : "other", label]]);
  }

  /** Positions whose verdicts are as before the last act; what another window has changed since stays. */
  undo() {
    const act = (this.past.pop() ?? []).filter(([at, , after]) => JSON.stringify(this.verdicts.get(at)) === JSON.stringify(after));
    for (const [at, before] of act) this.set(at, before);
    this.exported = false;
    this.save();
    return act.map(([at]) => at);
  }

  set(at, verdict) {
    if (verdict) this.verdicts.set(at, verdict);
    else this.verdicts.delete(at);
  }

  get size() {
    return this.verdicts.size + this.elsewhere.size;
  }

  export() {
    const { classes, run, labels } = this.about;
    const seen = this.suspects.filter((suspect) => this.of(suspect)).sort((a, b) => a.at - b.at);
    const rows = seen.map((suspect) => {
      const { kind, label } = this.of(suspect);
      return [suspect.id, classes[suspect.given], kind === "skipped" ? "" : classes[label], kind];
    });
    return formatCorrections(run, labels, [...rows, ...this.elsewhere.values()]);
  }

  /** Merge a file's verdicts; says how many rows were taken, are elsewhere, unknown, or make no sense. */
  import(text) {
    const { classes, run, labels, total } = this.about;
    const number = new Map(classes.map((name, i) => [name, i]));
    const here = new Map(this.suspects.map((suspect) => [suspect.id, suspect]));
    const count = { taken: 0, elsewhere: 0, unknown: 0, senseless: 0 };
    const acts = [];
    for (const row of parseCorrections(text, run, labels)) {
      const [id, given, corrected, kind] = row;
      const suspect = here.get(id);
      const changed = corrected !== given;
      const fits = { kept: !changed, skipped: corrected === "", accepted: changed, other: changed }[kind];
      if (!fits || !number.has(given) || (kind !== "skipped" && !number.has(corrected))) count.senseless++;
      else if (suspect && classes[suspect.given] !== given) count.senseless++;
      else if (suspect) {
        const label = kind === "skipped" ? -1 : number.get(corrected);
        acts.push([suspect, ["kept", "skipped"].includes(kind) ? kind : label === suspect.suggestion ? "accepted" : "other", label]);
        count.taken++;
      } else if (this.suspects.length === total) count.unknown++;
      else {
        this.elsewhere.set(id, row);
        count.elsewhere++;
      }
    }
    this.give(acts);
    return count;
  }

  count(suspects) {
    const counts = Object.fromEntries(KINDS.map((kind) => [kind, 0]));
    for (const suspect of suspects) {
      const verdict = this.of(suspect);
      if (verdict) counts[verdict.kind]++;
    }
    return counts;
  }
}

/** Of n that were checked, k were found: the share, and Wilson's interval of 90 %. */
function wilson(k, n) {
  const z = 1.645;
  const share = k / n;
  const middle = (share + (z * z) / (2 * n)) / (1 + (z * z) / n);
  const half = ((z / (1 + (z * z) / n)) * Math.sqrt((share * (1 - share)) / n + (z * z) / (4 * n * n)));
  return [share, Math.max(middle - half, 0), Math.min(middle + half, 1)];
}
