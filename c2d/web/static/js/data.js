// Pages get their data from the server they came from, and from nowhere else.

export async function get(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) query.append(name, one);
  }
  const answer = await fetch(`${path}?${query}`, { credentials: "same-origin" });
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({}));
    throw new Error(body.error ?? `the server responded with ${answer.status}`);
  }
  return answer.json();
}

export const socketAddress = (path) => `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`;

const decoder = new TextDecoder();

const FIRST_WAIT = 300; // ms before reconnecting
const LONGEST_WAIT = 2_000;

/** A WebSocket that stays open as long as the page: `begin(socket)` sets its handlers after every connection. */
export function keepConnected(path, begin, lost) {
  let wait = FIRST_WAIT;
  const connect = () => {
    const socket = new WebSocket(socketAddress(path));
    socket.binaryType = "arraybuffer";
    begin(socket);
    socket.addEventListener("message", () => { wait = FIRST_WAIT; }, { once: true });
    socket.addEventListener("close", (event) => {
      lost(event);
      setTimeout(connect, wait);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    });
  };
  connect();
}

/** Rows of runs as they change, for as long as the page is open. `tell(message)`; `state("live" | "lost")`. */
export function watchRuns(tell, state) {
  keepConnected("/ws/runs", (socket) => {
    let first = true;
    socket.onmessage = (event) => {
      const message = JSON.parse(decoder.decode(event.data));
      state("live");
      tell(message, first);
      first = false;
    };
  }, () => state("lost"));
}

/** The indicator in the bar that shows whether the data are live. */
export function showLink(node) {
  const words = { live: "live", lost: "no connection", waiting: "connecting" };
  return (state) => {
    node.dataset.state = state;
    node.textContent = words[state];
  };
}
