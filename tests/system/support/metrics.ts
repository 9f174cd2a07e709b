const TIMEOUT_MS = 5_000;

/** The samples of a process's metric by their labels as they are written, `a="1",b="2"`; '' without any. */
export async function readMetric(port: number, name: string): Promise<Map<string, number>> {
  const answer = await fetch(`http://127.0.0.1:${port}/metrics`, { signal: AbortSignal.timeout(TIMEOUT_MS) });
  const samples = new Map<string, number>();
  for (const line of (await answer.text()).split('\n')) {
    const [, labels = '', value] = new RegExp(`^${name}(?:\\{(.*)\\})? (\\S+)$`).exec(line) ?? [];
    if (value !== undefined) samples.set(labels, Number(value));
  }
  return samples;
}
