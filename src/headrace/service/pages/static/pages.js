// Optional behaviour of the pages: parts that reload (and can be paused), and output that is followed. Without scripts
// the pages have the same contents, as of the time when they were loaded.
"use strict";

let live = true;

// Live parts (hx-trigger "every") are not reloaded while the page is hidden or paused.
document.addEventListener("htmx:before:request", (event) => {
  if (event.target.matches('[hx-trigger^="every"]') && (document.hidden || !live)) event.preventDefault();
});

const button = document.getElementById("live");
if (button) {
  button.hidden = false;
  button.addEventListener("click", () => {
    live = !live;
    button.setAttribute("aria-pressed", String(live));
  });
}

const all = document.getElementById("all");
if (all) {
  all.hidden = false;
  all.addEventListener("change", () => {
    for (const box of document.querySelectorAll('input[name="job"]')) box.checked = all.checked;
  });
}

const written = document.getElementById("written");
if (written && written.dataset.follow) {
  const source = new EventSource(written.dataset.follow);
  // The unfinished line of each writer.
  const lines = new Map();
  for (const line of written.querySelectorAll("[data-writer]")) lines.set(line.dataset.writer, line);
  const spanOf = (style) => {
    const span = document.createElement("span");
    span.className = style;
    return span;
  };
  const show = (span, runs) => {
    if (!span.isConnected) written.append(span);
    span.replaceChildren(
      ...runs.map(([style, text]) => {
        const run = spanOf(style);
        run.textContent = text;
        return run;
      }),
    );
  };
  source.addEventListener("message", (event) => {
    const piece = JSON.parse(event.data);
    const atEnd = written.scrollTop + written.clientHeight >= written.scrollHeight - 8;
    let line = lines.get(piece.writer) || spanOf(piece.stream);
    if (piece.done.length) {
      show(line, piece.done);
      line = spanOf(piece.stream);
    }
    if (piece.line.length) show(line, piece.line);
    else line.remove();
    lines.set(piece.writer, line);
    written.hidden = false;
    const nothing = document.getElementById("nothing");
    if (nothing) nothing.remove();
    if (atEnd) written.scrollTop = written.scrollHeight;
  });
  source.addEventListener("end", () => source.close());
}
if (written) written.scrollTop = written.scrollHeight;
