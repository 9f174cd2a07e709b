import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';
import { ChaosFlow } from './chaos-flow.ts';
import type { Shape } from './chaos-flow.ts';
import { pickInteger } from './random.ts';
import type { Random } from './random.ts';

const RANDOM_DELAY_MS_MAX = 500;

/**
 * A trap for one exchange: the first bytes of a client that contain `pattern` spring it.
 *
 * `request`: the bytes are held back until `action` has ended, then dropped with their connection, or passed on
 * when it answers 'forward'. `reply`: they are passed on, and the server's next bytes are held back instead.
 */
export type Trap = {
  pattern: string;
  at: 'request' | 'reply';
  action: () => Promise<'drop' | 'forward'>;
};

/** What can go wrong with a request: lost with its connection, its answer lost, RST instead of both, late. */
const RANDOM_FAULTS = ['cut before', 'cut after', 'reset', 'delay'] as const;
export type RandomFault = (typeof RANDOM_FAULTS)[number];

/** How often which of them; repeated by the same random numbers and the same chunks. */
export type Misbehaviour = {
  random: Random;
  /** Of each chunk that a client sends, 0 to 1. */
  probability: number;
  faults?: readonly RandomFault[];
};

type SetTrap = { trap: Trap; sprung: PromiseWithResolvers<Buffer> };
type Link = {
  client: Socket;
  server: Socket;
  requests: ChaosFlow;
  replies: ChaosFlow;
  tail: Buffer;
  waiting: SetTrap | undefined;
  afterForward: SetTrap | undefined;
  isReplyCut: boolean;
};

/** A TCP proxy on loopback that stands between a process and a store and fails on command. */
export class ChaosProxy implements AsyncDisposable {
  readonly port: number;
  /** How often it misbehaved at random, by fault. */
  readonly injected = new Map<RandomFault, number>();
  readonly #server: Server;
  readonly #targetPort: number;
  readonly #links = new Set<Link>();
  readonly #shape: Shape = { delayMs: 0, bytesPerSecond: 0 };
  #armed: SetTrap | undefined;
  #isHole = false;
  #misbehaviour: Misbehaviour | undefined;

