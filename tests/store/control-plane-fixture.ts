import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { spawnRedis } from '@logpond/standalone/redis';
import { Redis } from 'ioredis';
import { Accounts } from '@logpond/db/accounts';
import { AlertRules } from '@logpond/db/alert-rules';
import { connectRedis } from '@logpond/db/connect';
import type { RedisStore } from '@logpond/db/connect';
import { ControlStore } from '@logpond/db/control-store';
import { Organizations } from '@logpond/db/organizations';
import { Projects } from '@logpond/db/projects';
import { RuleStream } from '@logpond/db/rule-stream';
import type { SecretSealer } from '@logpond/db/sealed-secret';
import { shardKeys } from '@logpond/db/shard-map';

export const operator = { kind: 'operator' } as const;
export const PASSWORD = 'correct horse battery staple';

/** An empty installation; `another` is one more process of it. */
export type Installation = {
  prefix: string;
  control: ControlStore;
  store: RedisStore;
  another: () => Promise<ControlStore>;
};

/** A redis-server of its own for the store tests of the control plane; `raw` looks behind the store's back. */
export class TestRedis implements AsyncDisposable {
  readonly raw: Redis;
  readonly #url: string;
  readonly #kill: () => Promise<void>;
  readonly #opened: RedisStore[] = [];
  #installations = 0;

  constructor(url: string, kill: () => Promise<void>) {
    this.#url = url;
    this.#kill = kill;
    this.raw = new Redis(url, { retryStrategy: () => 50 });
    this.raw.on('error', () => undefined);
  }

  async openInstallation(): Promise<Installation> {
    this.#installations += 1;
    const prefix = `t${this.#installations}`;
    const connect = async (): Promise<RedisStore> => {
      const store = await connectRedis({
        REDIS_URL: this.#url,
        KEY_PREFIX: prefix,
        SHARDS: 1,
        REDIS_BUDGET_BYTES: 268_435_456,
      });
      this.#opened.push(store);
      return store;
    };
    const store = await connect();
    const another = async (): Promise<ControlStore> => new ControlStore(await connect());
    return { prefix, control: new ControlStore(store), store, another };
  }

  /** Closes the connections of all installations so far. */
  async closeInstallations(): Promise<void> {
    for (const store of this.#opened.splice(0)) await store[Symbol.asyncDispose]();
  }

  /** Ends the server as a crash would. */
  async kill(): Promise<void> {
    await this.#kill();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.closeInstallations();
    this.raw.disconnect();
    await this.#kill();
  }
}

/** Starts a redis-server on a free port, in a directory of its own. */
export async function startTestRedis(): Promise<TestRedis> {
  const dataDir = await mkdtemp(join(tmpdir(), 'logpond-control-'));
  const server = await spawnRedis({ dataDir });
  return new TestRedis(server.url, async () => {
    if (server.child.exitCode === null && server.child.signalCode === null) {
      const exited = once(server.child, 'exit');
      server.child.kill('SIGKILL');
      await exited;
    }
    await rm(dataDir, { recursive: true, force: true });
  });
}

/** Alert rules of an installation with one shard; unless it is prepared, no change of a rule can be told. */
export async function openAlertRules(
  { control, store }: Installation,
  options: { sealer?: SecretSealer | undefined; isPrepared?: boolean } = {},
): Promise<AlertRules> {
  const { state } = shardKeys(store.prefix, 0);
  if (options.isPrepared !== false) await store.client.hset(state, 'epoch', '1', 'next', '1');
  return new AlertRules(control, { stream: new RuleStream(store), shards: 1, sealer: options.sealer });
}

/** A user who owns an organization with one project. */
export async function createProject(
  control: ControlStore,
): Promise<{ userId: string; organizationId: string; projectId: string }> {
  const input = { email: 'ada@example.com', password: PASSWORD, name: 'Ada', isAdmin: true };
  const user = await new Accounts(control).createUser(operator, input);
  const organization = await new Organizations(control).create(operator, user.id, { name: 'Acme' });
  const project = await new Projects(control).create(operator, {
    organizationId: organization.id,
    name: 'Shop',
  });
  return { userId: user.id, organizationId: organization.id, projectId: project.id };
}

export function countFulfilled(outcomes: readonly PromiseSettledResult<unknown>[]): number {
  return outcomes.filter(({ status }) => status === 'fulfilled').length;
}
