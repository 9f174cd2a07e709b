import { ConfigError } from './env.ts';

/**
 * Places where a test may end or freeze this process, so that every instant between two steps can be tried.
 *
 * `FAILPOINT` is a list of `<point>[@<detail>]:<action>[:<nth hit>]`, for example
 * `W4.after:kill,A5.before:stop:3`. `kill` is SIGKILL, `stop` is SIGSTOP (the test sends SIGCONT). A point may
 * stand in several items; each counts its own hits. Without the setting a point is one comparison.
 */
type Failpoint = { action: 'kill' | 'stop'; detail: string | undefined; hitsLeft: number };

const ITEM = /^([A-Z]\d+\.[a-z]+)(?:@([^:,]+))?:(kill|stop)(?::([1-9]\d*))?$/;

let armed: Map<string, Failpoint[]> | undefined;

/** Arms the points of a `FAILPOINT` setting; an empty one disarms all. @throws {ConfigError} when it is malformed. */
export function armFailpoints(spec: string): void {
  armed = undefined;
  if (spec === '') return;
  const points = new Map<string, Failpoint[]>();
  for (const item of spec.split(',')) {
    const [, point = '', detail, action, hits = '1'] = ITEM.exec(item.trim()) ?? [];
    if (action !== 'kill' && action !== 'stop') {
      throw new ConfigError(
        `FAILPOINT: expected items such as W4.after:kill or A5.before@detail:stop:2, got ${JSON.stringify(item)}`,
      );
    }
    const items = points.get(point) ?? [];
    points.set(point, items);
    items.push({ action, detail, hitsLeft: Number(hits) });
  }
  armed = points;
}

/** Passes a point. When it is armed for this `detail` and this hit, the process ends or freezes here. */
export function passFailpoint(point: string, detail?: string): void {
  if (armed === undefined) return;
  for (const failpoint of armed.get(point) ?? []) {
    if (failpoint.detail !== undefined && failpoint.detail !== detail) continue;
    failpoint.hitsLeft -= 1;
    if (failpoint.hitsLeft === 0) end(failpoint.action);
  }
}

function end(action: Failpoint['action']): void {
  process.kill(process.pid, action === 'kill' ? 'SIGKILL' : 'SIGSTOP');
  // A signal to oneself may arrive a moment later; nothing may happen in that moment.
  const until = performance.now() + SIGNAL_MS_MAX;
  while (performance.now() < until);
}

const SIGNAL_MS_MAX = 20;
