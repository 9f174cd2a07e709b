import { Agent, request } from 'node:http';
import type { Credentials } from '../system/support/installation.ts';

const TIMEOUT_MS = 30_000;
const SOCKETS_MAX = 64;

/** A client of one project over kept connections, cheap enough for a load generator beside the product. */
export class ApiClient implements Disposable {
  readonly #agent = new Agent({ keepAlive: true, maxSockets: SOCKETS_MAX });
  readonly #credentials: Credentials;

  constructor(credentials: Credentials) {
    this.#credentials = credentials;
  }

  /** POST /ingest. @returns the number of entries acknowledged. @throws {Error} on any answer but 200. */
  async ingest(body: Buffer): Promise<number> {
    const text = await this.#send('POST', '/ingest', body);
    return (JSON.parse(text) as { received: number }).received;
  }

  /** GET a path of the API. @throws {Error} on any answer but 200. */
  async get<T>(path: string, params: Record<string, string>): Promise<T> {
    const text = await this.#send('GET', `${path}?${new URLSearchParams(params).toString()}`);
    return JSON.parse(text) as T;
  }

  async #send(method: 'GET' | 'POST', path: string, body?: Buffer): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const headers: Record<string, string | number> = { 'X-API-Key': this.#credentials.apiKey };
    if (body !== undefined) {
      headers['Content-Type'] = 'application/json';
      headers['Content-Length'] = body.length;
    }
    const url = `${this.#credentials.baseUrl}${path}`;
    const call = request(url, { method, agent: this.#agent, headers, timeout: TIMEOUT_MS }, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (part: string) => {
        text += part;
      });
      answer.on('error', reject).on('end', () => {
        if (answer.statusCode === 200) resolve(text);
        else reject(new Error(`expected 200 of ${method} ${path}, got ${answer.statusCode}: ${text}`));
      });
    });
    call.on('timeout', () => call.destroy(new Error(`${method} ${path}: no answer within ${TIMEOUT_MS} ms`)));
    call.on('error', reject);
    call.end(body);
    return promise;
  }

  [Symbol.dispose](): void {
    this.#agent.destroy();
  }
}
