import { createServer } from 'node:http';
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';

const registry = new Registry();

type Options = { help: string; labels?: readonly string[]; buckets?: readonly number[] };

/** Declares a counter; the name ends in `_total`. Metrics are declared beside the code that counts. */
export function declareCounter(name: string, { help, labels = [] }: Options): Counter {
  return new Counter({ name, help, labelNames: labels, registers: [registry] });
}

/** Declares a gauge; the unit is the last word of the name. */
export function declareGauge(name: string, { help, labels = [] }: Options): Gauge {
  return new Gauge({ name, help, labelNames: labels, registers: [registry] });
}

/** Declares a histogram of seconds; `buckets` are upper bounds in seconds. */
export function declareHistogram(
  name: string,
  { help, labels = [], buckets = [0.001, 0.005, 0.02, 0.1, 0.5, 2, 10] }: Options,
): Histogram {
  return new Histogram({ name, help, labelNames: labels, buckets: [...buckets], registers: [registry] });
}

/** Every metric of this process in Prometheus' text format. */
async function renderMetrics(): Promise<string> {
  return registry.metrics();
}

/**
 * Serves `GET /metrics` on a listener of its own, so that metrics never share a port with customers.
 *
 * @param port 0 switches it off.
 */
export async function startMetricsServer(port: number, host: string): Promise<AsyncDisposable> {
  if (port === 0) return { [Symbol.asyncDispose]: async () => {} };
  collectDefaultMetrics({ register: registry });
  const server = createServer((request, response) => {
    if (request.url !== '/metrics') {
      response.writeHead(404).end();
      return;
    }
    void renderMetrics().then(
      (text) => response.writeHead(200, { 'Content-Type': registry.contentType }).end(text),
      () => response.writeHead(500).end(),
    );
  });
  const listening = Promise.withResolvers<void>();
  server.once('error', listening.reject).listen(port, host, listening.resolve);
  await listening.promise;
  return {
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
