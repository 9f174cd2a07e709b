import { waitFor } from '../support/wait.ts';
import { expectJson, openContractApi } from './contract-fixture.ts';
import type { ContractApi, TestTenant } from './contract-fixture.ts';

type Entry = {
  id: string;
  time: string;
  service: string;
  level: string;
  message: string;
  metadata: object;
  trace_id?: string;
  project_id?: string;
};
export type Page = {
  logs: Entry[];
  total: number;
  totalRelation: string;
  limit: number;
  offset: number;
  hasMore: boolean;
  nextCursor: string | null;
};
export type Counts = {
  timeseries: { bucket: string; total: number; by_level: Record<string, number> }[];
  top_services: object[];
  top_errors: object[];
};

const LEVELS = ['debug', 'info', 'warn', 'error', 'critical'];
export const TRACE = 'd1b0a1b2-1111-4222-8333-444455556666';
export const CANARY = 'canary-of-the-other-tenant';
export const baseMs = Math.floor((Date.now() - 3 * 3_600_000) / 3_600_000) * 3_600_000;
export const at = (seconds: number): string => new Date(baseMs + seconds * 1_000).toISOString();

/** An API with 250 entries of one tenant, one a second, and one entry of another. */
export type SearchFixture = AsyncDisposable & {
  api: ContractApi;
  mine: TestTenant;
  other: TestTenant;
  search: (query: string, tenant?: TestTenant) => Promise<Page>;
  /** The numbers of the entries that a query finds, in its order. */
  numbers: (query: string) => Promise<number[]>;
};

export async function openSearchFixture(): Promise<SearchFixture> {
  const api = await openContractApi();
  const mine = await api.createTenant('mine');
  const other = await api.createTenant('other');
  const logs = Array.from({ length: 250 }, (_, n) => ({
    time: at(n),
    service: n % 2 === 0 ? 'web' : 'worker',
    level: LEVELS[n % 5],
    message: `Entry number ${n} of the Größe ${n % 10 === 0 ? 'timeout while reading' : 'fine'}`,
    metadata: { n, user: { name: `user-${n % 3}` }, 'a.b': 'literal' },
    ...(n === 42 ? { trace_id: TRACE.replaceAll('-', '').toUpperCase() } : {}),
  }));
  const canary = { time: at(1), service: 'web', level: 'info', message: CANARY, trace_id: TRACE };
  await expectJson(await api.call('POST', '/ingest', { key: mine.apiKey, json: { logs } }));
  await expectJson(await api.call('POST', '/ingest', { key: other.apiKey, json: [canary] }));
  const search: SearchFixture['search'] = async (query, tenant = mine) =>
    expectJson<Page>(await api.call('GET', `/logs?${query}`, { key: tenant.apiKey }));
  const numbers: SearchFixture['numbers'] = async (query) =>
    (await search(`limit=1000&${query}`)).logs.map((entry) => (entry.metadata as { n: number }).n);
  await waitFor('all entries to be found', async () => (await search('limit=1')).total === 250);
  await waitFor('the other entry to be found', async () => (await search('', other)).total === 1);
  return { api, mine, other, search, numbers, [Symbol.asyncDispose]: async () => api[Symbol.asyncDispose]() };
}
