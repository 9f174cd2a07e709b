/** Posts of one project at a time, of the 20 of a notifier. */
const POSTS_MAX = 4;
/** The first guess how long a post takes. */
const POST_GUESS_MS = 100;
/** A turn that is expected within this time is waited for here, in the place of a post; else the queue keeps the job. */
const WAIT_MAX_MS = 500;
/** How soon a turn is asked for again at the earliest, and at the latest. */
const PAUSE_MIN_MS = 250;
const PAUSE_MAX_MS = 60_000;

type ProjectPosts = {
  underWay: number;
  /** Of the last one that ended; what was waited in vain is taken into account. */
  tookMs: number;
  /** For when the last one that found no turn was put off. */
  nextAtMs: number;
  /** Called with true when a turn is handed over. At most as many as the notifier has jobs in hand. */
  waiting: ((hasTurn: boolean) => void)[];
};

/** A post may begin; `end` is called when it is over. Or it is to be asked for again. */
type Turn = { end: () => void } | { atMs: number };

/**
 * Sees to it that the silent web servers of one project take only its own share of the posts. Those that find no turn
 * soon are put off one behind the other, by as long as the posts of the project take, so that they do not all ask
 * again and again. In memory: projects with posts under way only.
 */
export class WebhookTurns {
  readonly #projects = new Map<string, ProjectPosts>();
  readonly #now: () => number;

  /** @param now in ms since 1970. */
  constructor(now: () => number) {
    this.#now = now;
  }

  async take(projectId: string): Promise<Turn> {
    const posts = this.#projects.get(projectId) ?? {
      underWay: 0,
      tookMs: POST_GUESS_MS,
      nextAtMs: 0,
      waiting: [],
    };
    if (posts.underWay < POSTS_MAX) {
      this.#projects.set(projectId, posts);
      posts.underWay += 1;
      return this.#begin(projectId, posts);
    }
    const expectedMs = ((posts.waiting.length + 1) * posts.tookMs) / POSTS_MAX;
    if (expectedMs < WAIT_MAX_MS && (await waitForTurn(posts))) return this.#begin(projectId, posts);
    const nowMs = this.#now();
    const nextMs = posts.nextAtMs + posts.tookMs / POSTS_MAX;
    posts.nextAtMs = Math.min(Math.max(nowMs + PAUSE_MIN_MS, nextMs), nowMs + PAUSE_MAX_MS);
    return { atMs: Math.ceil(posts.nextAtMs) };
  }

  #begin(projectId: string, posts: ProjectPosts): Turn {
    const beganMs = this.#now();
    return {
      end: () => {
        posts.tookMs = Math.max(0, this.#now() - beganMs);
        const handOver = posts.waiting.shift();
        if (handOver !== undefined) {
          handOver(true);
          return;
        }
        posts.underWay -= 1;
        if (posts.underWay === 0) this.#projects.delete(projectId);
      },
    };
  }
}

async function waitForTurn(posts: ProjectPosts): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  posts.waiting.push(resolve);
  const timer = setTimeout(() => {
    posts.waiting.splice(posts.waiting.indexOf(resolve), 1);
    posts.tookMs = Math.max(posts.tookMs, WAIT_MAX_MS * POSTS_MAX);
    resolve(false);
  }, WAIT_MAX_MS);
  return promise.finally(() => clearTimeout(timer));
}
