import { hash } from 'node:crypto';
import { MASKED_SECRET } from '@logpond/schema/alert-rule';
import type { AlertNotification, AlertRuleDraft } from '@logpond/schema/alert-rule';
import { ApiError } from '@logpond/schema/api-error';
import { SECRET_KEYS_SETTING, webhookContext } from './sealed-secret.ts';
import type { SecretSealer } from './sealed-secret.ts';

/**
 * Of the notifications as they are kept, as JSON: whatever one request may carry (16 KB) fits, its secrets sealed. The
 * request alone says too little, as `***` stands for what is kept already.
 */
const SEALED_BYTES_MAX = 48 * 1024;

type Webhook = Extract<AlertNotification, { type: 'webhook' }>;

/** What becomes of one secret of a webhook; `path` says where it stands in the rule. */
type SecretMapper = (
  text: string,
  place: { url: string; field: 'secret' | { header: string }; index: number; path: string },
) => string;

/** The notifications of a rule with every secret of its webhooks (the secret, the values of headers) mapped. */
function mapSecrets(notifications: readonly AlertNotification[], map: SecretMapper): AlertNotification[] {
  return notifications.map((notification, index) => {
    if (notification.type === 'email') return notification;
    const { url, headers, secret } = notification.config;
    const at = `notifications.${index}.config`;
    const entries = Object.entries(headers ?? {}).map(([header, value]): [string, string] => [
      header,
      map(value, { url, field: { header }, index, path: `${at}.headers.${header}` }),
    ]);
    return {
      type: 'webhook',
      config: {
        url,
        ...(headers === undefined ? {} : { headers: Object.fromEntries(entries) }),
        ...(secret === undefined
          ? {}
          : { secret: map(secret, { url, field: 'secret', index, path: `${at}.secret` }) }),
      },
    };
  });
}

/** The notifications as everybody may see them. */
export function maskSecrets(notifications: readonly AlertNotification[]): AlertNotification[] {
  return mapSecrets(notifications, () => MASKED_SECRET);
}

/** The notifications for the change log: of each sealed text its SHA-256. */
export function hashSecrets(notifications: readonly AlertNotification[]): AlertNotification[] {
  return mapSecrets(notifications, (sealed) => hash('sha256', sealed, 'hex'));
}

/**
 * Seals the secrets of a rule. `***` keeps what the webhook with the same URL had, and is refused where there is none:
 * sent to another URL, a kept secret would become known to whoever may write rules.
 *
 * @throws {ApiError} VALIDATION_ERROR naming the field; also without keys to seal with, and when they are too large.
 */
export function sealSecrets(
  sealer: SecretSealer | undefined,
  ruleId: string,
  draft: AlertRuleDraft,
  stored: readonly AlertNotification[] = [],
): AlertNotification[] {
  const sealed = mapSecrets(draft.notifications, (text, { url, field, index, path }) => {
    if (text === MASKED_SECRET) {
      const kept = findKept(stored, url, field, index);
      if (kept !== undefined) return kept;
      throw refuse(
        path,
        `expected the value itself, as nothing is kept for this URL, got "${MASKED_SECRET}"`,
      );
    }
    if (sealer !== undefined) return sealer.seal(text, webhookContext(ruleId, url, field));
    throw refuse(
      path,
      `expected a webhook without secret and headers, as this server has no keys to seal them with (its setting ${SECRET_KEYS_SETTING})`,
    );
  });
  const bytes = Buffer.byteLength(JSON.stringify(sealed));
  if (bytes <= SEALED_BYTES_MAX) return sealed;
  const limit = `at most ${SEALED_BYTES_MAX} bytes of JSON with the secrets sealed`;
  throw refuse('notifications', `expected ${limit}, got ${bytes}`);
}

/**
 * The notifications with every secret under the first key; undefined when all are already.
 *
 * @throws {SealError} when one cannot be opened.
 */
export function resealSecrets(
  sealer: SecretSealer,
  ruleId: string,
  notifications: readonly AlertNotification[],
): AlertNotification[] | undefined {
  let isChanged = false;
  const resealed = mapSecrets(notifications, (sealed, { url, field }) => {
    if (sealer.isCurrent(sealed)) return sealed;
    isChanged = true;
    const context = webhookContext(ruleId, url, field);
    return sealer.seal(sealer.open(sealed, context), context);
  });
  return isChanged ? resealed : undefined;
}

/** Of several webhooks with this URL, that in the same place goes first. */
function findKept(
  stored: readonly AlertNotification[],
  url: string,
  field: 'secret' | { header: string },
  index: number,
): string | undefined {
  const isSame = (one: AlertNotification | undefined): one is Webhook =>
    one?.type === 'webhook' && one.config.url === url;
  const candidates = [stored[index], ...stored].filter(isSame);
  const kept = candidates.map(({ config }) => {
    if (field === 'secret') return config.secret;
    const name = field.header.toLowerCase();
    return Object.entries(config.headers ?? {}).find(([header]) => header.toLowerCase() === name)?.[1];
  });
  return kept.find((sealed) => sealed !== undefined);
}

function refuse(path: string, message: string): ApiError {
  return new ApiError('VALIDATION_ERROR', { public: `${path}: ${message}`, details: [{ path, message }] });
}
