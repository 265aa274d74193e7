// Where pages get their data from: the server they came from, and nowhere else.

export async function get(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) query.append(name, one);
  }
  const answer = await fetch(`${path}?${query}`, { credentials: "same-origin" });
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({}));
    throw new Error(body.error ?? `the server answered with ${answer.status}`);
  }
  return answer.json();
}

export const socketAddress = (path) => `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`;

const decoder = new TextDecoder();

/** Rows of runs as they change, for as long as the page is open. `tell(message)`; `state("live" | "lost")`. */
export function watchRuns(tell, state) {
  let wait = 500;
  const connect = () => {
    const socket = new WebSocket(socketAddress("/ws/runs"));
    socket.binaryType = "arraybuffer";
    let first = true;
    socket.onmessage = (event) => {
      const message = JSON.parse(decoder.decode(event.data));
      wait = 500;
      state("live");
      tell(message, first);
      first = false;
    };
    socket.onclose = () => {
      state("lost");
      setTimeout(connect, wait);
      wait = Math.min(wait * 2, 10_000);
    };
  };
  connect();
}

/** The sign in the bar above that tells whether what is shown is live. */
export function showLink(node) {
  const words = { live: "live", lost: "no connection", waiting: "connecting" };
  return (state) => {
    node.dataset.state = state;
    node.textContent = words[state];
  };
}
