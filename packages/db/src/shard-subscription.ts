import type { Redis } from 'ioredis';
import { mapRedisError } from './connect.ts';
import type { RedisStore } from './connect.ts';

const PAUSE_MS = 50;
const PAUSE_MAX_MS = 1_000;

type Listener = {
  onMessage: (message: Buffer) => void;
  /** The subscription stands, at first and after every break: what was published before it is gone. */
  onSubscribed: () => void;
};

/**
 * A sharded subscription to one channel, at the server that the channel's slot is on. When its connection ends or
 * the slot moves it is made anew, with a pause of at most 1 s between two tries, until it is closed.
 */
export class ShardSubscription implements Disposable {
  readonly #redis: RedisStore;
  readonly #channel: string;
  readonly #listener: Listener;
  #connection: Redis | undefined;
  #timer: NodeJS.Timeout | undefined;
  #failures = 0;
  #closed = false;

  private constructor(redis: RedisStore, channel: string, listener: Listener) {
    this.#redis = redis;
    this.#channel = channel;
    this.#listener = listener;
  }

  /** @throws {StoreError} `unavailable` when the first subscription does not succeed. */
  static async open(redis: RedisStore, channel: string, listener: Listener): Promise<ShardSubscription> {
    const subscription = new ShardSubscription(redis, channel, listener);
    try {
      await subscription.#subscribe();
      return subscription;
    } catch (error) {
      subscription[Symbol.dispose]();
      throw mapRedisError(error);
    }
  }

  /** Makes it anew: for a connection that looks alive and brings nothing. */
  renew(): void {
    this.#connection?.disconnect();
  }

  async #subscribe(): Promise<void> {
    const connection = await this.#redis.openBeside(this.#channel);
    if (this.#closed) {
      this.#redis.close(connection);
      return;
    }
    this.#connection = connection;
    connection.on('smessageBuffer', (_channel: Buffer, message: Buffer) => {
      if (!this.#closed) this.#listener.onMessage(message);
    });
    // The server sends this when the channel's slot goes to another one.
    connection.once('moved', () => connection.disconnect());
    connection.once('end', () => this.#comeBack(connection));
    await connection.ssubscribe(this.#channel);
    this.#failures = 0;
    if (!this.#closed) this.#listener.onSubscribed();
  }

  #comeBack(ended?: Redis): void {
    if (ended !== undefined) this.#redis.close(ended);
    if (this.#closed || this.#timer !== undefined) return;
    this.#failures += 1;
    const pauseMs = Math.min(PAUSE_MS * this.#failures, PAUSE_MAX_MS);
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      // Who renews the watch hears of a server that is away; a connection that ended comes here by itself.
      this.#subscribe().catch(() => this.#comeBack());
    }, pauseMs);
  }

  [Symbol.dispose](): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    if (this.#connection !== undefined) this.#redis.close(this.#connection);
  }
}
