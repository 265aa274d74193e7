// Exports the last moments as a file: start, progress, cancel.

import { byId, save } from "../dom.js";

let ending = null; // cancels the current export
let shown = null; // its button

/** The progress of the video. */
export function showProgress({ done, of }) {
  if (shown) shown.textContent = `${Math.floor((100 * done) / of)} % – cancel`;
}

/** The button of an export: starts it, and cancels it while it runs. */
export function keepAs(format, session, complain) {
  const button = byId(`save-${format}`);
  const words = button.textContent;
  button.addEventListener("click", async () => {
    if (button === shown) {
      ending.abort();
      return;
    }
    if (shown) {
      complain("Another export is running: wait for it, or cancel it.");
      return;
    }
    ending = new AbortController();
    shown = button;
    button.textContent = "making – cancel";
    try {
      const query = new URLSearchParams({ session: session(), format, seconds: byId("seconds").value });
      const answer = await fetch(`/api/export?${query}`, { signal: ending.signal });
      if (!answer.ok) throw new Error((await answer.json()).error);
      save(await answer.blob(), /filename="([^"]+)"/.exec(answer.headers.get("content-disposition"))?.[1] ?? `lens.${format}`);
    } catch (error) {
      if (error.name !== "AbortError") complain(`The export failed: ${error.message}`);
    }
    shown = null;
    button.textContent = words;
  });
}
