import type { ReceivedMail } from '../../support/smtp-sink.ts';
import type { RuleLife } from './alert-spells.ts';

/** What of a mail is judged. */
export type JudgedMail = Pick<ReceivedMail, 'recipient' | 'messageId' | 'firings' | 'subject'>;

/**
 * Each firing reached each of its recipients, none reached anybody else, and a mail that came again has the
 * Message-ID and subject that it had before.
 */
export function judgeMails(
  mails: readonly JudgedMail[],
  firings: ReadonlyMap<string, { life: RuleLife }>,
): { repeated: number; faults: string[] } {
  const faults: string[] = [];
  const told = new Set<string>();
  for (const { recipient, firings: named, subject } of mails) {
    if (named.length === 0) faults.push(`a mail that names no firing: ${subject}`);
    for (const id of named) {
      told.add(`${recipient} ${id}`);
      const life = firings.get(id)?.life;
      if (life === undefined)
        faults.push(`a mail of a firing that is not in the history: ${id} (${subject})`);
      else if (!recipientsOf(life).includes(recipient))
        faults.push(`a mail to ${recipient}, who is no recipient of rule ${life.rule.id}`);
    }
  }
  for (const [id, { life }] of firings) {
    for (const recipient of recipientsOf(life)) {
      if (!told.has(`${recipient} ${id}`)) faults.push(`no mail to ${recipient} of firing ${id}`);
    }
  }
  return { repeated: countRepeated(mails, faults), faults };
}

function recipientsOf({ rule }: RuleLife): string[] {
  return rule.notifications.flatMap(({ type, config }) =>
    type === 'email' ? (config.recipients ?? []) : [],
  );
}

function countRepeated(mails: readonly JudgedMail[], faults: string[]): number {
  const idsOfNews = new Map<string, Set<string>>();
  const newsOfIds = new Map<string, string>();
  for (const { recipient, firings, subject, messageId } of mails) {
    // FIRING, RESOLVED: the first word says which news of the firing it is.
    const news = `${recipient} ${firings.join(' ')} ${subject}`;
    const ids = idsOfNews.get(news) ?? new Set();
    idsOfNews.set(news, ids.add(messageId));
    const before = newsOfIds.get(messageId);
    if (before !== undefined && before !== news)
      faults.push(`${messageId} is of "${before}" and of "${news}"`);
    newsOfIds.set(messageId, news);
  }
  for (const [news, ids] of idsOfNews)
    if (ids.size > 1) faults.push(`"${news}" came with ${ids.size} Message-IDs: ${[...ids].join(' ')}`);
  return mails.length - newsOfIds.size;
}
