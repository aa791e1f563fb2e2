import { useId, useRef, useState, type CSSProperties, type ReactElement } from "react";
import { offsetOf, type Mark } from "../resource/template-text";
import { t } from "../text/text";

type Props = { label: string; value: string; onChange: (value: string) => void; marks: Mark[] };

const [minRows, maxRows] = [8, 24];

// CodeArea is a text area with numbered lines. An error stands at its line, and in a list that leads there.
export function CodeArea({ label, value, onChange, marks }: Props): ReactElement {
  const id = useId();
  const area = useRef<HTMLTextAreaElement>(null);
  const [top, setTop] = useState(0);
  const count = value.split("\n").length;
  const rows = Math.min(Math.max(count + 2, minRows), maxRows);
  const numbers = Array.from({ length: count }, (_, i) => i + 1).join("\n");
  const jump = (mark: Mark): void => {
    const at = offsetOf(value, mark);
    area.current?.focus();
    area.current?.setSelectionRange(at, at);
    if (area.current) area.current.scrollTop = ((mark.line - rows / 2) / count) * area.current.scrollHeight;
  };
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <div className="code-area">
        <div className="lines" aria-hidden="true">
          <div style={{ transform: `translateY(${-top}px)` }}>
            <pre>{numbers}</pre>
            {marks.map((m) => (
              <p key={`${m.line} ${m.column} ${m.message}`} className="mark" style={{ "--line": m.line - 1 } as CSSProperties}><span>{m.message}</span></p>
            ))}
          </div>
        </div>
        <textarea
          id={id} ref={area} rows={rows} wrap="off" spellCheck={false} value={value}
          aria-invalid={marks.length > 0 || undefined} aria-describedby={marks.length ? `${id}-marks` : undefined}
          onChange={(event) => onChange(event.target.value)} onScroll={(event) => setTop(event.currentTarget.scrollTop)}
        />
      </div>
      {marks.length > 0 && (
        <ul id={`${id}-marks`} className="marks" role="alert">
          {marks.map((m) => (
            <li key={`${m.line} ${m.column} ${m.message}`}>
              <button type="button" onClick={() => jump(m)}>{t("Line {line}, column {column}:", { line: m.line, column: m.column })}</button> {m.message}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
