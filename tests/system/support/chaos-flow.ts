import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

const QUEUE_BYTES_MAX = 1024 * 1024;
const DRIPS_PER_SECOND = 20;

/** How bytes get on: each so much later, and so many in a second; 0 stands for at once and for all. */
export type Shape = { delayMs: number; bytesPerSecond: number };

/** One direction of a connection: what one socket gives is written to the other, in order. */
export class ChaosFlow {
  readonly #source: Socket;
  readonly #target: Socket;
  readonly #shape: Readonly<Shape>;
  readonly #queue: { chunk: Buffer; dueAt: number }[] = [];
  #queuedBytes = 0;
  #isHeld = false;
  #isPumping = false;
  #isEnding = false;

  /** @param shape may be changed at any time; it holds for what comes then. */
  constructor(source: Socket, target: Socket, shape: Readonly<Shape>) {
    this.#source = source;
    this.#target = target;
    this.#shape = shape;
  }

  /** Sends a chunk on its way. */
  push(chunk: Buffer, extraDelayMs = 0): void {
    const delayMs = this.#shape.delayMs + extraDelayMs;
    const isFree = !this.#isHeld && !this.#isPumping && this.#queue.length === 0;
    if (isFree && delayMs === 0 && this.#shape.bytesPerSecond === 0) {
      if (!this.#target.write(chunk)) this.#waitForDrain();
      return;
    }
    this.#queue.push({ chunk, dueAt: performance.now() + delayMs });
    this.#queuedBytes += chunk.length;
    if (this.#queuedBytes > QUEUE_BYTES_MAX) this.#source.pause();
    void this.#pump();
  }

  /** Stops here: `chunk`, and whatever is before and behind it, waits for `release`. */
  hold(chunk: Buffer): void {
    this.#isHeld = true;
    this.#queue.push({ chunk, dueAt: 0 });
    this.#queuedBytes += chunk.length;
  }

  release(): void {
    this.#isHeld = false;
    void this.#pump();
  }

  /** The source has ended: ends the target after what is on its way. */
  end(): void {
    this.#isEnding = true;
    void this.#pump();
  }

  #waitForDrain(): void {
    this.#source.pause();
    this.#target.once('drain', () => this.#source.resume());
  }

  async #pump(): Promise<void> {
    if (this.#isPumping) return;
    this.#isPumping = true;
    while (!this.#isHeld && !this.#target.destroyed) {
      const next = this.#queue.shift();
      if (next === undefined) break;
      const waitMs = next.dueAt - performance.now();
      if (waitMs > 0) await sleep(waitMs);
      await this.#write(next.chunk);
      this.#queuedBytes -= next.chunk.length;
      if (this.#queuedBytes <= QUEUE_BYTES_MAX) this.#source.resume();
    }
    this.#isPumping = false;
    if (this.#isEnding && this.#queue.length === 0) this.#target.end();
  }

  async #write(chunk: Buffer): Promise<void> {
    const { bytesPerSecond } = this.#shape;
    if (bytesPerSecond === 0) {
      this.#target.write(chunk);
      return;
    }
    const size = Math.max(1, Math.ceil(bytesPerSecond / DRIPS_PER_SECOND));
    for (let from = 0; from < chunk.length && !this.#target.destroyed; from += size) {
      this.#target.write(chunk.subarray(from, from + size));
      await sleep(1_000 / DRIPS_PER_SECOND);
    }
  }
}
