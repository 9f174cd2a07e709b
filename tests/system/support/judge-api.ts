import { waitFor } from '../../support/wait.ts';

const API_WAIT_MS = 30_000;

type ApiEntry = { id: string; time: string; service: string; level: string; message: string };
/** An entry as GET /logs gives it. */
type ReadEntry = ApiEntry & { metadata: Record<string, unknown> };

/** Entries in all buckets of GET /logs/aggregated; the range is widened by a minute for the rows of a request. */
export async function countByChart(
  apiUrl: string,
  apiKey: string,
  { fromMs, toMs }: { fromMs: number; toMs: number },
  interval: string,
): Promise<number> {
  const from = new Date(fromMs).toISOString();
  const to = new Date(toMs + 60_000).toISOString();
  const params = new URLSearchParams({ from, to, interval });
  const answer = await getJson<{ timeseries: { total: number }[] }>(
    `${apiUrl}/api/v1/logs/aggregated?${params.toString()}`,
    apiKey,
  );
  return answer.timeseries.reduce((sum, { total }) => sum + total, 0);
}

/** All entries of a project by cursor, oldest first, one page at a time. */
export async function* readPages(apiUrl: string, apiKey: string): AsyncGenerator<ReadEntry> {
  let cursor: string | null = null;
  do {
    const params: URLSearchParams = new URLSearchParams({ limit: '1000', order: 'asc' });
    if (cursor !== null) params.set('cursor', cursor);
    const url = `${apiUrl}/api/v1/logs?${params.toString()}`;
    type Page = { logs: ReadEntry[]; hasMore: boolean; nextCursor: string | null };
    const page: Page = await getJson<Page>(url, apiKey);
    yield* page.logs;
    cursor = page.hasMore ? page.nextCursor : null;
  } while (cursor !== null);
}

/** What the API sheds under load it gives a little later. */
async function getJson<Answer>(url: string, apiKey: string): Promise<Answer> {
  return waitFor(
    `an answer to ${url}`,
    async () => {
      const headers = { 'X-API-Key': apiKey };
      const answer = await fetch(url, { headers, signal: AbortSignal.timeout(30_000) });
      if (answer.status === 200) return (await answer.json()) as Answer;
      throw new Error(`expected 200, got ${answer.status}: ${await answer.text()}`);
    },
    API_WAIT_MS,
  );
}
