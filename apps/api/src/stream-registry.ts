import { ApiError } from '@logpond/schema/api-error';
import { declareCounter, declareGauge } from '@logpond/runtime/metrics';

/** Streams of one project that may be open in this process (S59). */
const STREAMS_PER_PROJECT_MAX = 100;
/** How often the credential behind each stream is asked for again; the answer itself may be 5 s old at most. */
const RECHECK_INTERVAL_MS = 1_000;

type OpenStream = {
  projectId: string;
  keyId: string | undefined;
  isStillAllowed: () => Promise<boolean>;
  controller: AbortController;
};

/** A stream's place in the registry: `signal` tells it to end, `release` gives the place back. */
export type StreamPlace = { signal: AbortSignal; release: () => void };

/**
 * All answers that stay open. It ends them when their credential is revoked or expires, and at shutdown.
 */
export class StreamRegistry {
  readonly #open = new Set<OpenStream>();
  readonly #perProject = new Map<string, number>();
  readonly #stopListening: () => void;
  #timer: NodeJS.Timeout | undefined;
  #isRechecking = false;
  #isClosed = false;

  /** @param onRevoked tells at once of keys that were revoked anywhere. */
  constructor(onRevoked: (listener: (keyId: string) => void) => () => void) {
    this.#stopListening = onRevoked((keyId) => this.#endWhere((stream) => stream.keyId === keyId));
  }

  /** @throws {ApiError} RATE_LIMITED above 100 streams of a project; UNAVAILABLE while shutting down. */
  open(projectId: string, keyId: string | undefined, isStillAllowed: () => Promise<boolean>): StreamPlace {
    if (this.#isClosed)
      throw new ApiError('UNAVAILABLE', {
        public: 'this process is stopping; connect again',
        retryAfterS: 1,
      });
    const count = this.#perProject.get(projectId) ?? 0;
    if (count >= STREAMS_PER_PROJECT_MAX) {
      throw new ApiError('RATE_LIMITED', {
        public: `expected at most ${STREAMS_PER_PROJECT_MAX} open streams of a project; close one first`,
        retryAfterS: 10,
      });
    }
    const stream: OpenStream = { projectId, keyId, isStillAllowed, controller: new AbortController() };
    this.#open.add(stream);
    this.#perProject.set(projectId, count + 1);
    openGauge.set(this.#open.size);
    this.#timer ??= setInterval(() => void this.#recheck(), RECHECK_INTERVAL_MS);
    return { signal: stream.controller.signal, release: () => this.#release(stream) };
  }

  /** Ends every stream and refuses new ones. */
  close(): void {
    this.#isClosed = true;
    this.#stopListening();
    this.#endWhere(() => true);
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #release(stream: OpenStream): void {
    if (!this.#open.delete(stream)) return;
    const left = (this.#perProject.get(stream.projectId) ?? 1) - 1;
    if (left === 0) this.#perProject.delete(stream.projectId);
    else this.#perProject.set(stream.projectId, left);
    openGauge.set(this.#open.size);
    if (this.#open.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #endWhere(matches: (stream: OpenStream) => boolean): void {
    for (const stream of this.#open) {
      if (!matches(stream)) continue;
      endedTotal.inc();
      this.#release(stream);
      stream.controller.abort();
    }
  }

  /** One round at a time: with a store that hangs, questions would otherwise pile up each second. */
  async #recheck(): Promise<void> {
    if (this.#isRechecking) return;
    this.#isRechecking = true;
    await Promise.all([...this.#open].map(async (stream) => this.#recheckOne(stream)));
    this.#isRechecking = false;
  }

  async #recheckOne(stream: OpenStream): Promise<void> {
    try {
      if (!(await stream.isStillAllowed())) this.#endWhere((other) => other === stream);
    } catch {
      // The store cannot say: the stream was allowed a moment ago and is asked about again in a second.
    }
  }
}

const openGauge = declareGauge('logpond_api_open_streams', { help: 'Live tails open in this process.' });
const endedTotal = declareCounter('logpond_api_streams_ended_total', {
  help: 'Live tails ended from this side: credential revoked or expired, or shutdown.',
});
