import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';

const CRLF = Buffer.from('\r\n');
const ARGUMENTS_SHOWN = 3;

/** A command as it lies on the wire, with its first three arguments as text (name, script, number of keys). */
type Command = { bytes: Buffer; words: string[] };

export type Interception = {
  /** Whether to refuse this command: its name in capitals and its first two arguments. */
  matches: (words: readonly string[]) => boolean;
  /** The error, such as `READONLY You can't write against a read only replica.` */
  error: string;
};

/**
 * Stands before the real redis-server and refuses chosen commands with an error of its own, in the order of the
 * answers: on the wire a refused command is replaced by one that the server answers with just that error.
 */
export class FakeRedis implements AsyncDisposable {
  readonly port: number;
  /** Commands that were refused. */
  refused = 0;
  readonly #server: Server;
  readonly #targetPort: number;
  readonly #sockets = new Set<Socket>();
  #interception: Interception | undefined;
  #greeting: string | undefined;

  private constructor(server: Server, targetPort: number) {
    this.#server = server;
    this.#targetPort = targetPort;
    this.port = (server.address() as AddressInfo).port;
    server.on('connection', (client) => this.#link(client));
  }

  /** Opens it before a redis-server on a port of 127.0.0.1. */
  static async open(targetPort: number): Promise<FakeRedis> {
    const server = createServer({ noDelay: true });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new FakeRedis(server, targetPort);
  }

  /** The same address through this server. */
  redirect(url: string): string {
    const through = new URL(url);
    through.port = String(this.port);
    return through.href.replace(/\/$/, '');
  }

  /** Refuses what matches from now on; undefined: nothing any more. */
  intercept(interception: Interception | undefined): void {
    this.#interception = interception;
  }

  /**
   * Ends all connections, and from now on each new one with an error, as a server does that has too many clients;
   * undefined: no longer.
   */
  turnAway(error: string | undefined): void {
    this.#greeting = error;
    if (error !== undefined) for (const socket of this.#sockets) socket.destroy();
  }

  #link(client: Socket): void {
    client.on('error', () => client.destroy());
    if (this.#greeting !== undefined) {
      client.end(`-${this.#greeting}\r\n`);
      return;
    }
    const server = connect({ port: this.#targetPort, host: '127.0.0.1', noDelay: true });
    const parser = new CommandParser();
    for (const socket of [client, server]) {
      this.#sockets.add(socket);
      socket.on('error', () => socket.destroy());
      socket.on('close', () => {
        this.#sockets.delete(socket);
        client.destroy();
        server.destroy();
      });
    }
    client.on('data', (chunk: Buffer) => {
      for (const command of parser.push(chunk)) server.write(this.#replace(command));
    });
    server.on('data', (chunk: Buffer) => client.write(chunk));
  }

  #replace(command: Command): Buffer {
    if (this.#interception?.matches(command.words) !== true) return command.bytes;
    this.refused += 1;
    // With the error as an argument: inside the script it would need Lua's quoting.
    return renderCommand(['EVAL', 'return redis.error_reply(ARGV[1])', '0', this.#interception.error]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

function renderCommand(words: readonly string[]): Buffer {
  const parts = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`);
  return Buffer.from(`*${words.length}\r\n${parts.join('')}`);
}

/** Cuts what a client sends into commands (arrays of bulk strings, as every client library writes them). */
class CommandParser {
  #rest: Buffer = Buffer.alloc(0);

  push(chunk: Buffer): Command[] {
    this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    const commands: Command[] = [];
    for (let command = this.#take(); command !== undefined; command = this.#take()) commands.push(command);
    return commands;
  }

  /** The next whole command, or undefined until more has come. */
  #take(): Command | undefined {
    const head = this.#readNumber(0, '*');
    if (head === undefined) return undefined;
    const words: string[] = [];
    let { end } = head;
    for (let index = 0; index < head.value; index += 1) {
      const size = this.#readNumber(end, '$');
      if (size === undefined || this.#rest.length < size.end + size.value + CRLF.length) return undefined;
      if (index < ARGUMENTS_SHOWN) words.push(this.#rest.toString('latin1', size.end, size.end + size.value));
      end = size.end + size.value + CRLF.length;
    }
    if (words[0] !== undefined) words[0] = words[0].toUpperCase();
    const bytes = this.#rest.subarray(0, end);
    this.#rest = this.#rest.subarray(end);
    return { bytes, words };
  }

  #readNumber(from: number, sign: string): { value: number; end: number } | undefined {
    const end = this.#rest.indexOf(CRLF, from);
    if (end < 0) return undefined;
    const text = this.#rest.toString('latin1', from, end);
    if (!text.startsWith(sign) || !/^\d+$/.test(text.slice(1)))
      throw new TypeError(`expected ${sign} and a number from the client, got ${text.slice(0, 40)}`);
    return { value: Number(text.slice(1)), end: end + CRLF.length };
  }
}
