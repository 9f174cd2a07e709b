import type { NotificationJob } from '@logpond/db/notification-job';
import type { AlertRuleDocument } from '@logpond/db/rule-change';
import { openWebhookSecrets, SealError } from '@logpond/db/sealed-secret';
import type { SecretSealer } from '@logpond/db/sealed-secret';
import type { Notice, Sent } from './notice.ts';
import { postWebhook } from './webhook.ts';
import type { WebhookOptions } from './webhook.ts';

type Webhook = Extract<AlertRuleDocument['notifications'][number], { type: 'webhook' }>['config'];
type Place = Pick<NotificationJob, 'target' | 'channelIndex'>;

/**
 * Posts to a webhook of a rule, with the secret and the headers that the rule has now, or, where it has the webhook no
 * more, had when it fired.
 *
 * @param sealer opens them; without it (SECRET_KEYS is not set here) a webhook that has any is not sent.
 */
export async function sendToWebhook(
  notice: Notice,
  place: Place,
  rules: { current: AlertRuleDocument; asFired: AlertRuleDocument },
  options: WebhookOptions & { sealer: SecretSealer | undefined },
): Promise<Sent> {
  const webhook = findWebhook(rules.current, place) ?? findWebhook(rules.asFired, place);
  const { headers = {}, secret } = webhook ?? {};
  if (secret === undefined && Object.keys(headers).length === 0) {
    return postWebhook(notice, { url: place.target, headers: {}, secret: undefined }, options);
  }
  if (options.sealer === undefined) {
    return { status: 'retry', answer: 'the server has no keys for the secrets of this webhook' };
  }
  try {
    const opened = openWebhookSecrets(options.sealer, rules.current.id, {
      url: place.target,
      headers,
      secret,
    });
    return await postWebhook(notice, { url: place.target, ...opened }, options);
  } catch (error) {
    if (!(error instanceof SealError)) throw error;
    return { status: 'retry', answer: 'the server has no key for the secrets of this webhook' };
  }
}

/** Two webhooks of a rule may go to one URL: then the place in the rule decides. */
function findWebhook(
  { notifications }: AlertRuleDocument,
  { target, channelIndex }: Place,
): Webhook | undefined {
  const atPlace = notifications[channelIndex];
  if (atPlace?.type === 'webhook' && atPlace.config.url === target) return atPlace.config;
  const found = notifications.find((one) => one.type === 'webhook' && one.config.url === target);
  return found?.type === 'webhook' ? found.config : undefined;
}