  private constructor(server: Server, targetPort: number) {
    this.#server = server;
    this.#targetPort = targetPort;
    this.port = (server.address() as AddressInfo).port;
    server.on('connection', (client) => this.#link(client));
  }

  /** Opens a proxy to a port of 127.0.0.1. */
  static async open(targetPort: number): Promise<ChaosProxy> {
    const server = createServer({ noDelay: true });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new ChaosProxy(server, targetPort);
  }

  /** The same address through this proxy. */
  redirect(url: string): string {
    const through = new URL(url);
    through.port = String(this.port);
    return through.href.replace(/\/$/, '');
  }

  /**
   * Sets the trap. Resolves once it has sprung and its action has ended, with the server's first answer to
   * what was forwarded (empty when it was dropped).
   */
  async arm(trap: Trap): Promise<Buffer> {
    this.#armed = { trap, sprung: Promise.withResolvers<Buffer>() };
    return this.#armed.sprung.promise;
  }

  /** Cuts all connections; new ones are let through. */
  cut(): void {
    for (const link of this.#links) this.#end(link);
  }

  /** Ends all connections with RST, so that both sides lose what was on its way. */
  reset(): void {
    for (const link of this.#links) this.#reset(link);
  }

  /** From now on every byte takes this much longer in each direction; 0: no longer. */
  delay(ms: number): void {
    this.#shape.delayMs = ms;
  }

  /** From now on each connection lets this many bytes through in a second and direction; 0: all. */
  drip(bytesPerSecond: number): void {
    this.#shape.bytesPerSecond = bytesPerSecond;
  }

  /** From now on fails at random; undefined: no longer. */
  misbehave(misbehaviour: Misbehaviour | undefined): void {
    this.#misbehaviour = misbehaviour;
  }

  /**
   * While it is on everything is swallowed in both directions and connections stay open. Switched off, those
   * connections are cut: no TCP connection goes on with a hole in it.
   */
  blackHole(isOn: boolean): void {
    this.#isHole = isOn;
    if (!isOn) this.cut();
  }

  #link(client: Socket): void {
    const server = connect({ port: this.#targetPort, host: '127.0.0.1', noDelay: true });
    const requests = new ChaosFlow(client, server, this.#shape);
    const replies = new ChaosFlow(server, client, this.#shape);
    const state = { tail: Buffer.alloc(0), waiting: undefined, afterForward: undefined, isReplyCut: false };
    const link: Link = { client, server, requests, replies, ...state };
    this.#links.add(link);
    client.on('data', (chunk: Buffer) => this.#request(link, chunk));
    server.on('data', (chunk: Buffer) => this.#reply(link, chunk));
    for (const socket of [client, server]) {
      socket.on('error', () => this.#end(link));
      socket.on('close', () => this.#end(link));
    }
    client.on('end', () => requests.end());
    server.on('end', () => replies.end());
  }

  #request(link: Link, chunk: Buffer): void {
    if (this.#isHole) return;
    const armed = this.#armed;
    if (armed === undefined || !this.#matches(link, chunk, armed.trap.pattern)) {
      this.#forward(link, chunk);
      return;
    }
    this.#armed = undefined;
    if (armed.trap.at === 'reply') {
      link.waiting = armed;
      link.requests.push(chunk);
      return;
    }
    link.requests.hold(chunk);
    void this.#spring(link, armed, () => {
      link.afterForward = armed;
      link.requests.release();
    });
  }

  #forward(link: Link, chunk: Buffer): void {
    const { random, probability, faults = RANDOM_FAULTS } = this.#misbehaviour ?? {};
    if (random === undefined || random() >= (probability ?? 0)) {
      link.requests.push(chunk);
      return;
    }
    const fault = faults[pickInteger(random, 0, faults.length - 1)] ?? 'cut before';
    this.injected.set(fault, (this.injected.get(fault) ?? 0) + 1);
    if (fault === 'cut before') this.#end(link);
    else if (fault === 'reset') this.#reset(link);
    else {
      link.isReplyCut = fault === 'cut after';
      link.requests.push(chunk, fault === 'delay' ? pickInteger(random, 1, RANDOM_DELAY_MS_MAX) : 0);
    }
  }

  #reply(link: Link, chunk: Buffer): void {
    if (this.#isHole) return;
    if (link.isReplyCut) {
      this.#end(link);
      return;
    }
    link.afterForward?.sprung.resolve(chunk);
    link.afterForward = undefined;
    const { waiting } = link;
    if (waiting === undefined) {
      link.replies.push(chunk);
      return;
    }
    link.waiting = undefined;
    link.replies.hold(chunk);
    void this.#spring(link, waiting, () => {
      waiting.sprung.resolve(chunk);
      link.replies.release();
    });
  }

  /** A pattern may lie across two chunks. */
  #matches(link: Link, chunk: Buffer, pattern: string): boolean {
    const text = Buffer.concat([link.tail, chunk]);
    link.tail = text.subarray(Math.max(0, text.length - pattern.length + 1));
    return text.includes(pattern, 0, 'latin1');
  }

  async #spring(link: Link, { trap, sprung }: SetTrap, forward: () => void): Promise<void> {
    try {
      if ((await trap.action()) === 'forward') {
        forward();
        return;
      }
      this.#end(link);
      sprung.resolve(Buffer.alloc(0));
    } catch (error) {
      this.#end(link);
      sprung.reject(error);
    }
  }

  #end(link: Link): void {
    this.#links.delete(link);
    link.client.destroy();
    link.server.destroy();
  }

  #reset(link: Link): void {
    this.#links.delete(link);
    link.client.resetAndDestroy();
    link.server.resetAndDestroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, 'close');
  }
}
