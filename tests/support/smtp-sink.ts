import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import PostalMime from 'postal-mime';
import { SMTPServer } from 'smtp-server';
import type { SMTPServerDataStream, SMTPServerSession } from 'smtp-server';

/** A mail as the server took it. */
export type ReceivedMail = {
  recipient: string;
  sender: string;
  /** With its brackets. */
  messageId: string;
  /** Of the header X-Logpond-Firing; the first where there are several. */
  firing: string;
  firings: string[];
  subject: string;
  text: string;
  html: string;
  /** Names in lower case; a header that stands there twice is in here twice. */
  headers: [name: string, value: string][];
  raw: string;
  arrivedAtMs: number;
};

type Step = 'rcpt' | 'data';
type Refusal = { code: number; message: string; step: Step; timesLeft: number };

/** An SMTP server on loopback that keeps what it is sent, and fails as it is told. */
export class SmtpSink implements AsyncDisposable {
  /** What was taken, in order. A mail whose 250 was cut is here too: the server has it. */
  readonly mails: ReceivedMail[] = [];
  readonly #server: SMTPServer;
  readonly #sockets = new Map<string, { destroy(): void }>();
  readonly #refusals: Refusal[] = [];
  #cutsLeft = 0;
  #hangsLeft = 0;
  #isSilent = false;
  /** Transactions that reached DATA, also those that were refused. */
  attempts = 0;
  /** Runs when a mail was taken, before its 250. */
  onMail: () => Promise<void> = async () => {};

  private constructor() {
    this.#server = new SMTPServer({
      authOptional: true,
      disabledCommands: ['STARTTLS'],
      disableReverseLookup: true,
      closeTimeout: 100,
      logger: false,
      onAuth: (auth, _session, callback) => callback(null, { user: auth.username }),
      onConnect: (_session, callback) => {
        if (!this.#isSilent) callback();
      },
      onRcptTo: (_address, _session, callback) => callback(this.#takeRefusal('rcpt')),
      onData: (stream, session, callback) => {
        void this.#receive(stream, session, callback);
      },
    });
    // A client that is gone is no failure of the server.
    this.#server.on('error', () => {});
    this.#server.server.on('connection', (socket) => {
      const name = `${socket.remotePort}`;
      this.#sockets.set(name, socket);
      socket.once('close', () => this.#sockets.delete(name));
    });
  }

  /** @param port 0: any. */
  static async open(port = 0): Promise<SmtpSink> {
    const sink = new SmtpSink();
    sink.#server.listen(port, '127.0.0.1');
    await once(sink.#server.server, 'listening');
    return sink;
  }

  get port(): number {
    return (this.#server.server.address() as AddressInfo).port;
  }

  get url(): string {
    return `smtp://127.0.0.1:${this.port}`;
  }

  mailsTo(recipient: string): ReceivedMail[] {
    return this.mails.filter((mail) => mail.recipient === recipient);
  }

  /** The next mails are taken, but the connection is cut before the 250. */
  cutBeforeReply(times = 1): void {
    this.#cutsLeft += times;
  }

  /** The next ones are refused with this code, at RCPT TO or at the end of DATA. */
  refuse(times: number, code: number, message = 'not now', step: Step = 'data'): void {
    this.#refusals.push({ code, message, step, timesLeft: times });
  }

  /** The next mails get no reply after DATA, and are not kept. */
  hang(times = 1): void {
    this.#hangsLeft += times;
  }

  /** While silent, new connections get no greeting. */
  beSilent(isSilent: boolean): void {
    this.#isSilent = isSilent;
  }

  #takeRefusal(step: Step): Error | null {
    const refusal = this.#refusals.find((one) => one.step === step && one.timesLeft > 0);
    if (refusal === undefined) return null;
    refusal.timesLeft -= 1;
    return Object.assign(new Error(refusal.message), { responseCode: refusal.code });
  }

  async #receive(
    stream: SMTPServerDataStream,
    session: SMTPServerSession,
    callback: (error?: Error | null, message?: string) => void,
  ): Promise<void> {
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of stream as AsyncIterable<Buffer>) chunks.push(chunk);
    } catch {
      // The client went away amid its mail: it was not received.
      return;
    }
    const arrivedAtMs = Date.now();
    this.attempts += 1;
    if (this.#hangsLeft > 0) {
      this.#hangsLeft -= 1;
      return;
    }
    const refusal = this.#takeRefusal('data');
    if (refusal !== null) {
      callback(refusal);
      return;
    }
    const raw = Buffer.concat(chunks);
    const recipients = session.envelope.rcptTo.map(({ address }) => address);
    const { mailFrom } = session.envelope;
    const sender = mailFrom === false ? '' : mailFrom.address;
    for (const recipient of recipients) {
      this.mails.push({ ...(await parseMail(raw)), recipient, sender, arrivedAtMs });
    }
    await this.onMail();
    if (this.#cutsLeft > 0) {
      this.#cutsLeft -= 1;
      this.#sockets.get(`${session.remotePort}`)?.destroy();
      return;
    }
    callback(null, '2.0.0 kept');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#server.server, 'close');
    this.#server.close();
    for (const socket of this.#sockets.values()) socket.destroy();
    await closed;
  }
}

/** A raw message as its readers see it. */
export async function parseMail(
  raw: Buffer,
): Promise<Omit<ReceivedMail, 'recipient' | 'sender' | 'arrivedAtMs'>> {
  const email = await PostalMime.parse(raw);
  const headers = email.headers.map(({ key, value }): [string, string] => [key.toLowerCase(), value]);
  const firings = headers.flatMap(([name, value]) => (name === 'x-logpond-firing' ? [value] : []));
  return {
    messageId: email.messageId ?? '',
    firing: firings[0] ?? '',
    firings,
    subject: email.subject ?? '',
    text: email.text ?? '',
    html: email.html ?? '',
    headers,
    raw: raw.toString('utf8'),
  };
}
