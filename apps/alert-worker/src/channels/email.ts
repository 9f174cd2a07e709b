import { createTransport } from 'nodemailer';
import type { Transporter } from 'nodemailer';
import type { AlertWorkerConfig } from '../config.ts';
import { composeMail } from '../mail-message.ts';
import type { MailMessage } from '../mail-message.ts';
import { writeOutboxFile } from '../mail-outbox.ts';
import { readMailFrom } from '../mail-sender.ts';
import { toLine } from '../mail-text.ts';
import type { Notice, Sent } from './notice.ts';

const CONNECT_TIMEOUT_MS = 5_000;
const GREETING_TIMEOUT_MS = 5_000;
const SILENCE_MAX_MS = 10_000;
/** Of a whole delivery, from its turn in the pool on: also against a server that drips. */
const SEND_TIMEOUT_MS = 30_000;
const CONNECTIONS_MAX = 5;
const ANSWER_LENGTH_MAX = 300;

/** Sends notifications as e-mail. */
export type EmailChannel = {
  /** How mails leave: over SMTP, as files, or not at all. */
  mode: 'smtp' | 'outbox' | 'none';
  /** Never throws: what went wrong is in the answer. */
  send(notice: Notice, to: string): Promise<Sent>;
  close(): void;
};

/** Opens the channel that the settings ask for: SMTP_URL before MAIL_OUTBOX_DIR; without both nothing is sent. */
export function openEmailChannel(
  config: Pick<AlertWorkerConfig, 'SMTP_URL' | 'MAIL_FROM' | 'MAIL_OUTBOX_DIR'>,
  onFile: (path: string, notice: Notice) => void,
): EmailChannel {
  const { SMTP_URL: url, MAIL_OUTBOX_DIR: directory } = config;
  if (url !== '') return openSmtp(url, config.MAIL_FROM);
  if (directory !== '') return openOutbox(directory, config.MAIL_FROM, onFile);
  return {
    mode: 'none',
    send: async () => ({ status: 'not_configured', answer: null }),
    close() {},
  };
}

function openSmtp(url: string, from: string): EmailChannel {
  const { domain, address } = readMailFrom(from);
  const options = {
    url,
    pool: true as const,
    maxConnections: CONNECTIONS_MAX,
    // Only a message of which no byte was sent is handed to another connection; all else is tried again by the queue.
    maxRequeues: 1,
    connectionTimeout: CONNECT_TIMEOUT_MS,
    greetingTimeout: GREETING_TIMEOUT_MS,
    socketTimeout: SILENCE_MAX_MS,
    dnsTimeout: CONNECT_TIMEOUT_MS,
    disableFileAccess: true,
    disableUrlAccess: true,
  };
  const transport = createTransport(options);
  return {
    mode: 'smtp',
    async send(notice, to) {
      if (!isPlainAddress(to)) return { status: 'failed', answer: 'expected an e-mail address' };
      try {
        const signal = AbortSignal.timeout(SEND_TIMEOUT_MS);
        const mail = { ...compose(notice, to, domain, from), envelope: { from: address, to }, signal };
        const { response } = await transport.sendMail(mail);
        return { status: 'sent', answer: toLine(response, ANSWER_LENGTH_MAX) };
      } catch (error) {
        return readSmtpFailure(error);
      }
    },
    close() {
      transport.close();
    },
  };
}

function openOutbox(
  directory: string,
  from: string,
  onFile: (path: string, notice: Notice) => void,
): EmailChannel {
  const { domain } = readMailFrom(from);
  const transport: Transporter<{ message: unknown }> = createTransport({
    streamTransport: true,
    buffer: true,
    newline: 'windows',
    disableFileAccess: true,
    disableUrlAccess: true,
  });
  return {
    mode: 'outbox',
    async send(notice, to) {
      if (!isPlainAddress(to)) return { status: 'failed', answer: 'expected an e-mail address' };
      const { message } = await transport.sendMail(compose(notice, to, domain, from));
      const at = new Date(notice.items[0].atMs).toISOString().replace(/[-:]|\.\d+/g, '');
      // The id of a job ends with what tells kind, repeat and recipient.
      const name = `${at}-${notice.id.replace(/[^A-Za-z0-9_-]/g, '_')}.eml`;
      try {
        const path = await writeOutboxFile(directory, name, message as Buffer);
        onFile(path, notice);
        return { status: 'sent', answer: `written to the outbox as ${name}` };
      } catch (error) {
        const code = error instanceof Error && 'code' in error ? String(error.code) : 'failed';
        return { status: 'retry', answer: `the outbox cannot be written (${code})` };
      }
    },
    close() {},
  };
}

function compose(
  notice: Notice,
  to: string,
  domain: string,
  from: string,
): Omit<MailMessage, 'references'> & { from: string; references?: string } {
  const { references, ...message } = composeMail(notice, to, domain);
  return { ...message, from, ...(references !== undefined && { references }) };
}

/** Nothing that ends a header or an envelope, or makes it two addresses. */
function isPlainAddress(to: string): boolean {
  return /^[^\s<>,;:"\\()[\]@\p{Cc}]+@[^\s<>,;:"\\()[\]@\p{Cc}]+$/u.test(to);
}

/**
 * A 5xx to this very mail (sender, recipient, content) stays a refusal, so it is not repeated (RFC 5321 §4.2.1). All
 * else may pass: no connection, a cut one, 4xx, and a 5xx at greeting or login, which concerns every mail.
 */
function readSmtpFailure(error: unknown): Sent {
  const { code, responseCode, response, message } = error as {
    code?: string;
    responseCode?: number;
    response?: string;
    message?: string;
  };
  const isRefused = (code === 'EENVELOPE' || code === 'EMESSAGE') && (responseCode ?? 0) >= 500;
  const answer = toLine(response ?? message ?? String(error), ANSWER_LENGTH_MAX);
  return { status: isRefused ? 'failed' : 'retry', answer };
}
