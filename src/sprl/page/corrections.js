// corrections.csv, as `sprl apply` reads it.

const HEADER = ["id", "given_label", "corrected_label", "verdict"];
const NUMBER = /^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?$/i;

/** The text as no spreadsheet runs it, as in cells.py. */
function guard(text) {
  if (NUMBER.test(text)) return text;
  return text.replace(/(^|[;\t\r\n])(?="*[=+\-@\uff1d\uff0b\uff0d\uff20]|')/g, "$1'").replace(/^(?=[\t\r\n])/, "'");
}

function unguard(cell) {
  return cell.replace(/(^|[;\t\r\n])'/g, "$1");
}

function quote(cell) {
  return /[",\r\n]/.test(cell) ? '"' + cell.replaceAll('"', '""') + '"' : cell;
}

/** The file of rows [id, given, corrected, verdict]. */
function formatCorrections(run, labels, rows) {
  const lines = rows.map((row) => row.map((text) => quote(guard(text))).join(","));
  return [`# sprl corrections, run=${run}, labels=${labels}`, HEADER.join(","), ...lines].join("\n") + "\n";
}

/** The rows of such a file, which must be of this run and these labels. */
function parseCorrections(text, run, labels) {
  const [note = [], header = [], ...rows] = parseCsv(text.replace(/^\ufeff/, ""));
  // a spreadsheet may have taken the note for cells, and filled up its line with commas
  const found = /^# sprl corrections, *run=([0-9a-f]+), *labels=([0-9a-f]+),*$/.exec(note.join(","));
  if (!found) throw new Error("This is no file of corrections: its first line does not begin with “# sprl corrections”.");
  if (found[1] !== run) throw new Error(`These corrections are of another run (${found[1]}); this page is of run ${run}.`);
  if (found[2] !== labels) throw new Error(`These corrections are of other labels (${found[2]}); this page is of ${labels}.`);
  if (header.slice(0, 4).join() !== HEADER.join()) throw new Error(`The second line must be “${HEADER.join()}”.`);
  return rows.map((row) => row.slice(0, 4).map(unguard));
}

/** Records of cells by RFC 4180; line ends of any kind, empty lines left out. */
function parseCsv(text) {
  const records = [];
  const cells = /(?:"([^"]*(?:""[^"]*)*)"|([^",\r\n][^,\r\n]*|))(,|\r\n|\n|\r|$)/y;
  let record = [];
  while (cells.lastIndex < text.length || record.length) {
    const start = cells.lastIndex;
    const match = cells.exec(text);
    if (!match) throw new Error(`The quotes in line ${text.slice(0, start).split("\n").length} do not match.`);
    record.push(match[1] === undefined ? match[2] : match[1].replaceAll('""', '"'));
    if (match[3] === ",") continue;
    if (record.length > 1 || record[0] !== "") records.push(record);
    record = [];
  }
  return records;
}
