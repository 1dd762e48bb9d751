/** What the worker thread runs: the module here; in the bundle, its whole program as a text. */
export const workerCode: string | URL = new URL("./worker.ts", import.meta.url)
