import type { HttpBindings } from '@hono/node-server';

/** Hono's environment: Node's request and response, absent when the app is called in process. */
export type RequestEnv = { Bindings: Partial<HttpBindings> };
