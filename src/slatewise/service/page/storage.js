/* Browser storage that may be missing or full: then things are kept as long as the page. */

/** Wrap a storage; `find` returns it, or throws where the browser forbids it. */
export function kept(find) {
  const memory = new Map();
  const storage = found(find);
  return {
    get: (name) => (memory.has(name) ? memory.get(name) : (storage?.getItem(name) ?? null)),
    set: (name, text) => {
      try {
        storage.setItem(name, text);
        memory.delete(name);
      } catch {
        memory.set(name, text);
      }
    },
    remove: (name) => {
      memory.delete(name);
      storage?.removeItem(name);
    },
    names: () => [...new Set([...memory.keys(), ...Object.keys(storage ?? {})])],
  };
}

/** What stays when the page is closed. */
export const browser = kept(() => localStorage);

/** An id that nobody else has; works without a secure context too. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");
}

/** Run a task while no other tab runs one of the same name, where the browser can promise that. */
export function withLock(name, task) {
  return navigator.locks ? navigator.locks.request(`slatewise.${name}`, task) : task();
}

function found(find) {
  try {
    return find();
  } catch {
    return null;
  }
}
