import { Agent, request } from 'node:http';
import { setImmediate as turn, setTimeout as delay } from 'node:timers/promises';

const TIMEOUT_MS = 15_000;

export type PaceOptions = {
  /** Of one API, without a path. */
  url: string;
  apiKey: string;
  /** JSON bodies for POST /ingest, sent in turns. */
  bodies: readonly Uint8Array[];
  requestsPerSecond: number;
  seconds: number;
  /** Requests under way at once; one that is due beyond it is left out and counted. */
  inFlightMax: number;
};

export type PaceResult = {
  sent: number;
  leftOut: number;
  /** Answers by status and error code, such as `200` and `429 BACKPRESSURE`; `0` for a broken connection. */
  answers: Record<string, number>;
  /** `Retry-After` of the answers that were not 200, in seconds; `NaN` where there was none. */
  retryAfterS: number[];
  /** Of each 200: when it was due, counted from the first request, and from then to the end of the answer. */
  acknowledged: { dueMs: number; tookMs: number }[];
  /** When the first request that was refused with 429 was due. */
  firstRefusedMs: number | undefined;
};

type Answer = { status: number; code: string; retryAfterS: number };

/** Open loop: a request is due by the clock, whether or not the ones before are answered. */
export async function sendPaced(options: PaceOptions): Promise<PaceResult> {
  const { bodies, requestsPerSecond, seconds, inFlightMax } = options;
  const agent = new Agent({ keepAlive: true, maxSockets: inFlightMax });
  const result: PaceResult = {
    sent: 0,
    leftOut: 0,
    answers: {},
    retryAfterS: [],
    acknowledged: [],
    firstRefusedMs: undefined,
  };
  const inFlight = new Set<Promise<void>>();
  const startedAt = performance.now();
  const count = Math.round(requestsPerSecond * seconds);
  for (let index = 0; index < count; index += 1) {
    const dueAt = startedAt + (index * 1_000) / requestsPerSecond;
    const earlyMs = dueAt - performance.now();
    await (earlyMs > 0 ? delay(earlyMs) : turn());
    if (inFlight.size >= inFlightMax) {
      result.leftOut += 1;
      continue;
    }
    const body = bodies[index % bodies.length];
    if (body === undefined) throw new RangeError('expected at least one body');
    result.sent += 1;
    const sending = post(options, agent, body).then((answer) =>
      note(result, answer, { dueMs: dueAt - startedAt, tookMs: performance.now() - dueAt }),
    );
    inFlight.add(sending);
    void sending.finally(() => inFlight.delete(sending));
  }
  await Promise.all(inFlight);
  agent.destroy();
  return result;
}

function note(
  result: PaceResult,
  { status, code, retryAfterS }: Answer,
  timing: PaceResult['acknowledged'][number],
): void {
  const name = code === '' ? String(status) : `${status} ${code}`;
  result.answers[name] = (result.answers[name] ?? 0) + 1;
  if (status === 429) result.firstRefusedMs ??= timing.dueMs;
  if (status === 200) result.acknowledged.push(timing);
  else if (status !== 0) result.retryAfterS.push(retryAfterS);
}

/** Never rejects: a connection that breaks is an answer too. */
async function post({ url, apiKey }: PaceOptions, agent: Agent, body: Uint8Array): Promise<Answer> {
  const { promise, resolve } = Promise.withResolvers<Answer>();
  const headers = {
    'X-API-Key': apiKey,
    'Content-Type': 'application/json',
    'Content-Length': body.length,
  };
  const broken: Answer = { status: 0, code: '', retryAfterS: Number.NaN };
  const options = { method: 'POST', agent, headers, timeout: TIMEOUT_MS };
  const call = request(`${url}/api/v1/ingest`, options, (answer) => {
    let text = '';
    answer.setEncoding('utf8').on('data', (part: string) => {
      text += part;
    });
    answer.on('error', () => resolve(broken));
    answer.on('end', () => {
      const status = answer.statusCode ?? 0;
      const retryAfterS = Number(answer.headers['retry-after'] ?? Number.NaN);
      resolve({ status, code: status === 200 ? '' : readCode(text), retryAfterS });
    });
  });
  call.on('timeout', () => call.destroy());
  call.on('error', () => resolve(broken));
  call.end(body);
  return promise;
}

function readCode(text: string): string {
  return /"code":\s*"([A-Z_]+)"/.exec(text)?.[1] ?? '';
}
