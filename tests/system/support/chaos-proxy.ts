import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';

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

type SetTrap = { trap: Trap; sprung: PromiseWithResolvers<Buffer> };
type Link = {
  client: Socket;
  server: Socket;
  tail: Buffer;
  waiting: SetTrap | undefined;
  afterForward: SetTrap | undefined;
};

/** A TCP proxy on loopback that stands between a process and a store and fails on command. */
export class ChaosProxy implements AsyncDisposable {
  readonly port: number;
  readonly #server: Server;
  readonly #targetPort: number;
  readonly #links = new Set<Link>();
  #armed: SetTrap | undefined;
  #isHole = false;

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
    const link: Link = { client, server, tail: Buffer.alloc(0), waiting: undefined, afterForward: undefined };
    this.#links.add(link);
    client.on('data', (chunk: Buffer) => this.#request(link, chunk));
    server.on('data', (chunk: Buffer) => this.#reply(link, chunk));
    for (const socket of [client, server]) {
      socket.on('error', () => this.#end(link));
      socket.on('close', () => this.#end(link));
    }
    client.on('end', () => server.end());
    server.on('end', () => client.end());
  }

  #request(link: Link, chunk: Buffer): void {
    if (this.#isHole) return;
    const armed = this.#armed;
    if (armed === undefined || !this.#matches(link, chunk, armed.trap.pattern)) {
      link.server.write(chunk);
      return;
    }
    this.#armed = undefined;
    if (armed.trap.at === 'reply') {
      link.waiting = armed;
      link.server.write(chunk);
      return;
    }
    void this.#spring(link, armed, link.client, () => {
      link.afterForward = armed;
      link.server.write(chunk);
    });
  }

  #reply(link: Link, chunk: Buffer): void {
    if (this.#isHole) return;
    link.afterForward?.sprung.resolve(chunk);
    link.afterForward = undefined;
    const { waiting } = link;
    if (waiting === undefined) {
      link.client.write(chunk);
      return;
    }
    link.waiting = undefined;
    void this.#spring(link, waiting, link.server, () => {
      waiting.sprung.resolve(chunk);
      link.client.write(chunk);
    });
  }

  /** A pattern may lie across two chunks. */
  #matches(link: Link, chunk: Buffer, pattern: string): boolean {
    const text = Buffer.concat([link.tail, chunk]);
    link.tail = text.subarray(Math.max(0, text.length - pattern.length + 1));
    return text.includes(pattern, 0, 'latin1');
  }

  async #spring(link: Link, { trap, sprung }: SetTrap, held: Socket, forward: () => void): Promise<void> {
    held.pause();
    try {
      if ((await trap.action()) === 'forward') {
        forward();
        held.resume();
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

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, 'close');
  }
}
