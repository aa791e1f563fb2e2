// What the editor of templates knows of their texts.

export type Mark = { line: number; column: number; message: string };

// marksOf returns the errors in a message of the API: "line 1, column 3: …; line 2, column 1: …".
export function marksOf(message: string): Mark[] {
  const found = message.matchAll(/(?:^|; )line (\d+), column (\d+): (.*?)(?=; line \d+, column \d+: |$)/gs);
  return Array.from(found, ([, line, column, text]) => ({ line: Number(line), column: Number(column), message: text! }));
}

// offsetOf returns where a mark is in a text. Columns count characters, as people do.
export function offsetOf(text: string, { line, column }: Mark): number {
  const lines = text.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, l) => sum + l.length + 1, 0);
  return Math.min(before + Array.from(lines[line - 1] ?? "").slice(0, column - 1).join("").length, text.length);
}

// actionOf returns what shows a variable in a template. A variable of a list is within a loop: .Drivers[].Name.
export function actionOf(variable: string): string {
  const [list, member] = variable.split("[]");
  return member === undefined ? `{{${variable}}}` : `{{range ${list}}}{{${member || "."}}}{{end}}`;
}

export type Line = { kind: "same" | "before" | "after" | "gap"; text: string };

const maxCells = 4_000_000; // of the table of diff: 2,000 changed lines on both sides

// diff returns the lines of two texts with what was removed and added, and some lines around that.
export function diff(before: string, after: string, around = 3): Line[] {
  const [a, b] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const lines: Line[] = [
    ...a.slice(0, start).map((text): Line => ({ kind: "same", text })),
    ...middle(a.slice(start, a.length - end), b.slice(start, b.length - end)),
    ...a.slice(a.length - end).map((text): Line => ({ kind: "same", text })),
  ];
  const isNear = lines.map((_, i) => lines.slice(Math.max(i - around, 0), i + around + 1).some((l) => l.kind !== "same"));
  return lines.flatMap((line, i) => (isNear[i] ? [line] : i === 0 || isNear[i - 1] ? [{ kind: "gap", text: "…" } as Line] : []));
}

// middle compares lines by their longest common subsequence.
function middle(a: string[], b: string[]): Line[] {
  const removed = a.map((text): Line => ({ kind: "before", text }));
  const added = b.map((text): Line => ({ kind: "after", text }));
  const width = b.length + 1;
  if (a.length === 0 || b.length === 0 || (a.length + 1) * width > maxCells) return [...removed, ...added];
  const common = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const [down, right] = [common[(i + 1) * width + j]!, common[i * width + j + 1]!];
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1]! + 1 : Math.max(down, right);
    }
  }
  const lines: Line[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ kind: "same", text: a[i]! });
      i++;
      j++;
    } else if (j >= b.length || (i < a.length && common[(i + 1) * width + j]! >= common[i * width + j + 1]!)) lines.push(removed[i++]!);
    else lines.push(added[j++]!);
  }
  return lines;
}
