import { z } from 'zod';
import { secretKeysShape } from '@logpond/db/sealed-secret';
import { checkRedisMode, storeSettingsShape } from '@logpond/db/settings';
import { processSettingsShape } from '@logpond/runtime/settings';
import { readMailFrom } from './mail-sender.ts';
import { parseNetworks } from './webhook-egress.ts';

/** Every setting of the alert worker (docs/operations.md says more). */
export const configSchema = z
  .object({
    ...storeSettingsShape,
    ...processSettingsShape,
    ...secretKeysShape,
    /** `smtp://` or `smtps://`, with user and password where the server asks. Empty: no mail over SMTP. */
    SMTP_URL: z
      .string()
      .refine((url) => url === '' || isSmtpUrl(url), {
        error: 'expected a URL such as smtp://user:password@mail.example.com:587 or smtps://…',
      })
      .default(''),
    /** Sender of the mails; its domain is in their Message-IDs. */
    MAIL_FROM: z.string().superRefine(checkWith(readMailFrom)).default('Logpond <logpond@localhost>'),
    /** Where mails are kept as files while SMTP_URL is empty; empty: nowhere. */
    MAIL_OUTBOX_DIR: z.string().default(''),
    /** Mails a day (UTC) of a project to one recipient, and of a project in all; beyond them they fail. */
    MAIL_PER_RECIPIENT_DAY_MAX: z.coerce.number().int().min(1).max(1_000_000).default(200),
    MAIL_PER_PROJECT_DAY_MAX: z.coerce.number().int().min(1).max(1_000_000).default(2_000),
    /** What users reach the API by, for links in notifications. */
    PUBLIC_URL: z.url({ protocol: /^https?$/ }).default('http://127.0.0.1:8080'),
    /** Whether webhooks may go to http:// too, at port 80. */
    WEBHOOK_ALLOW_HTTP: z
      .enum(['true', 'false'], { error: 'expected true or false' })
      .default('false')
      .transform((text) => text === 'true'),
    /** Networks (CIDR, with commas between) that webhooks may go to although they are private, at any port. */
    WEBHOOK_ALLOWED_NETWORKS: z.string().superRefine(checkWith(parseNetworks)).default(''),
    /** How often the rules in force are compared with the control plane. */
    RULE_POLL_MS: z.coerce.number().int().min(100).max(3_600_000).default(30_000),
  })
  .superRefine(checkRedisMode)
  .superRefine(({ SMTP_URL: url, MAIL_FROM: from }, context) => {
    if (url === '' || from !== 'Logpond <logpond@localhost>') return;
    const message = 'expected an address, as SMTP_URL is set and mail servers ask for a real sender';
    context.addIssue({ code: 'custom', path: ['MAIL_FROM'], message });
  });

export type AlertWorkerConfig = z.infer<typeof configSchema>;

function isSmtpUrl(url: string): boolean {
  if (!URL.canParse(url) || /\s/.test(url)) return false;
  const { protocol, hostname } = new URL(url);
  return /^smtps?:$/.test(protocol) && hostname !== '';
}

/** Turns a reader that throws into a check of a setting. */
function checkWith(read: (text: string) => unknown): (text: string, context: z.RefinementCtx) => void {
  return (text, context) => {
    try {
      read(text);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      context.addIssue({ code: 'custom', message });
    }
  };
}
